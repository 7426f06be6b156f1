"""Every point where a process can die during a step, on the SQLite store.

Two agents learn, one erases a row and later itself, with all their steps on disk. Between any two
things that touch the disk or the wire lies a point:

    before the commit · before each SQL statement of it, BEGIN, COMMIT and the cutting of the log
    included · after the commit · before each effect · after the last one
    while a store is created or opened: before each file, link, connection and SQL statement

The points are enumerated in one run, each with what the disks must hold there: the state before the
step up to its COMMIT, the one after it from then on. Then a process kills itself (SIGKILL) at each
of them, and from the files that are left

    P1  every store opens, and holds exactly the state before the step, or after it, as above
    P2  I1: eta = eta_0 + Σ_k factor_k[included_k] for each role token and copy, from stored factors
    P3  durable before sent: the same for every token that was sent; what was acknowledged is stored
    P4  a role token is not older than the fence nor newer than what was accepted
    P5  nothing that a stored tombstone forbids: no factor with erased rows, no dead token or copy,
        and once the store is open again, none of their bytes in its files
    P6  started again, everybody comes to rest with the right sum and no request left

This file is also the program that is killed: `python test_crash_points.py DIRECTORY [BUG]`. What a
power cut leaves of the log is tested too: any beginning of it.
"""

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import NamedTuple

import numpy as np
import pytest

import unweave.node.store as store_module
from unweave.errors import StoreError
from unweave.node.store import SqliteStore
from unweave.protocol.events import DataChanged, EraseRequested, Send, Solution
from unweave.protocol.ids import bit, members, request_id
from unweave.protocol.messages import Ack, Pass
from unweave.protocol.state import Parked, State
from unweave.protocol.tombs import dead
from unweave.simulate.world import Fate, World
from unweave.testing.store import Tally
from unweave.testing.values import same_durable, small_terms, state

TERMS = small_terms(agents=2, dim=2)
ROWS = [bytes([row]) * 16 for row in range(8)]
AGENTS = range(TERMS.size)


class Rows(Tally):
    """A worker whose factor shows the rows it was computed from: row r is bit 4r."""

    def factor(self, dropped):
        kept = sum(1 << 4 * r for r, row in enumerate(ROWS) if row not in dropped)
        return np.array([kept, self.agent + 1], dtype=np.int64)

    def solve(self, work):
        return Solution(self.factor(work.dropped))


def has_row(units, row: bytes) -> bool:
    return bool(int(units[0]) >> 4 * ROWS.index(row) & 1)


class Point(NamedTuple):
    """What is true when the process dies here."""

    label: str
    disks: tuple[State | None, ...]  # what each agent's store must hold
    sent: int  # how many messages had been sent


class Scenario(World):
    """A fault-free world whose steps go to disk; `at` is called at every point."""

    early = False  # the seeded bug: effects before the commit

    def __init__(self, directory: Path, phase: int, at):
        super().__init__(TERMS, [Rows(k) for k in AGENTS], seed=phase)
        self.at = at
        self.phase = phase
        self.disks: list[State | None] = load(directory)
        self.sent: list[tuple[int, object]] = []
        self.stores = []
        self.step_of: tuple[int, State] | None = None  # whose COMMIT comes next, and to what
        if phase < 2:  # the third phase opens its stores as the second one does
            listen(self.point)
        for k in AGENTS:
            self.stores.append(SqliteStore.open(directory / f"{k}.db", TERMS, k))
            found = self.stores[k].load(TERMS, k)
            if found is not None:
                self.wipe(k, found)
        listen(self.point)

    def point(self, label: str) -> None:
        self.at(Point(label, tuple(self.disks), len(self.sent)))
        if label == "COMMIT" and self.step_of is not None:
            k, after = self.step_of
            self.disks[k] = after  # at the next point, which may be in the same call

    def _commit(self, k, before, after, effects):
        if self.early:
            super()._commit(k, before, after, effects)
        self.point("before commit")
        self.step_of = (k, after)
        self.stores[k].commit(before, after)
        self.step_of = None
        self.point("after commit")
        if not self.early:
            super()._commit(k, before, after, effects)
        self.point("after effects")

    def _perform(self, k, effect):
        self.point(f"before {type(effect).__name__}")
        if isinstance(effect, Send):
            self.sent.append((k, effect.message))
        super()._perform(k, effect)

    def play(self) -> None:
        self.start()
        if self.phase == 1:  # a row of agent 1 is erased, while agent 0 has new data
            self.tell(1, EraseRequested(request_id(1, b"r" * 12), False, frozenset(ROWS[2:3]), 0.0))
            self.step()
            self.tell(0, DataChanged(0.0))
        elif self.phase == 2:
            self.tell(1, EraseRequested(request_id(1, b"w" * 12), True, frozenset(), 0.0))
        assert not self.run(lambda: False, limit=1_000)
        assert self.parked is not None
        listen(None)
        for store in self.stores:
            store.close()


