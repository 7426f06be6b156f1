"""The invariants I1 to I15, checked after every event of a world."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np

from unweave.errors import NotCertified
from unweave.grid import Ints, digest
from unweave.protocol.certificate.unchecked import unchecked_closing, unchecked_payloads
from unweave.protocol.certificate.verify import verify
from unweave.protocol.certificate.write import attestation, sign_statement
from unweave.protocol.events import Certified, Effect, Opened, Send, Work
from unweave.protocol.messages import Hello, ParkNotice, Pass, Welcome
from unweave.protocol.recovery import first_hash
from unweave.protocol.state import Factor, Hold, Out, Parked, State
from unweave.protocol.statements import Receipt, Sign, SignedStatement
from unweave.protocol.terms import Terms
from unweave.protocol.token import NEVER, NOTHING, Revision, Stamp, Token, Tomb, Tombs
from unweave.protocol.visit import chain
from unweave.simulator.invariants.private_rounds import PrivateRounds

__all__ = ["Checker", "Violation", "departed", "forbidden"]

_WRAP = 2**63

# Knowledge of the model, without which a checker checks the sums alone.
Contains = Callable[[int, Ints, frozenset[bytes]], bool]  # the factor contains one of these rows
Frozen = Callable[[int, Ints, Ints], Ints]  # agent, eta, factor → frozen vector
Stationary = Callable[[int, Ints, Ints], bool]  # the solver would keep the factor


class Violation(AssertionError):
    """An invariant does not hold; the message says which, where and when."""


class Checker:
    """Observes a world; raises `Violation` in the step that breaks an invariant."""

    liar: int | None = None

    def __init__(
        self,
        terms: Terms,
        contains: Contains | None = None,
        *,
        frozen: Frozen | None = None,
        signers: Sequence[Sign] | None = None,
        stationary: Stationary | None = None,
    ) -> None:
        self.terms = terms
        self.contains = contains
        self.frozen = frozen
        self.signers = signers  # of deterministic signatures
        self.stationary = stationary
        self.latest: dict[int, State] = {}  # agent → its last committed state
        self.factors: dict[tuple[int, Revision], Factor] = {}
        self.private = PrivateRounds(terms, self.factors, self._fail)
        self.names: dict[tuple[int, int, int], Factor] = {}  # agent, counter, incarnation
        self.hashes = {first_hash(terms.network_id)}
        self.erased: dict[bytes, tuple[int, frozenset[bytes]]] = {}  # request → agent, rows
        self.requests: dict[int, set[bytes]] = {}  # agent → its durable intents
        self.certified: set[bytes] = set()
        self.certificates: list[bytes] = []
        self.compacted: set[bytes] = set()
        self.kept: dict[int, set[bytes]] = {}  # agent → requests whose certificate is on its disk
        self.sent: dict[Stamp, tuple[int, Token]] = {}
        self.departed: frozenset[int] = frozenset()  # known to any agent
        self.newest = NEVER
        self.excused = NEVER  # a newest token whose loss no protocol can prevent
        self.responsible: int | None = None  # the agent that was found with the newest token
        self.summed: tuple[object, Any, set[int]] = (None, None, set())  # the last sum of factors
        self.checked = 0
        self.opened: list[str] = []  # why epochs were opened
        self.starts = 0
        self.hidden: set[str] = set()  # in hex: digests of all sums and factors, all secrets
        self.secrets: dict[bytes, bytes] = {}  # of attestation rounds → the statement
        self.read: set[bytes] = set()  # names of statements that were searched

    def certificate_kept(self, agent: int, requests: frozenset[bytes]) -> None:
        """The driver has put a certificate on the agent's disk."""
        self.kept.setdefault(agent, set()).update(requests)

    def after(self, agent: int, before: State, after: State, effects: Sequence[Effect]) -> None:
        self.checked += 1
        known = self.latest.get(agent)
        if known is not None and known is not before:
            self._spoiled(agent)  # not the disk that was last written
        self.latest[agent] = after
        self.departed |= departed(after.known.tombs)
        self.starts += before.incarnation != after.incarnation
        if after.own.factors is not before.own.factors:
            self._factors(agent, after)
        if self.terms.publish is not None and known is before:
            self.private.check_change(agent, before, after, effects)
        if after.own.receipts is not before.own.receipts:
            self._receipts(agent, after)
        if after.known.tombstones is not before.known.tombstones or known is not before:
            self._tombstones(agent, after)
        for one in (*after.own.receipts, *after.known.mismatches):
            self._gives_nothing_away(agent, one)
        if after.known.intents is not before.known.intents:
            own = {r for r, intent in after.known.intents.items() if intent.agent == agent}
            self.requests.setdefault(agent, set()).update(own)
            self.private.left |= own
        for token in _tokens(before, after, effects):
            self._token(agent, token)
        if set(after.known.proofs) - {self.liar}:
            self._fail("J2", agent, f"keeps proofs against {set(after.known.proofs)}")
        self._agent(agent, after)
        self._growth(agent, before, after)
        self._quarantine(agent, before, after, effects)
        self._outbox(agent, before, after)
        self._new_pass(agent, before, after)
        self._responsible(agent, before, after)
        if (
            after.token.parked is not None
            and after.token.parked is not before.token.parked
            and after.token.parked.holder == agent
        ):
            self._parked(agent, after, after.token.parked)
        for effect in effects:
            if isinstance(effect, Certified):
                self._certificate(agent, after, effect.certificate)
            elif isinstance(effect, Opened):
                self.opened.append(effect.why)
        if (
            after.known.tombstones is not before.known.tombstones
            or after.known.tombs is not before.known.tombs
        ):
            self._evidence(agent, after)

    def _token(self, agent: int, token: Token) -> None:
        total, inside = self._sum_of(agent, token)
        if not np.array_equal(total, token.eta):
            self._fail("I1", agent, f"token {token.stamp}: eta {token.eta} but the sum is {total}")
        if inside != token.inside:
            self._fail("I1", agent, f"token {token.stamp}: {token.inside} of {inside}")
        if self.liar is None and token.receipts not in self.hashes:
            self._fail("I7", agent, f"token {token.stamp}: its chain of receipts is unknown")
        if self.terms.masked:
            self.private.check_token(agent, token)
        if agent not in self.departed:
            self._sums_nothing_certified(agent, token)
        self._note_hidden(agent, token)

    def _sum_of(self, agent: int, token: Token) -> tuple[Any, set[int]]:
        """eta_0 and the included factors, added up once per list of revisions; and whose they
        are."""
        if self.summed[0] is token.included:
            return self.summed[1], self.summed[2]
        total = self.terms.eta0.astype(object)
        inside = set()
        for k, revision in enumerate(token.included):
            if not revision.counter:
                continue
            inside.add(k)
            factor = self.factors.get((k, revision))
            if factor is None:
                self._fail("I2", agent, f"token {token.stamp} includes {k}@{revision}, unknown")
            total = total + factor.added
        if self.terms.masked:
            total = (total + _WRAP) % (2 * _WRAP) - _WRAP
        self.summed = token.included, total, inside
        return total, inside

    def _note_hidden(self, agent: int, token: Token) -> None:
        so_far = token.round
        sums = [units for units in (token.eta, so_far.audit, so_far.frozen) if units is not None]
        self.hidden |= {digest(units).hex() for units in sums}
        if so_far.agents:
            self.hidden.add(so_far.secret.hex())
            first = self.secrets.setdefault(so_far.secret, so_far.statement)
            if first != so_far.statement and self.liar is None:
                self._fail("I15", agent, f"token {token.stamp}: its round's secret was used before")

    def _gives_nothing_away(self, agent: int, said: SignedStatement | bytes) -> None:
        """A digest is 64 hex digits in every statement."""
        name, raw = (said, said) if isinstance(said, bytes) else (said.name, said.raw)
        if name not in self.read:
            self.read.add(name)
            if shown := self.hidden.intersection(re.findall("[0-9a-f]{64}", raw.decode())):
                self._fail("I15", agent, f"{raw[:60]!r}… shows a sum or a secret: {shown}")

    def _outbox(self, agent: int, before: State, s: State) -> None:
        role = s.token.role
        if not isinstance(role, Out) or role is before.token.role:
            return
        to, token = role.to, role.token
        if to not in self.terms.topology.adjacency[agent]:
            self._fail("I11", agent, f"token {token.stamp} goes to {to}, which is no neighbour")
        if to in departed(s.known.tombs):
            self._fail("I11", agent, f"token {token.stamp} goes to {to}, which has departed")
        was_to, was = self.sent.setdefault(token.stamp, (to, token))
        if was_to != to:
            self._fail("I11", agent, f"token {token.stamp} goes to {was_to} and to {to}")
        if was is not token and _content(was) != _content(token):
            self._fail("I11", agent, f"two tokens are named {token.stamp}")

    def _new_pass(self, agent: int, before: State, s: State) -> None:
        if not isinstance(s.token.role, Hold) or s.token.role is before.token.role:
            return
        token, old = s.token.role.token, before.token.held
        started = token.stamp.hop == 1 and (old is None or old.stamp != token.stamp)
        # A parked token that was superseded is replaced by the newer token, which is not woken.
        woken = (
            isinstance(before.token.role, Parked)
            and before.token.role.token.stamp[:3] == token.stamp[:3]
            and before.token.role.token.stamp.hop + 1 == token.stamp.hop
        )
        if (started or woken) and (
            token.seen or token.stack or token.round.agents or token.round.frozen is not None
        ):
            self._fail("I12", agent, f"token {token.stamp} starts inside a pass")

    def _responsible(self, agent: int, before: State, s: State) -> None:
        if agent not in self.departed:
            self.newest = max(self.newest, s.token.last, s.token.fence)
        if s.audit_failed or agent in departed(s.known.tombs):
            self.excused = self.newest
        if self.newest in (self.excused, NEVER):
            return
        if self._has_newest(self.responsible):  # usually still the same agent
            return
        for k in self.latest:
            if self._has_newest(k):
                self.responsible = k
                return
        incarnations = {self.latest[k].incarnation for k in self.departed if k in self.latest}
        if self.newest.sender in incarnations:
            self.excused = self.newest  # sent by a departed agent that has the votes by now
            return
        self._fail("I10", agent, f"no agent is responsible for the newest token {self.newest}")

    def _has_newest(self, agent: int | None) -> bool:
        """Larger than the newest: a departed agent that does not know the votes took it on."""
        state = None if agent is None else self.latest.get(agent)
        token = None if state is None else state.token.held
        return token is not None and token.stamp >= self.newest

    def _agent(self, agent: int, s: State) -> None:
        token, tomb = s.token.held, s.known.tombs.get(agent, NOTHING)
        if s.peers.synced and token is not None:
            if token.stamp < s.token.fence or token.stamp > s.token.last:
                self._fail(
                    "I3",
                    agent,
                    f"role token {token.stamp}, last {s.token.last}, fence {s.token.fence}",
                )
            if forbidden(token, s):
                self._fail("I4", agent, f"the role token {token.stamp} is dead")
        for kept in (s.token.copy, s.token.published):
            if kept is not None and forbidden(kept, s):
                self._fail("I4", agent, f"the copy {kept.stamp} is dead")
        for factor in s.own.factors:
            if not s.known.retrain_epoch <= factor.retrain_epoch:
                self._fail("I4", agent, f"factor {factor.revision} is of an older retrain epoch")
            if tomb.whole:
                self._fail("I4", agent, f"factor {factor.revision} of an erased agent")
            if self.contains is not None:
                for request in tomb.ids & self.erased.keys():
                    if self.contains(agent, factor.units, self.erased[request][1]):
                        self._fail("I4", agent, f"factor {factor.revision} has erased rows")
        if s.peers.synced and agent not in self.departed:
            self._holds_nothing_certified(agent, s)

    def _growth(self, agent: int, before: State, s: State) -> None:
        if before.incarnation == s.incarnation and (
            not all(
                _covered(tomb, s.known.tombs.get(k, NOTHING))
                for k, tomb in before.known.tombs.items()
            )
            or not before.known.retrain_epoch <= s.known.retrain_epoch
            or before.token.fence > s.token.fence
        ):
            self._fail("I8", agent, "knowledge shrank")

    def _quarantine(self, agent: int, before: State, s: State, effects: Sequence[Effect]) -> None:
        if s.peers.synced:
            past = (
                max(before.token.last, before.token.fence) > NEVER
                or before.own.factors
                or before.known.tombs
            )
            others = [k for k in s.neighbours if k not in departed(s.known.tombs)]
            fresh = before.incarnation != s.incarnation or not before.peers.synced
            if fresh and past and others and not s.peers.welcomed:
                self._fail("I13", agent, "leaves quarantine without an answer")
            return
        for effect in effects:
            message = effect.message if isinstance(effect, Send) else None
            forbidden_message = message is not None and not isinstance(message, Hello | Welcome)
            if forbidden_message or isinstance(effect, Work):
                self._fail("I13", agent, f"{type(message or effect).__name__} in quarantine")

    def _holds_nothing_certified(self, agent: int, s: State) -> None:
        for request in self.certified:
            owner, rows = self.erased[request]
            tomb = s.known.tombs.get(owner, NOTHING)
            if request not in tomb.ids and not tomb.whole and not tomb.departed:
                self._fail("I5", agent, f"does not know the certified erasure of {owner}")
            if owner == agent and self.contains is not None:
                kept = [factor.units for factor in s.own.factors]
                for origin in (s.token.origin, s.token.copy_origin):
                    if origin is not None and origin.removed is not None:
                        kept.append(origin.removed.units)
                if any(self.contains(agent, units, rows) for units in kept):
                    self._fail("I5", agent, "holds a factor with certified-erased rows")

    def _sums_nothing_certified(self, agent: int, token: Token) -> None:
        for request in self.certified if self.contains is not None else ():
            owner, rows = self.erased[request]
            if owner in token.inside and owner != self.liar:
                units = self.factors[owner, token.included[owner]].units
                if self.contains is not None and self.contains(owner, units, rows):
                    self._fail("I5", agent, f"token {token.stamp} has certified-erased rows")

    def _parked(self, agent: int, s: State, notice: ParkNotice) -> None:
        """Check the copy of the parked token: the same transition may have woken the token."""
        token = s.token.copy
        if token is None or token.stamp != notice.stamp:
            return
        so_far = token.round
        waiting = self.terms.everybody - departed(token.tombs) - so_far.agents
        if waiting:
            if notice.certificate:
                missing = list(waiting)
                self._fail("I9", agent, f"a certificate without the attestations of {missing}")
            return  # pending
        if not so_far.agents:
            return
        if so_far.audit is None or not np.array_equal(so_far.audit, token.eta):
            self._fail("I9", agent, "parked without a matching audit")
        if so_far.statement != attestation(self.terms, token, so_far.secret):
            self._fail("I9", agent, "the statement that was signed is not about this token")
        if set(so_far.signatures) != set(so_far.agents):
            self._fail("I9", agent, "the signatures are not those of the agents that attested")
        if self.signers is not None:
            for k, signature in so_far.signatures.items():
                if signature != sign_statement(so_far.statement, self.signers[k]):
                    self._fail("I9", agent, f"{k} has signed another statement")
        honest = (k for k in token.inside if k != self.liar)
        factors = {k: self.factors[k, token.included[k]].units for k in honest}
        if (
            self.liar is None
            and self.frozen is not None
            and self.terms.freezes
            and not so_far.unknown
        ):
            total = self.terms.frozen_grid.zeros()
            for k, units in factors.items():
                total = total + self.frozen(k, token.eta, units)
            if so_far.frozen is None or not np.array_equal(so_far.frozen, total):
                self._fail("I9", agent, f"the frozen sum is {so_far.frozen}, not {total}")
        if self.stationary is not None and self.terms.freezes and so_far.converged:
            for k, units in factors.items():
                if not self.stationary(k, token.eta, units):
                    self._fail("I9", agent, f"says converged, but {k} would still move")

    def _certificate(self, agent: int, s: State, certificate: bytes) -> None:
        token = s.token.copy
        assert token is not None
        self.certificates.append(certificate)
        requests = {r for tomb in token.tombs.values() for r in tomb.ids - tomb.compacted}
        self.certified |= requests & self.erased.keys()
        for request in requests & s.known.tombstones.keys():
            if s.known.tombstones[request].retrain and request not in token.retrain_epoch:
                self._fail("I6", agent, "an erasure that asked for retraining is called refined")
        for k in token.inside:
            if k == self.liar:
                continue
            if not token.retrain_epoch <= self.factors[k, token.included[k]].retrain_epoch:
                self._fail("I6", agent, f"{k}'s factor was fitted before the retraining")
        predicate = unchecked_closing(certificate)
        for request, entry in predicate["erasures"].items():
            earned = "retrained" if bytes.fromhex(request) in token.retrain_epoch else "refined"
            exact = self.terms.conjugate or (self.terms.settles and token.round.converged)
            word = "exact" if self.terms.noise is None else "exact_before_noise"
            if entry["kind"] != (word if exact else earned):
                self._fail("I6", agent, f"the certificate says {entry['kind']}")
        try:
            account = verify(certificate, self.terms, self._signed)
        except NotCertified as error:
            self._fail("I9", agent, f"the certificate does not verify: {error}")
        if not account.opens(token.round.secret, token.eta):
            self._fail("I9", agent, "the certificate is about another sum")
        for payload in unchecked_payloads(certificate):
            self._gives_nothing_away(agent, payload)
        if not requests <= {bytes.fromhex(request) for request in predicate["erasures"]}:
            self._fail("I9", agent, "the certificate leaves out an erasure")
        for k, state in self.latest.items():
            if k == self.liar or not state.peers.synced:
                continue
            if k not in departed(token.tombs) and k not in self.departed:
                self._holds_nothing_certified(k, state)
                for held in (state.token.held, state.token.copy, state.token.published):
                    if held is not None:
                        self._sums_nothing_certified(k, held)

    def _signed(self, agent: int, payload: bytes, signature: bytes) -> bool:
        return self.signers is None or signature == self.signers[agent](payload)

    def _factors(self, agent: int, s: State) -> None:
        for factor in s.own.factors:
            self.factors.setdefault((agent, factor.revision), factor)
            # A certificate names a factor by its revision's first two parts.
            first = self.names.setdefault((agent, *factor.revision[:2]), factor)
            if first is not factor and not np.array_equal(first.added, factor.added):
                self._fail("I2", agent, f"revision {factor.revision} names two factors")
            if factor.given is not None:
                self.private.check_given(agent, s, factor.given)

    def _receipts(self, agent: int, s: State) -> None:
        for receipt in reversed(s.own.receipts):  # the oldest first
            previous = bytes.fromhex(receipt.body["previous"])
            if previous not in self.hashes:
                self._fail("I7", agent, "a receipt continues an unknown chain")
            assert isinstance(receipt, Receipt)
            self.hashes.add(chain(previous, receipt))

    def _tombstones(self, agent: int, s: State) -> None:
        for request, tombstone in s.known.tombstones.items():
            self.erased.setdefault(request, (tombstone.agent, tombstone.rows))
            self._gives_nothing_away(agent, tombstone)
            if tombstone.retrain and request not in s.known.retrain_epoch:
                self._fail(
                    "I4",
                    agent,
                    "knows a tombstone that asked for retraining, but lacks its retrain epoch",
                )

    def _evidence(self, agent: int, s: State) -> None:
        for k, tomb in s.known.tombs.items():
            self.compacted |= tomb.compacted
            if k == self.liar:
                continue
            if not tomb.compacted <= self.certified & tomb.ids:
                self._fail("I14", agent, f"an erasure of {k} was compacted and never certified")
            if (
                s.peers.synced
                and not tomb.departed
                and not tomb.ids - tomb.compacted <= s.known.tombstones.keys()
            ):
                self._fail("I14", agent, f"an erasure of {k} is known without its evidence")
        for compacted in s.known.compacted.values():
            if compacted.agent == self.liar:
                continue
            if not compacted.ids <= self.kept.get(compacted.agent, set()):
                self._fail("I14", agent, f"{compacted.agent} compacted without a certificate")

    def _spoiled(self, agent: int) -> None:
        """A lost or restored disk may lose the token and its own intents, but nothing else."""
        self.excused = self.newest
        self.requests.pop(agent, None)

    def _fail(self, invariant: str, agent: int, what: str) -> NoReturn:
        raise Violation(f"{invariant} at {self.terms.name(agent)}: {what}")


