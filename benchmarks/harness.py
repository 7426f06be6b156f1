"""How an entry is measured and recorded.

    @benchmark("what is compared", target=100.0, unit="×")
    def my_entry() -> float:
        return cpu(slow) / cpu(fast)

Times are CPU times, the median of several repeats, and ratios are taken within one run, so that a
busy or slow machine does not decide. `at_most=True` turns the target into an upper limit.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["ENTRIES", "Entry", "Measured", "benchmark", "cpu"]


@dataclass(frozen=True)
class Entry:
    title: str
    target: float
    unit: str
    at_most: bool
    measure: Callable[[], float]

    def run(self) -> Measured:
        value = self.measure()
        met = value <= self.target if self.at_most else value >= self.target
        return Measured(self.title, value, self.target, self.unit, self.at_most, met)


@dataclass(frozen=True)
class Measured:
    title: str
    value: float
    target: float
    unit: str
    at_most: bool
    met: bool


ENTRIES: list[Entry] = []


def benchmark(
    title: str, *, target: float, unit: str = "×", at_most: bool = False
) -> Callable[[Callable[[], float]], Callable[[], float]]:
    """Register an entry: a function without arguments that returns the number to be judged."""

    def register(measure: Callable[[], float]) -> Callable[[], float]:
        ENTRIES.append(Entry(title, target, unit, at_most, measure))
        return measure

    return register


def cpu(work: Callable[[], object], repeats: int = 5) -> float:
    """Median CPU seconds of `work`, all threads together, after one call to warm up."""
    work()
    times = []
    for _ in range(repeats):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return statistics.median(times)
