"""Names that are never used twice: stamps of tokens, revisions of factors.

A boot nonce is fresh entropy at every start of an agent. It is part of every name that the agent
makes, so an agent that was restored from a backup, or lost its disk, cannot reuse an old name.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = [
    "FAR",
    "ID_BYTES",
    "NEVER",
    "OUT",
    "Revision",
    "Stamp",
    "bit",
    "members",
    "request_id",
    "requested_of",
]


class Stamp(NamedTuple):
    """When a token was made: (epoch number, initiator, its boot), hop, sender's boot. Totally
    ordered; a larger stamp supersedes a smaller one."""

    epoch: int
    initiator: int
    boot: int
    hop: int
    sender: int

    def next(self, sender: int) -> Stamp:
        """The same epoch, one hop on."""
        return Stamp(self.epoch, self.initiator, self.boot, self.hop + 1, sender)

    def __str__(self) -> str:
        return f"{self.epoch}.{self.initiator}/{self.hop}"


class Revision(NamedTuple):
    """Which factor of an agent a token includes; matched exactly, never by order."""

    counter: int
    boot: int


NEVER = Stamp(0, 0, 0, 0, 0)  # before every token
OUT = Revision(0, 0)  # not included


# An epoch so far ahead of everything heard is a lie: believed, it would use up the numbers.
FAR = 2**32


ID_BYTES = 16  # of a request


def request_id(agent: int, entropy: bytes) -> bytes:
    """The id of a request about `agent`: its number, and 12 random bytes. An id that names its
    agent cannot be taken by another one's record."""
    return agent.to_bytes(4, "big") + entropy[:12]


def requested_of(request: bytes) -> int:
    """Whom a request is about."""
    return int.from_bytes(request[:4], "big")


def bit(agent: int) -> int:
    """Sets of agents are bitmaps: Python integers of any width."""
    return 1 << agent


def members(bitmap: int) -> list[int]:
    """The agents in a bitmap, in order."""
    return [k for k in range(bitmap.bit_length()) if bitmap >> k & 1]
