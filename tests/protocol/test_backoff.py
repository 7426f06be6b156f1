"""What is repeated to a silent neighbour becomes rare, and is repeated soon when it is heard."""

from __future__ import annotations

from itertools import pairwise

import pytest
from tests.support.tally import tally_terms
from tests.support.wire import Wire

from unweave.graph import graphs
from unweave.protocol.events import EraseRequested, Event, Received, Send, Tick
from unweave.protocol.gossip import DOUBLINGS
from unweave.protocol.machine import handle, start
from unweave.protocol.messages import Heard, Hello, Message, Pass, Share
from unweave.protocol.state import Out, State
from unweave.protocol.timers import deadline
from unweave.protocol.token import request_id

TERMS = tally_terms(graphs.complete(3), seed=1)
TRIANGLE = [(0, 1), (1, 2), (0, 2)]
DOUBLED = 2**DOUBLINGS


class Lone:
    """One agent whose neighbours say what the test wants: it records when messages are sent."""

    def __init__(self, s: State, now: float) -> None:
        self.s, self.now = s, now
        self.sent: list[tuple[float, int, Message]] = []

    def feed(self, event: Event) -> None:
        self.s, effects = handle(self.s, event)
        for effect in effects:
            if isinstance(effect, Send):
                self.sent.append((self.now, effect.to, effect.message))

    def wait(self, seconds: float) -> None:
        end = self.now + seconds
        while (due := deadline(self.s)) is not None and due <= end:
            self.now = max(self.now, due)
            self.feed(Tick(self.now))
        self.now = end

    def times(self, kind: type, to: int) -> list[float]:
        return [at for at, n, message in self.sent if n == to and isinstance(message, kind)]


def intervals(times: list[float]) -> list[float]:
    return [later - earlier for earlier, later in pairwise(times)]


def asking() -> tuple[Lone, type]:
    """An agent that has started, and nobody answers."""
    s, _ = start(State(TERMS, 0), 1, 0.0)
    return Lone(s, 0.0), Hello


def sharing() -> tuple[Lone, type]:
    """An agent with gossip that its neighbours do not acknowledge."""
    wire = Wire(3, TRIANGLE)
    wire.settle()
    wire.erase(0, rows=[1])
    return Lone(wire.disks[0], wire.now), Share


def passing() -> tuple[Lone, type]:
    """An agent with a token that its only neighbour does not acknowledge."""
    wire = Wire(2, [(0, 1)])
    wire.settle(until=lambda: any(isinstance(s.token.role, Out) for s in wire.disks))
    k = next(k for k, s in enumerate(wire.disks) if isinstance(s.token.role, Out))
    return Lone(wire.disks[k], wire.now), Pass


@pytest.mark.parametrize("scene", [asking, sharing, passing])
def test_repetitions_to_a_silent_neighbour_become_rare_and_never_end(scene) -> None:
    agent, kind = scene()
    longest = DOUBLED * agent.s.terms.timeouts.resend
    agent.wait(100 * longest)
    for to in agent.s.neighbours:
        found = intervals(agent.times(kind, to))
        assert max(found) <= longest + 1e-6
        assert len(found) < 100 + 10
        assert found[-1] == pytest.approx(longest)


def test_a_neighbour_that_is_heard_is_asked_soon_and_the_others_are_not() -> None:
    agent, _ = asking()
    resend = TERMS.timeouts.resend
    agent.wait(200.3 * resend)
    before = len(agent.times(Hello, 1)), len(agent.times(Hello, 2))
    heard = Heard(agent.s.token.fence, agent.s.known.gossip.digests, 7)
    agent.feed(Received(1, heard, agent.now))
    agent.wait(resend + 1e-6)
    assert len(agent.times(Hello, 1)) == before[0] + 1
    assert len(agent.times(Hello, 2)) == before[1]
    agent.wait(3 * resend)
    assert len(agent.times(Hello, 1)) >= before[0] + 2


def test_new_knowledge_is_sent_at_once_also_to_a_silent_neighbour() -> None:
    agent, _ = sharing()
    agent.wait(100.0)
    before = len(agent.times(Share, 1))
    request = request_id(0, b"z" * 12)
    agent.feed(EraseRequested(request, False, frozenset({b"r" * 16}), agent.now))
    assert len(agent.times(Share, 1)) == before + 1
