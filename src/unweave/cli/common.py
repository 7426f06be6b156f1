"""What every command shares: one console, one JSON form, one way to fail."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)

__all__ = [
    "check_timeout",
    "command",
    "console",
    "emit_json",
    "errors",
    "hush",
    "program",
    "progress",
    "quote",
]

# In a pipe nobody knows a width, and a table that was folded for 80 columns is hard to search.
_PIPE = 160


class _Console(Console):
    """A console whose reader may go (`… | head`): the command goes on to its own exit code."""

    def on_broken_pipe(self) -> None:
        self.quiet = True
        hush()


def hush() -> None:
    """Nobody reads standard output any more: what is written there from now on goes nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


console = _Console(
    soft_wrap=False, width=None if sys.stdout.isatty() or "COLUMNS" in os.environ else _PIPE
)
errors = Console(stderr=True, highlight=False)


def quote(word: object) -> str:
    """As a shell wants it, to be copied."""
    return shlex.quote(str(word))


def program() -> str:
    """How this program is called from here: `unweave`, if the shell finds that; else its path."""
    started = Path(sys.argv[0])
    if shutil.which("unweave") or len(started.parts) < 2:
        return "unweave"
    if started.name == "__main__.py":
        return f"{quote(sys.executable)} -m unweave"
    near = os.path.relpath(started)
    return quote(started.absolute() if near.startswith("..") else near)


def command(*lines: str) -> None:
    """Commands to be copied: one line each, however narrow the terminal is, and as they work here:
    right after `make demo`, nothing has put `unweave` on the shell's path."""
    for line in lines:
        if line.startswith("unweave "):
            line = program() + line.removeprefix("unweave")
        console.print(f"  {line}", highlight=False, markup=False, soft_wrap=True)


def check_timeout(seconds: float, option: str = "--timeout") -> None:
    """A limit of no time, or of no number, would only look like a failure."""
    from unweave.errors import ConfigError

    if not seconds > 0:
        raise ConfigError(f"{option} {seconds:g}: give a number of seconds above 0")


def emit_json(value: object) -> None:
    """One JSON document on standard output, and nothing else there."""
    text = json.dumps(value, indent=2, default=_plain, allow_nan=False)
    try:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        hush()


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, (set, frozenset, tuple)):
        return sorted(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")


def progress(*, quiet: bool = False, counted: bool = True) -> Progress:
    """A progress display on standard error, so that standard output stays clean for results. If
    nobody knows how many steps there are, only what is waited for and how long."""
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        *((BarColumn(), MofNCompleteColumn()) if counted else ()),
        TimeElapsedColumn(),
        console=errors,
        transient=True,
        disable=quiet or not errors.is_terminal,
    )


def pair(item: str, option: str) -> tuple[str, str]:
    """name=value of an option."""
    from unweave.errors import ConfigError

    key, sign, value = item.partition("=")
    if not sign or not key:
        raise ConfigError(f"{option} {item}: expected name=value")
    return key.strip(), value.strip()
