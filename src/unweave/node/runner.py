"""One agent as a process: the protocol core between a disk, a network and a solver.

The core decides, this file does: commit the new state, then carry out the effects in order.
Commits and solves run off the event loop. If the disk refuses a commit the agent starts again from
what is on it, as after a crash: the protocol asks for no more.
"""

from __future__ import annotations

import asyncio
import math
import os
import secrets
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

from unweave.errors import StoreError, UnweaveError, WireError
from unweave.models import Model
from unweave.node.authentic import check_attestations, check_records
from unweave.node.codec import decode, encode
from unweave.node.config import AgentFolder
from unweave.node.envelope import seal, unseal
from unweave.node.identity import Identity, verifier
from unweave.node.log import Log
from unweave.node.store import SqliteStore
from unweave.protocol.agent import deadline, handle, start
from unweave.protocol.events import (
    Again,
    Appraise,
    Certified,
    Continue,
    Detach,
    Done,
    Effect,
    Event,
    Figured,
    Freeze,
    Judge,
    Opened,
    Received,
    Refused,
    Send,
    Solution,
    Solve,
    Tick,
    Work,
)
from unweave.protocol.gossip import current_gossip
from unweave.protocol.messages import Hello, Message, Pass
from unweave.protocol.state import Hold, Out, Parked, State
from unweave.simulate.worker import influence
from unweave.simulate.world import Worker

__all__ = ["Node", "NotReady", "Transport"]

# What somebody who waits for news wants to hear of.
_NEWS = ("role", "rest", "tombs", "intents", "votes", "synced")

_ATTEMPTS = 3  # of a piece of work that fails, before the token goes on without it
_LARGE = 1 << 20  # bytes of a message that is not handled on the event loop

Deliver = Callable[[int, bytes], Awaitable[list[bytes]]]


class Transport(Protocol):
    """Carries sealed messages between neighbours; both ends know who the other one is."""

    async def start(self, deliver: Deliver) -> None: ...
    async def send(self, to: int, data: bytes) -> list[bytes]: ...
    async def stop(self) -> None: ...
    @property
    def refusals(self) -> Counter[tuple[str, str]]: ...  # by (neighbour or "unknown", reason)


class NotReady(UnweaveError):
    """The agent has no state to change: it has just begun, or its disk fails."""


