"""A worker that fails, never ends or answers rubbish: the agent goes on and says so, and the token
goes on without it."""

import asyncio
import threading

import numpy as np
import pytest
from tests.support.nodes import QUICK, nodes, until
from tests.support.processes import Processes

from unweave.errors import DataError
from unweave.node import commits as steps
from unweave.node.compute import ComputeQueue
from unweave.node.log import Log
from unweave.protocol.events import (
    UNKNOWN,
    Advance,
    Appraise,
    Done,
    Freeze,
    Judge,
    NextPoint,
    Solve,
    SolveResult,
)
from unweave.protocol.terms import Timeouts
from unweave.testing.values import small_terms

TERMS = small_terms(timeouts=Timeouts(ack=0.01))
DIM = TERMS.grid.dim
WORK = [
    Solve(("s",), 1, 1, None, None, frozenset()),
    Judge(("j",), np.zeros(DIM, np.int64), np.zeros(DIM, np.int64)),
    Freeze(("f",), np.zeros(DIM, np.int64), np.zeros(DIM, np.int64), frozenset()),
    Appraise(("a",), np.zeros(DIM, np.int64), np.zeros(DIM, np.int64)),
    Advance(("n",), b"point", np.zeros(DIM, np.int64)),
]
NAMES = [type(work).__name__ for work in WORK]


class Bad:
    """Does the same whatever is asked."""

    def __init__(self, act):
        self.solve = self.judge = self.freeze = self.appraise = self.advance = act
        self.act = act


def fails(_):
    raise RuntimeError("a record of Alice")


def refuses(_):
    raise DataError("the file is gone")


# ------------------------------------------------------------------------- agents with a bad worker


def no_vector(_):
    return SolveResult(np.zeros(2))


@pytest.mark.parametrize("act", [fails, refuses, lambda _: None, no_vector])
def test_the_token_goes_on(tmp_path, act):
    asyncio.run(goes_on(tmp_path, Bad(act)))


def test_the_token_goes_on_from_one_who_never_answers(tmp_path):
    end = threading.Event()
    try:
        asyncio.run(goes_on(tmp_path, Bad(lambda _: end.wait(60.0)), limit=0.1, end=end))
    finally:
        end.set()


def test_the_token_goes_on_if_the_answer_breaks_the_step(tmp_path, monkeypatch):
    units = np.array([1, 1])
    handle = steps.handle

    def breaks(state, event, *more):
        if isinstance(event, Done) and event.result.units is units:
            raise ValueError("no such thing")
        return handle(state, event, *more)

    monkeypatch.setattr(steps, "handle", breaks)
    asyncio.run(goes_on(tmp_path, Bad(lambda _: SolveResult(units))))


async def goes_on(tmp_path, bad, limit=3600.0, end=None):
    net = Processes(tmp_path / "net", agents=3, graph="path", timeouts=QUICK)
    with (net.folder("a2") / "agent.toml").open("r+") as file:
        text = file.read()
        file.seek(0)
        file.write(f"solve_limit = {limit}\n{text}")
    async with nodes(net, {"a2": lambda _: bad}) as agents:
        # a2 is between the others: if the token stays with it, a3 never sees it.
        await until(lambda: agents["a3"].state and agents["a3"].state.token.copy is not None)
        await until(lambda: includes(agents["a1"], 0, 2))
        assert not includes(agents["a1"], 1)
        a2 = agents["a2"]
        assert a2.counts["solves failed"] > 0
        said = a2.log.stream.getvalue()
        assert "cannot solve" in said
        assert "Alice" not in said
        assert not a2.counts["errors"]
        assert a2.phase in ("idle", "holding", "solving", "sending", "parked")
        if end is not None:
            end.set()  # the thread is free again, before the loop ends


def includes(node, *who):
    state = node.state
    copy = None if state is None else state.token.copy
    return copy is not None and all(k in copy.inside for k in who)


# --------------------------------------------------------------------------------- the queue alone


def ask(act, work, *, limit=3600.0, wanted=lambda: True):
    log = Log("a1", level="error")

    async def play():
        queue = ComputeQueue(Bad(act), TERMS, log, limit)
        try:
            return await queue.answer(work, wanted)
        finally:
            queue.end()

    return asyncio.run(play()), log.counts["solves failed"]


@pytest.mark.parametrize("work", WORK, ids=NAMES)
@pytest.mark.parametrize("act", [fails, refuses, lambda _: "rubbish", lambda _: None])
def test_nothing_is_claimed_without_an_answer(work, act):
    done, failed = ask(act, work)
    assert failed == 3
    assert done.key == work.key
    claims = {
        "Solve": lambda found: found == SolveResult(None, failed=True),
        "Judge": lambda found: found is False,
        "Freeze": lambda found: found is UNKNOWN,
        "Appraise": lambda found: found["kl_to_optimum"] is None,
        "Advance": lambda found: found.failed and found.point is None,
    }
    assert claims[type(work).__name__](done.result)


@pytest.mark.parametrize("kl", [float("nan"), float("inf"), "small", 1])
def test_an_estimate_is_a_number_or_nothing(kl):
    done, failed = ask(lambda _: {"kl_to_optimum": kl, "method": "guess"}, WORK[3])
    assert failed == 3
    assert done.result["kl_to_optimum"] is None


@pytest.mark.parametrize("point", [7, "text", bytearray(3)])
def test_a_point_is_bytes_or_nothing(point):
    done, failed = ask(lambda _: NextPoint(point), WORK[4])
    assert failed == 3
    assert done.result == NextPoint(None, failed=True)
    done, failed = ask(lambda _: NextPoint(b"next"), WORK[4])
    assert (done.result, failed) == (NextPoint(b"next"), 0)


def test_one_failure_is_no_failure():
    answers = [fails, lambda _: SolveResult(None, keep=True)]
    done, failed = ask(lambda work: answers.pop(0)(work), WORK[0])
    assert failed == 1
    assert done.result == SolveResult(None, keep=True)


def test_what_nobody_wants_to_know_is_not_answered():
    assert ask(fails, WORK[0], wanted=lambda: False) == (None, 1)


def test_a_busy_thread_is_not_asked_again():
    """Until it has finished; then it is."""
    calls, end = [], threading.Event()

    def act(work):
        calls.append(work)
        if len(calls) == 1:
            end.wait(60.0)
            raise RuntimeError("late")
        return SolveResult(None)

    async def play():
        log = Log("a1", level="error")
        queue = ComputeQueue(Bad(act), TERMS, log, 0.05)
        done = await queue.answer(WORK[0], lambda: True)
        assert done.result.failed
        assert len(calls) == 1
        assert log.counts["solves failed"] == 3
        end.set()
        async with asyncio.timeout(60):
            while done.result.failed:
                done = await queue.answer(WORK[0], lambda: True)
        assert done.result == SolveResult(None)
        queue.end()

    try:
        asyncio.run(play())
    finally:
        end.set()
