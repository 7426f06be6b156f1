"""Fault profiles, and faults drawn from a seed.

`RandomFaults` drops, delays, repeats and reorders messages; cuts and heals links, in one direction
or both; crashes processes before or after a commit or between two effects, more often at critical
transitions; slows solvers down and skews clocks. `workload.run_workload` runs a network with it.
In a profile with `lies` one agent lies as well (module `insider`). The same seed gives the same
run.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from unweave.errors import ConfigError
from unweave.protocol.events import Certified, Detach, Effect, Opened
from unweave.simulator.world import DELIVERED, Delivery

__all__ = ["PROFILES", "Profile", "RandomFaults", "profile"]


@dataclass(frozen=True)
class Profile:
    """How likely each fault is. Probabilities are per message, per transition or per event."""

    drop: float = 0.0
    duplicate: float = 0.0
    delay: float = 0.05  # mean, seconds; exponential, so messages overtake each other
    crash: float = 0.0  # per transition
    critical: float = 10.0  # factor on `crash` at removals, new epochs and certificates
    before_commit: float = 0.3  # of the crashes
    between_effects: float = 0.5  # of the crashes
    power_cut: float = 0.0  # per event: every process crashes at once
    down: float = 3.0  # mean time until a process is started again
    lose_disk: float = 0.0  # of the restarts
    restore: float = 0.0  # of the restarts, from a backup taken earlier
    partition: float = 0.0  # per event: cut the network in two for some seconds
    one_way: float = 0.3  # of the partitions
    slow: float = 0.0  # of the pieces of work: slower than every timeout
    skew: float = 0.0  # clocks run fast or slow by up to this fraction
    departs: float = 0.0  # one agent stops for good and is voted out
    never_starts: float = 0.3  # of the departing agents: the genesis agent, before its first start
    frozen: float = 0.5  # of the departing agents: the process is stopped, and goes on afterwards
    lies: float = 0.0  # per simulated second, by one agent with a valid key (module `insider`)
    automatic: float = 0.5  # of the runs with lies: a proof of a lie is answered by votes
    voted_out: float = 0.5  # of the runs with lies: the liar never stops and is voted out
    noise: float = 0.0  # per event: a spurious Tick
    erase: float = 0.012  # per event: an owner asks for an erasure
    data: float = 0.006  # per event: an owner's data change

    @property
    def harmless(self) -> bool:
        """Whether no fault here justifies a second epoch."""
        faults = (self.drop, self.crash, self.power_cut, self.partition, self.departs, self.lies)
        return not any(faults)


PROFILES: dict[str, Profile] = {
    "calm": Profile(),
    "lossy": Profile(drop=0.15, duplicate=0.1, delay=0.3, noise=0.02),
    "crashes": Profile(drop=0.03, crash=0.01, delay=0.1, power_cut=0.002),
    "partitions": Profile(drop=0.02, partition=0.006, delay=0.1),
    "disks": Profile(drop=0.02, crash=0.012, lose_disk=0.25, restore=0.6),
    "slow": Profile(slow=0.2, skew=0.3),
    "departed": Profile(drop=0.05, crash=0.004, departs=1.0),
    "severe": Profile(
        drop=0.15,
        duplicate=0.1,
        delay=0.2,
        crash=0.008,
        power_cut=0.001,
        lose_disk=0.15,
        restore=0.3,
        partition=0.003,
        slow=0.1,
        skew=0.2,
        noise=0.02,
    ),
    "insider": Profile(
        drop=0.03,
        duplicate=0.03,
        delay=0.1,
        crash=0.003,
        lose_disk=0.1,
        restore=0.2,
        partition=0.001,
        noise=0.01,
        lies=2.0,
        erase=0.006,
        data=0.004,
    ),
}


def profile(name: str) -> Profile:
    """A profile by name."""
    if name not in PROFILES:
        raise ConfigError(f"no fault profile {name!r}. Fix: choose one of {', '.join(PROFILES)}")
    return PROFILES[name]


class RandomFaults:
    """The faults of one run. `stop()` ends them; messages in flight still arrive."""

    def __init__(self, profile: Profile, size: int, seed: int) -> None:
        self.profile = profile
        self.rng = random.Random(seed)
        self.size = size
        self.rates = [1.0 + profile.skew * (2 * self.rng.random() - 1) for _ in range(size)]
        self.offsets = [100.0 * self.rng.random() for _ in range(size)]
        self.side: frozenset[int] = frozenset()  # the agents cut off from the others
        self.one_way = False
        self.heals_at = 0.0
        self.lost = 0
        self.crashes = 0
        self.active = True

    def stop(self) -> None:
        self.active = False
        self.side = frozenset()

    def cut(self, side: frozenset[int], until: float, one_way: bool) -> None:
        """Nothing leaves `side` before `until`; and nothing enters it, unless `one_way`."""
        self.side, self.heals_at, self.one_way = side, until, one_way

    def flights(self, sender: int, to: int, now: float) -> Sequence[float]:
        p = self.profile
        if not self.active:
            return (0.001 + 0.01 * self.rng.random(),)
        if now < self.heals_at and (sender in self.side) != (to in self.side):
            if sender in self.side or not self.one_way:
                self.lost += 1
                return ()
        if self.rng.random() < p.drop:
            self.lost += 1
            return ()
        copies = 2 if self.rng.random() < p.duplicate else 1
        return [self.rng.expovariate(1.0 / p.delay) for _ in range(copies)]

    def solving(self, agent: int) -> float:
        if self.active and self.rng.random() < self.profile.slow:
            return 40.0 * self.rng.random()
        return 0.01

    def fate(self, agent: int, effects: Sequence[Effect]) -> Delivery:
        p = self.profile
        crash = p.crash
        if crash and any(isinstance(effect, Certified | Detach | Opened) for effect in effects):
            crash *= p.critical
        if not self.active or self.rng.random() >= crash:
            return DELIVERED
        self.crashes += 1
        if self.rng.random() < p.before_commit:
            return Delivery(commit=False)
        if effects and self.rng.random() < p.between_effects:
            return Delivery(effects=self.rng.randrange(len(effects)))
        return Delivery(effects=len(effects))

    def clock(self, agent: int, now: float) -> float:
        return self.offsets[agent] + self.rates[agent] * now

    def unclock(self, agent: int, shown: float) -> float:
        return (shown - self.offsets[agent]) / self.rates[agent]
