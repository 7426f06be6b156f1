"""Standard output of a command that supervises agents: it never waits for the reader."""

from __future__ import annotations

import io
import os
import queue
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress

from unweave.cli.common import hush

__all__ = ["DroppingOutput", "dropping_output"]

_PENDING = 16  # texts that wait for the reader
_GRACE = 1.0  # seconds at the end in which the reader may still take them


class DroppingOutput(io.TextIOBase):
    """A thread writes each text that `write` receives. While the reader takes nothing, only
    `_PENDING` texts wait; later ones are left out, each as a whole, and `dropped` counts them."""

    def __init__(self, to: io.TextIOBase) -> None:
        self.dropped = 0
        self._to = to
        # The thread writes to the descriptor itself: a thread that waits inside of Python's stream
        # would hold its lock, and the interpreter could not end.
        self._descriptor = os.dup(to.fileno())
        self._texts: queue.Queue[bytes | None] = queue.Queue(_PENDING)
        self._broken: OSError | None = None
        self._thread = threading.Thread(target=self._run, name="output", daemon=True)
        self._thread.start()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._to.encoding or "utf-8"

    def isatty(self) -> bool:
        return self._to.isatty()

    def fileno(self) -> int:
        return self._to.fileno()

    def write(self, text: str, /) -> int:
        if self._broken is not None:
            raise self._broken
        try:
            self._texts.put_nowait(text.encode(self.encoding, self._to.errors or "strict"))
        except queue.Full:
            self.dropped += 1
        return len(text)

    def finish(self) -> bool:
        """Wait a moment for the reader; return whether everything that waits was written."""
        end = time.monotonic() + _GRACE
        with suppress(queue.Full):
            self._texts.put(None, timeout=_GRACE)
        self._thread.join(max(0.0, end - time.monotonic()))
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            while (text := self._texts.get()) is not None:
                while text:
                    text = text[os.write(self._descriptor, text) :]
        except OSError as error:
            self._broken = error
        finally:
            os.close(self._descriptor)


@contextmanager
def dropping_output() -> Iterator[DroppingOutput | None]:
    """Everything that the block prints goes through a `DroppingOutput`. Afterwards, standard output
    is the null device if the reader still takes nothing: the end does not wait for it either.

    None: standard output is no file of the operating system, and nobody waits for one."""
    try:
        sys.stdout.fileno()
    except OSError:
        yield None
        return
    sys.stdout.flush()
    output = DroppingOutput(sys.stdout)  # type: ignore[arg-type]
    try:
        with redirect_stdout(output):
            yield output
    finally:
        if not output.finish():
            hush()
