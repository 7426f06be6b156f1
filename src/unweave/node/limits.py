"""How large, how many and how slow messages may be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from unweave.protocol.terms import Terms

__all__ = ["CHUNK", "Limits"]

CHUNK = 1 << 20


@dataclass(frozen=True)
class Limits:
    """What a neighbour may ask of this agent, and how long this agent waits for a neighbour."""

    message: int  # bytes of the largest envelope
    incoming: int = 8  # messages of one neighbour at a time
    outgoing: int = 8  # messages to one neighbour at a time; further ones wait
    strangers: int = 128  # connections beyond those that the neighbours need
    connect: float = 3.0  # seconds to open a connection
    handshake: float = 5.0  # seconds for a stranger to prove that it is a neighbour
    idle: float = 10.0  # seconds between two chunks
    reply: float = 10.0  # seconds to take a complete message
    rate: float = 2.0**17  # bytes per second of the slowest useful link
    grace: float = 2.0  # seconds for messages under way when the agent stops
    backoff: tuple[float, float] = (0.1, 2.0)  # seconds between connections: first, longest

    def deadline(self, size: int) -> float:
        """Seconds for a message of this size, from the first byte to its answers."""
        return self.idle + self.reply + size / self.rate

    @classmethod
    def of(cls, terms: Terms, **changes: Any) -> Limits:
        """Room for the largest token of a network: three vectors; per agent a revision, a signature
        and its share of the evidence; and for the tombstones of many records."""
        vectors = 3 * 8 * terms.grid.dim
        return cls(**{"message": vectors + (8 << 10) * terms.size + (64 << 20), **changes})
