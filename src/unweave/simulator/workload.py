"""People around a network in bad weather: they restart what died, put disks back, ask and vote.

`ride_out` takes a network through a storm. Then the weather clears, everybody comes back or is
declared gone, and the network must come to rest with all its work done.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import numpy as np

from unweave.protocol.events import DataChanged, EraseRequested, Tick, VoteCast
from unweave.protocol.state import State
from unweave.protocol.token import request_id
from unweave.simulator.faults import Profile, RandomFaults
from unweave.simulator.invariants import Checker, Violation, check_liveness
from unweave.simulator.world import World
from unweave.solvers.worker import record_key

__all__ = [
    "DOWN",
    "NOTHING_LEFT",
    "OwnerRequests",
    "Workload",
    "check_one_epoch",
    "run_workload",
    "spared",
]


# Draws what an erasure asks for: (whole agent, row commitments), given the agent.
DrawErasure = Callable[[random.Random, int], tuple[bool, frozenset[bytes]]]
# Puts a new version of the data beside an agent.
NewData = Callable[[int, int], None]


def same_data(agent: int, version: int) -> None:
    """The new data are the old ones: an agent that reads them again finds nothing to do."""


class Workload:
    """Restarts crashed agents, takes backups, cuts links, asks for erasures, changes data."""

    def __init__(
        self,
        world: World,
        storm: RandomFaults,
        draw_erasure: DrawErasure,
        new_data: NewData = same_data,
    ) -> None:
        self.world = world
        self.storm = storm
        self.rng = random.Random(storm.rng.random())
        self.draw_erasure = draw_erasure
        self.new_data = new_data
        self.size = len(world.agents)
        self.back_at: dict[int, float] = {}
        self.backups: list[tuple[int, State, int]] = []  # agent, disk, its version of the data
        self.versions = [0] * self.size  # of the data that lie beside each agent
        self.learned = [0] * self.size  # the version that each disk has been told of
        self.gone: int | None = None
        self.wakes_late = False  # the stopped process of `gone` goes on when the others rest
        self.spoiled: int | None = None  # the one agent whose disk may go wrong in this run
        self.asked: list[bytes] = []  # the ids of all requests, in order
        self.last_request: tuple[int, EraseRequested] | None = None
        self.counts = dict.fromkeys(
            ("requests", "votes", "lost disks", "restores", "partitions", "power cuts", "frozen"), 0
        )

    def between_events(self) -> None:
        world, rng, p = self.world, self.rng, self.storm.profile
        self.restart_due()
        if rng.random() < p.partition and world.now >= self.storm.heals_at:
            side = frozenset(k for k in range(self.size) if rng.random() < 0.5)
            until = world.now + rng.expovariate(1.0 / 8.0)
            self.storm.cut(side, until, rng.random() < p.one_way)
            self.counts["partitions"] += 1
        if rng.random() < p.power_cut:
            for k in range(self.size):
                world.crash(k)
            self.counts["power cuts"] += 1
        if rng.random() < p.noise:
            k = rng.randrange(self.size)
            world.tell(k, Tick(world.clock(k)))
        if rng.random() < p.erase:
            self.erase(rng.randrange(self.size))
        if rng.random() < p.data:
            self.change_data(rng.randrange(self.size))
        if rng.random() < 0.05:
            k = rng.randrange(self.size)
            self.backups.append((k, world.agents[k].disk, self.learned[k]))

    # ---------------------------------------------------------------------------------- restarts

    def restart_due(self) -> None:
        world, p = self.world, self.storm.profile
        for k, agent in enumerate(world.agents):
            if agent.state is None and k != self.gone:
                back = self.back_at.setdefault(k, world.now + self.rng.expovariate(1.0 / p.down))
                if world.now >= back:
                    self.restart(k)

    def restart(self, k: int) -> None:
        """Start a process again, on its disk, on an old one or on an empty one."""
        world, rng, p = self.world, self.rng, self.storm.profile
        self.back_at.pop(k, None)
        # The rules survive one spoiled disk at a time; two at once may forget a request between
        # them, which is why a request counts as done only when it is certified.
        if self.storm.raging and self.spoiled in (None, k):
            draw = rng.random()
            backups = [backup for backup in self.backups if backup[0] == k]
            if draw < p.lose_disk:
                self.spoiled = k
                self.counts["lost disks"] += 1
                world.wipe(k)
                self.learned[k] = self.versions[k]  # nothing is known, so all will be read
            elif draw < p.lose_disk + p.restore and backups:
                self.spoiled = k
                self.counts["restores"] += 1
                _, disk, self.learned[k] = rng.choice(backups)
                world.wipe(k, disk)
        world.boot(k)
        self._tell_of_data(k)

    def everybody_back(self) -> None:
        for k, agent in enumerate(self.world.agents):
            if agent.state is None and k != self.gone:
                self.restart(k)

    # ---------------------------------------------------------------------------------- requests

    def erase(self, k: int) -> None:
        """An erasure; sometimes the last one again, sometimes one more elsewhere at once."""
        rng, world = self.rng, self.world
        if self.last_request is not None and rng.random() < 0.15:
            again, request = self.last_request
            world.tell(again, request._replace(now=world.clock(again)))
            return
        whole, rows = self.draw_erasure(rng, k)
        request = EraseRequested(request_id(k, rng.randbytes(12)), whole, rows, world.clock(k))
        self.last_request = (k, request)
        self.asked.append(request.request)
        self.counts["requests"] += 1
        world.tell(k, request)
        if rng.random() < 0.2:
            self.erase(rng.randrange(self.size))

    def change_data(self, k: int) -> None:
        """New data lie there; the agent hears of it now, or when it is started again."""
        self.versions[k] += 1
        self.new_data(k, self.versions[k])
        self._tell_of_data(k)

    def _tell_of_data(self, k: int) -> None:
        agent = self.world.agents[k]
        if agent.state is not None and self.learned[k] != self.versions[k]:
            before = agent.disk.own.data
            self.world.tell(k, DataChanged(self.world.clock(k)))
            if agent.disk.own.data != before:
                self.learned[k] = self.versions[k]

    def stop_for_good(self, k: int) -> None:
        """A process dies; or it stops, for longer than the others wait."""
        if self.rng.random() < self.storm.profile.frozen:
            self.world.freeze(k)
            self.wakes_late = self.rng.random() < 0.5
            self.counts["frozen"] += 1
        else:
            self.world.crash(k)

    @property
    def frozen(self) -> bool:
        return self.gone is not None and self.world.agents[self.gone].backlog is not None

    def wake_departed(self, checker: Checker, *, resting: bool) -> None:
        """Let the stopped process go on once it was voted out, or when the others rest as well."""
        assert self.gone is not None
        if self.gone in checker.departed and (resting or not self.wakes_late):
            self.world.thaw(self.gone, lost=self.rng.random() < 0.5)

    def vote_out(self, k: int) -> None:
        request = request_id(k, self.rng.randbytes(12))
        self.counts["votes"] += 1
        for voter in range(self.size):
            if voter != k:
                self.world.tell(voter, VoteCast(k, request, self.world.clock(voter)))


def run_workload(
    world: World,
    storm: RandomFaults,
    checker: Checker,
    draw_erasure: DrawErasure,
    new_data: NewData = same_data,
    *,
    events: int,
    enough: Callable[[], bool] = lambda: False,
    halfway: Callable[[], bool] | None = None,
    timeouts: float = 4000.0,
    patience_events: int = 60_000,
) -> Workload:
    """Bad weather for `events` events or until there was `enough` of it, then clear sky until the
    network rests; checks liveness. An agent that goes for good does so `halfway`: default, at half
    of the events."""
    crew = Workload(world, storm, draw_erasure, new_data)
    dispensable = _dispensable(world)
    due = halfway or (lambda: world.events > events // 2)
    if storm.profile.gone and crew.rng.random() < storm.profile.stillborn:
        if world.terms.genesis in dispensable:
            crew.gone = world.terms.genesis
    for k in range(len(world.agents)):
        if k != crew.gone:
            world.boot(k)
    while world.events < events and not enough():
        crew.between_events()
        if crew.gone is None and storm.profile.gone and due():
            crew.gone = crew.rng.choice(dispensable)
            crew.stop_for_good(crew.gone)
        if not world.step():
            world.now += 1.0
    storm.clear()
    crew.everybody_back()
    cleared, limit = world.now, world.events + patience_events
    voted_at = cleared
    while world.now < cleared + timeouts and world.events < limit:
        crew.everybody_back()
        if crew.gone is not None and world.now >= voted_at:
            crew.vote_out(crew.gone)
            voted_at = world.now + 12.0
        resting = world.events % 16 == 0 and _lively(world, checker)
        if crew.frozen:
            crew.wake_departed(checker, resting=resting)
        elif resting:
            break
        if not world.step():
            break
    check_liveness(world, checker)
    return crew


def check_one_epoch(checker: Checker) -> None:
    """Delay, duplicates, slow solvers and disagreeing clocks cost no epoch, nor does an erasure."""
    excuses = ("genesis", "an erasure asked all agents to start from zero")
    surplus = [why for why in checker.opened if why not in excuses]
    if surplus or checker.opened.count("genesis") != 1:
        raise Violation(f"liveness: epochs were opened without need: {checker.opened}")


def _dispensable(world: World) -> list[int]:
    """Agents without which the others stay connected; liveness is promised for no less."""
    topology = world.terms.topology
    everybody = range(len(world.agents))
    return [
        k
        for k in everybody
        if all(
            d >= 0
            for d in np.delete(
                topology.distances_avoiding((k + 1) % len(everybody), frozenset({k})), k
            )
        )
    ]


def _lively(world: World, checker: Checker) -> bool:
    try:
        check_liveness(world, checker)
    except Violation:
        return False
    return True


# ------------------------------------------------------------------------------
# Owners in a rehearsal: they ask for erasures, but never for so many that nothing is left.
#
# A swarm of storms may erase a whole network; a rehearsal of somebody's own may not, for its last
# sentence compares what is left with a run without faults. So a majority of the agents keep
# records, the number of requests follows the hops, and hardly anybody asks where all is erased
# already.

# Why a request that was asked is not certified; nothing was promised for it.
DOWN = "its agent was down and did not hear it"
NOTHING_LEFT = "its agent had erased everything, or had left"
LOST = "lost in a crash, or with a disk, before anybody else knew of it"

_HOPS_PER_REQUEST = 5
_AGAIN = 0.15  # of the requests: the last one, repeated
_LATE = 0.05  # of the requests: to an agent that has erased everything
_WHOLE = 0.15  # of the requests: everything that the agent has
_TWICE = 0.2  # of the requests: at once with one more elsewhere


def spared(agents: int) -> int:
    """How many of so many agents with records keep some: a majority, or one of two."""
    return agents // 2 + 1 if agents > 2 else min(agents, 1)


class OwnerRequests:
    """Ask for erasures while the weather is bad; `asked` and `reasons` say what came of it.

    What was asked counts as erased at once, heard or not: a request may be repeated, and a disk may
    come back, so this is the most that can be gone in the end.
    """

    def __init__(
        self, world: World, weather: Profile, records: Sequence[int], hops: int, seed: int
    ) -> None:
        self.world = world
        self.records = records  # of each agent
        self.rate = weather.erase
        self.most = 1 + hops // _HOPS_PER_REQUEST
        self.rng = random.Random(f"owners {seed}")
        self.rows: list[set[int]] = [set() for _ in records]
        self.full = {k for k, n in enumerate(records) if n}
        # An agent that is voted out takes its records with it.
        self.spared = spared(len(self.full)) + (weather.gone > 0)
        self.asked: list[bytes] = []  # the ids of all requests, in order
        self.reasons: list[str] = []  # of each: why it would have no effect, if it had none
        self.last: tuple[int, EraseRequested] | None = None

    def between_events(self, progress: float) -> None:
        """Maybe ask; `progress` of the weather, from 0 to 1, spreads the requests over it."""
        if self.rng.random() < self.rate and len(self.asked) < self.most * progress:
            self.ask()

    def ask(self) -> None:
        """An erasure; sometimes the last one again, sometimes one more elsewhere at once."""
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
        request = EraseRequested(request_id(k, rng.randbytes(12)), whole, rows, world.clock(k))
        self.asked.append(request.request)
        self.reasons.append(self._excuse(k))
        self.last = (k, request)
        world.tell(k, request)
        if rng.random() < _TWICE:
            self.ask()

    def _draw(self, k: int) -> tuple[bool, frozenset[bytes]]:
        """Everything now and then, or one record."""
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

    def _excuse(self, k: int) -> str:
        state = self.world.agents[k].state
        if state is None:
            return DOWN
        out = state.own.detached or state.tomb.whole or state.tomb.departed
        return NOTHING_LEFT if out else LOST
