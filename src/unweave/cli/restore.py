"""`unweave restore`: an agent's folder, from a backup."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["restore"]


def restore(
    archive: Annotated[Path, typer.Argument(metavar="FILE", help="What `unweave backup` wrote.")],
    folder: Annotated[
        Path, typer.Argument(metavar="AGENT_DIR", help="A new folder, or an empty one.")
    ],
    digest: Annotated[
        str | None,
        typer.Option("--digest", metavar="HEX", help="The digest that `unweave backup` printed."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Make an agent's folder from a backup; no file is overwritten.

    The command first checks the digests of all files, the key against the manifest, and the MACs of
    the store. The restored agent starts as a new incarnation and in quarantine: before it takes
    part, its neighbours send it the erasures since the backup. **The old process must not run at
    the same time.** Never restore old backups of all agents at once: the erasures since would be
    lost.

    Example:

        unweave restore a1.tar clinics/agents/a1
    """
    from unweave.cli.common import command, console, emit_json, quote
    from unweave.node.backup import restore as unpack

    made = unpack(archive, folder, digest=digest)
    if json:
        emit_json(
            {
                "agent": made.agent,
                "folder": str(folder),
                "digest": made.digest,
                "network": made.network,
                "data": made.data,
                "files": list(made.files),
            }
        )
        return
    lines = (
        f"Made {folder}: {len(made.files)} files of {made.agent}, as they were (digest "
        f"{made.digest}).",
        "Digests, key and MACs are valid.",
        f"Stop every other process of {made.agent} first: two with one key disturb the network.",
        "The agent starts as a new incarnation, in quarantine, until its neighbours have sent it "
        "the erasures since the backup; erased data stay erased.",
        "The folder has the private data files, too."
        if made.data
        else "The backup has no private data files: put them into the folder.",
    )
    for line in lines:
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    command(f"unweave check {quote(folder)}", f"unweave agent {quote(folder)}")