PHASES = range(3)
_LISTENER = None
_CONNECT = sqlite3.connect
_FILES = {"open", "os.link", "os.remove", "sqlite3.connect"}


def listen(point) -> None:
    """Call `point` before every SQL statement of every connection, and before files are touched."""
    global _LISTENER
    if _LISTENER is None:
        sys.addaudithook(_hook)  # cannot be taken back: it looks whom to call
        sqlite3.connect = _connect
    _LISTENER = (point,)


def _connect(*args, **settings):
    db = _CONNECT(*args, **settings)
    db.set_trace_callback(_tell)
    return db


def _hook(event: str, args) -> None:
    if event in _FILES and ".db" in str(args[0]):
        _tell(event)


def _tell(label: str) -> None:
    if _LISTENER is not None and _LISTENER[0] is not None:
        _LISTENER[0](" ".join(label.split())[:60])


# ------------------------------------------------------------------------------------ the checks


def load(directory: Path) -> list[State | None]:
    states: list[State | None] = []
    for k in AGENTS:
        path = directory / f"{k}.db"
        if not path.exists():
            states.append(None)
            continue
        with SqliteStore.open(path, TERMS, k) as store:
            states.append(store.load(TERMS, k))
    return states


def check(point: Point, sent, directory: Path, recovered: set) -> None:
    """P1 to P6 on what the process left. `sent`: the messages of the whole run, in order."""
    try:
        states = load(directory)
    except StoreError as error:  # the seals hold for whole steps only
        raise AssertionError(f"P1: {error}") from error
    for k, (found, wanted) in enumerate(zip(states, point.disks, strict=True)):
        assert (found is None) == (wanted is None), f"P1: agent {k}"
        assert found is None or same_durable(found, wanted), f"P1: agent {k}"
    for k, s in enumerate(states):
        if s is None:
            continue
        for token in (s.token, s.copy):
            if token is not None:
                check_sum(token, states)  # P2
                assert not dead(token, s.tombs, s.generation), "P5: a dead token"
        if s.token is not None:
            assert s.fence <= s.token.stamp <= s.last, "P4"
        for factor in s.factors:
            assert not s.tomb.out, "P5: a factor of an erased agent"
            for request in s.tomb.ids:
                rows = s.tombstones[request].rows
                assert not any(has_row(factor.units, row) for row in rows), "P5: erased rows"
        check_bytes(s, sent, (directory / f"{k}.db").read_bytes())
    for k, message in sent[: point.sent]:
        if isinstance(message, Pass):
            check_sum(message.token, states)  # P3
        elif isinstance(message, Ack):
            assert states[k] is not None, "P3: acknowledged and not stored"
            assert states[k].last >= message.stamp, "P3: acknowledged and not stored"
    case = tuple(map(id, point.disks))
    if case not in recovered:  # the same disks at many points
        recovered.add(case)
        check_recovery(states)


