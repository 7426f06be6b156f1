"""A progress bar, shown in a terminal or notebook if the work takes over half a second."""

from __future__ import annotations

import sys
import time
from typing import Any, Self

__all__ = ["Bar", "bar"]

_AFTER = 0.5  # seconds before the bar is shown


def bar(what: str, total: int | None, wanted: bool | None = None) -> Bar:
    """A bar for `total` pieces of work (None: unknown).

    `wanted` shows or hides it; None shows it in terminals and notebooks.
    """
    return Bar(what, total, _interactive() if wanted is None else wanted)


def _interactive() -> bool:
    return sys.stderr.isatty() or "ipykernel" in sys.modules


class Bar:
    """A context manager; call the bar after each piece of work."""

    def __init__(self, what: str, total: int | None, wanted: bool) -> None:
        self.what = what
        self.total = total
        self.wanted = wanted
        self.done = 0
        self._started = time.monotonic()
        self._shown: Any = None
        self._task: Any = None

    def __call__(self, advance: int = 1) -> None:
        self.done += advance
        if not self.wanted:
            return
        if self._shown is not None:
            self._shown.update(self._task, completed=self.done)
        elif time.monotonic() - self._started > _AFTER:
            from rich.console import Console
            from rich.progress import Progress

            self._shown = Progress(console=Console(stderr=True), transient=True)
            self._task = self._shown.add_task(self.what, total=self.total)
            self._shown.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._shown is not None:
            self._shown.stop()
