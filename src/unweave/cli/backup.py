"""`unweave backup`: an agent's folder in one file, while it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["backup"]


def backup(
    folder: Annotated[Path, typer.Argument(metavar="AGENT_DIR", help="The agent's folder.")],
    archive: Annotated[
        Path, typer.Argument(metavar="FILE", help="The archive to write (a tar file, mode 0600).")
    ],
    data: Annotated[
        bool, typer.Option("--data", help="Put the private data files into it, too.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Write an agent's key, settings, manifest, certificates and store to one file.

    The agent may run meanwhile: SQLite copies the store between two commits. **The archive holds
    the private key and the private state of the agent**: keep it as safe as the agent's folder. The
    private data are included only with --data. A backup still holds what is erased later: delete
    backups that are older than an erasure.

    Example:

        unweave backup clinics/agents/a1 a1.tar
    """
    from unweave.cli.common import command, console, emit_json, quote
    from unweave.node.backup import back_up

    made = back_up(folder, archive, data=data)
    if json:
        emit_json(
            {
                "agent": made.agent,
                "archive": str(archive),
                "digest": made.digest,
                "network": made.network,
                "running": made.running,
                "data": made.data,
                "files": list(made.files),
            }
        )
        return
    lines = (
        f"Wrote {archive}: {len(made.files)} files of {made.agent}"
        + (", which continues to run." if made.running else "."),
        "The file holds the agent's private key and private state: keep it as safe as the folder.",
        "It holds the private data files, too."
        if made.data
        else "It does not hold the private data files (--data includes them).",
        "It keeps data that are erased from now on: delete it after an erasure.",
        f"digest {made.digest}",
    )
    for line in lines:
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    command(f"unweave restore {quote(archive)} NEW_AGENT_DIR --digest {made.digest}")