def check_bytes(s: State, sent, content: bytes) -> None:
    """No vector that includes what this agent knows to be erased."""
    tokens = [message.token for _, message in sent if isinstance(message, Pass)]
    alive = {t.eta.tobytes() for t in tokens if not dead(t, s.tombs, s.generation)}
    forbidden = {t.eta.tobytes() for t in tokens} - alive
    if s.tomb.ids:
        forbidden.add(Rows(s.me).factor(frozenset()).tobytes())
    assert not any(vector in content for vector in forbidden), "P5: bytes"


def check_sum(token, states) -> None:
    """I1 from the stored factors. A factor may be missing only where a tombstone took it."""
    total = TERMS.eta0
    for k in members(token.inside):
        owner = states[k]
        assert owner is not None, "P3: included before its owner had a disk"
        factor = owner.factor(token.included[k])
        if factor is None:
            # Older than what is kept, or forbidden by now; never newer than what is durable.
            assert token.included[k].counter <= owner.counter, "P3"
            old = owner.factors and token.included[k] < owner.factors[-1].revision
            assert old or dead(token, owner.tombs, owner.generation), "P2"
            return
        total = total + factor.units
    assert np.array_equal(total, token.eta), "P2"


class Calm:
    """A wire with a delay and clocks that agree."""

    def flights(self, sender, to, now):
        return (0.01,)

    def solving(self, agent):
        return 0.01

    def fate(self, agent, effects):
        return Fate()

    def clock(self, agent, now):
        return now

    def unclock(self, agent, shown):
        return shown


def check_recovery(states) -> None:
    """P6: everybody starts again, in memory, from what is on disk."""
    world = World(TERMS, [Rows(k) for k in AGENTS], seed=99, weather=Calm())
    for k, s in enumerate(states):
        if s is not None:
            world.wipe(k, s)
    world.start()

    def done() -> bool:
        at_rest = [world.state(k) for k in AGENTS]
        holders = [s for s in at_rest if isinstance(s.role, Parked)]
        stamps = {None if s.rest is None else s.rest.stamp for s in at_rest}
        return (
            len(holders) == 1
            and stamps == {holders[0].role.token.stamp}
            and holders[0].rest.quiet == TERMS.everybody
            and all(s.wake < s.rest.stamp and not s.intents for s in at_rest)
        )

    assert world.run(done, limit=5_000), "P6: no rest"
    ends = [world.state(k) for k in AGENTS]
    token = ends[world.parked].role.token
    total = TERMS.eta0
    for k, s in enumerate(ends):
        assert not s.intents, "P6"
        if not s.detached:
            assert token.inside & bit(k), "P6"
            assert s.current.rows == s.rows, "P6"
            total = total + Rows(k).factor(s.dropped)
    assert np.array_equal(token.eta, total), "P6"
    for k, s in enumerate(states):
        if s is not None and s.own_intents():
            asked = {intent.request for intent in s.own_intents()}
            whole = any(intent.whole for intent in s.own_intents())
            assert ends[k].detached >= whole, "P6"
            assert asked <= ends[0].tombs[k].ids, "P6"


# -------------------------------------------------------------------------------- being killed


def two_transactions(db, stored, after, rows):
    """The seeded bug: the store syncs its tokens first and the rest of the step afterwards."""

    class Halved:
        def execute(self, *args):
            result = db.execute(*args)
            if " token " in args[0]:
                db.execute("COMMIT")
                db.execute("BEGIN IMMEDIATE")
            return result

    return write_state(Halved(), stored, after, rows)


write_state = store_module.write_state


