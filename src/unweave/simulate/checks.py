"""The invariants of the protocol, checked after every event.

I1  every token anywhere (held, parked, in an outbox, a copy, in flight) satisfies
    eta = eta_0 + Σ_k factor_k[included_k]; so each factor is in it exactly once
I2  durable before sent: every revision that a token includes was committed by its owner before
I3  a role token is never older than the fence of its agent, nor newer than what it has accepted
I4  nothing that a tombstone forbids exists where the tombstone is known: no dead token, no dead
    copy, no factor computed from erased rows, no factor of an older generation
I5  after certification every synced agent that has not left knows the erasure and holds nothing
    of it, at every later moment too
I6  a certificate that says `retrained` covers no factor that was fitted before the request
I7  receipts form one hash chain: each names the hash it continues, and the token carries the end
I8  tombstones, generations and fences of a living process only grow
I9  an agent at rest with a complete quiet cover was audited: the second sum equals eta

Liveness, checked when faults have stopped, everybody is back or has left, and time has passed: one
token, at rest, in one epoch; everybody included at the current revision; every erasure that
survived its removal visit is certified; nobody has unfinished business.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import NoReturn

import numpy as np

from unweave.grid import Ints
from unweave.protocol.epochs import first_hash
from unweave.protocol.events import Certified, Effect, Send
from unweave.protocol.ids import Revision, bit, members
from unweave.protocol.messages import Pass
from unweave.protocol.state import Factor, Idle, Parked, State
from unweave.protocol.terms import Terms
from unweave.protocol.token import Token
from unweave.protocol.tombs import NOTHING, dead, join
from unweave.protocol.visit import Receipt, chain
from unweave.simulate.world import World

__all__ = ["Checker", "Violation", "check_liveness"]

# How a checker looks into a factor: does it contain anything of these erased rows?
Contains = Callable[[int, Ints, frozenset[bytes]], bool]


class Violation(AssertionError):
    """An invariant does not hold; the message says which, where and when."""


class Checker:
    """Watches a world; raises `Violation` in the step that breaks an invariant."""

    def __init__(self, terms: Terms, contains: Contains | None = None) -> None:
        self.terms = terms
        self.contains = contains
        self.factors: dict[tuple[int, Revision], Factor] = {}
        self.hashes = {first_hash(terms.run)}
        self.erased: dict[bytes, tuple[int, frozenset[bytes]]] = {}  # request → agent, rows
        self.certified: set[bytes] = set()
        self.certificates: list[bytes] = []
        self.checked = 0

    def after(self, agent: int, before: State, after: State, effects: Sequence[Effect]) -> None:
        self.checked += 1
        if after.factors is not before.factors:
            for factor in after.factors:
                self.factors.setdefault((agent, factor.revision), factor)
        if after.receipts is not before.receipts and after.receipts:
            self._receipt(agent, after)
        for record in after.tombstones.values():
            self.erased.setdefault(record.request, (record.agent, record.rows))
        for token in _tokens(before, after, effects):
            self._token(agent, token)
        self._agent(agent, before, after)
        for effect in effects:
            if isinstance(effect, Certified):
                self._certificate(agent, after, effect.certificate)

    # ------------------------------------------------------------------------------- invariants

    def _token(self, agent: int, token: Token) -> None:
        total = [int(v) for v in self.terms.eta0]
        inside = 0
        for k, revision in enumerate(token.included):
            if not revision.counter:
                continue
            inside |= bit(k)
            factor = self.factors.get((k, revision))
            if factor is None:
                self._fail("I2", agent, f"token {token.stamp} includes {k}@{revision}, unknown")
            for j, v in enumerate(factor.units):
                total[j] += int(v)
        if total != [int(v) for v in token.eta]:
            self._fail("I1", agent, f"token {token.stamp}: eta {token.eta} but the sum is {total}")
        if inside != token.inside:
            self._fail("I1", agent, f"token {token.stamp}: bitmap {token.inside:b} of {inside:b}")
        if token.receipts not in self.hashes:
            self._fail("I7", agent, f"token {token.stamp}: unknown end of the chain of receipts")

    def _agent(self, agent: int, before: State, s: State) -> None:
        token = s.token
        if s.synced and token is not None:
            if token.stamp < s.fence or token.stamp > s.last:
                self._fail("I3", agent, f"role token {token.stamp}, last {s.last}, fence {s.fence}")
            if dead(token, s.tombs, s.generation):
                self._fail("I4", agent, f"the role token {token.stamp} is dead")
        if s.copy is not None and dead(s.copy, s.tombs, s.generation):
            self._fail("I4", agent, f"the copy {s.copy.stamp} is dead")
        for factor in s.factors:
            if not s.generation <= factor.generation:
                self._fail("I4", agent, f"factor {factor.revision} is of an older generation")
            if s.tomb.out and s.tomb.whole:
                self._fail("I4", agent, f"factor {factor.revision} of an erased agent")
            if self.contains is not None:
                for request in s.tomb.ids & self.erased.keys():
                    if self.contains(agent, factor.units, self.erased[request][1]):
                        self._fail("I4", agent, f"factor {factor.revision} has erased rows")
        if before.boot == s.boot and (
            join(s.tombs, before.tombs) is not s.tombs
            or not before.generation <= s.generation
            or before.fence > s.fence
        ):
            self._fail("I8", agent, "knowledge shrank")
        if s.synced and not s.tomb.left:
            self._holds_nothing_certified(agent, s)
        if isinstance(s.role, Parked) and not isinstance(before.role, Parked):
            quiet = s.role.token.quiet
            everybody = self.terms.everybody & ~s.left
            if quiet.agents and not everybody & ~quiet.agents:
                if quiet.audit is None or not np.array_equal(quiet.audit, s.role.token.eta):
                    self._fail("I9", agent, "rest without a matching audit")

    def _holds_nothing_certified(self, agent: int, s: State) -> None:
        for request in self.certified:
            owner, rows = self.erased[request]
            tomb = s.tombs.get(owner, NOTHING)
            if request not in tomb.ids and not tomb.out:
                self._fail("I5", agent, f"does not know the certified erasure of {owner}")
            if owner == agent and self.contains is not None:
                for factor in s.factors:
                    if self.contains(agent, factor.units, rows):
                        self._fail("I5", agent, "holds a factor with certified-erased rows")

    def _certificate(self, agent: int, s: State, certificate: bytes) -> None:
        token = s.copy  # the token that rested; the same transition may have woken it again
        assert token is not None
        self.certificates.append(certificate)
        self.certified |= {request for tomb in token.tombs.values() for request in tomb.ids}
        for request in token.generation:
            for k in members(token.inside):
                if request not in self.factors[k, token.included[k]].generation:
                    self._fail("I6", agent, f"{k}'s factor was fitted before the retraining")
        json.loads(certificate)

    def _receipt(self, agent: int, s: State) -> None:
        receipt = s.receipts[0]
        previous = bytes.fromhex(receipt.body["previous"])
        if previous not in self.hashes:
            self._fail("I7", agent, "a receipt continues an unknown chain")
        assert isinstance(receipt, Receipt)
        self.hashes.add(chain(previous, receipt))

    def _fail(self, invariant: str, agent: int, what: str) -> NoReturn:
        raise Violation(f"{invariant} at {self.terms.name(agent)}: {what}")


def _tokens(before: State, after: State, effects: Sequence[Effect]) -> list[Token]:
    """The tokens that this transition brought forth."""
    tokens: dict[int, Token] = {}
    for token, old in ((after.token, before.token), (after.copy, before.copy)):
        if token is not None and token is not old:
            tokens[id(token)] = token
    for effect in effects:
        if isinstance(effect, Send) and isinstance(effect.message, Pass):
            tokens[id(effect.message.token)] = effect.message.token
    return list(tokens.values())


def check_liveness(world: World, checker: Checker) -> None:
    """What must be true when a healed network has had time enough."""

    def fail(what: str) -> NoReturn:
        raise Violation(f"liveness: {what}")

    left = 0
    for agent in world.agents:
        if agent.state is not None:
            left |= agent.state.left
    live = [k for k in range(len(world.agents)) if not left & bit(k)]
    states = {k: world.state(k) for k in live}
    roles = {k: s.role for k, s in states.items() if not isinstance(s.role, Idle)}
    if len(roles) != 1 or not all(isinstance(role, Parked) for role in roles.values()):
        fail(
            f"expected one parked token, found {[(k, type(r).__name__) for k, r in roles.items()]}"
        )
    holder, role = next(iter(roles.items()))
    assert isinstance(role, Parked)
    token = role.token
    for k, s in states.items():
        if s.intents:
            fail(f"agent {k} still knows an open request")
        if s.rest is None or s.rest.stamp != token.stamp or s.rest.holder != holder:
            fail(f"agent {k} does not know where the token rests")
        if s.tomb.out or s.detached or s.current is None:
            if token.inside & bit(k):
                fail(f"agent {k} is included and should not be")
        elif s.current.revision != token.included[k]:
            fail(f"agent {k} is included at {token.included[k]}, not at {s.current.revision}")
        elif s.current.rows != s.rows or s.current.data != s.data:
            fail(f"agent {k} has not learned its current data")
        missing = {r for tomb in s.tombs.values() for r in tomb.ids} - checker.certified
        if missing:
            fail(f"{len(missing)} erasures known to agent {k} are not certified")
    if members(token.inside & left):
        fail("an agent that left is included")
