"""The parts of a topology: checks of names and edges, CSR arrays, and the errors for bad input."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any, NoReturn, TypeVar

import numpy as np
from numpy.typing import NDArray

from unweave.arguments import is_whole, shown
from unweave.errors import GraphError
from unweave.text import listed

__all__ = [
    "Disconnected",
    "check_names",
    "csr_arrays",
    "frozen",
    "index_pairs",
    "refuse_disconnected",
    "unknown_agent",
]

_Array = TypeVar("_Array", bound=NDArray[Any])


class Disconnected(GraphError):
    """The graph has several components; the message lists them."""


def frozen(array: _Array) -> _Array:
    array.flags.writeable = False
    return array


def check_names(names: tuple[str, ...]) -> None:
    if not names:
        raise GraphError("a graph has no agents. Fix: at least one")
    seen: set[str] = set()
    for position, name in enumerate(names, start=1):
        if not isinstance(name, str) or not name.strip():
            raise GraphError(f"agent {position} is named {name!r}. Fix: give a non-empty text")
        if name in seen:
            raise GraphError(f"two agents are named {name!r}. Fix: rename one")
        seen.add(name)


def unknown_agent(name: str, agents: tuple[str, ...]) -> str:
    near = get_close_matches(name, agents, n=3, cutoff=0.5)
    if near:
        return f"no agent is named {name!r}. Fix: did you mean {' or '.join(near)}?"
    return f"no agent is named {name!r}. Fix: choose from {listed(agents, 5)}"


def index_pairs(
    edges: Iterable[tuple[str | int, str | int]], names: tuple[str, ...], lookup: dict[str, int]
) -> list[tuple[int, int]]:
    if not isinstance(edges, Iterable):
        raise GraphError(f"edges = {shown(edges)}. Fix: give pairs of agents")
    pairs = []
    for edge in edges:
        try:
            a, b = edge
        except (TypeError, ValueError):
            raise GraphError(f"edge {edge!r} is not a pair. Fix: give two agents") from None
        for end in (a, b):
            if not isinstance(end, str) and not is_whole(end):
                raise GraphError(f"edge ({a}, {b}): not agents. Fix: give names or indices")
        i = lookup.get(a, -1) if isinstance(a, str) else a
        j = lookup.get(b, -1) if isinstance(b, str) else b
        for end, at in ((a, i), (b, j)):
            if at == -1 and isinstance(end, str):
                raise GraphError(f"edge ({a}, {b}): {unknown_agent(end, names)}")
        pairs.append((i, j))
    return pairs


def csr_arrays(
    names: tuple[str, ...], pairs: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """`indptr` and `indices` of both directions of every edge, sorted by (from, to).

    Repeated edges are merged.
    """
    count = len(names)
    outside = (pairs < 0) | (pairs >= count)
    if outside.any():
        i, j = pairs[int(np.argmax(outside.any(axis=1)))]
        raise GraphError(f"edge ({i}, {j}): no such agent. Fix: indices from 0 to {count - 1}")
    loops = np.flatnonzero(pairs[:, 0] == pairs[:, 1])
    if loops.size:
        name = names[int(pairs[loops[0], 0])]
        raise GraphError(
            f"edge ({name}, {name}) joins an agent to itself. Fix: remove it "
            "(the metropolis schedule makes its own self-loops)"
        )
    codes = np.concatenate([pairs[:, 0] * count + pairs[:, 1], pairs[:, 1] * count + pairs[:, 0]])
    codes.sort()
    codes = codes[np.concatenate([[True], codes[1:] != codes[:-1]])] if codes.size else codes
    heads, tails = np.divmod(codes, count)
    indptr = np.zeros(count + 1, dtype=np.int64)
    np.cumsum(np.bincount(heads, minlength=count), out=indptr[1:])
    return frozen(indptr), frozen(tails.astype(np.int32))


def refuse_disconnected(names: tuple[str, ...], components: list[list[int]]) -> NoReturn:
    shown = [f"{{{listed((names[k] for k in component), 6)}}}" for component in components]
    raise Disconnected(
        f"the graph is disconnected, so no token can reach every agent; "
        f"its {len(components)} components: {listed(shown, 6)}. Fix: add edges between them"
    )
