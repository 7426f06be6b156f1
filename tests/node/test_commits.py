"""Effects are returned after the commit; a delayed commit is written all the same."""

import asyncio
from random import Random

import pytest

from unweave.errors import StoreError
from unweave.node import commits as room
from unweave.node.commits import Commits
from unweave.protocol.events import Again, Tick
from unweave.protocol.state import DURABLE, IDLE, Out, Peers, State
from unweave.testing.values import small_terms, token

TERMS = small_terms()
TOKEN = token(Random(1), TERMS)


class SlowDisk:
    """Commits when `let_go` is called, or at once if `quick`; refuses gaps, as the store does."""

    def __init__(self) -> None:
        self.quick = True
        self.holds = State(TERMS, 0)
        self.commits: list[State] = []
        self._waiting: list[tuple[asyncio.Future, State]] = []

    async def load(self):
        return self.holds

    def commit(self, before, after):
        done = asyncio.get_running_loop().create_future()
        if any(before.durable(name) is not self.holds.durable(name) for name in DURABLE):
            done.set_exception(StoreError("a gap"))
            return done
        self._waiting.append((done, after))
        if self.quick:
            self.let_go()
        return done

    def let_go(self, error=None):
        done, after = self._waiting.pop()
        if error is not None:
            done.set_exception(error)
            return
        self.holds = after
        self.commits.append(after)
        done.set_result(None)


class Play:
    """Commits whose new states are given: `await play.take(effects, role=…)`."""

    def __init__(self, monkeypatch):
        self.disk = SlowDisk()
        self.commits = Commits(self.disk, lambda _: b"", lambda after: None)
        self.decision = ([], {})
        monkeypatch.setattr(room, "handle", self._handle)
        monkeypatch.setattr(room, "start", lambda before, *_: (before.fork(), []))

    def _handle(self, before, event, sign, entropy):
        effects, changes = self.decision
        after = before.fork()
        for name, value in changes.items():
            if name in DURABLE:
                after.set_durable(name, value)
            else:
                setattr(after, name, value)
        return after, effects

    async def take(self, *effects, **changes):
        self.decision = ([*effects], changes)
        return await self.commits.take(Tick(0.0))

    async def step_that_waits(self):
        """The first step after the start, before the disk has written it."""
        await self.commits.begin(1)
        self.disk.quick = False
        step = asyncio.ensure_future(self.take(Again(), role=Out(TOKEN, 1)))
        await turns()
        return step


async def turns(count=5):
    for _ in range(count):
        await asyncio.sleep(0)


def test_effects_wait_for_the_disk(monkeypatch):
    async def play():
        game = Play(monkeypatch)
        step = await game.step_that_waits()
        assert not step.done()
        assert game.commits.state.token.role == IDLE
        game.disk.let_go()
        assert await step == [Again()]
        assert game.disk.holds.token.role == Out(TOKEN, 1)

    asyncio.run(play())


def test_a_step_without_consequences_is_written_with_the_next_one(monkeypatch):
    async def play():
        game = Play(monkeypatch)
        monkeypatch.setattr(room, "_WAIT", 3600.0)
        await game.commits.begin(1)
        await game.take(Again(), role=Out(TOKEN, 1))
        written = len(game.disk.commits)
        assert await game.take(role=IDLE) == []  # the neighbour has it
        assert game.commits.state.token.role == IDLE
        assert len(game.disk.commits) == written
        await game.take(Again())  # changes nothing durable itself, but something follows from it
        assert len(game.disk.commits) == written + 1
        assert game.disk.holds.token.role == IDLE

    asyncio.run(play())


@pytest.mark.parametrize("end", [True, False])
def test_what_may_wait_does_not_wait_for_ever(monkeypatch, end):
    async def play():
        game = Play(monkeypatch)
        monkeypatch.setattr(room, "_WAIT", 3600.0 if end else 0.0)
        await game.commits.begin(1)
        await game.take(Again(), role=Out(TOKEN, 1))
        await game.take(role=IDLE)
        if end:
            await game.commits.end()
        else:
            async with asyncio.timeout(60):
                while game.disk.holds.token.role != IDLE:
                    await asyncio.sleep(0.001)
        assert game.disk.holds.token.role == IDLE

    asyncio.run(play())


@pytest.mark.parametrize("name", sorted({*DURABLE} - {"role", "fence"}))
def test_everything_else_is_written_at_once(monkeypatch, name):
    async def play():
        game = Play(monkeypatch)
        await game.commits.begin(1)
        new = object()
        await game.take(**{name: new})
        assert game.disk.holds.durable(name) is new

    asyncio.run(play())


def test_nothing_durable_needs_no_disk(monkeypatch):
    async def play():
        game = Play(monkeypatch)
        await game.commits.begin(1)
        written = len(game.disk.commits)
        assert await game.take(Again(), timers={"alive": 1.0}) == [Again()]
        assert len(game.disk.commits) == written
        assert game.commits.state.timers == {"alive": 1.0}

    asyncio.run(play())


def test_a_commit_is_not_interrupted(monkeypatch):
    """After a cancelled wait, `state` is the state on the disk."""

    async def play():
        game = Play(monkeypatch)
        step = await game.step_that_waits()
        step.cancel()
        await turns()
        assert not step.done()
        game.disk.let_go()
        with pytest.raises(asyncio.CancelledError):
            await step
        assert game.commits.state.token.role == Out(TOKEN, 1)
        game.disk.quick = True
        await game.take(Again(), role=IDLE)
        assert not game.commits.broken.is_set()

    asyncio.run(play())


def test_a_disk_that_refuses_ends_the_incarnation(monkeypatch):
    async def play():
        game = Play(monkeypatch)
        step = await game.step_that_waits()
        game.disk.let_go(OSError("no space left"))
        with pytest.raises(StoreError, match="no space left"):
            await step
        assert game.commits.state is None
        assert game.commits.broken.is_set()
        assert await game.take() is None
        game.disk.quick = True
        await game.commits.begin(2)  # starts from the state on the disk
        assert game.commits.state.token.role == IDLE

    asyncio.run(play())


def test_news_wakes_everybody_who_waits(monkeypatch):
    async def play():
        game = Play(monkeypatch)
        await game.commits.begin(1)
        waits = [asyncio.ensure_future(game.commits.changed(60.0)) for _ in range(2)]
        await turns()
        await game.take(Again(), timers={})
        await turns()
        assert not any(wait.done() for wait in waits)
        await game.take(Again(), role=Out(TOKEN, 1))
        assert await asyncio.gather(*waits) == [True, True]
        assert not await game.commits.changed(0.0)

    asyncio.run(play())


@pytest.mark.parametrize("name", ["parked", "tombs", "intents", "votes", "synced"])
def test_each_kind_of_news_ends_a_wait(monkeypatch, name):
    async def play():
        game = Play(monkeypatch)
        await game.commits.begin(1)
        wait = asyncio.ensure_future(game.commits.changed(60.0))
        await turns()
        if name == "synced":
            peers = Peers()
            peers.synced = True
            await game.take(Again(), peers=peers)
        else:
            await game.take(Again(), **{name: object()})
        await turns()
        assert wait.done()

    asyncio.run(play())
