"""Bad weather: everything that goes wrong in a network, drawn from a seed.

`ride_out` takes a network through it: messages are dropped, delayed, repeated and
reordered; links are cut and healed; processes die before or after a commit or between two effects;
disks are lost or replaced by old backups; solvers are slow, clocks disagree. Meanwhile owners ask
for erasures and new data arrive. Then the weather clears, everybody comes back or is declared gone,
and the network must come to rest. The same seed gives the same run.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from unweave.errors import ConfigError
from unweave.protocol.events import DataChanged, Effect, EraseRequested, VoteCast
from unweave.protocol.state import State
from unweave.simulate.checks import Checker, Violation, check_liveness
from unweave.simulate.world import LIVES, Fate, World

__all__ = ["PROFILES", "Profile", "Storm", "profile", "ride_out"]


@dataclass(frozen=True)
class Profile:
    """How bad the weather is. Probabilities are per message, per transition or per event."""

    drop: float = 0.0
    duplicate: float = 0.0
    delay: float = 0.05  # mean, seconds; exponential, so messages overtake each other
    crash: float = 0.0  # per transition
    before_commit: float = 0.3  # of the crashes
    between_effects: float = 0.5  # of the crashes
    down: float = 3.0  # mean time until a process is started again
    lose_disk: float = 0.0  # of the restarts
    restore: float = 0.0  # of the restarts, from a backup taken earlier
    partition: float = 0.0  # per event: cut the network in two for a while
    slow: float = 0.0  # of the pieces of work: slower than anybody's patience
    skew: float = 0.0  # clocks run fast or slow by up to this fraction
    gone: float = 0.0  # one agent never comes back and is voted out
    erase: float = 0.004  # per event: an owner asks for an erasure
    data: float = 0.004  # per event: an owner's data change


PROFILES: dict[str, Profile] = {
    "calm": Profile(erase=0.01, data=0.01),
    "lossy": Profile(drop=0.15, duplicate=0.1, delay=0.3),
    "crashes": Profile(drop=0.03, crash=0.01, delay=0.1),
    "partitions": Profile(drop=0.02, partition=0.004, delay=0.1),
    "disks": Profile(drop=0.02, crash=0.008, lose_disk=0.2, restore=0.4),
    "slow": Profile(drop=0.05, slow=0.2, skew=0.3, crash=0.003),
    "gone": Profile(drop=0.05, crash=0.004, gone=1.0),
    "hurricane": Profile(
        drop=0.15,
        duplicate=0.1,
        delay=0.2,
        crash=0.008,
        lose_disk=0.15,
        restore=0.3,
        partition=0.003,
        slow=0.1,
        skew=0.2,
    ),
}


def profile(name: str) -> Profile:
    """A profile by name."""
    if name not in PROFILES:
        raise ConfigError(f"no fault profile {name!r}; choose one of {', '.join(PROFILES)}")
    return PROFILES[name]


class Storm:
    """The weather of one run. `clear()` ends it; what is in flight still arrives."""

    def __init__(self, profile: Profile, size: int, seed: int) -> None:
        self.profile = profile
        self.rng = random.Random(seed)
        self.size = size
        self.rates = [1.0 + profile.skew * (2 * self.rng.random() - 1) for _ in range(size)]
        self.offsets = [100.0 * self.rng.random() for _ in range(size)]
        self.side: frozenset[int] = frozenset()  # the agents cut off from the others
        self.heals_at = 0.0
        self.raging = True

    def clear(self) -> None:
        self.raging = False
        self.side = frozenset()

    def flights(self, sender: int, to: int, now: float) -> Sequence[float]:
        p = self.profile
        if not self.raging:
            return (0.001 + 0.01 * self.rng.random(),)
        if self.side and now < self.heals_at and (sender in self.side) != (to in self.side):
            return ()
        if self.rng.random() < p.drop:
            return ()
        copies = 2 if self.rng.random() < p.duplicate else 1
        return [self.rng.expovariate(1.0 / p.delay) for _ in range(copies)]

    def solving(self, agent: int) -> float:
        if self.raging and self.rng.random() < self.profile.slow:
            return 40.0 * self.rng.random()
        return 0.01

    def fate(self, agent: int, effects: Sequence[Effect]) -> Fate:
        p = self.profile
        if not self.raging or self.rng.random() >= p.crash:
            return LIVES
        if self.rng.random() < p.before_commit:
            return Fate(commit=False)
        if effects and self.rng.random() < p.between_effects:
            return Fate(effects=self.rng.randrange(len(effects)))
        return Fate(effects=len(effects))

    def clock(self, agent: int, now: float) -> float:
        return self.offsets[agent] + self.rates[agent] * now

    def unclock(self, agent: int, shown: float) -> float:
        return (shown - self.offsets[agent]) / self.rates[agent]


class _Crew:
    """Restarts crashed agents, takes backups, cuts links, asks for erasures."""

    def __init__(self, world: World, storm: Storm, rows: int) -> None:
        self.world = world
        self.storm = storm
        self.rng = random.Random(storm.rng.random())
        self.rows = rows
        self.back_at: dict[int, float] = {}
        self.backups: dict[int, State] = {}
        self.gone: int | None = None
        self.spoiled: int | None = None  # the one agent whose disk may go wrong in this run
        self.requests = 0

    def between_events(self) -> None:
        world, rng, p = self.world, self.rng, self.storm.profile
        for k, agent in enumerate(world.agents):
            if agent.state is None and k != self.gone:
                back = self.back_at.setdefault(k, world.now + rng.expovariate(1.0 / p.down))
                if world.now >= back:
                    self._restart(k)
        draw = rng.random()
        if draw < p.partition and world.now >= self.storm.heals_at:
            self.storm.side = frozenset(k for k in range(self.storm.size) if rng.random() < 0.5)
            self.storm.heals_at = world.now + rng.expovariate(1.0 / 8.0)
        if rng.random() < p.erase:
            self.erase(rng.randrange(self.storm.size))
        if rng.random() < p.data:
            k = rng.randrange(self.storm.size)
            world.tell(k, DataChanged(world.clock(k)))
        if rng.random() < 0.02:
            k = rng.randrange(self.storm.size)
            self.backups[k] = world.agents[k].disk

    def _restart(self, k: int) -> None:
        world, rng, p = self.world, self.rng, self.storm.profile
        del self.back_at[k]
        # The rules survive one spoiled disk at a time; two at once may forget a request between
        # them, which is why a request counts as done only when it is certified.
        if self.storm.raging and self.spoiled in (None, k):
            draw = rng.random()
            if draw < p.lose_disk:
                self.spoiled = k
                world.wipe(k)
            elif draw < p.lose_disk + p.restore and k in self.backups:
                self.spoiled = k
                world.wipe(k, self.backups[k])
        world.boot(k)

    def erase(self, k: int) -> None:
        rng = self.rng
        whole = rng.random() < 0.15
        rows = frozenset() if whole else frozenset({bytes([rng.randrange(self.rows)]) * 16})
        self.requests += 1
        event = EraseRequested(rng.randbytes(16), whole, rows, self.world.clock(k))
        self.world.tell(k, event)

    def everybody_back(self) -> None:
        for k, agent in enumerate(self.world.agents):
            if agent.state is None and k != self.gone:
                self.back_at[k] = 0.0
                self._restart(k)

    def vote_out(self, k: int) -> None:
        request = self.rng.randbytes(16)
        for voter in range(self.storm.size):
            if voter != k:
                self.world.tell(voter, VoteCast(k, request, self.world.clock(voter)))


def ride_out(
    world: World,
    storm: Storm,
    checker: Checker,
    *,
    events: int,
    rows: int,
    patience: float = 4000.0,
    patience_events: int = 60_000,
) -> None:
    """`events` events of bad weather, then clear sky until the network rests; checks liveness."""
    crew = _Crew(world, storm, rows)
    world.start()
    while world.events < events:
        crew.between_events()
        if crew.gone is None and storm.profile.gone and world.events > events // 2:
            crew.gone = crew.rng.choice(_dispensable(world))
            world.crash(crew.gone)
        if not world.step():
            world.now += 1.0
    storm.clear()
    crew.everybody_back()
    cleared, limit = world.now, world.events + patience_events
    voted_at = cleared
    while world.now < cleared + patience and world.events < limit:
        crew.everybody_back()
        if crew.gone is not None and world.now >= voted_at:
            crew.vote_out(crew.gone)
            voted_at = world.now + 30.0
        if world.events % 16 == 0 and _lively(world, checker):
            return
        if not world.step():
            break
    check_liveness(world, checker)


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
