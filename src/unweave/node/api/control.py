"""The operator's door: a Unix socket (mode 0600) in the agent's folder, one JSON line each way.

A request is {"do": "status", …}; the answer is {"ok": true, …} or {"ok": false, "error": …}. The
peer port never serves operators, and this socket never serves peers.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import time
from base64 import b64encode
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from unweave.errors import ConfigError, DataError, UnweaveError
from unweave.node.api.report import (
    erasure_report,
    forgotten_report,
    posterior_report,
    status_report,
)
from unweave.node.data.private import PrivateData
from unweave.node.data.watch import Freshness
from unweave.node.driver import Node, NotReady
from unweave.node.erasures import asked_before, erased_before
from unweave.protocol.events import EraseRequested, Refused, Roused, VoteCast
from unweave.protocol.token import request_id, requested_of

__all__ = ["Control", "short"]


_LINE = 64 * 1024 * 1024  # the longest request: a list of keys to erase
_KEPT = 5.0  # seconds that a posterior is kept for whoever asks again
_ROWS = 100_000  # records in one erasure; they travel as one message


class Control:
    """Serves the operator of one node."""

    def __init__(self, node: Node, data: PrivateData, freshness: Freshness) -> None:
        self.node = node
        self.data = data
        self.freshness = freshness
        self._inode = 0
        self._told: dict[str, Any] | None = None
        self._server: asyncio.Server | None = None
        self._commands: dict[str, Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]] = {
            "status": self._status,
            "posterior": self._posterior,
            "forgotten": self._forgotten,
            "influence": self._influence,
            "erase": self._erase,
            "erasure": self._erasure,
            "vote": self._vote,
            "rouse": self._rouse,
            "learn": self._learn,
            "backup": self._backup,
            "wait": self._wait,
            "stop": self._stop,
        }

    async def start(self) -> None:
        path = self.node.folder.socket
        previous = os.umask(0o177)
        try:
            # The store's lock has shown that no other process serves this folder.
            path.unlink(missing_ok=True)
            with short(path) as where:
                self._server = await asyncio.start_unix_server(self._serve, where, limit=_LINE)
            self._inode = path.stat().st_ino
        except OSError as error:
            raise ConfigError(
                f"{path}: the operator's socket cannot be made ({error.strerror}): check that the "
                "folder is on a local disk, can be written, and that nothing else has this name"
            ) from None
        finally:
            os.umask(previous)

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            path = self.node.folder.socket
            with contextlib.suppress(FileNotFoundError):
                if path.stat().st_ino == self._inode:  # else it is our successor's
                    path.unlink()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # ValueError: a line without an end. Whoever sends that is not answered.
        with contextlib.suppress(ConnectionError, ValueError):
            while line := await reader.readline():
                answer = await self._answer(line)
                writer.write(json.dumps(answer).encode() + b"\n")
                await writer.drain()
        writer.close()

    async def _answer(self, line: bytes) -> dict[str, Any]:
        try:
            request = json.loads(line)
            command = self._commands.get(request.get("do"))
            if command is None:
                return {"ok": False, "error": f"unknown request; known: {sorted(self._commands)}"}
            return {"ok": True, **await command(request)}
        except UnweaveError as error:
            return {"ok": False, "error": str(error), "exit": error.exit_code}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            return {"ok": False, "error": f"not a request: {error}", "exit": 2}

    # ----------------------------------------------------------------------------- the requests

    async def _status(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"status": status_report(self.node)}

    async def _posterior(self, request: dict[str, Any]) -> dict[str, Any]:
        """{"everything": true}: also what is left out of a large one; {"erasures": true}: also what
        is known to be erased."""
        everything, erasures = bool(request.get("everything")), bool(request.get("erasures"))
        before = None if everything else self._told
        report = await asyncio.to_thread(
            posterior_report, self.node, everything, before, erasures=erasures
        )
        if not everything:
            self._told = report
            asyncio.get_running_loop().call_later(_KEPT, self._let_go, report)
        return {"posterior": report}

    def _let_go(self, report: dict[str, Any]) -> None:
        """What was told a while ago may have records in it that are erased since."""
        if self._told is report:
            self._told = None

    async def _forgotten(self, request: dict[str, Any]) -> dict[str, Any]:
        state = self.node.state
        if state is None:
            raise NotReady(f"{self.node.folder.config.name} has not read its disk yet: try again")
        return {"forgotten": forgotten_report(state)}

    async def _influence(self, request: dict[str, Any]) -> dict[str, Any]:
        await self.node.publish()
        state = self.node.state
        figures = {} if state is None else state.figures
        name = self.node.terms.name
        return {"influence": {name(k): f.influence for k, f in sorted(figures.items())}}

    async def _erase(self, request: dict[str, Any]) -> dict[str, Any]:
        """{"whole": true} or {"keys": […]}; answers with the request's id, and of how many records
        an earlier request has been asked already. It may be repeated. With {"missing_ok": true}
        keys that the data do not have (any more) can never come back either; the signed request
        says how many they are."""
        whole, missing_ok = bool(request.get("whole")), bool(request.get("missing_ok"))
        rows = absent = frozenset[bytes]()
        if not whole:
            rows, absent = await self._rows_of(request["keys"], missing_ok)
        state, before = self.node.state, 0
        if state is not None and request.get("request") is None:
            asked, fresh = asked_before(state, rows)
            known = erased_before(state) if whole else (None if fresh else asked)
            if known is not None:  # its certificate is the answer
                return {"request": known.hex(), "before": len(rows)}
            before, rows = len(rows) - len(fresh), fresh
        if len(rows) > _ROWS:
            raise ConfigError(
                f"{len(rows)} records in one request: ask for at most {_ROWS} at a time (every "
                "agent keeps the commitments of what was erased)"
            )
        ident = self._ident(request.get("request"), self.node.me)
        event = EraseRequested(ident, whole, rows, time.monotonic(), len(rows & absent))
        self._raise_refusal(await self.node.tell(event))
        return {"request": ident.hex(), "before": before}

    async def _rows_of(
        self, keys: list[Any], missing_ok: bool
    ) -> tuple[frozenset[bytes], frozenset[bytes]]:
        """The commitments of the records with these keys, and those that the data do not have."""
        found, unknown = await asyncio.to_thread(self.data.commit_keys, keys)
        absent = frozenset[bytes]()
        if missing_ok:
            absent, unknown = self.data.commit_absent(unknown)
        if unknown:
            strange = set(unknown)
            lines = [n for n, key in enumerate(keys, 1) if key in strange]
            shown = ", ".join(map(str, lines[:5])) + (", …" if len(lines) > 5 else "")
            raise DataError(
                f"{len(unknown)} of {len(keys)} keys are not in the data of "
                f"{self.node.folder.config.name}: check the keys file (one key per line; "
                f"key number {shown}); if they were deleted from the data already, --missing-ok "
                "erases them for good"
            )
        return found | absent, absent

    async def _erasure(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"erasure": erasure_report(self.node, bytes.fromhex(request["request"]))}

    async def _vote(self, request: dict[str, Any]) -> dict[str, Any]:
        target = self.node.terms.topology.index(request["agent"])
        ident = self._ident(request.get("request"), target)
        await self.node.probe(target)
        self._raise_refusal(await self.node.tell(VoteCast(target, ident, time.monotonic())))
        state = self.node.state
        votes = 0 if state is None else sum(1 for t, _ in state.votes if t == target)
        return {"request": ident.hex(), "votes": votes, "quorum": self.node.terms.quorum}

    def _ident(self, given: str | None, agent: int) -> bytes:
        """A new request id about `agent`, or the one that was given, if it is one."""
        if given is None:
            return request_id(agent, secrets.token_bytes(12))
        ident = bytes.fromhex(given)
        if len(ident) != 16 or requested_of(ident) != agent:
            name = self.node.terms.name(agent)
            raise ConfigError(
                f"request {given}: not an id of a request about {name}; leave it out for a new one"
            )
        return ident

    async def _rouse(self, request: dict[str, Any]) -> dict[str, Any]:
        state = self.node.state
        before = None if state is None or state.rest is None else list(state.rest.stamp)
        await self.node.tell(Roused(time.monotonic()))
        return {"before": before}

    async def _learn(self, request: dict[str, Any]) -> dict[str, Any]:
        """Look at the data; if they changed, they travel as a new revision."""
        return {"changed": await self.freshness.look()}

    async def _backup(self, request: dict[str, Any]) -> dict[str, Any]:
        """A copy of the store; whoever may ask on this socket may read the folder, too."""
        return {"store": b64encode(await self.node.image()).decode()}

    async def _wait(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return at the next news, or after `timeout` seconds (at most 30)."""
        return {"news": await self.node.changed(min(30.0, float(request.get("timeout", 5.0))))}

    async def _stop(self, request: dict[str, Any]) -> dict[str, Any]:
        self.node.stop()
        return {}

    @staticmethod
    def _raise_refusal(effects: list[Any]) -> None:
        for effect in effects:
            if isinstance(effect, Refused):
                raise UnweaveError(effect.why)


# ------------------------------------------------------------------------------
# Where the operator's socket is, also in folders with long names.
#
# The address of a Unix socket holds some 100 bytes. Through a descriptor of its folder every socket
# has a short address.

_LIMIT = 100


@contextmanager
def short(path: Path) -> Iterator[str]:
    """An address of the socket `path` that is short enough, for the length of the block."""
    if len(os.fsencode(path)) <= _LIMIT:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
