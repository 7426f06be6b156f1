"""Follows the agents of a folder: one waiting request per agent, at a bounded rate.

An agent answers shortly after something happens, with all that came meanwhile, and is not asked
again before a pause. So an idle network costs next to nothing, and a busy one the same however many
pages are open.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
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
_WAIT = 60.0  # seconds that an agent waits for news
_COLLECT = 0.4  # seconds that it gathers more of them in, after the first
_SLACK = 10.0  # seconds more until it counts as silent
_CONNECT = 3.0
_MOST = 4 << 20  # bytes of an answer

_RATE = 20.0  # answers per second, of all agents together, while a page is open
_SHORTEST = 1.0  # seconds between two answers of one agent
_UNSEEN = 15.0  # the same, while no page is open
_DOWN = 2.0  # between two attempts to reach an agent that does not answer


class AgentLink:
    """A connection to one agent's control socket, for requests that wait."""

    def __init__(self, folder: Path) -> None:
        self._socket = folder / "agent.sock"
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def changes(self, run: str, after: int, wait: float = _WAIT) -> dict[str, Any]:
        """What is new since the answer `after` of the process `run`; raises `AgentDown`."""
        asked = urlencode({"run": run, "after": after, "timeout": wait, "collect": _COLLECT})
        request = f"GET {_ROUTE.path}?{asked} HTTP/1.1\r\nhost: agent\r\n\r\n"
        try:
            async with asyncio.timeout(wait + _SLACK):
                reader, writer = self._streams or await self._connect()
                writer.write(request.encode())
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
                length = int(head.partition("content-length:")[2].partition("\r\n")[0])
                if " 200 " not in head.partition("\r\n")[0] or length > _MOST:
                    raise ValueError
                found: dict[str, Any] = _ANSWER.validate_json(await reader.readexactly(length))
        except (OSError, EOFError, TimeoutError, ValueError, asyncio.LimitOverrunError):
            await self.close()
            raise AgentDown(f"{self._socket}: no agent answers") from None
        except BaseException:
            await self.close()  # half an answer may be left
            raise
        answer: dict[str, Any] = found["changes"]
        return answer

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        async with asyncio.timeout(_CONNECT):
            with short(self._socket) as where:
                self._streams = await asyncio.open_unix_connection(where)
        return self._streams

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
        told: dict[str, tuple[str, int]],
        take: Callable[[str, dict[str, Any] | None], None],
        viewers: Callable[[], int],
    ) -> None:
        self._folders, self._told, self._take, self._viewers = folders, dict(told), take, viewers
        self._watched = asyncio.Event()
        self._doubted: asyncio.Queue[str] = asyncio.Queue()

    def doubt(self, name: str) -> None:
        """Other agents do not hear this one: if its process stands still, say so soon."""
        if name in self._folders:
            self._doubted.put_nowait(name)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for name, folder in self._folders.items():
                group.create_task(self._follow(name, folder))
            group.create_task(self._check())
            while True:
                await asyncio.sleep(_SHORTEST)
                if self._viewers():
                    self._watched.set()
                else:
                    self._watched.clear()

    async def _follow(self, name: str, folder: Path) -> None:
        link = AgentLink(folder)
        wait = 0.0  # the first answer comes at once
        try:
            while True:
                try:
                    answer = await link.changes(*self._told.get(name, ("", 0)), wait)
                except AgentDown:
                    self._take(name, None)
                    await asyncio.sleep(_DOWN)
                    wait = 0.0
                    continue
                self._told[name], wait = (answer["run"], answer["number"]), _WAIT
                self._take(name, answer)
                await self._pause()
        finally:
            await link.close()

    async def _check(self) -> None:
        """Ask agents in doubt over a second connection: on the first one they wait for news."""
        while True:
            name = await self._doubted.get()
            link = AgentLink(self._folders[name])
            try:
                await link.changes(*self._told.get(name, ("", 0)), 0.0)
            except AgentDown:
                self._take(name, None)
            finally:
                await link.close()

    async def _pause(self) -> None:
        await asyncio.sleep(max(_SHORTEST, len(self._folders) / _RATE) - _COLLECT)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_UNSEEN):
                await self._watched.wait()
