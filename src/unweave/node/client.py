"""Talking to an agent through its operator's socket. Every call is bounded in time."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from unweave.errors import UnweaveError
from unweave.node.config import AGENT_FILE, agent_name
from unweave.node.doors import short

__all__ = ["AgentDown", "Operator"]


class AgentDown(UnweaveError):
    """No process answers in this agent's folder."""


class Operator:
    """`with Operator(folder) as agent: agent.ask("status")`."""

    def __init__(self, folder: str | Path, timeout: float = 10.0) -> None:
        self.folder = Path(folder)
        self.name = agent_name(self.folder)
        path = self.folder / "agent.sock"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(timeout)
        try:
            with short(path) as where:
                self._socket.connect(where)
        except OSError:
            self._socket.close()
            raise AgentDown(
                f"{self.name}: no agent runs in {self.folder}: start it with "
                f"`unweave agent {self.folder}` (its settings are in {AGENT_FILE})"
            ) from None
        self._lines = self._socket.makefile("rb")

    def ask(self, do: str, **request: Any) -> dict[str, Any]:
        """One request, one answer; a refusal is raised as the error it is."""
        try:
            self._socket.sendall(json.dumps({"do": do, **request}).encode() + b"\n")
            line = self._lines.readline()
        except OSError as error:
            late = "" if do == "status" else "; if it only slept, it will do what was asked"
            raise AgentDown(
                f"{self.name}: does not answer ({error}); is it stopped?{late}"
            ) from None
        if not line:
            raise AgentDown(f"{self.name}: stopped before it answered; start it again")
        answer: dict[str, Any] = json.loads(line)
        if not answer.pop("ok"):
            refused = UnweaveError(f"{self.name}: {answer['error']}")
            refused.exit_code = int(answer.get("exit", 1))
            raise refused
        return answer

    def close(self) -> None:
        self._lines.close()
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
