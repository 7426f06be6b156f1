"""The agents of a network's folder, asked over their control sockets; waiting with a timeout."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any

from unweave.errors import ConfigError, UnweaveError
from unweave.manifest import Manifest
from unweave.node.api.client import AgentDown, Operator, asleep, lives
from unweave.node.config import AgentFolder, agent_name, find_agents
from unweave.text import quote

__all__ = ["LOOK", "Cluster", "TimedOut", "open_cluster", "wait_until"]


LOOK = 3.0  # seconds: timeout of a status request, which a running agent answers at once


class TimedOut(UnweaveError):
    """A wait that reached its timeout; the text names the missing agents and the fix."""


class Cluster:
    """The agents whose folders are in DIR: those that answer, and those that do not."""

    def __init__(
        self,
        root: Path,
        folders: list[Path],
        stack: ExitStack,
        timeout: float,
        patient: bool = True,
    ) -> None:
        self.root = root
        self.folders = {agent_name(folder): folder for folder in folders}
        self.agents: dict[str, Operator] = {}
        self.silent: dict[str, int | None] = {}  # agent that accepted a call, no answer → its pid
        self._stack = stack
        self._timeout = timeout
        self._patient = patient
        for name in self.folders:
            with suppress(AgentDown):
                self._connect(name)

    def _connect(self, name: str) -> Operator:
        socket = self.folders[name] / "agent.sock"
        if socket.exists() and not os.access(socket, os.R_OK | os.W_OK):
            raise ConfigError(
                f"{socket}: this user may not use the control socket of {name}. "
                f"Fix: run the command as {socket.owner()}"
            )
        operator = self._stack.enter_context(
            Operator(self.folders[name], self._timeout, patient=self._patient)
        )
        self.agents[name] = operator
        return operator

    def again(
        self, name: str, do: str, *, within: float | None = None, **request: Any
    ) -> dict[str, Any] | None:
        """Ask an agent, with a new connection if it has restarted; None if it does not answer."""
        try:
            answer = (self.agents.get(name) or self._connect(name)).ask(
                do, within=within, **request
            )
        except AgentDown:
            if (operator := self.agents.pop(name, None)) is not None:
                self.silent[name] = operator.pid
            return None
        self.silent.pop(name, None)
        return answer

    @cached_property
    def manifest(self) -> Manifest:
        """The network's manifest, from the first agent's folder."""
        return AgentFolder.read(next(iter(self.folders.values()))).manifest

    def frozen(self) -> dict[str, str]:
        """The agents whose process exists and has stopped to answer, and why."""
        return {name: asleep(pid) for name, pid in self.silent.items() if lives(pid)}

    @property
    def down(self) -> list[str]:
        return [name for name in self.folders if name not in self.agents]

    def any(self) -> Operator:
        """One agent that answers."""
        if not self.agents:
            for name, why in self.frozen().items():
                raise AgentDown(f"{name}: {why}")
            alone = self.root in self.folders.values()
            raise AgentDown(
                f"no agent runs in {self.root}. Fix: run `unweave agent {quote(self.root)}`"
                if alone
                else f"no agent of {self.root} answers. Fix: start all with "
                f"`unweave up {quote(self.root)}`, or one with `unweave agent AGENT_DIR`"
            )
        return next(iter(self.agents.values()))

    def check_name(self, name: str) -> None:
        """Raise GraphError, which suggests similar names, unless the network has agent `name`."""
        if name not in self.folders:
            self.manifest.topology.index(name)

    def of(self, name: str) -> Operator:
        """The connection to agent `name`, for its owner's requests."""
        if name not in self.folders:
            self.check_name(name)
            raise UnweaveError(
                f"{self.root} has no folder of agent {name!r} (it has {', '.join(self.folders)}). "
                f"Fix: the operator of {name} runs the command there"
            )
        if why := self.frozen().get(name):
            raise AgentDown(f"{name}: {why}; the request was not sent")
        if name not in self.agents:
            raise AgentDown(
                f"{name} does not run. Fix: run `unweave agent {quote(self.folders[name])}`, or "
                "use --departed if it will never run again"
            )
        return self.agents[name]

    def ask_all(
        self, do: str, within: float | None = None, **request: Any
    ) -> dict[str, dict[str, Any]]:
        """The answers of all connected agents, asked in parallel. Agents that do not answer cost
        one timeout together, and count as down from then on."""
        answers: dict[str, dict[str, Any]] = {}
        for name, answer in self.ask_each(do, within, **request).items():
            if isinstance(answer, UnweaveError):
                raise answer
            answers[name] = answer
        return answers

    def ask_each(
        self,
        do: str,
        within: float | None = None,
        *,
        names: Collection[str] | None = None,
        **request: Any,
    ) -> dict[str, dict[str, Any] | UnweaveError]:
        """As `ask_all`, but an agent's error is returned in place of its answer. `names`: ask only
        these agents of DIR, also those that did not answer before."""

        def one(name: str) -> dict[str, Any] | UnweaveError | None:
            try:
                return self.again(name, do, within=within, **request)
            except UnweaveError as error:
                return error

        asked = list(self.agents if names is None else names)
        if not asked:
            return {}
        with ThreadPoolExecutor(min(32, len(asked))) as asking:
            answers = zip(asked, asking.map(one, asked), strict=True)
            return {name: answer for name, answer in answers if answer is not None}

    def statuses(self, within: float = LOOK) -> dict[str, dict[str, Any]]:
        """The status of every connected agent that answers."""
        return {name: answer["status"] for name, answer in self.ask_all("status", within).items()}


@contextmanager
def open_cluster(
    folder: str | Path, timeout: float = 10.0, *, patient: bool = True
) -> Iterator[Cluster]:
    """Connect to every agent of DIR (or to the one of AGENT_DIR) that answers. `patient`: wait for
    agents that replace their process; their supervisor must not."""
    folders = find_agents(folder)
    with ExitStack() as stack:
        yield Cluster(Path(folder), folders, stack, timeout, patient)


def wait_until(limit: float, every: float = 0.1) -> Iterator[float]:
    """Yields the remaining seconds, `every` so many, until `limit` seconds have passed."""
    end = time.monotonic() + limit
    while (remaining := end - time.monotonic()) > 0:
        yield remaining
        time.sleep(min(every, remaining))
