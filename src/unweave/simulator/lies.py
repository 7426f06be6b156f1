"""The lies of one agent with a valid key, about everything, at random.

A liar runs the honest core beside its lies, so it knows what every agent knows. It invents
everything that carries no signature, and signs what it likes in its own name. It swallows, forks
and repeats tokens. What other agents have signed it can only repeat.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from unweave.grid import Ints
from unweave.persistent import Bitmap, Stack, Vector
from unweave.protocol.certificate.write import sign_statement
from unweave.protocol.messages import (
    Ack,
    Alive,
    Digests,
    Erasures,
    Gossip,
    Heard,
    Hello,
    Message,
    News,
    ParkNotice,
    Pass,
    Share,
    Welcome,
)
from unweave.protocol.recovery import empty_token
from unweave.protocol.state import State
from unweave.protocol.statements import (
    AuditMismatch,
    Intent,
    Opening,
    Sign,
    SignedStatement,
    Vote,
)
from unweave.protocol.steps import Revealed, TokenHeader, TokenStep, write_header
from unweave.protocol.terms import Terms
from unweave.protocol.token import (
    EPOCHS,
    HOPS,
    NEVER,
    NO_ROUND,
    OPENINGS,
    OUT,
    PASSES,
    SECRET_BYTES,
    AttestationRound,
    Revision,
    Stamp,
    Token,
    Tomb,
    join,
    request_id,
)

__all__ = ["DISTURBANCES", "FORGERIES", "ROUND_TWISTS", "TWISTS", "Liar"]


class Liar:
    """Agent `me`, with its signer. `state` is that of its honest core, `clock` its clock; `made`
    collects the factors that it commits to."""

    def __init__(
        self,
        terms: Terms,
        me: int,
        sign: Sign,
        rng: random.Random,
        state: Callable[[], State],
        clock: Callable[[], float],
        made: dict[bytes, Ints],
    ) -> None:
        self.terms = terms
        self.me = me
        self.sign = sign
        self.rng = rng
        self.state = state
        self.clock = clock
        self.made = made
        self.swallows = self.twists = 0.0  # of its tokens
        self.withholds = 0.0  # of its other messages
        self.pace = 1.0
        self.kinds: list[tuple[str, Lie]] = []
        self.favourites = [*TWISTS, *ROUND_TWISTS]
        self.given: deque[tuple[int, Pass]] = deque(maxlen=60)  # tokens that the liar was sent
        self.said: deque[Message] = deque(maxlen=30)  # what it sent, to repeat
        self.told: Counter[str] = Counter()  # the lies, by kind

    def choose_habits(self) -> None:
        """Some lies stop every token for a while: a run with all of them would try few others. One
        liar forges tokens, which can be proved. Another one disturbs: only votes by hand end it."""
        if self.rng.random() < 0.6:
            self.withholds = 0.02
            self.swallows, self.twists = 0.02, self.rng.choice([0.1, 0.3, 0.6])
            self.kinds = [*FORGERIES, *self.rng.sample(DISTURBANCES, 2)]
            self.favourites = self.rng.sample([*TWISTS, *ROUND_TWISTS], 4)
        else:
            self.withholds = 0.1
            self.swallows, self.twists = self.rng.choice([0.05, 0.2, 1.0]), 0.0
            number = self.rng.choice([1, 2, 4, 8, len(DISTURBANCES)])
            self.kinds, self.favourites = self.rng.sample(DISTURBANCES, number), []
        self.pace = self.rng.choice([0.3, 1.0, 3.0])

    def lie(self) -> Iterator[tuple[int, Message]]:
        """One lie, to one neighbour or to all of them."""
        s, rng = self.state(), self.rng
        what, lie = rng.choice(self.kinds)
        to = list(s.neighbours) if rng.random() < 0.3 else [rng.choice(s.neighbours)]
        for message in lie(self, s):
            for n in to:
                self.told[what] += 1
                yield n, message

    def distort(self, to: int, message: Message) -> Iterator[tuple[int, Message]]:
        """What the liar sends instead of a message of its honest core."""
        self.said.append(message)
        draw = self.rng.random()
        if isinstance(message, Pass):
            if draw < self.swallows:
                self.told["swallowed"] += 1
            elif draw < self.swallows + self.twists and message.step is not None:
                yield to, self.twisted(message)
            elif draw < self.swallows + self.twists + 0.1:
                for n in self.state().neighbours:
                    self.told["fork"] += 1
                    yield n, message
            else:
                yield to, message
        elif draw < self.withholds or (
            self.swallows == 1.0 and not isinstance(message, Ack | Heard | Welcome)
        ):
            self.told["withheld"] += 1
        elif isinstance(message, Welcome) and draw < 0.5:
            self.told["knows nothing"] += 1
            yield to, message._replace(fence=NEVER, gossip=Gossip(self._junk()))
        else:
            yield to, message

    def _write(self, kind: type[SignedStatement], **body: Any) -> Any:
        return kind.write(self.me, self.sign, network_id=self.terms.network_id.hex(), **body)

    def _junk(self) -> Digests:
        return Digests(*(self.rng.randbytes(4) for _ in Digests._fields))

    def _stamp(self, s: State) -> Stamp:
        """A stamp that no agent has made, often far above all others."""
        rng, fence = self.rng, s.token.fence
        far = rng.choice([1, 2, 5, 1000, 2**31, 2**32 - 1, 2 * (2**32 - 1), 2**61])
        hop = rng.choice([1, 7, 2**30, HOPS - 3, HOPS - 1, 2**61])
        return rng.choice(
            [
                Stamp(fence.epoch + far, rng.randrange(s.terms.size), rng.getrandbits(60), hop, 7),
                fence._replace(hop=fence.hop + hop),
                fence._replace(incarnation=2**64 - 1),
                fence.next(rng.getrandbits(60)),
            ]
        )

    def _saying(self, s: State, **parts: Any) -> Gossip:
        news = News({}, frozenset(), {}, NEVER)
        news = news._replace(**{k: v for k, v in parts.items() if k in News._fields})
        rest = {k: v for k, v in parts.items() if k in Gossip._fields}
        return Gossip(self._junk(), **{"news": news, "openings": s.known.openings, **rest})

    def _opening(self, s: State, count: int, epoch: int) -> Opening:
        found: Opening = self._write(
            Opening,
            agent=self.me,
            count=count,
            epoch=epoch,
            incarnation=self.rng.getrandbits(60),
        )
        return found

    def _next_opening(self, s: State, more: int) -> tuple[int, int]:
        """A count that the liar may sign, and the largest epoch number that it then may open."""
        known = s.known.openings
        count = min((known[self.me].count if self.me in known else 0) + more, OPENINGS - 1)
        others = sum(o.count for agent, o in known.items() if agent != self.me)
        return count, min(1 + count + others, EPOCHS - 1)

    def alive_far(self, s: State) -> list[Message]:
        """Two heartbeats: the second is as far above the first as the first above the fence."""
        epoch, far = s.token.fence.epoch, 2**32 - 1
        return [Alive(Stamp(epoch + i * far, 1 % s.terms.size, 7, 1, 7), 1.0) for i in (1, 2)]

    def alive_hop(self, s: State) -> list[Message]:
        return [Alive(self._stamp(s), 1e9 * self.rng.random())]

    def alive_clock(self, s: State) -> list[Message]:
        return [Alive(s.token.fence, self.rng.choice([1e300, 1e12, self.clock() + 1e6]))]

    def fence(self, s: State) -> list[Message]:
        stamp, gossip, inc = self._stamp(s), self._saying(s), s.incarnation
        kinds: list[Message] = [
            Hello(stamp, gossip, self.rng.getrandbits(60), 0),
            Welcome(stamp, gossip, inc, 0, 0),
            Share(stamp, gossip),
            Ack(stamp, s.token.fence),
            Heard(stamp, gossip.digests, inc),
        ]
        return [self.rng.choice(kinds)]

    def park_notice(self, s: State) -> list[Message]:
        """The token is parked, at some agent, with all attestations."""
        fence, copy = s.token.fence, s.token.copy
        stamp = self.rng.choice([self._stamp(s), fence.next(s.incarnation), fence])
        included = copy.included if copy is not None else Vector((OUT,) * s.terms.size)
        holder = self.rng.randrange(s.terms.size)
        notice = ParkNotice(stamp, holder, included, s.terms.everybody, s.known.tombs)
        return [Share(fence, self._saying(s, parked=notice))]

    def wake(self, s: State) -> list[Message]:
        fence = s.token.fence
        stamp = self.rng.choice([self._stamp(s), fence.next(s.incarnation), fence])
        return [Share(fence, self._saying(s, wake=stamp))]

    def opening(self, s: State) -> list[Message]:
        """Epochs for nothing, as many at once as it likes."""
        return self._opened(s, 0)

    def unpaid_opening(self, s: State) -> list[Message]:
        """An epoch whose number the counts do not cover."""
        return self._opened(s, self.rng.choice([1, 2**32, 2**61]))

    def _opened(self, s: State, beyond: int) -> list[Message]:
        more = self.rng.choice([1, 1, 1, 50, 2**32, 2**46])
        count, most = self._next_opening(s, more)
        opening = self._opening(s, count, min(most + beyond, EPOCHS - 1))
        stamp = Stamp(*opening.epoch, self.rng.choice([1, 2**30, HOPS - 9]), 7)
        openings = {**s.known.openings, self.me: opening}
        return [Share(stamp, self._saying(s, openings=openings)), Alive(stamp, 1.0)]

    def forged_opening(self, s: State) -> list[Message]:
        """Another agent's opening, which only the liar has signed."""
        other = self._other(s)
        body = {"agent": other, "count": 2**20, "epoch": 2**20, "incarnation": 7}
        mine = self._write(Opening, **body)
        forged = Opening(mine.raw, other, mine.signature)
        return [Share(s.token.fence, self._saying(s, openings={other: forged}))]

    def mismatches(self, s: State) -> list[Message]:
        """The audit has failed, three times."""
        mismatches = frozenset(
            self._write(
                AuditMismatch,
                stamp=[1, 1, 1, 1, self.rng.getrandbits(30)],
                agent=self.me,
                departed=self.rng.choice([[], sorted(s.departed)]),
            )
            for _ in range(3)
        )
        return [Share(s.token.fence, self._saying(s, mismatches=mismatches))]

    def forged_mismatch(self, s: State) -> list[Message]:
        """The audit has failed at two agents; one of them has not said so."""
        (said,) = self.mismatches(s)
        assert isinstance(said, Share)
        assert said.gossip.news is not None
        mine = next(iter(said.gossip.news.mismatches))
        forged = AuditMismatch(mine.raw, self._other(s), mine.signature)
        return [Share(s.token.fence, self._saying(s, mismatches=frozenset({mine, forged})))]

    def repeat(self, s: State) -> list[Message]:
        return [self.rng.choice(self.said)] if self.said else []

    def intent(self, s: State) -> list[Message]:
        if self.rng.random() > 0.1:
            return []
        request = request_id(self.me, self.rng.randbytes(12))
        intent = self._write(
            Intent,
            request=request.hex(),
            agent=self.me,
            whole=False,
            rows=["ff" * 16],  # of which the liar has none
            remembered=1,
        )
        return [Share(s.token.fence, self._saying(s, intents={request: intent}))]

    def vote(self, s: State) -> list[Message]:
        other = self._other(s)
        request = request_id(other, b"x" * 12).hex()
        vote = self._write(Vote, agent=other, name=s.terms.name(other), request=request)
        said = Erasures({}, frozenset(), {}, {(other, self.me): vote})
        return [Share(s.token.fence, self._saying(s, erasures=said))]

    def tombs(self, s: State) -> list[Message]:
        """An erasure or a departure without evidence."""
        other, departs = self._other(s), self.rng.random() < 0.5
        tomb = Tomb(frozenset({request_id(other, b"y" * 12)}), True, departs)
        said = Erasures({other: tomb}, frozenset(), {}, {})
        return [Share(s.token.fence, self._saying(s, erasures=said))]

    def lives(self, s: State) -> list[Message]:
        """A new process says Hello."""
        question = self.rng.randrange(3)
        return [Hello(s.token.fence, self._saying(s), self.rng.getrandbits(60), question)]

    def proof(self, s: State) -> list[Message]:
        """An accusation of an honest agent: its genuine token, or another one below its header."""
        if not self.given:
            return []
        giver, given = self.rng.choice(self.given)
        accused = given._replace(gossip=None)
        if self.rng.random() < 0.5:
            accused = accused._replace(token=given.token._replace(eta=given.token.eta + 1))
        return [Share(s.token.fence, self._saying(s, proofs={giver: accused}))]

    def _other(self, s: State) -> int:
        return self.rng.choice([k for k in range(s.terms.size) if k != self.me])

    def token(self, s: State) -> list[Message]:
        """A token from one that was given or from nothing, in its epoch or in a new one, with
        something wrong."""
        base = self._base(s)
        return [] if base is None else [self.twisted(base)]

    def fork(self, s: State) -> list[Message]:
        """A token that follows from one that was given, perhaps long ago."""
        base = self._base(s)
        return [] if base is None else [base]

    def revived(self, s: State) -> list[Message]:
        """An old sum, which claims to be without everything that was erased since."""
        base = self._base(s)
        if base is None or base.step is None:
            return []
        token = base.token._replace(
            tombs=join(base.token.tombs, s.known.tombs),
            retrain_epoch=base.token.retrain_epoch | s.known.retrain_epoch,
        )
        return [self._signed(base, token, base.step)]

    def _base(self, s: State) -> Pass | None:
        """A token, and the honest step to it from a token that the liar was given, or from eta_0,
        in the same epoch or in a new one. The liar leaves its own part as it is."""
        rng, before = self.rng, None
        if self.given and rng.random() < 0.9:
            _, before = self.given[-1] if rng.random() < 0.6 else rng.choice(self.given)
        openings = s.known.openings
        if before is None:
            token, header = empty_token(s, NEVER), None
        else:
            token, header = before.token, before.header
        if before is None or rng.random() < 0.6:
            count, most = self._next_opening(s, 1)
            opening = self._opening(s, count, most)
            openings = {**openings, self.me: opening}
            stamp = Stamp(*opening.epoch, 1, 7)
        else:
            stamp = token.stamp.next(rng.getrandbits(60))
        same_round = rng.random() < 0.5 and before is not None
        token = token._replace(
            stamp=stamp,
            seen=Bitmap(),
            stack=Stack(),
            busy=True,
            round=token.round if same_round else NO_ROUND,
        )
        if stamp.epoch > s.token.fence.epoch + 2**60:
            return None
        step = TokenStep(header, token.included[self.me])
        message = Pass(token, self._saying(s, openings=openings), None, step)
        return self._signed(message, token, step)

    def _signed(self, message: Pass, token: Token, step: TokenStep) -> Pass:
        header = write_header(self.terms.network_id, self.me, self.sign, token, step)
        return message._replace(token=token, header=header, step=step)

    def twisted(self, message: Pass) -> Pass:
        """The token with one thing wrong; sometimes it is unusual and allowed."""
        attested = message.token.round.audit is not None
        usable = [one for one in self.favourites if attested or one not in ROUND_TWISTS]
        what, twist = self.rng.choice(usable or TWISTS)
        self.told["token: " + what] += 1
        assert message.step is not None
        found = twist(self, message.token, message.step)
        if isinstance(found, Pass):
            return found._replace(gossip=message.gossip)
        token, step = (found, message.step) if isinstance(found, Token) else found
        return self._signed(message, token, step)

    def _moved(self, eta: Ints) -> Ints:
        moved = eta.copy()
        moved[self.rng.randrange(len(moved))] += self.rng.choice([1, -1, 12345, 2**40])
        return moved

    def _revision(self) -> Revision:
        rng = self.rng
        return Revision(rng.choice([1, 99]), rng.getrandbits(60), rng.randbytes(32))

    def _reveal(self, size: int) -> Revealed:
        """A factor of the liar's own."""
        units = np.array([self.rng.randrange(100) for _ in range(size)], dtype=np.int64)
        shown = Revealed(self.rng.randbytes(16), units)
        self.made[shown.commitment] = units
        return shown

    def _of_another(self, token: Token, revision: Revision) -> Token:
        other = self.rng.choice([k for k in range(len(token.included)) if k != self.me])
        return _with(token, other, revision)

    def twist_eta(self, token: Token, step: TokenStep) -> Token:
        return token._replace(eta=self._moved(token.eta))

    def twist_edge(self, token: Token, step: TokenStep) -> Token:
        edge = self.rng.choice([2**63 - 1, -(2**63)])
        return token._replace(eta=np.full_like(token.eta, edge))

    def twist_included(self, token: Token, step: TokenStep) -> Token:
        return self._of_another(token, self._revision())

    def twist_dropped(self, token: Token, step: TokenStep) -> Token:
        return self._of_another(token, OUT)

    def twist_unshown(self, token: Token, step: TokenStep) -> Token:
        """A new factor of the liar that it does not show."""
        return _with(token._replace(eta=self._moved(token.eta)), self.me, self._revision())

    def twist_own(self, token: Token, step: TokenStep) -> tuple[Token, TokenStep]:
        """Any factor of its own is the liar's right, if nothing of it was in the sum."""
        if step.revision.counter or token.included[self.me].counter:
            return self.twist_exchanged(token, step)
        shown = self._reveal(len(token.eta))
        revision = Revision(7, self.rng.getrandbits(60), shown.commitment)
        times = self.rng.choice([1, 1, 2, 0])
        token = _with(token, self.me, revision)._replace(
            eta=token.eta + times * shown.units, round=NO_ROUND
        )
        return token, step._replace(factor=shown)

    def twist_exchanged(self, token: Token, step: TokenStep) -> tuple[Token, TokenStep]:
        """The factor in the sum is replaced, and another one is said to have been there."""
        removed, shown = self._reveal(len(token.eta)), self._reveal(len(token.eta))
        revision = Revision(8, self.rng.getrandbits(60), shown.commitment)
        eta = token.eta - removed.units + shown.units
        token = _with(token, self.me, revision)._replace(eta=eta, round=NO_ROUND)
        return token, step._replace(removed=removed, factor=shown)

    def twist_renamed(self, token: Token, step: TokenStep) -> Token:
        return _with(token, self.me, self._revision())

    def twist_removed(self, token: Token, step: TokenStep) -> tuple[Token, TokenStep]:
        return token, step._replace(removed=self._reveal(len(token.eta)))

    def twist_factor(self, token: Token, step: TokenStep) -> tuple[Token, TokenStep]:
        return token, step._replace(factor=self._reveal(len(token.eta)))

    def twist_revision(self, token: Token, step: TokenStep) -> tuple[Token, TokenStep]:
        return token, step._replace(revision=self.rng.choice([OUT, self._revision()]))

    def twist_self_given(self, token: Token, step: TokenStep) -> tuple[Token, TokenStep]:
        """The token before was signed by the liar itself."""
        eta = self._moved(token.eta)
        nothing = TokenStep(None, step.revision)
        earlier = token._replace(stamp=token.stamp._replace(hop=max(token.stamp.hop - 1, 1)))
        mine = write_header(
            self.terms.network_id, self.me, self.sign, earlier._replace(eta=eta), nothing
        )
        return token._replace(eta=eta), step._replace(before=mine)

    def twist_given_by_another(self, token: Token, step: TokenStep) -> Pass:
        """The token before is below the name of an agent that has not signed it."""
        _, step = self.twist_self_given(token, step)
        assert step.before is not None
        forged = TokenHeader(step.before.raw, self._other(self.state()), step.before.signature)
        return self._signed(Pass(token), token, step._replace(before=forged))

    def twist_before(self, token: Token, step: TokenStep) -> tuple[Token, TokenStep]:
        """Another token before: an old one, or none."""
        headers = [given.header for _, given in self.given]
        return token, step._replace(before=self.rng.choice([None, *headers]))

    def twist_no_step(self, token: Token, step: TokenStep) -> Pass:
        signed = self._signed(Pass(token), token, step)
        without = signed._replace(step=None), signed._replace(header=None)
        return self.rng.choice(without)

    def twist_header(self, token: Token, step: TokenStep) -> Pass:
        """A token below the header of another one."""
        signed = self._signed(Pass(token), token, step)
        return signed._replace(token=token._replace(eta=self._moved(token.eta)))

    def twist_hop(self, token: Token, step: TokenStep) -> Token:
        hop = self.rng.choice([1, HOPS - 2, HOPS - 9, HOPS, 2**61])
        return token._replace(stamp=token.stamp._replace(hop=hop))

    def twist_passes(self, token: Token, step: TokenStep) -> Token:
        passes = self.rng.choice([2**31, PASSES, PASSES + 1, 2**62 - 1])
        return token._replace(passes=passes, seen=self.terms.everybody)

    def twist_epoch(self, token: Token, step: TokenStep) -> Token:
        epoch = token.stamp.epoch + self.rng.choice([1, 2**32 - 1])
        return token._replace(stamp=token.stamp._replace(epoch=epoch))

    def twist_initiator(self, token: Token, step: TokenStep) -> Token:
        other = self._other(self.state())
        return token._replace(stamp=token.stamp._replace(initiator=other))

    def twist_way(self, token: Token, step: TokenStep) -> Token:
        size = self.terms.size
        stack = Stack.of(self.rng.randrange(size) for _ in range(min(size, 5)))
        return token._replace(stack=stack, seen=Bitmap.of(self.rng.getrandbits(size)))

    def twist_tombs(self, token: Token, step: TokenStep) -> Token:
        """Without an erasure, or with one that no agent has asked for."""
        tombs = dict(token.tombs)
        if tombs and self.rng.random() < 0.7:
            del tombs[self.rng.choice(sorted(tombs))]
            return token._replace(tombs=tombs, retrain_epoch=frozenset())
        other = self._other(self.state())
        tombs[other] = Tomb(frozenset({request_id(other, b"z" * 12)}))
        return token._replace(tombs=tombs)

    def twist_receipts(self, token: Token, step: TokenStep) -> Token:
        return token._replace(receipts=self.rng.randbytes(32))

    def twist_all_attested(self, token: Token, step: TokenStep) -> Token:
        """Every agent has attested; the signatures are the liar's."""
        agents = self.terms.everybody
        mine = sign_statement(b"{}", self.sign)
        signatures = dict.fromkeys(agents, mine)
        return token._replace(
            round=AttestationRound(
                agents, token.eta, None, b"{}", signatures, True, False, bytes(SECRET_BYTES)
            )
        )

    def twist_audit(self, token: Token, step: TokenStep) -> Token:
        so_far = token.round
        audit = token.eta if so_far.audit is None else so_far.audit
        return token._replace(round=so_far._replace(audit=self._moved(audit)))

    def twist_frozen(self, token: Token, step: TokenStep) -> Token:
        frozen = None if token.round.frozen is None else self._moved(token.round.frozen)
        return token._replace(round=token.round._replace(frozen=frozen))

    def twist_said(self, token: Token, step: TokenStep) -> Token:
        """The round says that it converged, or that a vector does not exist."""
        so_far = token.round
        return token._replace(
            round=so_far._replace(converged=not so_far.converged)
            if self.rng.random() < 0.5
            else so_far._replace(unknown=not so_far.unknown, frozen=None)
        )

    def twist_attested(self, token: Token, step: TokenStep) -> Token:
        """One agent's attestation is taken out, or the liar's own is added without its factor."""
        so_far = token.round
        if self.me not in so_far.agents and self.rng.random() < 0.5:
            signature = sign_statement(so_far.statement, self.sign)
            return token._replace(
                round=so_far._replace(
                    agents=so_far.agents.plus(self.me),
                    signatures={**so_far.signatures, self.me: signature},
                )
            )
        gone = self.rng.choice(sorted(so_far.agents))
        kept = {k: v for k, v in so_far.signatures.items() if k != gone}
        agents = so_far.agents.minus(gone)
        return token._replace(round=so_far._replace(agents=agents, signatures=kept))


