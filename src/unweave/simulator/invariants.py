"""The invariants of the protocol, checked after every event.

I1  every token anywhere (held, parked, in an outbox, a copy, in flight) satisfies
    eta = eta_0 + Σ_k factor_k[included_k]; so each factor is in it exactly once
I2  durable before sent: every revision that a token includes was committed by its owner before, and
    a revision names one factor for ever
I3  a role token is never older than its agent's fence, nor newer than its last accepted stamp
I4  nothing that a tombstone forbids exists where the tombstone is known: no dead token, no dead
    copy, no factor computed from erased rows, no factor of an older retrain epoch; an agent that
    knows a tombstone that asked for retraining has it in its retrain epoch
I5  after certification every synced agent that no agent knows as departed knows the erasure and
    holds nothing of it, in its factors or in a sum, at every later time
I6  a certificate that says `retrained` covers no factor that was fitted before the request, and an
    erasure that asked for retraining is never certified as anything less
I7  receipts form one hash chain: each names the hash it continues, and the token carries the end
I8  tombstones, retrain epochs and fences of a running process only grow
I9  a token parked after a complete attestation round was audited: the second sum equals eta, the
    statement is about this token, exactly the agents that have not departed signed it, the frozen
    sum is the sum of their vectors at this eta, and if it says "converged", every solver would keep
    its factor; its certificate verifies
I10 an agent, up or down, is responsible for the newest token, unless a disk was lost, a quorum
    voted or the audit failed: no agent acknowledges a token that it has not stored, or drops one
    silently
I11 a stamp names one token, sent to one neighbour that has not departed
I12 a token that starts an epoch, or is woken, starts a pass: no agent was seen or has attested
I13 in quarantine an agent sends nothing but Hello and Welcome and asks for no work; with a past it
    leaves quarantine only when at least one neighbour has answered
I14 a synced agent holds the signed evidence of every open erasure it knows; an erasure is compacted
    only after certification, by the agent that asked, which holds the certificate
I15 nothing that leaves the tokens gives a sum away: no certificate, receipt, tombstone or audit
    mismatch holds the secret of an attestation round or a digest of a sum that is not keyed by one;
    a secret serves one statement

In private rounds (rule 20), I1 holds for the masked values modulo 2^64, and:

P1  one value per key: under a one-time key one vector is ever given to the sum and one to the
    audit, for one round, over all incarnations, lost disks and restored backups
P2  an agent gives only to the roster that it derives itself: it knows no agent of the round to be
    out, and no other agent to be in
P3  masks cancel: a token that includes its whole roster is eta_0 + Σ_k factor_k (with noise: and
    the noise that was drawn for these values), bit for bit, and all factors were computed at one
    point
P4  an incomplete sum is noise: no token with an agent in and another one missing equals its
    unmasked sum
P5  a token is attested only if it is complete; or empty, if its roster is too small for a sum or an
    agent of it has spent its privacy budget
P6  with batches (rule 21) a change of records leaves its agent only with a round whose enrolments
    show enough changes, its own among them; or after its date; or with the erasure of the whole
    agent; or if the agent's disk has lost what the sum includes of it. An agent that gives to
    the round of its batch keeps no change back
P7  with noise (rule 22) an agent's ledger counts every value that another agent has got from it,
    also after the ledger was lost or restored, when it gives the next one

If one agent lies (`InsiderChecker`), I1 to I15 hold for the honest agents, except what only the
liar could have kept: the chain of receipts (I7), its frozen vector and its solver (I9), the token
that it swallowed (I10), the pass that it started (I12), its own erasures (I6, I14). And:

J1  every token of an honest agent is eta_0 + the honest factors that it includes + the vector that
    the liar has committed to in its own revision
J2  no honest agent is declared departed, is accused by a proof that an agent keeps, or stops for an
    audit failure
J3  no number comes near what a store can hold
J4  at the end no agent holds a proof against an agent that has not departed, if agents answer
    proofs with votes
J5  no honest agent ever finds an audit mismatch: a wrong sum is refused where it first arrives

The checks use none of the protocol's own predicates (`dead`, `departed`, `join`): a bug there must
not hide itself.

`check_liveness` checks the end of a run, after the faults: one parked token in one epoch; every
agent that should be is included, at its current revision; no agent has pending work; a departed
agent that runs knows the votes; every erasure that a disk remembers was carried out and certified.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
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
from unweave.protocol.state import Factor, GivenValue, Hold, Idle, Out, Parked, State
from unweave.protocol.statements import Receipt, Sign, SignedStatement
from unweave.protocol.terms import Terms
from unweave.protocol.token import NEVER, NOTHING, Revision, Stamp, Token, Tomb, Tombs, round_name
from unweave.protocol.visit import chain
from unweave.simulator.insider import InsiderWorld
from unweave.simulator.world import World

__all__ = [
    "Checker",
    "InsiderChecker",
    "Violation",
    "check_liveness",
    "check_proofs",
    "departed",
    "known_departed",
    "parked_token",
]


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
        self.clock: Callable[[], float] = lambda: math.inf  # what wall clocks show
        self.noise: Mapping[bytes, Ints] = {}  # key → what was added to the value that it masked
        self.shown: dict[int, set[bytes]] = {}  # agent → keys of its values that others have got
        self.paid: Callable[[int], float] = lambda agent: math.inf  # values by an agent's ledger
        self.latest: dict[int, State] = {}  # agent → its last committed state
        self.factors: dict[tuple[int, Revision], Factor] = {}
        self.names: dict[tuple[int, int, int], Factor] = {}  # agent, counter, incarnation
        self.hashes = {first_hash(terms.network_id)}
        self.erased: dict[bytes, tuple[int, frozenset[bytes]]] = {}  # request → agent, rows
        self.requests: dict[int, set[bytes]] = {}  # agent → its durable intents
        self.left: set[bytes] = set()  # requests that wait for no batch, also of lost disks
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
        self.given: dict[bytes, tuple[int, GivenValue]] = {}  # public key → who gave what under it
        self.rounds: set[bytes] = set()  # the names of complete rounds
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
            self._batch(agent, before, after, effects)
        if after.own.receipts is not before.own.receipts:
            self._receipts(agent, after)
        if after.known.tombstones is not before.known.tombstones or known is not before:
            self._tombstones(agent, after)
        for one in (*after.own.receipts, *after.known.mismatches):
            self._gives_nothing_away(agent, one)
        if after.known.intents is not before.known.intents:
            own = {r for r, intent in after.known.intents.items() if intent.agent == agent}
            self.requests.setdefault(agent, set()).update(own)
            self.left |= own
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

    def _batch(self, agent: int, before: State, after: State, effects: Sequence[Effect]) -> None:
        was, now = before.own, after.own
        if (now.data, now.rows) == (was.data, was.rows) or not was.factors:
            return
        tomb = after.known.tombs.get(agent, NOTHING)
        whole = any(i.whole and i.agent == agent for i in after.known.intents.values())
        if tomb != before.known.tombs.get(agent, NOTHING) or tomb.whole or tomb.departed or whole:
            return  # an erasure of its own that it had lost, or of everything
        new = after.known.intents.keys() - before.known.intents.keys()
        if now.data == was.data and new and new <= self.left:
            return  # it has left before, and the disk had lost that
        if was.waiting.due is not None and self.clock() >= was.waiting.due:
            return
        if was.factors[0].data != was.data or was.factors[0].rows != was.rows:
            return  # a change was on its way already: the next solve reads this one, too
        if any(isinstance(e, Opened) and "is no longer kept" in e.why for e in effects):
            return  # what the sum includes of it is lost
        tokens = filter(None, (before.token.held, after.token.held))
        if not any(self._in_batch(agent, token) for token in tokens):
            self._fail("P6", agent, "a change left alone")

    def _in_batch(self, agent: int, token: Token) -> bool:
        """Whether the enrolments of this round show enough changes, this agent's among them."""
        least = self.terms.publish
        if least is None:
            return False
        counts = {
            k: int(one.body["changed"])
            for k, one in token.masked.keys.items()
            if one.body["base"] == token.masked.base.hex() and one.body["changed"] > 0
        }
        enough = len(counts) >= least.agents and sum(counts.values()) >= least.records
        return agent in counts and enough

    def _token(self, agent: int, token: Token) -> None:
        total, inside = self._sum_of(agent, token)
        if not np.array_equal(total, token.eta):
            self._fail("I1", agent, f"token {token.stamp}: eta {token.eta} but the sum is {total}")
        if inside != token.inside:
            self._fail("I1", agent, f"token {token.stamp}: {token.inside} of {inside}")
        if self.liar is None and token.receipts not in self.hashes:
            self._fail("I7", agent, f"token {token.stamp}: its chain of receipts is unknown")
        if self.terms.masked:
            self._masked_token(agent, token)
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

    def _masked_token(self, agent: int, token: Token) -> None:
        members = set(self.terms.everybody) - _out(token.tombs)
        complete = bool(token.inside) and set(token.inside) == set(token.masked.keys)
        factors = [self.factors[k, token.included[k]] for k in token.inside]
        plain = self.terms.eta0 + sum((one.units for one in factors), self.terms.grid.zeros())
        if self.terms.noise is not None:
            keys = [one.given.key for one in factors if one.given is not None]
            for k, key in zip(token.inside, keys, strict=True):
                if k != agent:
                    self.shown.setdefault(k, set()).add(key)
            plain = plain + sum((self.noise[key] for key in keys), self.terms.grid.zeros())
        if complete:
            self.rounds.add(round_name(self.terms.network_id, token.masked))
            if not np.array_equal(plain, token.eta):
                self._fail("P3", agent, f"token {token.stamp}: the masks have not cancelled")
            if len({one.point for one in factors}) > 1:
                self._fail("P3", agent, f"token {token.stamp}: factors of several points")
        elif token.inside and np.array_equal(plain, token.eta):
            self._fail("P4", agent, f"token {token.stamp} is not masked")
        spent = [one for one in token.masked.keys.values() if not one.body["key"]]
        empty = not token.inside and (len(members) < self.terms.min_roster or bool(spent))
        if token.round.agents and not empty and members - set(token.inside):
            self._fail("P5", agent, f"token {token.stamp} is attested and not complete")

    def _given(self, agent: int, s: State, given: GivenValue) -> None:
        new = given.key not in self.given
        who, first = self.given.setdefault(given.key, (agent, given))
        if who != agent:
            self._fail("P1", agent, f"gave under the key of {who}")
        same = np.array_equal(first.units, given.units) and np.array_equal(first.audit, given.audit)
        if first.round != given.round or not same:
            self._fail("P1", agent, "gave two values under one key")
        if first is given:
            count = len(self.shown.get(agent, set()) | {given.key})
            if count > self.paid(agent):
                self._fail("P7", agent, f"gave {count} values, and has paid for {self.paid(agent)}")
        token = s.token.held or s.token.copy
        if first is given and token is not None:
            if round_name(self.terms.network_id, token.masked) != given.round:
                return  # the sum was complete, and the next round has started
            known = set(self.terms.everybody) - _out(s.known.tombs)
            if set(token.masked.keys) != known:
                self._fail("P2", agent, f"gave to {set(token.masked.keys)}, knows of {known}")
            waiting = s.own.waiting  # a change after the value was given waits for the next batch
            if new and self._in_batch(agent, token) and (waiting.requests or waiting.data):
                self._fail("P6", agent, "gave to the round of its batch without its changes")

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
                self._given(agent, s, factor.given)

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


