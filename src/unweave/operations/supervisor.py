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
from typing import Protocol, Self

from unweave.errors import ConfigError, UnweaveError
from unweave.node.api.client import AgentDown, Operator
from unweave.node.config import SUPERVISOR, agent_name, refuse_links
from unweave.node.log import LOG_FILE, open_log
from unweave.node.process import RESTART
from unweave.operations.fork_server import ForkedAgent
from unweave.text import quote

__all__ = ["Child", "Process", "Supervisor"]


_STARTS = 3  # restarts of an agent that never answered
_BAD_INPUT = 2  # exit code of an agent that cannot start until its folder is corrected
_PAUSE, _LONG_PAUSE = 10.0, 60.0  # longest seconds between starts; the same after _BAD_INPUT
_TAIL = 64 * 1024  # bytes at a log's end that are searched for its last line


class Process(Protocol):
    """The common interface of `subprocess.Popen` and `ForkedAgent`."""

    pid: int

    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def send_signal(self, number: int, /) -> None: ...
    def terminate(self) -> None: ...
    def kill(self) -> None: ...


class Child:
    """One agent's process, from the fork server. With a `prefix`, e.g. ("nice", "-n", "10"), this
    command runs a new interpreter instead."""

    def __init__(self, folder: Path, prefix: tuple[str, ...] = ()) -> None:
        self.folder = folder
        self.prefix = prefix
        self.name = agent_name(folder)
        self.process: Process | None = None
        self.restarts = -1  # after crashes
        self.replacements = 0  # new processes because of erasures
        self.not_before = 0.0
        self.trouble = ""  # why the process last ended, or why it cannot start

    def start(self, *, replaces: bool = False) -> None:
        """Start the process. It stops when this process ends, also by SIGKILL. `replaces`: the
        last process ended to be replaced."""
        self.restarts += not replaces
        self.replacements += replaces
        self.close()
        refuse_links(self.folder)
        with os.fdopen(open_log(self.folder / LOG_FILE), "ab") as log:
            if not self.prefix:
                self.process = ForkedAgent(self.folder, replaces=replaces)
                return
            self.process = subprocess.Popen(
                [*self.prefix, sys.executable, "-m", "unweave.node", "-", str(self.folder)],
                stdin=subprocess.PIPE,  # the agent reads end-of-file when this process ends
                stdout=log,
                stderr=log,
                env={**os.environ, SUPERVISOR: str(os.getpid())},
                start_new_session=True,  # Ctrl-C reaches the supervisor only, which stops agents
            )

    def close(self) -> None:
        """Close the descriptors of an ended process; the exit code stays available."""
        if isinstance(self.process, ForkedAgent):
            self.process.close()
        elif isinstance(self.process, subprocess.Popen) and self.process.stdin is not None:
            self.process.stdin.close()

    @property
    def pid(self) -> int | None:
        return None if self.process is None else self.process.pid

    def poll(self) -> int | None:
        """The exit code; None while the agent runs. An agent whose process ended to be replaced
        gets its new process here: that is no crash."""
        code = None if self.process is None else self.process.poll()
        if code == RESTART:
            self.start(replaces=True)
            return None
        return code

    def last_log_line(self) -> str:
        try:
            with (self.folder / LOG_FILE).open("rb") as log:
                log.seek(max(0, log.seek(0, os.SEEK_END) - _TAIL))
                lines = log.read().decode(errors="replace").strip().splitlines()
        except OSError:
            return ""
        return lines[-1].removeprefix("unweave: ") if lines else ""


def _operator(child: Child) -> Operator:
    return Operator(child.folder, 2.0, patient=False)


def _trouble(child: Child, code: int) -> str:
    if code == 0:
        return "was stopped"
    if code < 0:
        return f"was ended by signal {-code}"
    line = child.last_log_line() or f"exit code {code}"
    return f"cannot start: {line}. Fix: run `unweave check {quote(child.folder)}`"


class Supervisor:
    """`with Supervisor(folders) as s: s.ready(30)` — stops all processes at the end."""

    def __init__(self, folders: list[Path], *, restart: bool = True) -> None:
        children = [Child(folder) for folder in folders]
        self.children = {child.name: child for child in children}
        self.restart = restart
        self._opened = False  # whether all agents were ready once

    def __enter__(self) -> Self:
        try:
            for child in self.children.values():
                child.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def look(self) -> None:
        """Restart ended processes, with growing pauses; those that ended to be replaced, at once
        and also without `restart`. So the caller repeats this every second or so.

        Until all agents were ready once, a wrong folder is an error; later it is that agent's
        `trouble`, and the others continue."""
        for child in self.children.values():
            code = child.poll()
            if code is None:
                continue
            child.trouble = _trouble(child, code)
            if code == _BAD_INPUT and not self._opened:
                raise UnweaveError(f"{child.name} {child.trouble}")
            now = time.monotonic()
            if self.restart and code != 0 and now >= child.not_before:
                most = _LONG_PAUSE if code == _BAD_INPUT else _PAUSE
                child.not_before = now + min(most, 0.25 * 2.0 ** min(child.restarts, 8))
                try:
                    child.start()
                except (ConfigError, OSError) as error:  # the folder was changed meanwhile
                    child.trouble = f"cannot start: {error}"

    def troubles(self, down: Iterable[str]) -> dict[str, str]:
        """Why the agents `down` do not answer, where that is known."""
        found = {name: self.children[name].trouble for name in down if name in self.children}
        return {name: why for name, why in found.items() if why}

    def ready(self, timeout: float) -> None:
        """Wait until every agent answers on its control socket."""
        waiting = set(self.children)
        end = time.monotonic() + timeout
        while waiting and time.monotonic() < end:
            self.look()
            for name in sorted(waiting):
                with contextlib.suppress(AgentDown), _operator(self.children[name]) as a:
                    if a.ask("status")["status"]["phase"] != "starting":
                        waiting.discard(name)
            for name in sorted(waiting):
                child = self.children[name]
                if child.restarts >= _STARTS and child.poll() is not None:
                    raise UnweaveError(
                        f"{name} does not start, after {_STARTS + 1} attempts: "
                        f"{child.last_log_line()}. Fix: run `unweave check {quote(child.folder)}`"
                    )
            if waiting:
                time.sleep(0.05)
        if waiting:
            first = self.children[sorted(waiting)[0]]
            raise UnweaveError(
                f"{', '.join(sorted(waiting))} did not start within {timeout:g} s. Fix: look at "
                f"{first.folder / LOG_FILE}; last line: {first.last_log_line() or 'none'}"
            )
        self._opened = True

    def stop(self, timeout: float = 10.0) -> None:
        """Send SIGTERM to all processes, wait, then send SIGKILL to those that still run."""
        alive = [
            c.process for c in self.children.values() if c.process and c.process.poll() is None
        ]
        for process in alive:
            process.terminate()
            process.send_signal(signal.SIGCONT)  # a stopped process handles SIGTERM after this
        end = time.monotonic() + timeout
        try:
            for process in alive:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(max(0.1, end - time.monotonic()))
        finally:  # also after a second Ctrl-C
            for process in alive:
                if process.poll() is None:
                    process.kill()
                    process.wait()
            for child in self.children.values():
                child.close()
