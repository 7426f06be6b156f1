"""What a process is called in `ps`, `top` and `pgrep`: an agent that was forked shows its own name.

`ps` reads the memory where a program got its arguments. A process that was started with `ROOM` as
its last argument has a place there for another text; its environment, which follows, stays.
"""

from __future__ import annotations

import contextlib
import ctypes
from pathlib import Path

__all__ = ["ROOM", "entitle"]

ROOM = " " * 512


def entitle(title: str, short: str) -> None:
    """Call this process `title` (`short`, 15 bytes, where only that fits). Where the system does
    not allow it, nothing happens: it is for people's eyes."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        Path("/proc/self/comm").write_bytes(short.encode()[:15])
        # Fields 48 and 49; those after the name, which is in brackets and may hold anything.
        fields = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()
        start, end = int(fields[45]), int(fields[46])
        now = Path("/proc/self/cmdline").read_bytes()
        if 0 < start < end and end - start == len(now):
            text = title.encode()[: end - start - 1]
            ctypes.memset(start, 0, end - start)
            ctypes.memmove(start, text, len(text))
