"""Shell completion of agents' and models' names.

The functions must be fast and must not raise: the shell calls them at every Tab.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import typer

__all__ = ["complete_agent", "complete_model"]


def complete_agent(context: typer.Context, incomplete: str) -> list[str]:
    """The agents of the network in DIR (or of the network of AGENT_DIR), read from its manifest."""
    folder: Any = context.params.get("folder")
    try:
        text = (Path(folder) / "network.toml").read_text(encoding="utf-8")
        agents = tomllib.loads(text)["agents"]
        names = [str(agent["name"]) for agent in agents]
    except (OSError, ValueError, KeyError, TypeError):
        return []
    return [name for name in names if name.startswith(incomplete)]


def complete_model(incomplete: str) -> list[str]:
    from unweave.models import names

    return [name for name in names() if name.startswith(incomplete)]
