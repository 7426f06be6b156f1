"""Agent processes that start fast: `multiprocessing`'s fork server has imported all modules and
forks an agent on request. Each supervising process has one fork server, which ends with it.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from unweave.errors import UnweaveError

__all__ = ["ForkedAgent"]

_LOST = 255  # multiprocessing's exit code of a process whose fork server has ended


class ForkedAgent:
    """An agent's process with the interface of `subprocess.Popen`. It ends with this process."""

    def __init__(self, folder: Path, *, replaces: bool = False) -> None:
        from unweave.node.forked import run

        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["unweave.node.preload"])
        self._process = context.Process(target=run, args=(str(folder), replaces), daemon=True)
        try:
            with _no_main():
                self._process.start()
        except (OSError, EOFError) as error:
            raise UnweaveError(
                f"{folder}: the fork server has ended or does not answer ({error}). "
                "Fix: if a path is too long, set TMPDIR to a short folder; otherwise check that "
                "the machine has free memory; then start again"
            ) from None
        assert self._process.pid is not None
        self.pid = self._process.pid
        self.returncode: int | None = None
        # A pidfd names this process also after its number has been reused.
        try:
            self._handle: int | None = os.pidfd_open(self.pid)
        except ProcessLookupError:
            self._handle = None  # the process has ended already

    def poll(self) -> int | None:
        if self.returncode is None:
            code = self._process.exitcode
            if code == _LOST and not self._ended():
                code = None  # the fork server has ended, but the agent still runs
            elif code == _LOST:
                code = -signal.SIGKILL  # the true exit code is lost with the fork server
            self.returncode = code
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        end = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            remaining = 0.5 if end is None else end - time.monotonic()
            if remaining <= 0.0:
                raise subprocess.TimeoutExpired(f"agent {self.pid}", timeout or 0.0)
            if self._ended(min(0.5, remaining)):
                time.sleep(0.005)  # the fork server reports the exit code within this time
        return code

    def send_signal(self, number: int) -> None:
        if self._handle is not None and self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def close(self) -> None:
        """Close the descriptors of an ended process; the exit code stays available."""
        self.poll()
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None
        self._process.close()

    def _ended(self, timeout: float = 0.0) -> bool:
        return self._handle is None or bool(select.select([self._handle], [], [], timeout)[0])


@contextlib.contextmanager
def _no_main() -> Iterator[None]:
    """Hide `__main__`: multiprocessing would run it again in every agent, and import the command
    line there."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
