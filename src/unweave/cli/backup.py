"""`unweave backup` and `unweave restore`: an agent's folder in one file, and back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unweave.cli.common import Json, command, emit_json, quote, say

if TYPE_CHECKING:
    from unweave.operations.backup import Backup

__all__ = ["backup", "restore"]


def backup(
    folder: Annotated[Path, typer.Argument(metavar="AGENT_DIR", help="The agent's folder.")],
    archive: Annotated[
        Path, typer.Argument(metavar="FILE", help="The archive to write (a tar file, mode 0600).")
    ],
    data: Annotated[
        bool, typer.Option("--data", help="Put the private data files into it, too.")
    ] = False,
    json: Json = False,
) -> None:
    """Write an agent's key, settings, manifest, certificates and store to one file.

    The agent may run meanwhile: SQLite copies the store between two commits. **The archive holds
    the private key and the private state of the agent**: keep it as safe as the agent's folder. The
    private data are included only with --data. A backup still holds what is erased later: delete
    backups that are older than an erasure.

    Example:

        unweave backup clinics/agents/a1 a1.tar
    """
    from unweave.operations.backup import back_up

    made = back_up(folder, archive, data=data)
    if json:
        emit_json({"archive": str(archive), "running": made.running, **_report(made)})
        return
    say(
        f"Wrote {archive}: {len(made.files)} files of {made.agent}"
        + (", which continues to run." if made.running else "."),
        "The file holds the agent's private key and private state: keep it as safe as the folder.",
        "It holds the private data files, too."
        if made.data
        else "It does not hold the private data files (--data includes them).",
        "It keeps data that are erased from now on: delete it after an erasure.",
        f"digest {made.digest}",
    )
    command(f"unweave restore {quote(archive)} NEW_AGENT_DIR --digest {made.digest}")


def restore(
    archive: Annotated[Path, typer.Argument(metavar="FILE", help="What `unweave backup` wrote.")],
    folder: Annotated[
        Path, typer.Argument(metavar="AGENT_DIR", help="A new folder, or an empty one.")
    ],
    digest: Annotated[
        str | None,
        typer.Option("--digest", metavar="HEX", help="The digest that `unweave backup` printed."),
    ] = None,
    json: Json = False,
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
    from unweave.operations.backup import restore as unpack

    made = unpack(archive, folder, digest=digest)
    if json:
        emit_json({"folder": str(folder), **_report(made)})
        return
    say(
        f"Made {folder}: {len(made.files)} files of {made.agent}, as they were (digest "
        f"{made.digest}).",
        "Digests, key and MACs are valid.",
        f"Stop every other process of {made.agent} first: two with one key disturb the network.",
        "The agent starts as a new incarnation, in quarantine, until its neighbours have sent it "
        "the erasures since the backup; erased data stay erased.",
        *([_DOUBT] if made.noise else []),
        "The folder has the private data files, too."
        if made.data
        else "The backup has no private data files: put them into the folder.",
    )
    command(f"unweave check {quote(folder)}", f"unweave agent {quote(folder)}")


_DOUBT = (
    "With differential privacy, start it while all its neighbours run: they tell how many values "
    "it has given. If one of them cannot, its whole budget counts as spent: so it may be for a "
    "backup that is restored before the first round is complete, when none may know of a value."
)


def _report(made: Backup) -> dict[str, object]:
    return {
        "agent": made.agent,
        "digest": made.digest,
        "network": made.network,
        "data": made.data,
        "files": list(made.files),
    }
