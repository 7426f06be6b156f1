"""Tombstones: what is known to be erased, and which tokens that kills.

A tombstone is a grow-only set of random 16-byte request ids per agent, plus two marks: `whole` (the
agent erased itself) and `left` (a quorum declared it gone). They are joined by union, in any order,
any number of times, and are kept for ever. An id is *open* until its agent holds the certificate
and has filed it in a chapter (`archive`); the signed evidence is kept for open ids only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from unweave.protocol.token import Token

__all__ = [
    "NOTHING",
    "Tomb",
    "Tombs",
    "dead",
    "entomb",
    "includes",
    "join",
    "left_bitmap",
    "open_tombs",
    "whole_bitmap",
]


class Tomb(NamedTuple):
    """What is erased of one agent."""

    ids: frozenset[bytes] = frozenset()
    whole: bool = False
    left: bool = False
    filed: frozenset[bytes] = frozenset()  # ⊆ ids: certified, and put away by the agent itself

    @property
    def open(self) -> frozenset[bytes]:
        """What the next certificate has to prove."""
        if not self.filed:
            return self.ids
        return self.ids - self.filed if len(self.filed) < len(self.ids) else frozenset()

    @property
    def out(self) -> bool:
        """Nothing of this agent may ever be included again."""
        return self.whole or self.left

    def covers(self, other: Tomb) -> bool:
        return (
            other.ids <= self.ids
            and self.whole >= other.whole
            and self.left >= other.left
            and other.filed <= self.filed
        )

    def union(self, other: Tomb) -> Tomb:
        return Tomb(
            self.ids | other.ids,
            self.whole or other.whole,
            self.left or other.left,
            self.filed | other.filed,
        )


NOTHING = Tomb()
Tombs = Mapping[int, Tomb]


def join(a: Tombs, b: Tombs) -> Tombs:
    """The union; returns `a` itself when `b` adds nothing, so that growth is `is not`."""
    if a is b or not b:
        return a
    grown: dict[int, Tomb] | None = None
    for agent, tomb in b.items():
        mine = a.get(agent, NOTHING)
        if not mine.covers(tomb):
            grown = dict(a) if grown is None else grown
            grown[agent] = mine.union(tomb)
    return a if grown is None else grown


def entomb(tombs: Tombs, agent: int, tomb: Tomb) -> Tombs:
    """`tombs` with `tomb` added for one agent."""
    return join(tombs, {agent: tomb})


def dead(token: Token, tombs: Tombs, generation: frozenset[bytes]) -> bool:
    """Whether somebody who knows `tombs` and `generation` must refuse `token`.

    Dead iff it includes k and (k is whole or left, or an id of k is missing on the token), or it is
    not empty and misses an id of the generation.
    """
    for agent, tomb in tombs.items():
        if token.inside >> agent & 1 and (
            tomb.out or not tomb.ids <= token.tombs.get(agent, NOTHING).ids
        ):
            return True
    return bool(token.inside) and not generation <= token.generation


def open_tombs(tombs: Tombs) -> Tombs:
    """Without the ids that were filed: what is still to be told and proved. The marks stay."""
    if not any(tomb.filed for tomb in tombs.values()):
        return tombs
    return {agent: Tomb(tomb.open, tomb.whole, tomb.left) for agent, tomb in tombs.items()}


def includes(large: Tombs, small: Tombs) -> bool:
    """Whether `large` knows every open erasure of `small`."""
    for agent, tomb in small.items():
        known = large.get(agent, NOTHING)
        if not tomb.open <= known.ids or tomb.whole > known.whole or tomb.left > known.left:
            return False
    return True


def left_bitmap(tombs: Tombs) -> int:
    return sum(1 << agent for agent, tomb in tombs.items() if tomb.left)


def whole_bitmap(tombs: Tombs) -> int:
    """Agents that will never be included again: erased or gone."""
    return sum(1 << agent for agent, tomb in tombs.items() if tomb.out)
