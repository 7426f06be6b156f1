"""The attestation round and its audit (rule 6).

In a round in which nothing changes, each agent adds its factor to a second sum that started from
eta_0, and signs the same statement. When all have signed, the second sum must equal eta bit for
bit. `routing.after_visit` decides what follows.
"""

from __future__ import annotations

import hashlib
from collections.abc import ItemsView, Iterator, Mapping
from typing import Any

import numpy as np

from unweave.errors import GridOverflow
from unweave.grid import Ints
from unweave.persistent import NOBODY, Stack
from unweave.protocol.certificate.write import attestation, certificate, sign_statement
from unweave.protocol.events import UNKNOWN, Appraise, Freeze, Unknown
from unweave.protocol.gossip import attest_ready
from unweave.protocol.merge import add_mismatches, has_unknown_rows
from unweave.protocol.rounds import advanced, can_attest
from unweave.protocol.state import State, Turn, ask
from unweave.protocol.statements import AuditMismatch
from unweave.protocol.token import NO_ROUND, AttestationRound, Token, digest, lacking

__all__ = [
    "SharedSignatures",
    "audit_matches",
    "closing_certificate",
    "is_complete",
    "join_round",
    "record_mismatch",
]


def join_round(s: State, turn: Turn, token: Token, cavity: Ints) -> Token | None:
    """The token with this agent's attestation, if the agent may attest; None while its frozen
    vector is computed."""
    if not s.terms.parks:
        return token
    if may_attest(s, token, cavity):
        frozen = frozen_vector(s, turn, token)
        if frozen is None and s.terms.freezes:
            return None
        token = attest(s, turn, token, cavity, frozen)
    if is_complete(s, token) and token.round.statement != attestation(
        s.terms, token, token.round.secret
    ):
        return token._replace(round=NO_ROUND, busy=True)  # all signed, but about another token
    return token


def is_complete(s: State, token: Token) -> bool:
    """Whether every agent that has not departed has attested."""
    so_far = token.round.agents
    return s.terms.parks and bool(so_far) and not s.terms.beyond(so_far, s.departed)


def may_attest(s: State, token: Token, cavity: Ints) -> bool:
    """Whether the attestation would hold: no erasure is pending here, all neighbours know the
    tombstones, and (unless the model is conjugate) the factor was solved for this cavity."""
    if s.me in token.round.agents or (not token.passes and lacking(token)):
        return False  # in the first pass every visit changes the token, which voids signatures
    if s.own_intents() or has_unknown_rows(s) or not attest_ready(s) or holds_erased(s):
        return False
    if s.terms.masked:
        return can_attest(s, token)
    if s.terms.conjugate or s.tomb.out or s.own.detached:
        return True
    if s.terms.solve == "visit":
        return False
    return token.passes >= s.terms.max_passes or is_solved(s, token, cavity)


def holds_erased(s: State) -> bool:
    """Whether this agent keeps a factor that an erasure has taken out: it shows the factor to the
    next agent (rule 18), until that agent has acknowledged the token. The round closes later."""
    origin = s.token.origin
    if not s.terms.checked or origin is None or origin.removed is None or not s.tomb.open:
        return False
    return any(n not in s.departed for n in s.neighbours)


def is_solved(s: State, token: Token, cavity: Ints) -> bool:
    return s.me in token.inside and s.own.solved_for == digest(cavity)


def frozen_vector(s: State, turn: Turn, token: Token) -> Ints | Unknown | None:
    """This agent's term of the estimate at the token's eta; None while it is computed."""
    if not s.terms.freezes:
        return None
    factor = s.own.factor(token.included[s.me])
    if factor is None:
        return s.terms.frozen_grid.zeros()
    key = ("freeze", digest(token.eta), factor.revision)
    answer: Ints | Unknown | None = ask(
        s, turn, Freeze(key, token.eta, factor.units, s.own.dropped)
    )
    return answer


def attest(
    s: State, turn: Turn, token: Token, cavity: Ints, frozen: Ints | Unknown | None
) -> Token:
    """Add the agent's factor to the second sum and sign the statement. The round's first agent
    draws the secret; nobody keeps it but the token."""
    so_far = token.round
    if so_far.agents and so_far.statement != attestation(s.terms, token, so_far.secret):
        so_far = NO_ROUND  # the statement is not about this token: start the round again
    secret = so_far.secret or turn.entropy
    # Later agents sign the bytes of the first: agents of one process share one object.
    statement = so_far.statement or attestation(s.terms, token, secret)
    restart = not so_far.agents and s.terms.schedule == "metropolis" and s.terms.attest == "sweep"
    out = s.tomb.out or s.own.detached
    solved = not s.terms.freezes or out or is_solved(s, token, cavity)
    if s.terms.iterates and token.inside:
        following = advanced(s, turn, token)  # the visit has asked before
        solved = following is not None and following.point is None and not following.failed
    total = frozen_sum(s, so_far, frozen)
    so_far = AttestationRound(
        agents=so_far.agents.plus(s.me),
        audit=audit_sum(s, token, so_far),
        frozen=None if isinstance(total, Unknown) else total,
        statement=statement,
        signatures=SharedSignatures(so_far.signatures, s.me, sign_statement(statement, turn.sign)),
        converged=so_far.converged and solved,
        unknown=isinstance(total, Unknown),
        secret=secret,
    )
    token = token._replace(round=so_far, busy=True)
    # The attestation round is a sweep of its own, rooted here.
    return token._replace(seen=NOBODY.plus(s.me), stack=Stack()) if restart else token


