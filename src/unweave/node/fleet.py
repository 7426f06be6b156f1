"""What the commands for running networks share: reaching agents, and waiting with a limit."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from unweave.errors import UnweaveError
from unweave.node.client import AgentDown, Operator
from unweave.node.config import agent_name, find_agents

__all__ = ["Fleet", "TimedOut", "fleet", "patiently"]


class TimedOut(UnweaveError):
    """A wait that came to its limit; says who is missing and what to do."""


class Fleet:
    """The agents of DIR that answer, and those that do not."""

    def __init__(self, folders: list[Path], stack: ExitStack, timeout: float) -> None:
        self.folders = {agent_name(folder): folder for folder in folders}
        self.agents: dict[str, Operator] = {}
        self._stack = stack
        self._timeout = timeout
        for name in self.folders:
            with suppress(AgentDown):
                self._connect(name)

    def _connect(self, name: str) -> Operator:
        operator = self._stack.enter_context(Operator(self.folders[name], self._timeout))
        self.agents[name] = operator
        return operator

    def again(self, name: str, do: str, **request: Any) -> dict[str, Any] | None:
        """Ask an agent that may be starting again meanwhile; None: it does not answer now."""
        try:
            return (self.agents.get(name) or self._connect(name)).ask(do, **request)
        except AgentDown:
            self.agents.pop(name, None)
            return None

    @property
    def down(self) -> list[str]:
        return [name for name in self.folders if name not in self.agents]

    def any(self) -> Operator:
        """One agent that answers."""
        if not self.agents:
            raise AgentDown(
                "no agent of this network answers: start them with `unweave up DIR`, or each with "
                "`unweave agent AGENT_DIR`"
            )
        return next(iter(self.agents.values()))

    def of(self, name: str) -> Operator:
        """The agent with this name; its owner's requests are asked there."""
        if name not in self.folders:
            raise UnweaveError(
                f"there is no folder of {name!r} here: its owner must ask, at its own agent; the "
                f"folders here are {', '.join(self.folders)}"
            )
        if name not in self.agents:
            raise AgentDown(
                f"{name} does not run: start it with `unweave agent {self.folders[name]}`, or, if "
                "it is gone for good, use --gone"
            )
        return self.agents[name]

    def statuses(self) -> dict[str, dict[str, Any]]:
        """Everybody's status; an agent that stops answering counts as down from then on."""
        found = {}
        for name, agent in list(self.agents.items()):
            try:
                found[name] = agent.ask("status")["status"]
            except AgentDown:
                del self.agents[name]
        return found


@contextmanager
def fleet(folder: str | Path, timeout: float = 10.0) -> Iterator[Fleet]:
    """Connect to every agent of DIR (or to the one of AGENT_DIR) that answers."""
    folders = find_agents(folder)
    with ExitStack() as stack:
        yield Fleet(folders, stack, timeout)


def patiently(limit: float, every: float = 0.1) -> Iterator[float]:
    """Yields the seconds left, until there are none."""
    end = time.monotonic() + limit
    while (left := end - time.monotonic()) > 0:
        yield left
        time.sleep(min(every, left))
