"""Agents that start at once: `multiprocessing`'s fork server has imported everything, and forks an
agent when it is asked to. There is one fork server for each supervising process; it ends with it.
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
    """An agent's process, used like a `subprocess.Popen`. It ends when this process does."""

    def __init__(self, folder: Path) -> None:
        from unweave.node.forked import run

        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["unweave.node.preload"])
        self._process = context.Process(target=run, args=(str(folder),), daemon=True)
        try:
            with _no_main():
                self._process.start()
        except (OSError, EOFError) as error:
            raise UnweaveError(
                f"{folder}: the process that starts agents has ended or does not answer ({error}); "
                "is there enough memory?"
            ) from None
        assert self._process.pid is not None
        self.pid = self._process.pid
        self.returncode: int | None = None
        # A descriptor names this very process, also after its number has been given away.
        try:
            self._handle: int | None = os.pidfd_open(self.pid)
        except ProcessLookupError:
            self._handle = None  # it has ended already

    def poll(self) -> int | None:
        if self.returncode is None:
            code = self._process.exitcode
            if code == _LOST and not self._ended():
                code = None  # the fork server has ended, and the agent goes on
            elif code == _LOST:
                code = -signal.SIGKILL  # nobody knows how
            self.returncode = code
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        end = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            left = 0.5 if end is None else end - time.monotonic()
            if left <= 0.0:
                raise subprocess.TimeoutExpired(f"agent {self.pid}", timeout or 0.0)
            if self._ended(min(0.5, left)):
                time.sleep(0.005)  # the fork server tells its exit code at once
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
        """Give its descriptors back, once it has ended; its exit code stays."""
        self.poll()
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None
        self._process.close()

    def _ended(self, timeout: float = 0.0) -> bool:
        return self._handle is None or bool(select.select([self._handle], [], [], timeout)[0])


@contextlib.contextmanager
def _no_main() -> Iterator[None]:
    """multiprocessing would run the main file of this program again in every agent, which would
    import the command line there."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
