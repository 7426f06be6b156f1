"""The workload of a fault run: restarts, backups, erasures, new data and votes.

`run_workload` runs a network with faults. Then the faults stop, every agent restarts or is voted
out, and the network must park the token with no pending work.

In the swarm a workload may erase a whole network. In a user's own fault run the owners ask
(`OwnerRequests`), and a majority of the agents keep records: the run ends with a comparison of the
remaining records with a run without faults.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from unweave.graph import Topology
from unweave.privacy.ledger import MemoryLedger
from unweave.protocol.events import DataChanged, EraseRequested, Tick, VoteCast
from unweave.protocol.given import forget_given
from unweave.protocol.membership import automatic_votes
from unweave.protocol.state import State
from unweave.protocol.token import request_id
from unweave.simulator.faults import Profile, RandomFaults
from unweave.simulator.insider import InsiderWorld
from unweave.simulator.invariants import (
    Checker,
    Violation,
    check_liveness,
    check_proofs,
    departed,
    known_departed,
)
from unweave.simulator.world import World
from unweave.solvers.worker import record_key

__all__ = [
    "DOWN",
    "NOTHING_LEFT",
    "NewData",
    "OwnerRequests",
    "Workload",
    "dispensable_agents",
    "run_workload",
    "same_data",
    "spared",
    "workload_events",
]


# Draws the scope of an erasure of an agent: (whole agent, row commitments).
DrawErasure = Callable[[random.Random, int], tuple[bool, frozenset[bytes]]]
# Gives an agent a new version of its data.
NewData = Callable[[int, int], None]


def same_data(agent: int, version: int) -> None:
    """The new data equal the old ones."""


class Workload:
    """Restarts crashed agents, takes backups, cuts links, requests erasures, changes data."""

    def __init__(
        self,
        world: World,
        faults: RandomFaults,
        draw_erasure: DrawErasure,
        new_data: NewData = same_data,
    ) -> None:
        self.world = world
        self.faults = faults
        self.rng = random.Random(faults.rng.random())
        self.draw_erasure = draw_erasure
        self.new_data = new_data
        self.size = len(world.agents)
        self.back_at: dict[int, float] = {}
        # Agent, its disk, its version of the data, its privacy ledger.
        self.backups: list[tuple[int, State, int, MemoryLedger | None]] = []
        self.versions = [0] * self.size  # of each agent's data
        self.learned = [0] * self.size  # the version that each disk knows of
        self.departed: int | None = None  # the agent that stops for good and is voted out
        self.kept_down: set[int] = set()  # agents that somebody else starts again, or nobody
        self.thaws_late = False  # its stopped process goes on only when the others have parked
        self.spoiled: int | None = None  # the one agent whose disk may be lost or restored
        self.asked: list[bytes] = []  # the ids of all requests, in order
        self.last_request: tuple[int, EraseRequested] | None = None
        self.counts = dict.fromkeys(
            ("requests", "votes", "lost disks", "restores", "partitions", "power cuts", "frozen"), 0
        )
        p = faults.profile
        self.insider = world if isinstance(world, InsiderWorld) else None
        self.automatic = bool(p.lies) and self.rng.random() < p.automatic
        self.voted_out = bool(p.lies) and self.rng.random() < p.voted_out
        self.lie_at = 0.0
        self.delay = 0.0  # simulated seconds from the end of the faults and lies to rest

    def between_events(self) -> None:
        world, rng, p = self.world, self.rng, self.faults.profile
        self.restart_due()
        if rng.random() < p.partition and world.now >= self.faults.heals_at:
            side = frozenset(k for k in range(self.size) if rng.random() < 0.5)
            until = world.now + rng.expovariate(1.0 / 8.0)
            self.faults.cut(side, until, rng.random() < p.one_way)
            self.counts["partitions"] += 1
        if rng.random() < p.power_cut:
            for k in range(self.size):
                world.crash(k)
            self.counts["power cuts"] += 1
        if rng.random() < p.noise:
            k = rng.randrange(self.size)
            world.tell(k, Tick(world.clock(k)))
        if self.insider is not None:
            self.answer_proofs()
            self.lie_when_due()
        if rng.random() < p.erase:
            self.erase(rng.randrange(self.size))
        if rng.random() < p.data:
            self.change_data(rng.randrange(self.size))
        if rng.random() < 0.05:
            k = rng.randrange(self.size)
            ledger = None if world.noise is None else world.noise.image(k)
            self.backups.append((k, world.agents[k].disk, self.learned[k], ledger))

    def restart_due(self) -> None:
        world, p = self.world, self.faults.profile
        for k in sorted(world.down):
            if not self.stays_down(k):
                back = self.back_at.setdefault(k, world.now + self.rng.expovariate(1.0 / p.down))
                if world.now >= back:
                    self.restart(k)

    def stays_down(self, k: int) -> bool:
        return k == self.departed or k in self.kept_down

    def restart(self, k: int) -> None:
        """Restart a process: on its disk, on an old one or on an empty one."""
        world, rng, p = self.world, self.rng, self.faults.profile
        self.back_at.pop(k, None)
        # The protocol tolerates one spoiled disk at a time. Two at once may lose a request: that is
        # why a request counts as done only when it is certified.
        if self.faults.active and self.spoiled in (None, k):
            draw = rng.random()
            backups = [backup for backup in self.backups if backup[0] == k]
            if draw < p.lose_disk:
                self.spoiled = k
                self.counts["lost disks"] += 1
                world.wipe(k)
                self.learned[k] = self.versions[k]  # an empty disk reads all data
            elif draw < p.lose_disk + p.restore and backups:
                self.spoiled = k
                self.counts["restores"] += 1
                _, disk, self.learned[k], ledger = rng.choice(backups)
                world.wipe(k, forget_given(disk), ledger)
        world.start_agent(k)
        self._tell_of_data(k)

    def restart_all(self) -> None:
        for k in sorted(self.world.down):
            if not self.stays_down(k):
                self.restart(k)

    def erase(self, k: int) -> None:
        """Request an erasure; sometimes repeat the last one, sometimes add one elsewhere."""
        rng, world = self.rng, self.world
        if self.last_request is not None and rng.random() < 0.15:
            again, request = self.last_request
            world.tell(again, request._replace(now=world.clock(again)))
            return
        whole, rows = self.draw_erasure(rng, k)
        request = EraseRequested(
            request_id(k, rng.randbytes(12)), whole, rows, world.clock(k), date=world.now
        )
        self.last_request = (k, request)
        self.asked.append(request.request)
        self.counts["requests"] += 1
        world.tell(k, request)
        if rng.random() < 0.2:
            self.erase(rng.randrange(self.size))

    def change_data(self, k: int) -> None:
        """Change the data; the agent is told now, or when it restarts."""
        self.versions[k] += 1
        self.new_data(k, self.versions[k])
        self._tell_of_data(k)

    def _tell_of_data(self, k: int) -> None:
        agent = self.world.agents[k]
        if agent.state is not None and self.learned[k] != self.versions[k]:
            before = agent.disk.own
            self.world.tell(k, DataChanged(self.world.clock(k), self.world.now))
            after = agent.disk.own
            if (after.data, after.waiting) != (before.data, before.waiting):
                self.learned[k] = self.versions[k]

    def stop_for_good(self, k: int) -> None:
        """Crash the process, or stop it for longer than the others wait."""
        if self.rng.random() < self.faults.profile.frozen:
            self.world.freeze(k)
            self.thaws_late = self.rng.random() < 0.5
            self.counts["frozen"] += 1
        else:
            self.world.crash(k)

    @property
    def frozen(self) -> bool:
        return self.departed is not None and self.world.agents[self.departed].backlog is not None

    def thaw_departed(self, checker: Checker, *, parked: bool) -> None:
        """Let the stopped process go on once it was voted out, or when the token is parked too."""
        assert self.departed is not None
        if self.departed in checker.departed and (parked or not self.thaws_late):
            self.world.thaw(self.departed, lost=self.rng.random() < 0.5)

    def vote_out(self, k: int, *, lying: bool = False) -> None:
        request = request_id(k, self.rng.randbytes(12))
        self.counts["votes"] += 1
        for voter in range(self.size):
            if voter != k:
                self.world.tell(voter, VoteCast(k, request, self.world.clock(voter), lying))

    def lie_when_due(self) -> None:
        assert self.insider is not None
        if self.insider.lying and self.world.now >= self.lie_at:
            self.insider.lie()
            rate = self.faults.profile.lies * self.insider.lies.pace
            self.lie_at = self.world.now + self.rng.expovariate(rate)

    def answer_proofs(self) -> None:
        """Every agent that holds a proof of a lie votes. A vote can be refused in quarantine, or
        lost in a crash: so look at the proofs, again and again."""
        if not self.automatic:
            return
        for voter, agent in enumerate(self.world.agents):
            if agent.state is not None:
                for vote in automatic_votes(agent.state, self.world.clock(voter)):
                    self.world.tell(voter, vote)


def run_workload(
    world: World,
    faults: RandomFaults,
    checker: Checker,
    draw_erasure: DrawErasure,
    new_data: NewData = same_data,
    *,
    events: int,
    enough: Callable[[], bool] = lambda: False,
    halfway: Callable[[], bool] | None = None,
    settle_seconds: float = 4000.0,
    settle_events: int | None = None,
) -> Workload:
    """Run with faults for `events` events or until `enough`, then without until the token is
    parked; check liveness. An agent that departs does so `halfway`: default, at half of the
    events."""
    workload = Workload(world, faults, draw_erasure, new_data)
    for _ in workload_events(
        workload,
        checker,
        events=events,
        enough=enough,
        halfway=halfway,
        settle_seconds=settle_seconds,
        settle_events=settle_events,
    ):
        pass
    return workload


def workload_events(
    workload: Workload,
    checker: Checker,
    *,
    events: int,
    enough: Callable[[], bool] = lambda: False,
    halfway: Callable[[], bool] | None = None,
    settle_seconds: float = 4000.0,
    settle_events: int | None = None,
) -> Iterator[None]:
    """`run_workload`, event by event: whoever iterates may look at the world in between."""
    world, faults = workload.world, workload.faults
    dispensable = dispensable_agents(world.terms.topology) if faults.profile.departs else []
    due = halfway or (lambda: world.events > events // 2)
    if faults.profile.departs and workload.rng.random() < faults.profile.never_starts:
        if world.terms.genesis in dispensable:
            workload.departed = world.terms.genesis
    for k in range(len(world.agents)):
        if k != workload.departed:
            world.start_agent(k)
    while world.events < events and not enough():
        workload.between_events()
        if workload.departed is None and faults.profile.departs and due():
            workload.departed = workload.rng.choice(dispensable)
            workload.stop_for_good(workload.departed)
        if not world.step():
            world.now += 1.0
        yield
    faults.stop()
    workload.restart_all()
    ending = _Ending(workload)
    stopped = world.now
    publish = world.terms.publish
    # A change that waits for a batch leaves after its period at the latest.
    latest = stopped + settle_seconds + (publish.period if publish is not None else 0.0)
    limit = world.events + (settle_events or _settle_events(workload.size))
    voted_at = stopped
    while world.now < latest and world.events < limit:
        workload.restart_all()
        ending.between_events()
        if workload.departed is not None and world.now >= voted_at:
            workload.vote_out(workload.departed)
            voted_at = world.now + 12.0
        parked = world.events % 16 == 0 and _is_live(world, checker, workload)
        if workload.frozen:
            workload.thaw_departed(checker, parked=parked)
        elif parked:
            break
        elif world.parked is not None:
            _skip_to_batch(world, stopped + settle_seconds)
        if not world.step():
            if not workload.kept_down - known_departed(world):
                break
            world.now += 1.0  # somebody else will start these agents
        yield
    _check_end(world, checker, workload)
    workload.delay = world.now - ending.since


def _skip_to_batch(world: World, after: float) -> None:
    """Go on at the date of the next batch, if it is later than this: until then a parked token has
    nothing but timers, and thirty days have too many of them."""
    dates = [a.state.own.waiting.due for a in world.agents if a.state is not None]
    due = min((date for date in dates if date is not None), default=0.0)
    if due > after:
        world.now = max(world.now, due)


def _settle_events(size: int) -> int:
    """A pass has 2(K − 1) hops, and while a token moves all K agents send heartbeats."""
    return max(60_000, 4 * size**2)


class _Ending:
    """The end of a run with lies: the liar stops, or goes on and is voted out by hand."""

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        self.since = workload.world.now  # when the last reason for a delay ended
        self.vote_at = self.since
        insider = workload.insider
        if insider is not None and not workload.voted_out:
            insider.lying = False

    def between_events(self) -> None:
        workload, insider = self.workload, self.workload.insider
        if insider is None:
            return
        workload.answer_proofs()
        if not insider.lying:
            return
        if not _all_know(insider, insider.liar):
            self.since = insider.now
            if insider.now >= self.vote_at:
                workload.vote_out(insider.liar, lying=True)
                self.vote_at = insider.now + 12.0
        workload.lie_when_due()


def _all_know(world: World, gone: int) -> bool:
    """Whether every other agent knows that this one was declared departed."""
    states = (world.state(k) for k in range(len(world.agents)) if k != gone)
    return all(gone in departed(s.known.tombs) for s in states)


def dispensable_agents(topology: Topology) -> list[int]:
    """The agents without which the others stay connected: liveness needs a connected graph."""
    agents = range(len(topology.agents))
    return [
        k
        for k in agents
        if all(
            d >= 0
            for d in np.delete(
                topology.distances_avoiding((k + 1) % len(agents), frozenset({k})), k
            )
        )
    ]


def _check_end(world: World, checker: Checker, workload: Workload) -> None:
    check_liveness(world, checker)
    if workload.automatic:
        check_proofs(world)
    if workload.voted_out and isinstance(world, InsiderWorld) and not _all_know(world, world.liar):
        raise Violation(f"liveness: {world.terms.name(world.liar)} lies and was not voted out")


def _is_live(world: World, checker: Checker, workload: Workload) -> bool:
    try:
        _check_end(world, checker, workload)
    except Violation:
        return False
    return True


# Why a request may have no effect.
DOWN = "its agent was down"
NOTHING_LEFT = "its agent was erased or had departed"
LOST = "lost in a crash, or with a disk, before another agent knew of it"

_HOPS_PER_REQUEST = 5
_AGAIN = 0.15  # of the requests: the last one, repeated
_LATE = 0.05  # of the requests: to an agent that has erased everything
_WHOLE = 0.15  # of the requests: everything that the agent has
_TWICE = 0.2  # of the requests: at once with one more elsewhere


def spared(agents: int) -> int:
    """How many of these agents keep records: a majority, or one of two."""
    return agents // 2 + 1 if agents > 2 else min(agents, 1)


class OwnerRequests:
    """Requests erasures while there are faults; `asked` and `reasons` record them.

    A request counts as carried out at once, heard or not: it may be repeated, and a disk may be
    restored, so this bounds the erased records from above.
    """

    def __init__(
        self, world: World, profile: Profile, records: Sequence[int], hops: int, seed: int
    ) -> None:
        self.world = world
        self.records = records  # of each agent
        self.rate = profile.erase
        self.most = 1 + hops // _HOPS_PER_REQUEST
        self.rng = random.Random(f"owners {seed}")
        self.rows: list[set[int]] = [set() for _ in records]
        self.full = {k for k, n in enumerate(records) if n}
        # The records of an agent that is voted out do not remain.
        self.spared = spared(len(self.full)) + (profile.departs > 0 or profile.lies > 0)
        self.asked: list[bytes] = []  # the ids of all requests, in order
        self.reasons: list[str] = []  # why each would have no effect, if it has none
        self.last: tuple[int, EraseRequested] | None = None

    def between_events(self, progress: float) -> None:
        """Request at random; `progress` of the faults, from 0 to 1, spreads the requests."""
        if self.rng.random() < self.rate and len(self.asked) < self.most * progress:
            self.ask()

    def ask(self) -> None:
        """Request an erasure; sometimes repeat the last one, sometimes add one elsewhere."""
        rng, world = self.rng, self.world
        if self.last is not None and rng.random() < _AGAIN:
            k, request = self.last
            world.tell(k, request._replace(now=world.clock(k)))
            return
        candidates = [k for k in sorted(self.full) if self._may_ask(k)]
        empty = [k for k, n in enumerate(self.records) if n and k not in self.full]
        if empty and rng.random() < _LATE:
            candidates = empty
        if not candidates:
            return
        k = rng.choice(candidates)
        whole, rows = self._draw(k)
        request = EraseRequested(
            request_id(k, rng.randbytes(12)), whole, rows, world.clock(k), date=world.now
        )
        self.asked.append(request.request)
        self.reasons.append(self._reason(k))
        self.last = (k, request)
        world.tell(k, request)
        if rng.random() < _TWICE:
            self.ask()

    def _draw(self, k: int) -> tuple[bool, frozenset[bytes]]:
        """The whole agent sometimes, otherwise one record."""
        if self._may_empty(k) and self.rng.random() < _WHOLE:
            self.full.discard(k)
            return True, frozenset()
        row = self.rng.randrange(self.records[k])
        self.rows[k].add(row)
        if len(self.rows[k]) == self.records[k]:
            self.full.discard(k)
        return False, frozenset({record_key(row)})

    def _may_ask(self, k: int) -> bool:
        return len(self.rows[k]) + 1 < self.records[k] or self._may_empty(k)

    def _may_empty(self, k: int) -> bool:
        return k in self.full and len(self.full) > self.spared

    def _reason(self, k: int) -> str:
        state = self.world.agents[k].state
        if state is None:
            return DOWN
        out = state.own.detached or state.tomb.whole or state.tomb.departed
        return NOTHING_LEFT if out else LOST
