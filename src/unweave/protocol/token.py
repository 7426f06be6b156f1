"""The token: an immutable sum of factors that walks the graph.

I1. Every token ever sent satisfies eta = eta_0 + Σ_k factor_k[included_k], and factor_k[r] was
durable at agent k before any token with included_k = r left it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from unweave.grid import Ints, digest
from unweave.protocol.ids import Revision, Stamp
from unweave.protocol.tombs import Tombs, whole_bitmap

__all__ = ["QUIET", "Quiet", "Token", "digest", "missing"]


class Quiet(NamedTuple):
    """The quiet group: what a change-free cover collects. It is always reset as one."""

    agents: int = 0  # bitmap of those who attested
    audit: Ints | None = None  # a second sum of the factors, from eta_0
    frozen: Ints | None = None  # Σ of the solver's frozen vectors (None: conjugate)
    statement: bytes = b""  # what everybody signs
    signatures: Mapping[int, bytes] = {}
    converged: bool = True
    unknown: bool = False  # an agent's frozen vector does not exist: there is no sum of them


QUIET = Quiet()


class Token(NamedTuple):
    """What travels. `busy`: something changed, was solved or joined quiet during this pass."""

    run: bytes  # digest of the manifest
    stamp: Stamp
    eta: Ints
    included: tuple[Revision, ...]
    inside: int  # bitmap of the agents with a revision in `included`
    tombs: Tombs
    generation: frozenset[bytes]
    passes: int  # passes since the last change from outside
    seen: int  # bitmap of the agents visited in this pass
    stack: tuple[int, ...]  # depth-first path from the pass's root to here
    busy: bool
    quiet: Quiet
    receipts: bytes  # running hash of all receipts

    def restart_pass(self) -> Token:
        return self._replace(seen=0, stack=())


def missing(token: Token, everybody: int) -> int:
    """Bitmap of the agents that belong in the token and are not in it."""
    return everybody & ~token.inside & ~whole_bitmap(token.tombs)
