"""Agents of one machine as child processes: start, watch, restart, stop."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from unweave.errors import UnweaveError
from unweave.node.api.client import AgentDown, Operator
from unweave.node.config import SUPERVISOR, agent_name
from unweave.node.log import LOG_FILE
from unweave.operations.fork_server import ForkedAgent
from unweave.text import quote

__all__ = ["Child", "Process", "Supervisor"]


_STARTS = 3  # how often an agent that never answered is started again
_BAD_INPUT = 2  # an agent that exits so will not start until somebody mends its folder
_PAUSE, _LONG_PAUSE = 10.0, 60.0  # seconds between starts at most; and of those that are wrong
_TAIL = 64 * 1024  # bytes of a log in which its last line is looked for


class Process(Protocol):
    """A `subprocess.Popen`, or an agent from the fork server."""

    pid: int

    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def send_signal(self, number: int, /) -> None: ...
    def terminate(self) -> None: ...
    def kill(self) -> None: ...


class Child:
    """One agent's process: from the fork server, or, if there is a `prefix`, a new interpreter that
    this command runs, e.g. ("nice", "-n", "10")."""

    def __init__(self, folder: Path, prefix: tuple[str, ...] = ()) -> None:
        self.folder = folder
        self.prefix = prefix
        self.name = agent_name(folder)
        self.process: Process | None = None
        self.restarts = -1
        self.not_before = 0.0
        self.trouble = ""  # why it last went away, or what keeps it from starting

    def start(self) -> None:
        """Start it. It stops when this process is gone, however it went."""
        self.restarts += 1
        self.close()
        with (self.folder / LOG_FILE).open("ab") as log:
            if not self.prefix:
                self.process = ForkedAgent(self.folder)
                return
            self.process = subprocess.Popen(
                [*self.prefix, sys.executable, "-m", "unweave.node", "-", str(self.folder)],
                stdin=subprocess.PIPE,  # its end tells the agent that this process is gone
                stdout=log,
                stderr=log,
                env={**os.environ, SUPERVISOR: str(os.getpid())},
                start_new_session=True,  # Ctrl-C reaches the supervisor, which stops in order
            )

    def close(self) -> None:
        """Give the descriptors of a process that has ended back; its exit code stays."""
        if isinstance(self.process, ForkedAgent):
            self.process.close()
        elif isinstance(self.process, subprocess.Popen) and self.process.stdin is not None:
            self.process.stdin.close()

    @property
    def pid(self) -> int | None:
        return None if self.process is None else self.process.pid

    @property
    def exit_code(self) -> int | None:
        return None if self.process is None else self.process.poll()

    def last_words(self) -> str:
        """The last line of its log."""
        try:
            with (self.folder / LOG_FILE).open("rb") as log:
                log.seek(max(0, log.seek(0, os.SEEK_END) - _TAIL))
                lines = log.read().decode(errors="replace").strip().splitlines()
        except OSError:
            return ""
        return lines[-1].removeprefix("unweave: ") if lines else ""


def _trouble(child: Child, code: int) -> str:
    if code == 0:
        return "was stopped"
    if code < 0:
        return f"was ended by signal {-code}"
    words = child.last_words() or f"exit code {code}"
    return f"cannot start: {words}; `unweave check {quote(child.folder)}` looks for more"


class Supervisor:
    """`with Supervisor(folders) as s: s.ready(30)` — leaves no process behind."""

    def __init__(self, folders: list[Path], *, restart: bool = True) -> None:
        children = [Child(folder) for folder in folders]
        self.children = {child.name: child for child in children}
        self.restart = restart
        self._opened = False  # whether everybody was ready once

    def __enter__(self) -> Self:
        try:
            for child in self.children.values():
                child.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def look(self) -> None:
        """Start again what has died, with growing pauses. A folder that is wrong ends a beginning;
        once everybody has been ready, it is one agent's trouble, and the others go on."""
        for child in self.children.values():
            code = child.exit_code
            if code is None:
                continue
            child.trouble = _trouble(child, code)
            if code == _BAD_INPUT and not self._opened:
                raise UnweaveError(f"{child.name} {child.trouble}")
            now = time.monotonic()
            if self.restart and code != 0 and now >= child.not_before:
                most = _LONG_PAUSE if code == _BAD_INPUT else _PAUSE
                child.not_before = now + min(most, 0.25 * 2.0 ** min(child.restarts, 8))
                child.start()

    def troubles(self, down: Iterable[str]) -> dict[str, str]:
        """Of those that do not answer: why."""
        found = {name: self.children[name].trouble for name in down if name in self.children}
        return {name: why for name, why in found.items() if why}

    def ready(self, timeout: float) -> None:
        """Wait until every agent answers its operator."""
        waiting = set(self.children)
        end = time.monotonic() + timeout
        while waiting and time.monotonic() < end:
            self.look()
            for name in sorted(waiting):
                with contextlib.suppress(AgentDown), Operator(self.children[name].folder, 2.0) as a:
                    if a.ask("status")["status"]["phase"] != "starting":
                        waiting.discard(name)
            for name in sorted(waiting):
                child = self.children[name]
                if child.restarts >= _STARTS and child.exit_code is not None:
                    raise UnweaveError(
                        f"{name} does not start, after {_STARTS + 1} attempts: "
                        f"{child.last_words()}; `unweave check {quote(child.folder)}` looks for "
                        "more"
                    )
            if waiting:
                time.sleep(0.05)
        if waiting:
            first = self.children[sorted(waiting)[0]]
            raise UnweaveError(
                f"{', '.join(sorted(waiting))} did not start within {timeout:g} s; the last line "
                f"of {first.folder / LOG_FILE}: {first.last_words() or 'nothing'}"
            )
        self._opened = True

    def stop(self, timeouts: float = 10.0) -> None:
        """SIGTERM to everybody at once, then wait; SIGKILL to those who do not listen."""
        alive = [
            c.process for c in self.children.values() if c.process and c.process.poll() is None
        ]
        for process in alive:
            process.terminate()
            process.send_signal(signal.SIGCONT)  # one that is frozen hears it only when it wakes
        end = time.monotonic() + timeouts
        try:
            for process in alive:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(max(0.1, end - time.monotonic()))
        finally:  # also if Ctrl-C comes a second time
            for process in alive:
                if process.poll() is None:
                    process.kill()
                    process.wait()
            for child in self.children.values():
                child.close()
