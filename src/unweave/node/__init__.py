"""One agent as a process: what it writes to its neighbours and to its disk."""

from __future__ import annotations

__all__: list[str] = []
