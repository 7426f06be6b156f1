"""By which column erased records are known, kept beside the data from the first erasure on.

Commitments are to keys. If another column became the key, no record would match them any more, and
everything that was erased would come back with the next look at the file.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from unweave.node.mending import BadData

__all__ = ["KEY_FILE", "check_key"]

KEY_FILE = "data.key"


def check_key(folder: Path, key: str, agent: str) -> None:
    """DataError unless `key` is the column by which the first record was erased; it is, if this is
    the first."""
    path = folder / KEY_FILE
    try:
        known = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        with contextlib.suppress(PermissionError):  # somebody else's look at the folder
            part = path.with_suffix(".part")
            with part.open("w", encoding="utf-8") as file:
                file.write(key)
                file.flush()
                os.fsync(file.fileno())
            os.replace(part, path)
        return
    if known != key:
        raise BadData(
            f"agent {agent!r}: its erased records are known by the column {known!r}, and [data] "
            f"in agent.toml names {key!r} as the key: they would come back",
            f"write key = {known!r} again, and keep that column as it was",
        )
