"""Differential privacy in a simulation: the ledgers of all agents, and noise that a seed repeats.

A ledger is a file of its own beside an agent's disk: it survives a crash, is lost with the disk,
and an old copy comes back with an old disk. The noise that was drawn is kept, so that a checker can
compare sums with it. Whoever knows the seed can remove the noise: it protects nobody.
"""

from __future__ import annotations

import random
from dataclasses import replace

from unweave.grid import Ints
from unweave.privacy.ledger import MemoryLedger
from unweave.privacy.release import NoiseShares, NoisyRelease

__all__ = ["SimulatedNoise"]


class SimulatedNoise:
    """`shares` draws the noise and knows its cost, as a `Mechanism` does."""

    def __init__(self, shares: NoiseShares, agents: int, seed: int) -> None:
        self.shares = shares
        self.seed = seed
        self.ledgers = [MemoryLedger(shares.budget) for _ in range(agents)]
        self.drawn: dict[bytes, Ints] = {}  # by the key of the given value
        self.charged: dict[int, int] = {}  # agent → its charges, also those that a disk has lost
        self.missing = 0  # values that ledgers had forgotten
        self.unsure = 0  # values that were charged because nobody knew

    def release(self, k: int, start: int) -> NoisyRelease:
        """For the process of agent k that was started as its `start`-th."""
        source = random.Random(f"noise {self.seed} {k} {start}")
        return NoisyRelease(
            self.shares,
            self.ledgers[k],
            source.randbytes,
            on_missing=self._on_missing,
            on_unsure=self._on_unsure,
            on_noise=lambda key, noise: self._on_noise(k, key, noise),
        )

    def image(self, k: int) -> MemoryLedger:
        """A copy of agent k's ledger, for a backup: as `unweave restore` makes it of one."""
        ledger = self.ledgers[k]
        return replace(ledger, keys=set(ledger.keys), in_doubt=True)

    def wipe(self, k: int, backup: MemoryLedger | None = None) -> None:
        """Lose agent k's ledger, or put an old one back."""
        old = MemoryLedger(self.shares.budget) if backup is None else backup
        self.ledgers[k] = replace(old, keys=set(old.keys))

    def _on_missing(self, missing: int) -> None:
        self.missing += missing

    def _on_unsure(self, charged: int) -> None:
        self.unsure += charged

    def _on_noise(self, k: int, key: bytes, noise: Ints) -> None:
        self.charged[k] = self.charged.get(k, 0) + 1
        self.drawn[key] = noise
