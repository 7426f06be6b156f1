"""Follows the agents of a folder: each tells over one connection what is new, at a bounded rate.

An agent tells it shortly after something happens, with all that came meanwhile, and then not again
before a pause. So an idle network costs next to nothing, and a busy one the same however many pages
are open.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from pydantic import TypeAdapter

from unweave.node.api.client import AgentDown
from unweave.node.api.routes import ROUTES
from unweave.node.api.sockets import short

__all__ = ["AgentLink", "Followers"]

_ROUTE = ROUTES["changes"]
_ANSWER = TypeAdapter(_ROUTE.answers)
# Seconds without news, after which an agent tells that it is there. A line costs a process that
# sleeps as much as some six seconds of sleep.
_WAIT = 240.0
_COLLECT = 0.4  # seconds that it gathers more of them in, after the first
_SLACK = 10.0  # seconds more until it counts as silent
_CONNECT = 3.0
_MOST = 4 << 20  # bytes of an answer

_RATE = 20.0  # answers per second, of all agents together, while a page is open
_SHORTEST = 1.0  # seconds between two answers of one agent
_UNSEEN = 15.0  # seconds until an agent is followed again, while no page is open
_DOWN = 2.0  # between two attempts to reach an agent that does not answer


class AgentLink:
    """A request to one agent's control socket. HTTP/1.0, so that the connection ends with the
    answers; each is a line. All methods raise `AgentDown`."""

    def __init__(self, folder: Path) -> None:
        self._socket = folder / "agent.sock"
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def now(self, run: str, after: int) -> dict[str, Any]:
        """What is new since the answer `after` of the process `run`."""
        await self._ask(run=run, after=after, timeout=0.0)
        return await self.line(0.0)

    async def follow(self, run: str, after: int, every: float) -> None:
        """From now on there is a line whenever something is new, or nothing is for minutes."""
        how = {"timeout": _WAIT, "collect": _COLLECT, "follow": True, "every": every}
        await self._ask(run=run, after=after, **how)

    async def line(self, wait: float) -> dict[str, Any]:
        assert self._streams is not None
        async with self._closing():
            async with asyncio.timeout(wait + _SLACK):
                found: dict[str, Any] = _ANSWER.validate_json(await self._streams[0].readline())
        answer: dict[str, Any] = found["changes"]
        return answer

    async def _ask(self, **given: Any) -> None:
        await self.close()
        request = f"GET {_ROUTE.path}?{urlencode(given)} HTTP/1.0\r\nhost: agent\r\n\r\n"
        async with self._closing():
            async with asyncio.timeout(_CONNECT):
                with short(self._socket) as where:
                    self._streams = await asyncio.open_unix_connection(where, limit=_MOST)
            reader, writer = self._streams
            writer.write(request.encode())
            async with asyncio.timeout(_SLACK):
                head = await reader.readuntil(b"\r\n\r\n")
            if b" 200 " not in head.partition(b"\r\n")[0]:
                raise ValueError

    @contextlib.asynccontextmanager
    async def _closing(self) -> AsyncGenerator[None]:
        """After any failure the connection is closed: half an answer may be left."""
        try:
            yield
        except (OSError, EOFError, TimeoutError, ValueError, asyncio.LimitOverrunError):
            await self.close()
            raise AgentDown(f"{self._socket}: no agent answers") from None
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        if self._streams is not None:
            _, writer = self._streams
            self._streams = None
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


class Followers:
    """Follows all agents. `take` gets an agent's name and its answer, or None if it is down."""

    def __init__(
        self,
        folders: dict[str, Path],
        take: Callable[[str, dict[str, Any] | None], None],
        viewers: Callable[[], int],
    ) -> None:
        self._folders, self._take, self._viewers = folders, take, viewers
        # At first agents tell all they remember: what an earlier page heard has times that this one
        # does not know.
        self._told: dict[str, tuple[str, int]] = {}
        self._watched = asyncio.Event()
        self._doubted: asyncio.Queue[str] = asyncio.Queue()
        self._doubts: set[str] = set()  # those in it, and the one that is asked

    def doubt(self, name: str) -> None:
        """Other agents do not hear this one: if its process stands still, say so soon."""
        if name in self._folders and name not in self._doubts:
            self._doubts.add(name)
            self._doubted.put_nowait(name)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for name, folder in self._folders.items():
                group.create_task(self._follow(name, folder))
            group.create_task(self._check())
            while True:
                if self._viewers():
                    self._watched.set()
                else:
                    self._watched.clear()
                await asyncio.sleep(_SHORTEST)

    async def _follow(self, name: str, folder: Path) -> None:
        link = AgentLink(folder)
        every = max(_SHORTEST, len(self._folders) / _RATE)
        wait = max(_WAIT, every)
        try:
            while True:
                try:
                    self._receive(name, await link.now(*self._told.get(name, ("", 0))))
                    while True:
                        await self._until_watched()
                        await link.follow(*self._told[name], every)
                        self._receive(name, await link.line(wait))
                        while self._watched.is_set():
                            self._receive(name, await link.line(wait))
                        await link.close()
                except AgentDown:
                    self._take(name, None)
                    await asyncio.sleep(_DOWN)
        finally:
            await link.close()

    def _receive(self, name: str, answer: dict[str, Any]) -> None:
        self._told[name] = (answer["run"], answer["number"])
        self._take(name, answer)

    async def _check(self) -> None:
        """Ask agents in doubt over a second connection: on the first one a line may be late."""
        while True:
            name = await self._doubted.get()
            link = AgentLink(self._folders[name])
            try:
                await link.now(*self._told.get(name, ("", 0)))
            except AgentDown:
                self._take(name, None)
            finally:
                self._doubts.discard(name)
                await link.close()

    async def _until_watched(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_UNSEEN):
                await self._watched.wait()
