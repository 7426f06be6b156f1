"""What a process is called in `ps`, `top` and `pgrep`: an agent that was forked shows its own name.

`ps` reads the memory where a program got its arguments. A process that was started with `ROOM` as
its last argument has a place there for another text; its environment, which follows, stays.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import select
import selectors
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

from unweave.errors import UnweaveError
from unweave.node.api.report import SUPERVISOR

__all__ = ["ROOM", "Nursery", "entitle"]


ROOM = " " * 512


def entitle(title: str, short: str) -> None:
    """Call this process `title` (`short`, 15 bytes, where only that fits). Where the system does
    not allow it, nothing happens: it is for people's eyes."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        Path("/proc/self/comm").write_bytes(short.encode()[:15])
        # Fields 48 and 49; those after the name, which is in brackets and may hold anything.
        fields = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()
        start, end = int(fields[45]), int(fields[46])
        now = Path("/proc/self/cmdline").read_bytes()
        if 0 < start < end and end - start == len(now):
            text = title.encode()[: end - start - 1]
            ctypes.memset(start, 0, end - start)
            ctypes.memmove(start, text, len(text))


# ------------------------------------------------------------------------------
# Agents that start at once: one process has imported everything, and forks an agent when asked.
#
# A fresh interpreter spends a second on imports, fifty of them on two cores half a minute, and
# each holds its own copy of the same modules. What an agent does begins after the fork: no socket,
# no key, no file, no thread and no random state exists before it, so agents share code and nothing
# else.
#
# supervisor                            nursery (`python -m unweave.operations.fork_server`)
# {"folder": …} + log, leash (fds)  →   fork; the child runs the agent
# ←   {"pid": …}
# ←   {"pid": …, "code": …}   when it has ended

_START = 60.0  # seconds for the nursery's own imports, on a busy machine


class Forked:
    """A child of the nursery, used like a `subprocess.Popen`."""

    def __init__(self, nursery: Nursery, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._nursery = nursery
        self._era = nursery.era
        # A descriptor names this very process, also after its number has been given away.
        try:
            self._handle: int | None = os.pidfd_open(pid)
        except ProcessLookupError:
            self._handle = None  # it has ended already

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = self._nursery.code(self.pid)
            if self.returncode is None and self._era != self._nursery.era and self._ended():
                self.returncode = -signal.SIGKILL  # nobody is left to tell how
            if self.returncode is not None:
                self._close()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        end = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            left = None if end is None else end - time.monotonic()
            if left is not None and left <= 0.0:
                raise subprocess.TimeoutExpired(f"agent {self.pid}", timeout or 0.0)
            if self._ended(0.5 if left is None else min(0.5, left)):
                time.sleep(0.005)  # the nursery will tell at once
        return code

    def _ended(self, timeout: float = 0.0) -> bool:
        return self._handle is None or bool(select.select([self._handle], [], [], timeout)[0])

    def send_signal(self, number: int) -> None:
        if self._handle is not None and self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _close(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


class Nursery:
    """The supervisor's side. The process starts with the first agent."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._text = b""
        self._codes: dict[int, int] = {}
        self._born: list[int] = []
        self._opened = 0

    def start(self, folder: Path, log: int, leash: int) -> Forked:
        """An agent with this folder, log (its outputs) and leash (its standard input)."""
        if self._process is None or self._process.poll() is not None:
            self._open()
        assert self._socket is not None
        request = json.dumps({"folder": str(folder)}).encode() + b"\n"
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            socket.send_fds(self._socket, [request], [log, leash])
        end = time.monotonic() + _START
        while not self._born:
            self.listen(0.5)
            if time.monotonic() > end or (self._process and self._process.poll() is not None):
                raise UnweaveError(
                    f"{folder}: the process that starts agents has ended or does not answer; is "
                    "there enough memory?"
                )
        return Forked(self, self._born.pop(0))

    def code(self, pid: int) -> int | None:
        """How a child has ended, if it has."""
        if pid not in self._codes:
            self.listen(0.0)
        return self._codes.pop(pid, None)

    @property
    def era(self) -> int:
        """Changes when the process dies; its children live on, but nobody waits for them."""
        gone = self._process is None or self._process.poll() is not None
        return self._opened + (1 if gone else 0)

    def listen(self, timeout: float) -> None:
        """Take in what the nursery says."""
        if self._socket is None:
            return
        self._socket.settimeout(max(timeout, 1e-3))
        with contextlib.suppress(TimeoutError, BlockingIOError, ConnectionResetError):
            self._text += self._socket.recv(1 << 16)
        *lines, self._text = self._text.split(b"\n")
        for line in lines:
            news: dict[str, Any] = json.loads(line)
            if "code" in news:
                self._codes[news["pid"]] = news["code"]
            else:
                self._born.append(news["pid"])

    def close(self) -> None:
        """End the nursery. Its children are ended by their supervisor, or by their leash."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if self._process is not None:
            try:
                self._process.wait(10.0)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None

    def _open(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket, other = socket.socketpair()
        self._text, self._born = b"", []
        self._opened += 1
        # One thread for linear algebra: agents of one machine share its cores.
        single = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        with other:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "unweave.operations.fork_server", ROOM],
                stdin=other.fileno(),
                env={**single, **os.environ, SUPERVISOR: str(os.getpid())},
                start_new_session=True,
            )


# ------------------------------------------------------------------------------- in the nursery


def _serve() -> NoReturn:
    from unweave.node.__main__ import main

    entitle("unweave nursery", "unweave nursery")
    gc.collect()
    gc.freeze()  # so that collections in the children leave the shared pages alone
    # The children get an end of file instead of the supervisor's socket.
    door = socket.socket(fileno=os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    wake, woken = os.pipe()
    os.set_blocking(woken, False)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    with selectors.DefaultSelector() as events:
        events.register(door, selectors.EVENT_READ)
        events.register(wake, selectors.EVENT_READ)
        while True:
            ready = {key.fd for key, _ in events.select()}
            if wake in ready:
                os.read(wake, 4096)
            if door.fileno() in ready:
                line, handles, _, _ = socket.recv_fds(door, 1 << 16, 2)
                if not line:
                    os._exit(0)  # the supervisor has gone, and here is nothing to tidy up
                log, leash = handles
                pid = os.fork()
                if pid == 0:
                    signal.set_wakeup_fd(-1)
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    events.close()
                    door.close()
                    os.close(wake)
                    os.close(woken)
                    _become(main, json.loads(line)["folder"], log, leash)
                os.close(log)
                os.close(leash)
                _tell(door, {"pid": pid})
            _reap(door)


def _reap(door: socket.socket) -> None:
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            _tell(door, {"pid": ended[0], "code": os.waitstatus_to_exitcode(ended[1])})


def _tell(door: socket.socket, news: dict[str, Any]) -> None:
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        door.sendall(json.dumps(news).encode() + b"\n")


def _become(main: Any, folder: str, log: int, leash: int) -> NoReturn:
    """The child: an agent with its own session, outputs and leash."""
    code = 1
    try:
        os.setsid()
        os.dup2(leash, 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(leash)
        os.close(log)
        entitle(f"unweave agent {folder}", f"unweave {Path(folder).resolve().name}")
        code = main(folder, 0)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    _serve()
