"""Addresses of Unix sockets in folders with long names.

The address of a Unix socket holds about 100 bytes. Through a descriptor of its folder every socket
has a short address.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["short"]

_LIMIT = 100


@contextmanager
def short(path: Path) -> Iterator[str]:
    """A short address of the socket `path`, valid inside the `with` block."""
    if len(os.fsencode(path)) <= _LIMIT:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