def departed(tombs: Tombs) -> frozenset[int]:
    """The agents that a quorum declared departed."""
    return frozenset(k for k, tomb in tombs.items() if tomb.departed)


def forbidden(token: Token, s: State) -> bool:
    """Whether a token includes what the agent with this state knows to be erased."""
    for k, known in s.known.tombs.items():
        told = token.tombs.get(k, NOTHING)
        if k in token.inside and (known.whole or known.departed or not known.ids <= told.ids):
            return True
    return bool(token.inside) and not s.known.retrain_epoch <= token.retrain_epoch


def _covered(small: Tomb, large: Tomb) -> bool:
    return (
        small.ids <= large.ids and small.whole <= large.whole and small.departed <= large.departed
    )


def _content(token: Token) -> tuple[object, ...]:
    return (*token._replace(eta=token.eta.tobytes(), round=token.round.agents),)  # type: ignore[arg-type]


def _tokens(before: State, after: State, effects: Sequence[Effect]) -> list[Token]:
    """The tokens that this transition made or sent."""
    tokens: dict[int, Token] = {}
    for token, old in (
        (after.token.held, before.token.held),
        (after.token.copy, before.token.copy),
    ):
        if token is not None and token is not old:
            tokens[id(token)] = token
    for effect in effects:
        if isinstance(effect, Send) and isinstance(effect.message, Pass):
            tokens[id(effect.message.token)] = effect.message.token
    return list(tokens.values())
