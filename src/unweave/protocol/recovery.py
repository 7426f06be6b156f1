"""New epochs: how a token that was lost, superseded or dead starts again (rules 0, 14, 15).

A new epoch supersedes every stamp that its opener has heard of. It loses nothing, because each
agent corrects a token from the included revision to its current one.
"""

from __future__ import annotations

import hashlib

from unweave.persistent import NOBODY, Stack, Vector
from unweave.protocol.events import Again, Opened, Refused
from unweave.protocol.openings import sign_opening
from unweave.protocol.state import IDLE, Hold, State, Turn
from unweave.protocol.steps import START, Origin
from unweave.protocol.token import (
    NO_ROUND,
    NOT_MASKED,
    OUT,
    MaskedRound,
    Stamp,
    Token,
    dead,
    lacking,
    roster,
    round_name,
)

__all__ = [
    "drop_role",
    "empty_token",
    "first_hash",
    "following_round",
    "hold",
    "open_epoch",
    "rebuild",
]


def drop_role(s: State) -> None:
    """Stop being responsible for a token; running work is no longer awaited."""
    s.token.role = IDLE
    s.token.origin = None
    s.token.pending = None
    s.token.memo = {}
    if "ack" in s.timers or "resend" in s.timers:
        s.timers = {name: at for name, at in s.timers.items() if name not in ("resend", "ack")}


def hold(s: State, turn: Turn, token: Token, origin: Origin | None) -> None:
    """Become responsible for `token` and visit it in the next turn."""
    drop_role(s)
    s.token.role, s.token.origin = Hold(token), origin
    turn.do(Again())


def first_hash(network_id: bytes) -> bytes:
    """The start of the hash chain of receipts."""
    return hashlib.sha256(b"unweave receipts" + network_id).digest()


def empty_token(s: State, stamp: Stamp, masked: MaskedRound = NOT_MASKED) -> Token:
    """eta = eta_0, no agent included."""
    return Token(
        network_id=s.terms.network_id,
        stamp=stamp,
        eta=s.terms.eta0,
        included=Vector((OUT,) * s.terms.size),
        inside=NOBODY,
        tombs=s.known.tombs,
        retrain_epoch=s.known.retrain_epoch,
        passes=0,
        seen=NOBODY,
        stack=Stack(),
        busy=True,
        round=NO_ROUND,
        receipts=first_hash(s.terms.network_id),
        masked=masked,
    )


def next_epoch(s: State) -> Stamp:
    """Above every stamp heard of. Number 1 belongs to the genesis agent (rule 0)."""
    number = max(s.token.last, s.token.fence).epoch + 1
    if s.me != s.terms.genesis:
        number = max(number, 2)
    return Stamp(number, s.me, s.incarnation, 1, s.incarnation)


def following_round(s: State, token: Token, point: bytes, step: int = 0) -> MaskedRound:
    """The private round after this one: with the spare keys of the agents that have given, and the
    unused keys of the others."""
    masked = token.masked
    unused = {k: one for k, one in masked.keys.items() if k not in token.inside}
    members = roster(s.terms.size, s.known.tombs)
    keys = {k: one for k, one in {**unused, **masked.spare}.items() if k in members}
    return MaskedRound(keys, point=point, step=step, base=published_round(s, token))


def published_round(s: State, token: Token) -> bytes:
    """The name of the last round whose sum was published, as far as this token shows."""
    if s.terms.publish is None:
        return b""
    attested = token.masked.rested or not s.terms.beyond(token.round.agents, s.departed)
    if token.inside and not lacking(token) and attested:
        return round_name(s.terms.network_id, token.masked)
    return token.masked.base


def lapsed_round(s: State) -> MaskedRound:
    """The private round of a token that starts from eta_0 because another one was lost or is dead.
    It follows a token that this agent knows, unless an erasure forbids what that token holds."""
    if not s.terms.masked:
        return NOT_MASKED
    for token in (s.token.held, s.token.copy):
        if token is not None and not dead(token, s.known.tombs, s.known.retrain_epoch):
            same = s.known.retrain_epoch <= token.retrain_epoch
            return following_round(s, token, token.masked.point if same else s.terms.first_point)
        if token is not None and s.terms.noise is not None:
            # Enrolments state how many values were given (rule 22), and hold nothing erased.
            return following_round(s, token, s.terms.first_point)
    return MaskedRound(point=s.terms.first_point)


def open_epoch(
    s: State,
    turn: Turn,
    base: Token | None,
    why: str,
    origin: Origin | None = None,
    masked: MaskedRound | None = None,
) -> None:
    """Open an epoch from `base`, or from eta_0: each agent then adds its factor when visited. A
    base whose origin cannot be shown would be refused: the epoch then starts from eta_0."""
    masked = lapsed_round(s) if masked is None else masked
    drop_role(s)
    if s.audit_failed or s.tomb.departed:
        return
    stamp = next_epoch(s)
    if s.terms.checked and not sign_opening(s, turn, stamp):
        turn.do(Refused("this agent has opened as many epochs as it may: another one must"))
        return
    if base is None or (s.terms.checked and origin is None):
        token, origin = empty_token(s, stamp, masked), START
    else:
        token = base._replace(stamp=stamp, seen=NOBODY, stack=Stack(), busy=True, round=NO_ROUND)
    s.token.last = s.token.fence = stamp
    turn.do(Opened(why))
    hold(s, turn, token, origin)


def rebuild(s: State, turn: Turn, why: str) -> None:
    """Rule 14: open an epoch from eta_0. It costs one pass and no solve, and is always safe."""
    open_epoch(s, turn, None, why)
