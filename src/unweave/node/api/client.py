"""Calls an agent's API through its control socket. Every call has a timeout.

`lives` and `asleep` describe a process that accepts a call and does not answer it.
"""

from __future__ import annotations

import functools
import http.client
import json
import os
import socket
import struct
import time
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlencode

from pydantic import TypeAdapter

from unweave.bounded import load_json
from unweave.errors import UnweaveError
from unweave.node.api.routes import ROUTES
from unweave.node.api.sockets import short
from unweave.node.config import AGENT_FILE, agent_name
from unweave.node.process import is_restarting
from unweave.text import quote

__all__ = ["AgentDown", "Operator", "asleep", "lives", "stands_still"]


_CONNECT = 3.0  # seconds; the system accepts calls for a frozen process until its queue is full


class AgentDown(UnweaveError):
    """No process answers in this agent's folder."""


class _Interrupted(AgentDown):
    """The process ended before it answered."""


class Operator:
    """`with Operator(folder) as agent: agent.ask("status")`.

    An agent that replaces its process after an erasure is away for a moment: a call waits for the
    new process, within its timeout, unless it is not `patient`.
    """

    def __init__(self, folder: str | Path, timeout: float = 10.0, *, patient: bool = True) -> None:
        self.folder = Path(folder)
        self.name = agent_name(self.folder)
        self._timeout = timeout
        self._patient = patient
        self._connect(timeout)

    def _connect(self, timeout: float) -> None:
        end = time.monotonic() + timeout
        path = self.folder / "agent.sock"
        while True:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._socket.settimeout(min(timeout, _CONNECT))
            try:
                with short(path) as where:
                    self._socket.connect(where)
                break
            except OSError:
                self._socket.close()
            if not self._patient or not is_restarting(self.folder) or time.monotonic() >= end:
                raise AgentDown(
                    f"{self.name}: no agent runs in {self.folder}. Fix: start it with "
                    f"`unweave agent {quote(self.folder)}` (its settings are in {AGENT_FILE})"
                )
            time.sleep(0.05)
        self.pid = _listener(self._socket)
        self._connection = http.client.HTTPConnection("agent")
        self._connection.sock = self._socket
        self._connection.auto_open = 0  # else it would open TCP to a host of that name

    def ask(self, do: str, *, within: float | None = None, **request: Any) -> dict[str, Any]:
        """The answer to one request; an error of the agent is raised here, with its exit code. A
        request that a restart interrupts is repeated: all requests may be."""
        limit = self._timeout if within is None else min(within, self._timeout)
        began = time.monotonic()
        try:
            return self._ask(do, limit, request)
        except _Interrupted:
            if do == "stop" or not self._patient or not is_restarting(self.folder):
                raise
        self.close()
        self._connect(limit)
        return self._ask(do, max(0.1, limit - (time.monotonic() - began)), request)

    def _ask(self, do: str, limit: float, request: dict[str, Any]) -> dict[str, Any]:
        route = ROUTES[do]
        request = {key: value for key, value in request.items() if value is not None}
        place = route.place(request)
        body = json.dumps(request, ensure_ascii=False).encode() if route.method == "POST" else None
        if request and body is None:
            place += "?" + urlencode(request)
        self._socket.settimeout(limit)
        try:
            self._connection.request(route.method, place, body)
            response = self._connection.getresponse()
            answer = response.read()
        except (ConnectionError, http.client.IncompleteRead):
            raise _Interrupted(
                f"{self.name}: stopped before it answered. Fix: start it again"
            ) from None
        except (OSError, http.client.HTTPException) as error:
            late = "" if do == "status" else "; if the process continues, it handles the request"
            how = asleep(self.pid) if lives(self.pid) else "it has stopped; start it again"
            raise AgentDown(f"{self.name}: does not answer ({error}): {how}{late}") from None
        try:
            if response.status == 200:
                # Large integers are sent as strings of digits.
                return _reader(do).validate_json(answer)
            failure = load_json(answer)["error"]
            refused = UnweaveError(f"{self.name}: {failure['message']}")
            refused.exit_code = int(failure["exit_code"])
        except (ValueError, KeyError, TypeError):  # pydantic's errors are ValueErrors
            raise UnweaveError(
                f"{self.name}: the answer to {do} (HTTP {response.status}) cannot be read. Fix: "
                "start the agent again with this version of unweave"
            ) from None
        raise refused

    def close(self) -> None:
        self._connection.close()
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _listener(connected: socket.socket) -> int | None:
    """The id of the listening process, also if it never answers; None on a system without
    SO_PEERCRED."""
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return None
    form = struct.Struct("3i")
    pid, _, _ = form.unpack(connected.getsockopt(socket.SOL_SOCKET, option, form.size))
    return int(pid) or None


@functools.cache
def _reader(do: str) -> TypeAdapter[dict[str, Any]]:
    return TypeAdapter(ROUTES[do].answers)


def lives(pid: int | None) -> bool:
    """Whether the process exists; an unknown id (None) belongs to a process that took the call."""
    if pid is None:
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return _state(pid) != "Z"


def stands_still(pid: int | None) -> bool:
    """Whether somebody has stopped the process (`kill -STOP`). It is not asked."""
    return pid is not None and _state(pid) in ("T", "t")


def asleep(pid: int | None) -> str:
    """Why a process that exists does not answer, and the fix."""
    if pid is None:
        return "it runs, but does not answer: frozen, or very busy; agent.log in its folder tells"
    if stands_still(pid):
        return f"its process is stopped: `kill -CONT {pid}` wakes it"
    return (
        f"its process {pid} runs, but does not answer: frozen, or very busy; agent.log in its "
        f"folder may say more, and `kill -9 {pid}` costs nothing but a new start"
    )


def _state(pid: int) -> str:
    """The process state of /proc, one letter; empty where there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""
