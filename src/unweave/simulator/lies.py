"""The lies of one agent with a valid key, about everything, at random.

A liar runs the honest core beside its lies, so it knows what every agent knows. It invents
everything that carries no signature, and signs what it likes in its own name. It swallows, forks
and repeats tokens, and forges them (`forgeries`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from unweave.persistent import Vector
from unweave.protocol.messages import (
    Ack,
    Alive,
    Erasures,
    Gossip,
    Heard,
    Hello,
    Message,
    ParkNotice,
    Pass,
    Share,
    Welcome,
)
from unweave.protocol.state import State
from unweave.protocol.statements import AuditMismatch, Intent, Opening, Vote
from unweave.protocol.token import EPOCHS, HOPS, NEVER, OUT, Stamp, Tomb, request_id
from unweave.simulator.forgeries import ROUND_TWISTS, TWISTS, Forger

__all__ = ["DISTURBANCES", "FORGERIES", "Liar"]


class Liar(Forger):
    """A forger that also disturbs, by its habits."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.swallows = self.twists = 0.0  # of its tokens
        self.withholds = 0.0  # of its other messages
        self.pace = 1.0
        self.kinds: list[tuple[str, Lie]] = []
        self.said: deque[Message] = deque(maxlen=30)  # what it sent, to repeat

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
            yield to, message._replace(fence=NEVER, gossip=Gossip(self.junk()))
        else:
            yield to, message

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

    def alive_far(self, s: State) -> list[Message]:
        """Two heartbeats: the second is as far above the first as the first above the fence."""
        epoch, far = s.token.fence.epoch, 2**32 - 1
        return [Alive(Stamp(epoch + i * far, 1 % s.terms.size, 7, 1, 7), 1.0) for i in (1, 2)]

    def alive_hop(self, s: State) -> list[Message]:
        return [Alive(self._stamp(s), 1e9 * self.rng.random())]

    def alive_clock(self, s: State) -> list[Message]:
        return [Alive(s.token.fence, self.rng.choice([1e300, 1e12, self.clock() + 1e6]))]

    def fence(self, s: State) -> list[Message]:
        stamp, gossip, inc = self._stamp(s), self.saying(s), s.incarnation
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
        return [Share(fence, self.saying(s, parked=notice))]

    def wake(self, s: State) -> list[Message]:
        fence = s.token.fence
        stamp = self.rng.choice([self._stamp(s), fence.next(s.incarnation), fence])
        return [Share(fence, self.saying(s, wake=stamp))]

    def opening(self, s: State) -> list[Message]:
        """Epochs for nothing, as many at once as it likes."""
        return self._opened(s, 0)

    def unpaid_opening(self, s: State) -> list[Message]:
        """An epoch whose number the counts do not cover."""
        return self._opened(s, self.rng.choice([1, 2**32, 2**61]))

    def _opened(self, s: State, beyond: int) -> list[Message]:
        more = self.rng.choice([1, 1, 1, 50, 2**32, 2**46])
        count, most = self.next_opening(s, more)
        opening = self.sign_opening(s, count, min(most + beyond, EPOCHS - 1))
        stamp = Stamp(*opening.epoch, self.rng.choice([1, 2**30, HOPS - 9]), 7)
        openings = {**s.known.openings, self.me: opening}
        return [Share(stamp, self.saying(s, openings=openings)), Alive(stamp, 1.0)]

    def forged_opening(self, s: State) -> list[Message]:
        """Another agent's opening, which only the liar has signed."""
        other = self.other(s)
        body = {"agent": other, "count": 2**20, "epoch": 2**20, "incarnation": 7}
        mine = self.write(Opening, **body)
        forged = Opening(mine.raw, other, mine.signature)
        return [Share(s.token.fence, self.saying(s, openings={other: forged}))]

    def mismatches(self, s: State) -> list[Message]:
        """The audit has failed, three times."""
        mismatches = frozenset(
            self.write(
                AuditMismatch,
                stamp=[1, 1, 1, 1, self.rng.getrandbits(30)],
                agent=self.me,
                departed=self.rng.choice([[], sorted(s.departed)]),
            )
            for _ in range(3)
        )
        return [Share(s.token.fence, self.saying(s, mismatches=mismatches))]

    def forged_mismatch(self, s: State) -> list[Message]:
        """The audit has failed at two agents; one of them has not said so."""
        (said,) = self.mismatches(s)
        assert isinstance(said, Share)
        assert said.gossip.news is not None
        mine = next(iter(said.gossip.news.mismatches))
        forged = AuditMismatch(mine.raw, self.other(s), mine.signature)
        return [Share(s.token.fence, self.saying(s, mismatches=frozenset({mine, forged})))]

    def repeat(self, s: State) -> list[Message]:
        return [self.rng.choice(self.said)] if self.said else []

    def intent(self, s: State) -> list[Message]:
        if self.rng.random() > 0.1:
            return []
        request = request_id(self.me, self.rng.randbytes(12))
        intent = self.write(
            Intent,
            request=request.hex(),
            agent=self.me,
            whole=False,
            rows=["ff" * 16],  # of which the liar has none
            remembered=1,
        )
        return [Share(s.token.fence, self.saying(s, intents={request: intent}))]

    def vote(self, s: State) -> list[Message]:
        other = self.other(s)
        request = request_id(other, b"x" * 12).hex()
        vote = self.write(Vote, agent=other, name=s.terms.name(other), request=request)
        said = Erasures({}, frozenset(), {}, {(other, self.me): vote})
        return [Share(s.token.fence, self.saying(s, erasures=said))]

    def tombs(self, s: State) -> list[Message]:
        """An erasure or a departure without evidence."""
        other, departs = self.other(s), self.rng.random() < 0.5
        tomb = Tomb(frozenset({request_id(other, b"y" * 12)}), True, departs)
        said = Erasures({other: tomb}, frozenset(), {}, {})
        return [Share(s.token.fence, self.saying(s, erasures=said))]

    def incarnations(self, s: State) -> list[Message]:
        """A new process says Hello."""
        question = self.rng.randrange(3)
        return [Hello(s.token.fence, self.saying(s), self.rng.getrandbits(60), question)]

    def proof(self, s: State) -> list[Message]:
        """An accusation of an honest agent: its genuine token, or another one below its header."""
        if not self.given:
            return []
        giver, given = self.rng.choice(self.given)
        accused = given._replace(gossip=None)
        if self.rng.random() < 0.5:
            accused = accused._replace(token=given.token._replace(eta=given.token.eta + 1))
        return [Share(s.token.fence, self.saying(s, proofs={giver: accused}))]


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
        "incarnations",
        "proof",
        "fork",
    )
]
FORGERIES: list[tuple[str, Lie]] = [
    (name, getattr(Liar, name)) for name in ("token", "token", "revived", "fork")
]
