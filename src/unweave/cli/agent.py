"""`unweave agent`: run one agent in this process."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unweave.errors import ConfigError

__all__ = ["agent"]


def agent(
    folder: Annotated[Path, typer.Argument(metavar="AGENT_DIR", help="The agent's folder.")],
    log_level: Annotated[
        str | None,
        typer.Option(
            "--log-level",
            help="debug, info, warning or error; default: `log_level` in agent.toml.",
        ),
    ] = None,
) -> None:
    """Run one agent until SIGTERM or Ctrl-C. It can be killed at any moment and started again.

    The agent accepts its neighbours only, over mutual TLS, on its address in network.toml (or
    `listen` in agent.toml). Its operator uses the control socket agent.sock in its folder
    (docs/reference/http-api.md). The log goes to standard error.

    After an erasure the agent replaces its process, so that nothing erased stays in its memory; the
    process id stays the same (`restart_interval` in agent.toml).

    Example:

        unweave agent clinics/agents/a1
    """
    import asyncio

    from unweave.node.agent import serve
    from unweave.node.process import protect_memory, replace

    if log_level not in (None, "debug", "info", "warning", "error"):
        raise ConfigError(
            f"--log-level {log_level}: no such level. Fix: choose debug, info, warning or error"
        )
    protect_memory()
    if asyncio.run(serve(folder, level=log_level)):
        replace()
