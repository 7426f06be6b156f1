"""Files that are there as a whole or not at all, also after a crash."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

__all__ = ["sync_directory", "write_atomic"]


def write_atomic(path: Path, content: bytes, mode: int = 0o666) -> None:
    """Write a file, or put another in its place: when this returns, the disk has it. `mode` is
    limited by the umask."""
    part = path.with_name(f".{path.name}-{secrets.token_hex(4)}")
    handle = os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW, mode)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    sync_directory(path)


def sync_directory(path: Path) -> None:
    """Let the disk have the name of this file, too."""
    handle = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
