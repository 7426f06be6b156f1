"""Signed statements as protobuf. Their JSON is checked here against the network: what cannot exist
raises `WireError`, and is neither stored nor passed on."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeVar

from unweave.errors import WireError
from unweave.node.wire.primitives import NAME_BYTES, agent_of, pb
from unweave.protocol.statements import (
    AuditMismatch,
    CompactedErasures,
    Enrolment,
    InfluenceReport,
    Intent,
    Opening,
    SignedStatement,
    Tombstone,
    Vote,
)
from unweave.protocol.steps import TokenHeader
from unweave.protocol.terms import Terms
from unweave.protocol.token import EPOCHS, HOPS, ID_BYTES, OPENINGS, Stamp, requested_of

__all__ = [
    "AnyStatement",
    "read_enrolments",
    "read_statement",
    "write_enrolments",
    "write_statement",
]

_KEY_BYTES = 32
_ENROLMENT_BYTES = 400  # of its JSON

AnyStatement = TypeVar("AnyStatement", bound=SignedStatement)


def write_statement(statement: SignedStatement) -> pb.Statement:
    return pb.Statement(raw=statement.raw, author=statement.author, signature=statement.signature)


def read_statement(kind: type[AnyStatement], sent: pb.Statement, terms: Terms) -> AnyStatement:
    """A statement with its bytes and signature unchanged. Its JSON is checked here, once: an
    unreadable statement must not be stored and passed on."""
    read = kind(sent.raw, agent_of(sent.author, terms), sent.signature)
    try:
        problem = _CHECKS[kind](read, read.body, terms) if kind in _CHECKS else None
        problem = problem or _check_network(read.body, terms)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise WireError(f"{kind.__name__.lower()}: cannot be read ({error})") from None
    if problem is not None:
        raise WireError(f"{kind.__name__.lower()}: {problem}")
    return read


def write_enrolments(enrolments: Mapping[int, Enrolment]) -> list[pb.Statement]:
    return [write_statement(enrolments[agent]) for agent in sorted(enrolments)]


def read_enrolments(sent: Sequence[pb.Statement], terms: Terms) -> dict[int, Enrolment]:
    """Bounds first: a token visits every agent, and each reads all of them. Most of them were on
    the last token, too."""
    if len(sent) > terms.size:
        raise WireError(f"{len(sent)} one-time keys among {terms.size} agents")
    read: dict[int, Enrolment] = {}
    for one in sent:
        if len(one.raw) > _ENROLMENT_BYTES:
            raise WireError(f"an enrolment of {len(one.raw)} bytes: at most {_ENROLMENT_BYTES}")
        if one.author in read:
            raise WireError(f"two one-time keys of {terms.name(one.author)} for one round")
        read[one.author] = _enrolment(one.raw, one.author, one.signature, terms)
    return read


@lru_cache(maxsize=1 << 12)
def _enrolment(raw: bytes, author: int, signature: bytes, terms: Terms) -> Enrolment:
    return read_statement(
        Enrolment, pb.Statement(raw=raw, author=author, signature=signature), terms
    )


def _check_network(body: Mapping[str, Any], terms: Terms) -> str | None:
    return None if body["network_id"] == terms.network_id.hex() else "belongs to another network"


_NOT_THE_AUTHOR = "not signed by the agent that it is about"


def _check_erasure(
    statement: Intent | Tombstone, body: Mapping[str, Any], terms: Terms
) -> str | None:
    if type(body["agent"]) is not int or statement.agent != statement.author:
        return _NOT_THE_AUTHOR
    if len(statement.request) != ID_BYTES:
        return f"a request id must have {ID_BYTES} bytes"
    if requested_of(statement.request) != statement.agent:
        return "the request id names another agent"
    if type(body["whole"]) is not bool or not isinstance(body["rows"], list):
        return "names no scope"
    if isinstance(statement, Tombstone) and type(body["retrain"]) is not bool:
        return "does not say whether every agent starts from zero"
    return None if statement.whole or statement.rows else "names no record"


def _check_vote(statement: Vote, body: Mapping[str, Any], terms: Terms) -> str | None:
    if type(body["agent"]) is not int or not 0 <= statement.target < terms.size:
        return "names an agent that is not in this network"
    if len(statement.request) != ID_BYTES:
        return f"a request id must have {ID_BYTES} bytes"
    if requested_of(statement.request) != statement.target:
        return "the request id names another agent"
    if statement.target == statement.author:
        return "an agent cannot declare itself departed"
    return None


def _check_mismatch(statement: AuditMismatch, body: Mapping[str, Any], terms: Terms) -> str | None:
    if body["agent"] != statement.author:
        return _NOT_THE_AUTHOR
    if not all(type(agent) is int and 0 <= agent < terms.size for agent in body["departed"]):
        return "names a departed agent that is not in this network"
    return None


def _check_opening(statement: Opening, body: Mapping[str, Any], terms: Terms) -> str | None:
    if type(body["agent"]) is not int or body["agent"] != statement.author:
        return _NOT_THE_AUTHOR
    limits = {"count": OPENINGS, "epoch": EPOCHS, "incarnation": 2**64}
    for name, limit in limits.items():
        if not _is_number(body[name], limit):
            return f"{name} is not a number below {limit}"
    return None


def _check_enrolment(statement: Enrolment, body: Mapping[str, Any], terms: Terms) -> str | None:
    if type(body["agent"]) is not int or body["agent"] != statement.author:
        return _NOT_THE_AUTHOR
    if not _is_number(body["incarnation"], 2**64):
        return f"incarnation is not a number below {2**64}"
    spent = terms.noise is not None and body["key"] == ""
    if not spent and (len(body["key"]) != 2 * _KEY_BYTES or len(statement.key) != _KEY_BYTES):
        return f"a one-time key must have {_KEY_BYTES} bytes"
    if terms.noise is None and "given" in body:
        return "a count of given values without noise"
    if terms.noise is not None and not _is_number(body["given"], 2**48):
        return f"given is not a number below {2**48}"
    if terms.publish is None:
        return "a count of changes without batches" if body.keys() & {"changed", "base"} else None
    if not _is_number(body["changed"], 2**48):
        return f"changed is not a number below {2**48}"
    if not isinstance(body["base"], str) or len(statement.base) not in (0, NAME_BYTES):
        return f"base must have {NAME_BYTES} bytes, or none"
    return None


_DIGESTS = ("agents", "statement", "audit", "frozen", "secret")
_FLAGS = ("converged", "unknown")


def _check_header(statement: TokenHeader, body: Mapping[str, Any], terms: Terms) -> str | None:
    if type(body["agent"]) is not int or body["agent"] != statement.author:
        return _NOT_THE_AUTHOR
    limits = (EPOCHS, terms.size, 2**64, HOPS, 2**64)
    stamp, attested = body["stamp"], body["round"]
    if len(stamp) != len(limits) or not all(map(_is_number, stamp, limits)):
        return "has no stamp"
    if not all(
        isinstance(body[name], str) for name in ("eta", "included", "retrain_epoch", "step")
    ):
        return "does not name the parts of a token"
    if not isinstance(body.get("masked", ""), str):
        return "does not name a private round"
    erased = body["erased"]
    if not isinstance(erased, dict) or not all(isinstance(ids, str) for ids in erased.values()):
        return "does not name the erasures of a token"
    if (
        attested.keys() != {*_DIGESTS, *_FLAGS}
        or not all(isinstance(attested[name], str) for name in _DIGESTS)
        or not all(type(attested[name]) is bool for name in _FLAGS)
    ):
        return "does not name an attestation round"
    if int(attested["agents"], 16) >> terms.size:
        return f"names agents beyond number {terms.size - 1}"
    return None


def _is_number(value: Any, limit: int) -> bool:
    return type(value) is int and 0 <= value < limit


def _check_influence(
    statement: InfluenceReport, body: Mapping[str, Any], terms: Terms
) -> str | None:
    if body["agent"] != statement.author or len(statement.stamp) != len(Stamp._fields):
        return "not signed by the agent that it is about, or without a stamp"
    influence = statement.influence
    if influence is not None and not math.isfinite(influence):
        return "the influence is not a number"
    return None


def _check_compacted(
    statement: CompactedErasures, body: Mapping[str, Any], terms: Terms
) -> str | None:
    return None if statement.agent == statement.author else _NOT_THE_AUTHOR


_CHECKS: dict[type[SignedStatement], Callable[[Any, Mapping[str, Any], Terms], str | None]] = {
    Intent: _check_erasure,
    Tombstone: _check_erasure,
    Vote: _check_vote,
    AuditMismatch: _check_mismatch,
    InfluenceReport: _check_influence,
    CompactedErasures: _check_compacted,
    Opening: _check_opening,
    Enrolment: _check_enrolment,
    TokenHeader: _check_header,
}
