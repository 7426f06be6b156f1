"""How it is known that what was asked for has happened: the one place that reads it off a token."""

from __future__ import annotations

from collections.abc import Mapping

from unweave.federation.walk import Walk
from unweave.protocol.token import Token
from unweave.protocol.tombs import NOTHING

__all__ = ["attested", "erased", "retrained"]

# The ids of the requests that each agent was told of.
Asked = Mapping[int, frozenset[bytes]]


def erased(token: Token | None, asked: Asked) -> bool:
    """Whether the token carries the tombstone of every request: what it asked for has left."""
    return token is not None and all(
        ids <= token.tombs.get(k, NOTHING).ids for k, ids in asked.items()
    )


def retrained(token: Token, asked: Asked) -> bool:
    """Whether one of the requests made everybody start from zero."""
    return bool(frozenset().union(*asked.values()) & token.generation)


def attested(walk: Walk) -> Token | None:
    """The token at rest that everybody has attested, or None while it is under way."""
    holder = walk.world.parked
    token = None if holder is None else walk.world.state(holder).token
    complete = token is not None and token.quiet.agents == walk.terms.everybody
    return token if complete else None