_EPOCHS, _HOPS, _PASSES = 2**62, 2**40, 2**32
_WRAP = 2**63


class InsiderChecker(Checker):
    """Checks the honest agents of a network in which the agent `liar` lies."""

    liar: int

    def __init__(
        self,
        terms: Terms,
        *args: Any,
        liar: int,
        made: dict[bytes, Ints] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(terms, *args, **kwargs)
        self.liar = liar
        self.made = {} if made is None else made  # what the liar has committed to

    def after(self, agent: int, before: State, after: State, effects: Sequence[Effect]) -> None:
        if agent == self.liar:
            self._note(before, after, effects)
            return
        super().after(agent, before, after, effects)
        if departed(after.known.tombs) - {self.liar}:
            self._fail("J2", agent, f"knows {departed(after.known.tombs)} as departed")
        if after.audit_failed:
            self._fail("J2", agent, "has stopped for an audit failure")
        if any(mismatch.author != self.liar for mismatch in after.known.mismatches):
            self._fail("J5", agent, "knows an audit mismatch of an honest agent")
        self._numbers(agent, after)

    def _note(self, before: State, after: State, effects: Sequence[Effect]) -> None:
        """What the liar does is not checked, but what it has made is needed to check others."""
        known = self.latest.get(self.liar)
        if known is not None and known is not before:
            self._spoiled(self.liar)
        self.latest[self.liar] = after
        self.starts += before.incarnation != after.incarnation
        for factor in after.own.factors:
            self.made.setdefault(factor.revision.commitment, factor.added)
            self.factors.setdefault((self.liar, factor.revision), factor)
        for request, tombstone in after.known.tombstones.items():
            self.erased.setdefault(request, (tombstone.agent, tombstone.rows))
        own = {r for r, intent in after.known.intents.items() if intent.agent == self.liar}
        self.requests.setdefault(self.liar, set()).update(own)
        for effect in effects:
            if isinstance(effect, Certified):
                self._certificate(self.liar, after, effect.certificate)
            elif isinstance(effect, Opened):
                self.opened.append(effect.why)

    def _token(self, agent: int, token: Token) -> None:
        revision = token.included[self.liar]
        if revision.counter:
            units = self.made.get(revision.commitment)
            if units is None:
                self._fail("J1", agent, f"token {token.stamp}: the liar committed to nothing")
            invented = Factor(revision, units, frozenset(), 0, 0, b"")
            self.factors.setdefault((self.liar, revision), invented)
        try:
            super()._token(agent, token)
        except Violation as violation:
            raise Violation(str(violation).replace("I1 at", "J1 at")) from None

    def _numbers(self, agent: int, s: State) -> None:
        stamps = [s.token.last, s.token.fence, s.token.wake]
        tokens = [token for token in (s.token.held, s.token.copy) if token is not None]
        stamps += [token.stamp for token in tokens]
        stamps += [] if s.token.parked is None else [s.token.parked.stamp]
        if any(stamp.epoch >= _EPOCHS or stamp.hop >= _HOPS for stamp in stamps):
            self._fail("J3", agent, f"a stamp that no store holds: {max(stamps)}")
        if any(token.passes > _PASSES for token in tokens):
            self._fail("J3", agent, f"passes that no store holds: {tokens}")

    def _new_pass(self, agent: int, before: State, s: State) -> None:
        token = s.token.held
        if token is None or token.stamp.initiator != self.liar:
            super()._new_pass(agent, before, s)

    def _receipts(self, agent: int, s: State) -> None:
        """The liar may break the chain."""

    def _responsible(self, agent: int, before: State, s: State) -> None:
        """The liar may swallow a token."""


def departed(tombs: Tombs) -> frozenset[int]:
    """The agents that a quorum declared departed."""
    return frozenset(k for k, tomb in tombs.items() if tomb.departed)


def known_departed(world: World) -> frozenset[int]:
    """The agents that any running agent knows as departed."""
    running = (agent.state for agent in world.agents if agent.state is not None)
    return frozenset().union(*(departed(state.known.tombs) for state in running))


def parked_token(world: World) -> Token:
    """The parked token at the end of a run. A departed agent that lies may say that it has one."""
    absent = known_departed(world)
    roles = (
        agent.state.token.role
        for k, agent in enumerate(world.agents)
        if k not in absent and agent.state is not None
    )
    return next(role.token for role in roles if isinstance(role, Parked))


def forbidden(token: Token, s: State) -> bool:
    """Whether a token includes what the agent with this state knows to be erased."""
    for k, known in s.known.tombs.items():
        told = token.tombs.get(k, NOTHING)
        if k in token.inside and (known.whole or known.departed or not known.ids <= told.ids):
            return True
    return bool(token.inside) and not s.known.retrain_epoch <= token.retrain_epoch


def _out(tombs: Tombs) -> set[int]:
    return {k for k, tomb in tombs.items() if tomb.whole or tomb.departed}


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


def check_liveness(world: World, checker: Checker) -> None:
    """Raise `Violation` unless the network has parked the token with no pending work."""
    absent = known_departed(world)
    live = [k for k in range(len(world.agents)) if k not in absent]
    down = [k for k in live if world.agents[k].state is None]
    if down:
        _fail(f"{down} are down")
    states = {k: world.state(k) for k in live}
    if any(s.audit_failed for s in states.values()):
        _fail("the audit failed: two mismatches")
    roles = {k: s.token.role for k, s in states.items() if not isinstance(s.token.role, Idle)}
    if len(roles) != 1 or not all(isinstance(role, Parked) for role in roles.values()):
        _fail(
            f"expected one parked token, found {[(k, type(r).__name__) for k, r in roles.items()]}"
        )
    holder, role = next(iter(roles.items()))
    assert isinstance(role, Parked)
    token = role.token
    if set(live) - set(token.round.agents):
        _fail(f"{set(live) - set(token.round.agents)} have not attested")
    for k, s in states.items():
        spent = any(not one.body["key"] for one in token.masked.spare.values())
        given = (bool(token.inside) and not spent) or not world.terms.masked
        _check_agent(k, s, checker, given=given)
        if (
            s.token.parked is None
            or s.token.parked.stamp != token.stamp
            or s.token.parked.holder != holder
        ):
            _fail(f"agent {k} does not know where the token is parked")
        if (
            any(t.ids - t.compacted for t in token.tombs.values())
            and not s.token.parked.certificate
        ):
            _fail(f"agent {k} has no certificate of the erasures it knows")
        own = s.known.tombs.get(k, NOTHING).ids
        if not own <= checker.kept.get(k, set()):
            _fail(f"agent {k} was never given the certificate of its own erasures")
        if not token.inside and world.terms.masked:
            continue  # too few agents remain for a sum
        if spent and s.own.current is None:
            continue  # an erasure of records that the sum does not hold, and no other sum follows
        wanted = None if s.own.current is None else s.own.current.revision
        if (token.included[k] if k in token.inside else None) != wanted:
            _fail(f"agent {k} is included at {token.included[k]}, not at {wanted}")
    if token.inside & absent:
        _fail("a departed agent is included")
    lying = {world.liar} if isinstance(world, InsiderWorld) and world.lying else set()
    for k, agent in enumerate(world.agents):
        if k in absent - lying and agent.state is not None and agent.backlog is None:
            _check_departed(k, agent.state, list(states.values()))


def check_proofs(world: World) -> None:
    """J4, where agents answer proofs with votes."""
    for k, agent in enumerate(world.agents):
        if agent.state is not None:
            for liar in agent.state.known.proofs:
                raise Violation(f"J4 at {world.terms.name(k)}: a proof against {liar}, which stays")


def _check_departed(k: int, s: State, others: list[State]) -> None:
    """A departed agent that runs has the votes, and keeps no forbidden sum."""
    if k not in departed(s.known.tombs):
        _fail(f"agent {k} was voted out and does not know it")
    if not isinstance(s.token.role, Idle):
        _fail(f"agent {k} was voted out and is responsible for a token")
    if s.token.copy is not None and any(forbidden(s.token.copy, other) for other in others):
        _fail(f"agent {k} was voted out and keeps a sum with erased data")


def _check_agent(k: int, s: State, checker: Checker, *, given: bool) -> None:
    tomb = s.known.tombs.get(k, NOTHING)
    if s.known.intents:
        _fail(f"agent {k} still knows an open request")
    if tomb.whole and s.own.current is not None:
        _fail(f"agent {k} was erased and still has a factor")
    if (
        given
        and s.own.current is not None
        and (s.own.current.rows != s.own.rows or s.own.current.data != s.own.data)
    ):
        _fail(f"agent {k} has not learned its current data")
    if not tomb.whole and (s.own.waiting.requests or s.own.waiting.data):
        _fail(f"agent {k} has changes that wait, after their date")
    known = {request for tomb in s.known.tombs.values() for request in tomb.ids}
    if known - checker.certified:
        _fail(f"{len(known - checker.certified)} erasures known to agent {k} are not certified")
    if not tomb.whole and checker.requests.get(k, set()) - checker.certified:
        _fail(f"agent {k} has an intent that was not carried out")


def _fail(what: str) -> NoReturn:
    raise Violation(f"liveness: {what}")