def _with(token: Token, agent: int, revision: Revision) -> Token:
    """The token with this revision of an agent, and nothing else changed."""
    inside = token.inside.plus(agent) if revision.counter else token.inside.minus(agent)
    return token._replace(included=token.included.set(agent, revision), inside=inside)


Lie = Callable[[Liar, State], list[Message]]
DISTURBANCES: list[tuple[str, Lie]] = [
    (name.replace("_", " "), getattr(Liar, name))
    for name in (
        "alive_far",
        "alive_hop",
        "alive_clock",
        "fence",
        "park_notice",
        "wake",
        "opening",
        "unpaid_opening",
        "forged_opening",
        "mismatches",
        "forged_mismatch",
        "repeat",
        "intent",
        "vote",
        "tombs",
        "lives",
        "proof",
        "fork",
    )
]
FORGERIES: list[tuple[str, Lie]] = [
    (name, getattr(Liar, name)) for name in ("token", "token", "revived", "fork")
]
_ROUND = ("audit", "frozen", "said", "attested")
TWISTS: list[tuple[str, Callable[..., Any]]] = [
    (name.removeprefix("twist_").replace("_", " "), getattr(Liar, name))
    for name in vars(Liar)
    if name.startswith("twist_") and name.removeprefix("twist_") not in _ROUND
]
ROUND_TWISTS = [(name, getattr(Liar, "twist_" + name)) for name in _ROUND]
