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
    """Make an agent's folder from a backup; nothing is overwritten.

    The digests of all files, the key against the manifest, and the seals of the store are checked
    first. The restored agent starts under a new boot nonce and in quarantine: its neighbours tell
    it what was erased since, before it takes part. **The old process must not run at the same
    time**, and never restore old backups of all agents at once: then nobody would remember what was
    erased.

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
        "Digests, key and seals hold.",
        f"Stop every other process of {made.agent} first: two with one key disturb the network.",
        "It starts under a new boot nonce, in quarantine, until its neighbours have told it what "
        "was erased since; erased data do not come back.",
        "Its data files are there, too."
        if made.data
        else "Its private data files are not in the backup: put them into the folder.",
    )
    for line in lines:
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    command(f"unweave check {quote(folder)}", f"unweave agent {quote(folder)}")
