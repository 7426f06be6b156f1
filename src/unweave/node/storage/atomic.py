"""Private files: nobody but their owner can read them, from the first byte on, whatever the umask;
and files that are there as a whole or not at all, also after a crash."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import BinaryIO

from unweave.errors import ConfigError, StoreError

__all__ = ["check_writable", "create_private", "sync_directory", "unwritable", "write_atomic"]


def create_private(path: Path) -> BinaryIO:
    """A new file of mode 0600, open for writing; FileExistsError if there is one, or a link."""
    handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW, 0o600)
    os.fchmod(handle, 0o600)  # also under a umask that takes more away
    return os.fdopen(handle, "wb")


def write_atomic(path: Path, content: bytes) -> None:
    """Write a private file, or put it in the place of another: when this returns, the disk has
    it."""
    part = path.with_name(f".{path.name}-{secrets.token_hex(4)}")
    file = create_private(part)
    try:
        with file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    sync_directory(path)


def check_writable(path: Path) -> None:
    """ConfigError if this file cannot be written: for a command to call before its work."""
    folder = path.absolute().parent
    if not folder.is_dir():
        raise ConfigError(f"{path}: its folder does not exist. Fix: create it, or name another")
    if path.is_dir():
        raise ConfigError(f"{path}: a folder. Fix: name a file")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ConfigError(
            f"{path}: its folder cannot be written to. Fix: change its permissions, or name another"
        )


def unwritable(path: Path, error: OSError) -> StoreError:
    """The error of a write that the disk refused; nothing was changed."""
    return StoreError(
        f"{path}: cannot be written ({error.strerror or error}). Fix: check the free space and the "
        "permissions, then ask again"
    )


def sync_directory(path: Path) -> None:
    """Let the disk have the name of this file, too."""
    handle = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
