"""What the commands for running networks share: reaching agents, and waiting with a limit."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from unweave.errors import ConfigError, UnweaveError
from unweave.node.api.client import AgentDown, Operator, asleep, lives
from unweave.node.config import AgentFolder, agent_name, find_agents
from unweave.text import quote

__all__ = ["LOOK", "Cluster", "TimedOut", "open_cluster", "wait_until"]


LOOK = 3.0  # seconds to look at agents: one that lives says at once how it is


class TimedOut(UnweaveError):
    """A wait that came to its limit; says who is missing and what to do."""


class Cluster:
    """The agents of DIR that answer, and those that do not."""

    def __init__(self, root: Path, folders: list[Path], stack: ExitStack, timeout: float) -> None:
        self.root = root
        self.folders = {agent_name(folder): folder for folder in folders}
        self.agents: dict[str, Operator] = {}
        self.silent: dict[str, int | None] = {}  # took a call and did not answer, with the pid
        self._stack = stack
        self._timeout = timeout
        for name in self.folders:
            with suppress(AgentDown):
                self._connect(name)

    def _connect(self, name: str) -> Operator:
        door = self.folders[name] / "agent.sock"
        if door.exists() and not os.access(door, os.R_OK | os.W_OK):
            raise ConfigError(
                f"{door}: only the user who runs {name} ({door.owner()}) may talk to it: run the "
                "command as that user"
            )
        operator = self._stack.enter_context(Operator(self.folders[name], self._timeout))
        self.agents[name] = operator
        return operator

    def again(
        self, name: str, do: str, *, within: float | None = None, **request: Any
    ) -> dict[str, Any] | None:
        """Ask an agent that may be starting again meanwhile; None: it does not answer now."""
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

    @property
    def down(self) -> list[str]:
        return [name for name in self.folders if name not in self.agents]

    def any(self) -> Operator:
        """One agent that answers."""
        if not self.agents:
            for name, pid in self.silent.items():
                if lives(pid):
                    raise AgentDown(f"{name}: {asleep(pid)}")
            alone = self.root in self.folders.values()
            raise AgentDown(
                f"no agent runs in {self.root}: start it with `unweave agent {quote(self.root)}`"
                if alone
                else f"no agent of {self.root} answers: start them with "
                f"`unweave up {quote(self.root)}`, or each with `unweave agent AGENT_DIR`"
            )
        return next(iter(self.agents.values()))

    def check_name(self, name: str) -> None:
        """GraphError, which names near ones, unless the network has an agent of this name."""
        if name not in self.folders:
            AgentFolder.read(next(iter(self.folders.values()))).manifest.topology.index(name)

    def of(self, name: str) -> Operator:
        """The agent with this name; its owner's requests are asked there."""
        if name not in self.folders:
            self.check_name(name)
            raise UnweaveError(
                f"the folder of {name!r} is not here: its owner must ask, at its own agent; the "
                f"folders here are {', '.join(self.folders)}"
            )
        if name in self.silent and lives(self.silent[name]):
            raise AgentDown(f"{name}: {asleep(self.silent[name])}; nothing was asked of it")
        if name not in self.agents:
            raise AgentDown(
                f"{name} does not run: start it with `unweave agent {quote(self.folders[name])}`, "
                "or, if it is gone for good, use --gone"
            )
        return self.agents[name]

    def ask_all(
        self, do: str, within: float | None = None, **request: Any
    ) -> dict[str, dict[str, Any]]:
        """Everybody's answer, all asked at once: those that are frozen share one wait, and count as
        down from then on."""
        answers: dict[str, dict[str, Any]] = {}
        for name, answer in self.ask_each(do, within, **request).items():
            if isinstance(answer, UnweaveError):
                raise answer
            answers[name] = answer
        return answers

    def ask_each(
        self, do: str, within: float | None = None, *, anew: bool = False, **request: Any
    ) -> dict[str, dict[str, Any] | UnweaveError]:
        """As `ask_all`, but one agent's refusal does not keep the answers of the others away.
        `anew`: also those that did not answer before."""

        def one(name: str) -> dict[str, Any] | UnweaveError | None:
            try:
                return self.again(name, do, within=within, **request)
            except UnweaveError as error:
                return error

        names = list(self.folders if anew else self.agents)
        if not names:
            return {}
        with ThreadPoolExecutor(min(32, len(names))) as asking:
            answers = zip(names, asking.map(one, names), strict=True)
            return {name: answer for name, answer in answers if answer is not None}

    def statuses(self, within: float = LOOK) -> dict[str, dict[str, Any]]:
        """Everybody's status."""
        return {name: answer["status"] for name, answer in self.ask_all("status", within).items()}


@contextmanager
def open_cluster(folder: str | Path, timeout: float = 10.0) -> Iterator[Cluster]:
    """Connect to every agent of DIR (or to the one of AGENT_DIR) that answers."""
    folders = find_agents(folder)
    with ExitStack() as stack:
        yield Cluster(Path(folder), folders, stack, timeout)


def wait_until(limit: float, every: float = 0.1) -> Iterator[float]:
    """Yields the seconds left, until there are none."""
    end = time.monotonic() + limit
    while (left := end - time.monotonic()) > 0:
        yield left
        time.sleep(min(every, left))
