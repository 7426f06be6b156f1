"""What a visit costs and leaves behind does not grow with the number of agents."""

from __future__ import annotations

import gc
import sys
import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest

from unweave.federation import Federation


def ring(agents: int) -> Federation:
    rng = np.random.default_rng(0)
    shards = [rng.integers(0, 2, 1 + k % 5) for k in range(agents)]
    return Federation("beta-bernoulli", shards, "ring", "sweep", seed=1)


def learn(federation: Federation) -> None:
    federation.learn(progress=False)


def forget(federation: Federation) -> None:
    federation.learn(progress=False)
    federation.forget(federation.agents[len(federation.agents) // 3], progress=False)


def audit(federation: Federation) -> None:
    forget(federation)
    federation.audit(progress=False)


def lines_per_visit(agents: int, work: Callable[[Federation], None]) -> float:
    """Lines of Python that run, the rounds of every loop included."""
    federation, count = ring(agents), 0

    def trace(frame: object, event: str, arg: object) -> object:
        nonlocal count
        count += event == "line"
        return trace

    outer = sys.gettrace()
    sys.settrace(trace)
    try:
        work(federation)
    finally:
        sys.settrace(outer)
    return count / len(federation.history)


def bytes_per_agent(agents: int, work: Callable[[Federation], None]) -> float:
    """What the work leaves in memory."""
    federation = ring(agents)
    gc.collect()
    tracemalloc.start()
    try:
        work(federation)
        gc.collect()
        return tracemalloc.get_traced_memory()[0] / agents
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("work", [learn, forget, audit])
def test_a_visit_does_not_look_at_everybody(work):
    """One loop over the agents per visit would run 300 lines more."""
    assert lines_per_visit(400, work) < 1.1 * lines_per_visit(100, work)


@pytest.mark.parametrize("work", [learn, forget, audit])
def test_an_agent_keeps_nothing_as_long_as_the_network(work):
    """A tuple of 1,000 places per agent would be 8,000 bytes."""
    assert bytes_per_agent(1_000, work) < 1.25 * bytes_per_agent(250, work)
