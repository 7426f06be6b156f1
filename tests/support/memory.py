"""Searches the memory of running processes for byte patterns, through /proc/PID/mem.

    found = scan(pid, {"factor of a1": integers(units)})      # {"factor of a1": 3}

Every page is read that the process could have written to: of a file that is mapped read-only, there
are only the file's own bytes.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import struct
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

__all__ = ["integers", "processes_below", "read_pages", "reals", "scan", "unreadable"]


_HEAD = 6  # bytes at the start of a pattern that the tables below compare
_PAGE = os.sysconf("SC_PAGE_SIZE")
_CHUNK = 4096  # pages in one block
_MAPPING = re.compile(r"([0-9a-f]+)-([0-9a-f]+) (\S{4}) \S+ \S+ (\d+) *(.*)")
_KERNEL = ("[vvar]", "[vvar_vclock]", "[vsyscall]", "[vdso]")


def unreadable() -> str:
    """Why the memory of other processes cannot be read here; empty: it can."""
    if not Path("/proc/self/pagemap").exists():
        return "this system has no /proc/PID/pagemap"
    return "" if os.geteuid() == 0 else "only root may read the memory of an agent"


def integers(values: Iterable[int]) -> list[bytes]:
    """Patterns for integers: int64 as in NumPy, SQLite, DuckDB and on the wire; the mantissa of the
    float64 (of any power of two times the integer); digits as in JSON; CPython's own digits. Round
    integers, such as the counts of records in a sum, are left out: other sums have them, too."""
    found = []
    for value in values:
        if _is_rare(struct.pack("<q", value)):
            found += [struct.pack("<q", value), *reals([value]), str(value).encode()]
            found.append(_python_digits(abs(value)))
    return found


def reals(values: Iterable[float]) -> list[bytes]:
    """Patterns for float64: the bytes of the mantissa, which do not depend on sign and scale."""
    found = [struct.pack("<d", value)[:_HEAD] for value in values]
    return [pattern for pattern in found if _is_rare(pattern)]


def _is_rare(pattern: bytes) -> bool:
    """Whether the pattern is long enough not to occur by chance."""
    return len(pattern) >= _HEAD and sum(byte not in (0, 255) for byte in pattern) >= 5


def _python_digits(value: int) -> bytes:
    """CPython's int: 30 bits in each 4 bytes, the lowest first."""
    digits = []
    while value:
        digits.append(value & (1 << 30) - 1)
        value >>= 30
    return struct.pack(f"<{len(digits)}I", *digits)


def processes_below(pid: int) -> list[int]:
    """The ids of all processes that descend from this one."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in map(int, (task / "children").read_text().split()):
            found += [child, *processes_below(child)]
    return found


def scan(pid: int, patterns: Mapping[str, Iterable[bytes]]) -> dict[str, int]:
    """How often the patterns of each group occur in the memory of a process; absent: never."""
    search = _Search(patterns)
    found: dict[str, int] = {}
    for block in _blocks(pid, search.longest - 1):
        for name in search.groups_in(block):
            found[name] = found.get(name, 0) + 1
    return found


class _Search:
    """Finds many patterns in one pass: three tables of two bytes each, then a comparison."""

    def __init__(self, patterns: Mapping[str, Iterable[bytes]]) -> None:
        self.names: dict[bytes, list[tuple[bytes, str]]] = {}
        self.tables = np.zeros((_HEAD // 2, 1 << 16), dtype=bool)
        self.longest = _HEAD
        for name, group in patterns.items():
            for pattern in sorted(set(group)):
                assert len(pattern) >= _HEAD, f"{name}: too short to be unique"
                self.names.setdefault(pattern[:_HEAD], []).append((pattern, name))
                self.tables[range(_HEAD // 2), np.frombuffer(pattern[:_HEAD], "<u2")] = True
                self.longest = max(self.longest, len(pattern))

    def groups_in(self, block: bytes) -> Iterator[str]:
        for place in self._candidates(np.frombuffer(block, np.uint8)):
            for pattern, name in self.names.get(block[place : place + _HEAD], ()):
                if block.startswith(pattern, place):
                    yield name

    def _candidates(self, raw: NDArray[np.uint8]) -> Iterator[int]:
        for shift in (0, 1):
            words = raw[shift : shift + (raw.size - shift) // 2 * 2].view("<u2")
            places = np.flatnonzero(self.tables[0][words[: -(_HEAD // 2)]])
            for step in range(1, _HEAD // 2):
                places = places[self.tables[step][words[places + step]]]
            yield from (int(place) * 2 + shift for place in places)


def _blocks(pid: int, overlap: int) -> Iterator[bytes]:
    """The memory in blocks. Blocks that follow each other overlap, so that no pattern is cut."""
    with (
        open(f"/proc/{pid}/mem", "rb", buffering=0) as memory,
        open(f"/proc/{pid}/pagemap", "rb", buffering=0) as pages,
    ):
        for low, high in _mappings(pid):
            for start, end in _in_use(pages, low // _PAGE, high // _PAGE):
                before = max(low, start * _PAGE - overlap)
                yield read_pages(memory, before, end * _PAGE) + bytes(2 * _HEAD)


def read_pages(memory: IO[bytes], low: int, high: int) -> bytes:
    """The process runs: pages that it has given back since they were listed are left out."""
    with contextlib.suppress(OSError):
        memory.seek(low)
        block = memory.read(high - low)
        if len(block) == high - low:
            return block
    if high - low <= _PAGE:
        return b""
    edges = [low, *range((low // _PAGE + 1) * _PAGE, high, _PAGE), high]
    return b"".join(read_pages(memory, *ends) for ends in itertools.pairwise(edges))


def _mappings(pid: int) -> Iterator[tuple[int, int]]:
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        match = _MAPPING.fullmatch(line)
        assert match is not None, line
        low, high, rights, inode, name = match.groups()
        if rights[0] == "r" and name not in _KERNEL and (rights[1] == "w" or inode == "0"):
            yield int(low, 16), int(high, 16)


def _in_use(pages: IO[bytes], low: int, high: int) -> Iterator[tuple[int, int]]:
    """The runs of pages between `low` and `high` that are in memory or in the swap space."""
    pages.seek(8 * low)
    entries = np.frombuffer(pages.read(8 * (high - low)), "<u8")
    used = np.flatnonzero(entries >> np.uint64(62))
    for run in np.split(used, np.flatnonzero(np.diff(used) != 1) + 1):
        for first in range(0, len(run), _CHUNK):
            part = run[first : first + _CHUNK]
            yield low + int(part[0]), low + int(part[-1]) + 1