class Node:
    """A running agent. `await node.run()` returns after `node.stop()`."""

    def __init__(
        self,
        folder: AgentFolder,
        identity: Identity,
        transport: Transport,
        worker: Worker,
        model: Model,
        log: Log,
    ) -> None:
        self.folder = folder
        self.model = model
        self.terms = folder.terms
        self.me = folder.me
        self.identity = identity
        self.transport = transport
        self.worker = worker
        self.log = log
        self.state: State | None = None
        self.counts: Counter[str] = Counter()
        self.last_refusal: str | None = None
        self.started = time.time()
        self._verify = verifier(folder.manifest.pems())
        self._attested: dict[tuple[int, bytes], bytes] = {}
        self._store: SqliteStore | None = None
        self._disk = ThreadPoolExecutor(1, "disk")
        self._solver = ThreadPoolExecutor(1, "solver")
        self._lock = asyncio.Lock()
        self._changed = asyncio.Condition()
        self._tick = asyncio.Event()
        self._stopping = asyncio.Event()
        self._broken = asyncio.Event()
        self._why = ""  # it broke
        self._tasks: set[asyncio.Task[Any]] = set()

    # ------------------------------------------------------------------------------------- life

    async def run(self) -> None:
        """Serve until stopped; a disk that fails is opened again, with growing pauses."""
        pause = 0.5
        try:
            await self._on_disk(self._open)
            await self.transport.start(self.deliver)
            while not self._stopping.is_set():
                began = time.monotonic()
                try:
                    await self._live()
                except StoreError as error:
                    self.counts["disk failures"] += 1
                    self.log.error("the disk refuses", why=str(error), again_in=pause)
                    if time.monotonic() - began > 30.0:
                        pause = 0.5
                    await _within(pause, self._stopping.wait)
                    pause = min(2.0 * pause, 30.0)
        finally:
            await self.transport.stop()
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await self._on_disk(self._close)
            self._disk.shutdown()
            self._solver.shutdown(wait=False, cancel_futures=True)

    def stop(self) -> None:
        self._stopping.set()

    async def _live(self) -> None:
        """One life: from the state on the disk until stopped, or until the disk fails."""
        if self._store is None:
            await self._on_disk(self._open)
        self._broken.clear()
        before = await self._on_disk(self._load)
        boot = secrets.randbits(63) | 1
        async with self._lock:
            after, effects = start(before, boot, time.monotonic(), self.identity.sign)
            await self._commit(before, after)
            self._perform(effects)
        self.log.info("started", agent=self.folder.config.name, role=type(after.role).__name__)
        timer = asyncio.create_task(self._timer())
        waits = [asyncio.create_task(e.wait()) for e in (self._stopping, self._broken)]
        try:
            await asyncio.wait([timer, *waits], return_when=asyncio.FIRST_COMPLETED)
            if timer.done():
                timer.result()
        finally:
            for task in (timer, *waits):
                task.cancel()
            await asyncio.gather(timer, *waits, return_exceptions=True)
            async with self._lock:
                self.state = None
                if self._broken.is_set():
                    await self._on_disk(self._close)
        if self._broken.is_set():
            raise StoreError(self._why)

    # ------------------------------------------------------------------------------- transitions

    async def tell(self, event: Event) -> list[Effect]:
        """One transition: decide, commit, do. Returns the effects, for whoever asked."""
        effects, _ = await self._transition(event, None, must=True)
        return effects

    async def deliver(self, sender: int, data: bytes) -> list[bytes]:
        """A sealed message from a neighbour; returns the sealed answers to it."""
        message = await self._aside(len(data), self._open_message, sender, data)
        self.counts["messages received"] += 1
        if isinstance(message, Pass):
            self.counts["tokens received"] += 1
        _, replies = await self._transition(Received(sender, message, time.monotonic()), sender)
        return [self._sealed(reply) for reply in replies]

    def _open_message(self, sender: int, data: bytes) -> Message:
        """Signature, sender, network and every signed record inside: checked before it counts."""
        signer, payload = unseal(data, self.terms, self._verify)
        if signer != sender:
            raise WireError(
                f"a message signed by {self.terms.name(signer)} came from {self.terms.name(sender)}"
            )
        message = decode(payload, self.terms)
        check_records(message, self.state, self.terms, self._verify)
        check_attestations(message, self._attested, self.terms, self._verify)
        return message

    async def _transition(
        self, event: Event, asker: int | None, *, must: bool = False
    ) -> tuple[list[Effect], list[Message]]:
        async with self._lock:
            before = self.state
            if before is None:
                if must:
                    raise NotReady(
                        f"{self.folder.config.name} has not read its disk yet, or the disk refuses "
                        "(see its log): nothing was recorded; try again"
                    )
                return [], []
            after, effects = handle(before, event, self.identity.sign)
            await self._commit(before, after)
        replies: list[Message] = []
        rest: list[Effect] = []
        for effect in effects:
            if isinstance(effect, Send) and effect.to == asker and not _is_token(effect):
                replies.append(effect.message)
            else:
                rest.append(effect)
        self._perform(rest)
        return effects, replies

    async def _commit(self, before: State, after: State) -> None:
        try:
            await self._on_disk(self._write, before, after)
        except Exception as error:
            # What was decided is forgotten; the state on the disk is the truth.
            self.state, self._why = None, str(error)
            self._broken.set()
            if isinstance(error, StoreError):
                raise
            raise StoreError(f"a state that cannot be written: {error}") from error
        self.state = after
        self._tick.set()
        if any(after.__dict__[name] is not before.__dict__[name] for name in _NEWS):
            async with self._changed:
                self._changed.notify_all()
        if after.rest is not before.rest or (after.synced and not before.synced):
            self._spawn(self._publish(after))

    async def probe(self, neighbour: int) -> None:
        """Call a neighbour, so that `heard` says whether it lives: while the token rests, nobody
        says anything."""
        s = self.state
        if s is not None and neighbour in s.neighbours:
            hello = Hello(s.fence, current_gossip(s.fork()), s.boot)
            await _within(self.terms.patience.ack, lambda: self._send(neighbour, hello))

    async def changed(self, timeout: float) -> bool:
        """Wait for news: the token came or went, came to rest, or an erasure advanced."""
        async with self._changed:
            return await _within(timeout, self._changed.wait)

    # ----------------------------------------------------------------------------------- effects

    def _perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                self._spawn(self._send(effect.to, effect.message))
            elif isinstance(effect, Again):
                self._spawn(self._transition(Continue(time.monotonic()), None))
            elif isinstance(effect, Solve | Judge | Freeze | Appraise):
                self._spawn(self._work(effect))
            elif isinstance(effect, Certified):
                self.counts["certificates"] += 1
                self.log.info("certified")
            elif isinstance(effect, Opened):
                self.counts["epochs opened"] += 1
                self.log.info("new epoch", why=effect.why)
            elif isinstance(effect, Refused):
                self.last_refusal = effect.why
                self.log.warning("refused", why=effect.why)
            elif isinstance(effect, Detach):
                self.log.info("rows dropped", whole=effect.whole)

    async def _send(self, to: int, message: Message) -> None:
        """One attempt. What matters is repeated by the protocol."""
        if isinstance(message, Pass):
            self.counts["tokens sent"] += 1
        try:
            size = message.token.eta.nbytes if isinstance(message, Pass) else 0
            sealed = await self._aside(size, self._sealed, message)
            replies = await self.transport.send(to, sealed)
        except UnweaveError as error:
            self.counts["messages lost"] += 1
            self.log.debug("not delivered", to=self.terms.name(to), why=str(error))
            return
        for reply in replies:
            try:
                answer = self._open_message(to, reply)
            except WireError as error:
                self.counts["messages refused"] += 1
                self.log.warning("refused", sender=self.terms.name(to), why=str(error))
                continue
            await self._transition(Received(to, answer, time.monotonic()), None)

    async def _work(self, work: Work, attempt: int = 1) -> None:
        answer = {
            Solve: lambda: self.worker.solve(work),  # type: ignore[arg-type]
            Judge: lambda: self.worker.judge(work),  # type: ignore[arg-type]
            Freeze: lambda: self.worker.freeze(work),  # type: ignore[arg-type]
            Appraise: lambda: self.worker.appraise(work),  # type: ignore[arg-type]
        }[type(work)]
        loop = asyncio.get_running_loop()
        try:
            result = await loop.run_in_executor(self._solver, answer)
        except Exception as error:  # of any kind: the token must not wait here for ever
            self.counts["solves failed"] += 1
            expected = isinstance(error, UnweaveError)
            self.log.error("cannot solve", why=str(error) if expected else type(error).__name__)
            await asyncio.sleep(self.terms.patience.ack)
            if self.state is None or self.state.pending != work.key:
                return  # nobody wants to know any more
            if attempt < _ATTEMPTS:
                self._spawn(self._work(work, attempt + 1))
                return
            result = self._without_answer(work)
        await self._transition(Done(work.key, result, time.monotonic()), None)

    def _without_answer(self, work: Work) -> Any:
        """What the protocol is told when the worker cannot answer: claim nothing, and go on."""
        if isinstance(work, Solve):
            return Solution(None, failed=True)
        if isinstance(work, Judge):
            return False  # then everybody starts from zero: the answer that promises least
        if isinstance(work, Freeze):
            return self.terms.grid.zeros()
        return {"kl_to_optimum": None, "method": "none: the computation failed"}

    async def _publish(self, s: State) -> None:
        """Compute this agent's influence on the token that rests, and publish that one number."""
        rest, copy = s.rest, s.copy
        if rest is None or copy is None or copy.included != rest.included:
            return
        held = s.factor(rest.included[self.me])
        if held is None:
            return
        loop = asyncio.get_running_loop()
        value = await loop.run_in_executor(
            self._solver, influence, self.model, copy.eta, held.units
        )
        figure = Figured(value if math.isfinite(value) else None, time.monotonic())
        await self._transition(figure, None)

    async def _aside(self, size: int, do: Callable[..., Any], *args: Any) -> Any:
        """Sealing and opening a large token takes a while: the loop goes on meanwhile."""
        if size < _LARGE:
            return do(*args)
        return await asyncio.get_running_loop().run_in_executor(None, do, *args)

    def _sealed(self, message: Message) -> bytes:
        return seal(encode(message, self.terms), self.me, self.identity.sign)

    def _spawn(self, work: Awaitable[Any]) -> None:
        task = asyncio.ensure_future(self._guarded(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _guarded(self, work: Awaitable[Any]) -> None:
        try:
            await work
        except StoreError:
            return  # `_live` has seen it
        except asyncio.CancelledError:
            raise
        except Exception as error:
            self.counts["errors"] += 1
            self.log.error("unexpected", error=f"{type(error).__name__}: {error}")

    async def _timer(self) -> None:
        while True:
            self._tick.clear()
            state = self.state
            due = None if state is None else deadline(state)
            wait = 60.0 if due is None else max(0.0, due - time.monotonic())
            if not await _within(wait, self._tick.wait):
                await self._transition(Tick(time.monotonic()), None)

    # -------------------------------------------------------------------------------------- disk

    async def _on_disk(self, do: Callable[..., Any], *args: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._disk, do, *args)

    def _open(self) -> None:
        self._store = SqliteStore.open(self.folder.store, self.terms, self.me)

    def _load(self) -> State:
        assert self._store is not None
        loaded = self._store.load(self.terms, self.me)
        return State(self.terms, self.me) if loaded is None else loaded

    def _write(self, before: State, after: State) -> None:
        assert self._store is not None
        self._store.commit(before, after)

    def _close(self) -> None:
        if self._store is not None:
            self._store.close()
            self._store = None

    # ----------------------------------------------------------------------------------- reading

    @property
    def phase(self) -> str:
        """What this agent is doing, in one word."""
        s = self.state
        if s is None:
            return "starting"
        if s.halted:
            return "halted"
        if s.tomb.left:
            return "left"
        if not s.synced:
            return "quarantine"
        if isinstance(s.role, Hold):
            return "solving" if s.pending else "holding"
        if isinstance(s.role, Out):
            return "sending"
        if isinstance(s.role, Parked):
            return "resting"
        return "idle"

    @property
    def pid(self) -> int:
        return os.getpid()


async def _within(seconds: float, wait: Callable[[], Awaitable[Any]]) -> bool:
    """Whether it came in time. `wait_for` would swallow a cancellation that comes together with the
    event, and the agent could not stop."""
    try:
        async with asyncio.timeout(seconds):
            await wait()
    except TimeoutError:
        return False
    return True


def _is_token(effect: Send) -> bool:
    return isinstance(effect.message, Pass)