def main(directory: Path, bug: str) -> int:
    """Kill a process at every point of every phase, and check what it leaves."""
    if bug == "two transactions":
        store_module.write_state = two_transactions
    Scenario.early = bug == "effects first"
    base = directory / "base"
    base.mkdir()
    killed = 0
    for phase in PHASES:
        points: list[Point] = []
        reference = directory / f"reference{phase}"
        shutil.copytree(base, reference)
        scenario = Scenario(reference, phase, points.append)
        scenario.play()
        recovered: set = set()
        for n, point in enumerate(points):
            left = directory / "left"
            shutil.copytree(base, left)
            child = os.fork()
            if not child:
                die_at(n, left, phase)
            status = os.waitpid(child, 0)[1]
            where = f"phase {phase}, point {n}, {point.label}"
            try:
                assert os.WIFSIGNALED(status), "did not die"
                assert os.WTERMSIG(status) == signal.SIGKILL, "died of something else"
                check(point, scenario.sent, left, recovered)
            except Exception as error:
                sys.stdout.write(f"{where}: {type(error).__name__} {str(error).splitlines()[0]}\n")
                return 1
            shutil.rmtree(left)
            killed += 1
        base = reference
    sys.stdout.write(f"{killed} points\n")
    return 0


def die_at(n: int, directory: Path, phase: int) -> None:
    """Run the phase in this process until point n."""
    left = n

    def at(point: Point) -> None:
        nonlocal left
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1

    try:
        Scenario(directory, phase, at).play()
    finally:
        os._exit(3)


def run(directory: Path, bug: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, __file__, str(directory), bug]
    return subprocess.run(command, check=False, capture_output=True, text=True)


@pytest.fixture
def disk(tmp_path):
    """A directory in memory if there is one: a killed process does not need a synced disk."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    directory = memory / f"unweave-{os.getpid()}-{tmp_path.name}"
    directory.mkdir()
    yield directory
    shutil.rmtree(directory)


def test_killed_at_every_point(disk):
    ended = run(disk)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert int(ended.stdout.split()[0]) > 400


@pytest.mark.parametrize(("bug", "shows"), [("two transactions", "P1"), ("effects first", "P3")])
def test_the_points_notice_a_bug(bug, shows, disk):
    ended = run(disk, bug)
    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert shows in ended.stdout


# ---------------------------------------------------------------------------------- power cuts


def test_any_beginning_of_the_log_is_some_committed_state(tmp_path):
    """A power cut leaves a beginning of the log, and perhaps half a frame more. The store then
    holds the last state whose frames are all there: none is torn, and none is skipped."""
    path, copy = tmp_path / "a.db", tmp_path / "copy" / "a.db"
    copy.parent.mkdir()
    terms = small_terms(agents=3, dim=300)
    draw = Random(3)
    states, ends = [], []
    log = tmp_path / "a.db-wal"
    with SqliteStore.open(path, terms, 1) as store:
        at = State(terms, 1)
        for step in range(6):
            after = state(draw, terms, 1, at if step else None)
            after.tombs, after.generation, after.chapters = {}, frozenset(), {}
            if step:  # no erasure, which would cut the log
                after.tombs, after.generation = at.tombs, at.generation
                after.factors = (*after.factors, *at.factors)[: max(3, len(at.factors))]
            store.commit(at, after)
            states.append(after)
            ends.append(log.stat().st_size)
            at = after
        whole, content = path.read_bytes(), log.read_bytes()
    assert ends == sorted(set(ends)), "every step has added to the log"
    frame, header = 4096 + 24, 32
    seen = set()
    for frames in range((len(content) - header) // frame + 1):
        for extra in (0, 11, 24 + 2000):
            size = header + frames * frame + extra
            copy.write_bytes(whole)
            copy.with_name("a.db-wal").write_bytes(content[:size])
            complete = sum(end <= size for end in ends)
            with SqliteStore.open(copy, terms, 1) as store:
                found = store.load(terms, 1)
            assert (found is None) == (complete == 0)
            assert found is None or same_durable(found, states[complete - 1])
            seen.add(complete)
    assert seen == set(range(7))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2]))
