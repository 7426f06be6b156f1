"""What a step asks for, once it is on the disk: messages, work, and words for the operator."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

from unweave.errors import StoreError
from unweave.node.cabinet import Cabinet
from unweave.node.log import Log
from unweave.node.post import Post
from unweave.node.steps import Steps
from unweave.node.tasks import Tasks
from unweave.node.working import Desk
from unweave.protocol.certificate import proved_by
from unweave.protocol.events import (
    Again,
    Certified,
    Continue,
    Detach,
    Effect,
    Event,
    Keep,
    Kept,
    Opened,
    Refused,
    Send,
    StaysOut,
    Work,
)
from unweave.protocol.messages import Message, Pass

__all__ = ["Hands", "answers"]


class Hands:
    """Carries out effects in their order; what takes a while runs beside the rest, and comes back
    as an event through `step`."""

    def __init__(
        self,
        step: Callable[[Event], Coroutine[Any, Any, object]],
        steps: Steps,
        post: Post,
        desk: Desk,
        cabinet: Cabinet,
        tasks: Tasks,
        log: Log,
        counts: Counter[str],
    ) -> None:
        self._step = step
        self._steps = steps
        self._post = post
        self._desk = desk
        self._cabinet = cabinet
        self._tasks = tasks
        self._log = log
        self._counts = counts
        self.stays_out = ""  # why the factor could not be in the token, when it last could not

    def perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                self._tasks.begin(self.send(effect.to, effect.message))
            elif isinstance(effect, Again):
                self._tasks.begin(self._step(Continue(time.monotonic())))
            elif isinstance(effect, Certified):
                self._counts["certificates"] += 1
            elif isinstance(effect, Keep):
                self._tasks.begin(self._keep(effect.certificate))
            elif isinstance(effect, Opened):
                self._counts["epochs opened"] += 1
                self._log.info("new epoch", why=effect.why)
            elif isinstance(effect, Refused):
                self._log.warning("refused", why=effect.why)
            elif isinstance(effect, StaysOut):
                if effect.why != self.stays_out:
                    self._log.warning("stays out", why=effect.why)
                self.stays_out = effect.why
            elif isinstance(effect, Detach):
                self._desk.let_go(whole=effect.whole)
                what = "its data" if effect.whole else "the erased records"
                self._log.info(f"forgot what it kept of {what}")
            else:
                self._tasks.begin(self._work(effect))

    async def send(self, to: int, message: Message) -> None:
        for answer in await self._post.send(to, message, self._steps.state):
            await self._step(answer)

    async def _keep(self, certificate: bytes) -> None:
        """Until it is kept: without its certificate an erasure cannot be shown to anybody."""
        pause = 0.5
        while True:
            try:
                path = await asyncio.to_thread(self._cabinet.keep, certificate)
                self._log.info("certificate kept", file=path.name)
                break
            except OSError as error:
                self._log.error("the certificate cannot be kept", why=str(error), again_in=pause)
                await asyncio.sleep(pause)
                pause = min(2.0 * pause, 60.0)
        await self._step(Kept(proved_by(certificate), time.monotonic()))

    async def _work(self, work: Work) -> None:
        def wanted() -> bool:
            state = self._steps.state
            return state is not None and state.pending == work.key

        done = await self._desk.answer(work, wanted)
        if done is None:
            return
        try:
            await self._step(done)
        except StoreError:
            raise
        except Exception as error:  # an answer that the token has no room for
            self._desk.complain(error)
            await self._step(self._desk.without(work))


def answers(effects: list[Effect], asker: int) -> tuple[list[Message], list[Effect]]:
    """What can go back to `asker` in the answer to its call, and the rest. A token never does: it
    goes on a call of its own, which is repeated until it is acknowledged."""
    back: list[Message] = []
    rest: list[Effect] = []
    for effect in effects:
        if isinstance(effect, Send) and effect.to == asker and not isinstance(effect.message, Pass):
            back.append(effect.message)
        else:
            rest.append(effect)
    return back, rest
