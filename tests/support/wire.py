"""A network whose messages the test delivers one by one: for tests of one rule at a time.

    wire = Wire(4, [(0, 1), (1, 2), (2, 3)])
    wire.settle()                                # deliver until nothing is in flight
    wire.erase(3, rows=[0])
    wire.drop(Share, to=2)
    wire.crash(1)
    wire.start_agent(1)
    wire.wait(20.0)                              # time passes, timers fire, messages arrive

The checker checks every transition, as in a fault run.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from typing import Any, NamedTuple

from tests.support.tally import (
    TIMEOUTS,
    Tally,
    TallyShares,
    row_key,
    tally_checker,
    tally_signers,
)
from tests.support.tally import tally_terms as terms_of
from unweave.graph import Topology
from unweave.keyring import Keyring
from unweave.persistent import NOBODY, Bitmap
from unweave.protocol.certificate.unchecked import unchecked_requests
from unweave.protocol.events import (
    Advance,
    Again,
    Appraise,
    CertificateKept,
    Continue,
    DataChanged,
    Done,
    Effect,
    Enrol,
    EraseRequested,
    Event,
    Freeze,
    Judge,
    KeepCertificate,
    Mask,
    MaskedValue,
    Received,
    Refused,
    Send,
    Solve,
    Tick,
    VoteCast,
    Work,
)
from unweave.protocol.machine import handle, start
from unweave.protocol.messages import Message, Share
from unweave.protocol.ports import unlock
from unweave.protocol.state import Parked, State
from unweave.protocol.token import SECRET_BYTES, Token, request_id
from unweave.simulator.noise import SimulatedNoise
from unweave.simulator.world import answer

__all__ = ["Flight", "Wire"]


class Flight(NamedTuple):
    """A message on its way."""

    sender: int
    to: int
    message: Message


class Wire:
    """A network of tally agents; the test decides about every message and every crash."""

    def __init__(
        self,
        size: int,
        edges: Sequence[tuple[int, int]],
        *,
        genesis: int = 0,
        down: Iterable[int] = (),
        liar: int | None = None,
        releases: int | None = None,
        **settings: Any,
    ) -> None:
        shares = None if releases is None else TallyShares(releases)
        if shares is not None:
            settings |= {"privacy": "masked", "noise": shares.noise}
        topology = Topology([f"a{k + 1}" for k in range(size)], list(edges))
        settings = {"timeouts": TIMEOUTS} | settings
        made = (terms_of(topology, seed, **settings) for seed in count())
        self.terms = next(terms for terms in made if terms.genesis == genesis)
        self.checker = tally_checker(self.terms, liar)
        self.signers = tally_signers(self.terms)
        self.workers = [Tally(k, self.terms.conjugate) for k in range(size)]
        self.starts = 0
        self.noise = noise = None if shares is None else SimulatedNoise(shares, size, 0)
        if noise is not None:
            self.checker.private.noise = noise.drawn
            self.checker.private.paid = lambda k: noise.ledgers[k].given
        self.disks = [State(self.terms, k) for k in range(size)]
        self.keyrings = [self._new_keyring(k) for k in range(size)]
        self.up = [False] * size
        self.flight: list[Flight] = []
        self.local: list[tuple[int, Event]] = []  # Continue and answers to work
        self.slow: set[int] = set()  # agents whose solvers never answer by themselves
        self.waiting: list[tuple[int, Work]] = []  # the work that they were given
        self.refused: list[str] = []
        self.now = 1000.0
        self.transitions = 0
        self.requests = 0
        self.masked_in_vain = 0  # values that a keyring refused to mask
        for k in range(size):
            if k not in set(down):
                self.start_agent(k)

    @property
    def opened(self) -> list[str]:
        """Why epochs were opened so far."""
        return self.checker.opened

    @property
    def holder(self) -> int:
        """The agent that has the newest token."""
        stamps = {
            k: s.token.held.stamp for k, s in enumerate(self.disks) if s.token.held is not None
        }
        assert stamps, "no agent has a token"
        return max(stamps, key=lambda k: stamps[k])

    @property
    def token(self) -> Token:
        token = self.disks[self.holder].token.held
        assert token is not None
        return token

    @property
    def inside(self) -> Bitmap:
        """The agents in the newest token; none while there is no token."""
        return self.token.inside if any(s.token.held for s in self.disks) else NOBODY

    @property
    def resting(self) -> bool:
        return any(isinstance(s.token.role, Parked) for k, s in enumerate(self.disks) if self.up[k])

    def tell(self, k: int, event: Event, *, effects: int | None = None) -> None:
        """One transition of agent k; with `effects` it crashes after that many of its effects."""
        self.transitions += 1
        entropy = self.transitions.to_bytes(SECRET_BYTES, "big")
        after, wanted = handle(self.disks[k], event, self.signers[k], entropy)
        self._commit(k, after, wanted, effects)

    def start_agent(self, k: int, disk: State | None = None) -> None:
        """Start agent k's process: on its disk, or on another."""
        self.starts += 1
        if disk is not None:
            self.disks[k] = disk
        self.keyrings[k] = self._new_keyring(k)
        after, wanted = start(self.disks[k], self.starts, self.now, self.signers[k])
        self.up[k] = True
        self._commit(k, after, wanted, None)

    def _new_keyring(self, k: int) -> Keyring:
        """The one-time keys of a new process."""
        release = None if self.noise is None else self.noise.release(k, self.starts)
        source = random.Random(f"{k} {self.starts}").randbytes
        return Keyring(source, release, self.terms.degree)

    def crash(self, k: int) -> None:
        self.up[k] = False
        self.local = [item for item in self.local if item[0] != k]
        self.waiting = [item for item in self.waiting if item[0] != k]

    def blank(self, k: int) -> State:
        """An empty disk."""
        return State(self.terms, k)

    def erase(
        self,
        k: int,
        rows: Iterable[int] = (),
        *,
        whole: bool = False,
        request: bytes | None = None,
        at_once: bool = False,
    ) -> bytes:
        self.requests += 1
        request = request or request_id(k, bytes([self.requests]) * 12)
        keys = frozenset(row_key(row) for row in rows)
        event = EraseRequested(request, whole, keys, self.now, date=self.now, at_once=at_once)
        self.tell(k, event)
        return request

    def change_data(self, k: int) -> None:
        self.workers[k].version += 1
        self.tell(k, DataChanged(self.now, self.now))

    def vote(self, voters: Iterable[int], target: int, *, lying: bool = False) -> None:
        self.requests += 1
        request = request_id(target, bytes([self.requests]) * 12)
        near = self.terms.topology.adjacency[target]
        for k in sorted(voters, key=lambda k: k not in near):
            if k not in near:  # a neighbour's vote has to arrive first
                self.settle(hold=lambda flight: not isinstance(flight.message, Share))
            self.tell(k, VoteCast(target, request, self.now, lying))

    def find(
        self, kind: type | None = None, *, sender: int | None = None, to: int | None = None
    ) -> list[Flight]:
        """The messages in flight."""
        return [
            f
            for f in self.flight
            if (kind is None or isinstance(f.message, kind))
            and (sender is None or f.sender == sender)
            and (to is None or f.to == to)
        ]

    def drop(self, kind: type | None = None, **where: int) -> int:
        lost = self.find(kind, **where)
        self.flight = [f for f in self.flight if not any(f is one for one in lost)]
        return len(lost)

    def deliver(
        self, kind: type | None = None, *, effects: int | None = None, **where: int
    ) -> None:
        """Deliver the oldest such message."""
        flight = self.find(kind, **where)[0]
        self.flight = [f for f in self.flight if f is not flight]
        self.arrive(flight, effects=effects)

    def arrive(self, flight: Flight, *, effects: int | None = None) -> None:
        """Deliver a message, possibly for the second time."""
        if self.up[flight.to]:
            event = Received(flight.sender, flight.message, self.now)
            self.tell(flight.to, event, effects=effects)

    def settle(
        self,
        hold: Callable[[Flight], bool] = lambda flight: False,
        until: Callable[[], bool] = lambda: False,
        limit: int = 20_000,
    ) -> None:
        """Deliver everything, oldest first, except messages that `hold` selects."""
        if not self._deliver(hold, until, limit):
            raise AssertionError(f"messages are still in flight after {limit} deliveries")

    def _deliver(
        self, hold: Callable[[Flight], bool], until: Callable[[], bool], limit: int
    ) -> bool:
        for _ in range(limit):
            if until():
                return True
            if self.local:
                k, event = self.local.pop(0)
                self.tell(k, event._replace(now=self.now))
                continue
            ready = next((f for f in self.flight if not hold(f)), None)
            if ready is None:
                return True
            self.flight = [f for f in self.flight if f is not ready]
            self.arrive(ready)
        return False

    def wait(
        self,
        seconds: float,
        hold: Callable[[Flight], bool] = lambda flight: False,
        until: Callable[[], bool] = lambda: False,
    ) -> None:
        """Time passes in steps of half a second; up to 500 messages arrive in each step."""
        self._deliver(hold, until, 500)
        for _ in range(round(2 * seconds)):
            if until():
                return
            self.now += 0.5
            for k in range(len(self.disks)):
                if self.up[k]:
                    self.tell(k, Tick(self.now))
            self._deliver(hold, until, 500)

    def answer(self, k: int) -> None:
        """The slow solver of agent k answers."""
        work = next(work for agent, work in self.waiting if agent == k)
        self.waiting = [item for item in self.waiting if item[1] is not work]
        self.tell(k, Done(work.key, answer(self.workers[k], work), self.now))

    def _commit(self, k: int, after: State, effects: list[Effect], live: int | None) -> None:
        before, self.disks[k] = self.disks[k], after
        self.checker.after(k, before, after, effects)
        for effect in effects if live is None else effects[:live]:
            if isinstance(effect, Send):
                self.flight.append(Flight(k, effect.to, effect.message))
            elif isinstance(effect, Again):
                self.local.append((k, Continue(self.now)))
            elif isinstance(effect, KeepCertificate):
                kept = CertificateKept(unchecked_requests(effect.certificate), self.now)
                self.checker.certificate_kept(k, kept.requests)
                self.local.append((k, kept))
            elif isinstance(effect, Refused):
                self.refused.append(effect.why)
            elif isinstance(effect, Enrol | Mask):
                secret = unlock(self.keyrings[k], k, effect)
                self.masked_in_vain += isinstance(secret, MaskedValue) and secret.units is None
                self.local.append((k, Done(effect.key, secret, self.now)))
            elif isinstance(effect, Solve | Judge | Freeze | Appraise | Advance):
                if k in self.slow:
                    self.waiting.append((k, effect))
                else:
                    done = Done(effect.key, answer(self.workers[k], effect), self.now)
                    self.local.append((k, done))
        if live is not None:
            self.crash(k)