def audit_sum(s: State, token: Token, so_far: AttestationRound) -> Ints:
    """The second sum with the agent's factor. Only the final sum has to fit the grid: partial sums
    may wrap around modulo 2^64 without harm."""
    factor = s.own.factor(token.included[s.me])
    audit = s.terms.eta0 if so_far.audit is None else so_far.audit
    return audit if factor is None else audit + factor.audited


def frozen_sum(
    s: State, so_far: AttestationRound, frozen: Ints | Unknown | None
) -> Ints | Unknown | None:
    """The sum of the frozen vectors with the agent's own. It is unknown if one of them does not
    exist or the sum does not fit the grid."""
    if so_far.unknown or isinstance(frozen, Unknown):
        return UNKNOWN
    if frozen is None or so_far.frozen is None:
        return frozen
    try:
        return s.terms.frozen_grid.add(so_far.frozen, frozen)
    except GridOverflow:
        return UNKNOWN


def audit_matches(token: Token) -> bool:
    """Whether the second sum equals eta, bit for bit."""
    return token.round.audit is not None and np.array_equal(token.round.audit, token.eta)


def closing_certificate(s: State, turn: Turn, token: Token) -> bytes | None:
    """The certificate of every open erasure on the token, empty if there is none; None while the
    estimate is computed."""
    so_far = token.round
    estimate: Mapping[str, Any] | None = None
    if so_far.unknown:
        estimate = {"kl_to_optimum": None, "method": "none: an agent could not compute its part"}
    elif s.terms.masked and not s.terms.conjugate and not token.inside:
        estimate = {"kl_to_optimum": None, "method": "none: too few agents remain for a sum"}
    elif s.terms.iterates and token.inside:
        key = ("appraise", digest(token.eta), hashlib.sha256(token.masked.point).digest())
        estimate = ask(s, turn, Appraise(key, token.eta, None, token.masked.point))
        if estimate is None:
            return None
    elif so_far.frozen is not None:
        key = ("appraise", digest(token.eta), digest(so_far.frozen))
        estimate = ask(s, turn, Appraise(key, token.eta, so_far.frozen))
        if estimate is None:
            return None
    return certificate(s, token, turn.sign, estimate) if has_open_erasures(token) else b""


def has_open_erasures(token: Token) -> bool:
    """Whether this attestation round proves an erasure or a departure."""
    return any(tomb.open or tomb.departed for tomb in token.tombs.values())


def record_mismatch(s: State, turn: Turn, token: Token) -> None:
    """Keep a signed statement of the audit mismatch. It spreads and stays, so it names the token by
    its stamp, and no sum."""
    mismatch = AuditMismatch.write(
        s.me,
        turn.sign,
        network_id=s.terms.network_id.hex(),
        stamp=list(token.stamp),
        agent=s.me,
        departed=sorted(s.departed),
    )
    add_mismatches(s, [mismatch])


class SharedSignatures(Mapping[int, bytes]):
    """The signatures of a round, extended by one without a copy: thousands of agents in one process
    share what they have in common."""

    __slots__ = ("_agent", "_before", "_signature", "_size")

    def __init__(self, before: Mapping[int, bytes], agent: int, signature: bytes) -> None:
        self._before = before
        self._agent = agent
        self._signature = signature
        self._size = len(before) + 1

    def _pairs(self) -> Iterator[tuple[int, bytes]]:
        here: Mapping[int, bytes] = self
        while isinstance(here, SharedSignatures):
            yield here._agent, here._signature
            here = here._before
        yield from here.items()

    def __iter__(self) -> Iterator[int]:
        return (agent for agent, _ in self._pairs())

    def __getitem__(self, agent: int) -> bytes:
        for signer, signature in self._pairs():
            if signer == agent:
                return signature
        raise KeyError(agent)

    def items(self) -> ItemsView[int, bytes]:
        return dict(self._pairs()).items()

    def __len__(self) -> int:
        return self._size
