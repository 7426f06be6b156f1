"""How an entry is measured and recorded.

    @benchmark("what is compared", target=100.0, unit="×")
    def my_entry() -> float:
        return ratio(slow, fast)

Times are CPU times. Both sides of a ratio are measured in turns and the median of the ratios
counts, so that a busy or slow machine does not decide. `at_most=True` makes the target an upper
limit. Every entry names the privacy mode of its network: "plain" unless it says otherwise.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["ENTRIES", "Entry", "Measured", "benchmark", "cpu", "once", "ratio"]


@dataclass(frozen=True)
class Entry:
    title: str
    target: float
    unit: str
    at_most: bool
    measure: Callable[[], float]
    privacy: str = "plain"

    def run(self) -> Measured:
        value = self.measure()
        met = value <= self.target if self.at_most else value >= self.target
        return Measured(self.title, value, self.target, self.unit, self.at_most, met, self.privacy)


@dataclass(frozen=True)
class Measured:
    title: str
    value: float
    target: float
    unit: str
    at_most: bool
    met: bool
    privacy: str


ENTRIES: list[Entry] = []


def benchmark(
    title: str, *, target: float, unit: str = "×", at_most: bool = False, privacy: str = "plain"
) -> Callable[[Callable[[], float]], Callable[[], float]]:
    """Register an entry: a function without arguments that returns the number to be judged."""

    def register(measure: Callable[[], float]) -> Callable[[], float]:
        ENTRIES.append(Entry(title, target, unit, at_most, measure, privacy))
        return measure

    return register


def once(work: Callable[[], object]) -> float:
    """CPU seconds of one call."""
    start = time.process_time()
    work()
    return time.process_time() - start


def cpu(work: Callable[[], object], repeats: int = 7) -> float:
    """Median CPU seconds of `work`, all threads together, after one call to warm up."""
    work()
    return statistics.median(once(work) for _ in range(repeats))


def ratio(slow: Callable[[], object], fast: Callable[[], object], repeats: int = 7) -> float:
    """Median of cpu(slow)/cpu(fast) over pairs of runs, after one call of each to warm up."""
    slow()
    fast()
    return statistics.median(once(slow) / once(fast) for _ in range(repeats))
