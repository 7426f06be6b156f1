"""What every command shares: one console, one JSON form, one way to fail.

The consoles know no markup: `[kg]` in a name is text, and styles are given to `styled`. All text
passes through `visible` on its way out.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

from rich.console import Console, RenderableType
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TimeElapsedColumn,
)
from rich.status import Status
from rich.text import Text

from unweave.errors import UnweaveError
from unweave.json_form import as_json, error_report
from unweave.text import quote, visible

__all__ = [
    "check_timeout",
    "command",
    "console",
    "emit_json",
    "errors",
    "fail",
    "hush",
    "program",
    "progress",
    "quote",
    "styled",
]

# In a pipe nobody knows a width, and a table that was folded for 80 columns is hard to search.
_PIPE = 160


class _Plain(Console):
    """A console that shows text as it is, and what a terminal would obey as escapes."""

    def __init__(self, **how: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **how)

    def render_str(self, text: str, **how: Any) -> Text:
        return super().render_str(visible(text), **how)

    def status(self, status: RenderableType, **how: Any) -> Status:
        return super().status(styled(status) if isinstance(status, str) else status, **how)


class _Description(ProgressColumn):
    """What is done now."""

    def render(self, task: Task) -> Text:
        return styled(task.description)


class _Console(_Plain):
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
errors = _Plain(stderr=True)


def styled(*parts: str | tuple[str, str]) -> Text:
    """Text in pieces; (piece, style) for those that have one."""
    pieces = ((part, "") if isinstance(part, str) else part for part in parts)
    return Text.assemble(*((visible(piece), style) for piece, style in pieces))


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
        console.print(f"  {line}", soft_wrap=True)


def check_timeout(seconds: float, option: str = "--timeout") -> None:
    """A limit of no time, or of no number, would only look like a failure."""
    from unweave.errors import ConfigError

    if not seconds > 0:
        raise ConfigError(f"{option} {seconds:g}: give a number of seconds above 0")


def emit_json(value: object) -> None:
    """One JSON document on standard output, and nothing else there."""
    try:
        sys.stdout.write(as_json(value, indent=2) + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        hush()


def fail(error: UnweaveError, *, json: bool = False) -> None:
    """How every command fails: a line for people on standard error, or JSON on standard output."""
    if json:
        emit_json(error_report(error))
        return
    first, *more = error.lines
    errors.print(styled(("unweave:", "red"), f" {first}"), soft_wrap=True)
    for line in more:
        errors.print(line, soft_wrap=True)


def progress(*, quiet: bool = False, counted: bool = True) -> Progress:
    """A progress display on standard error, so that standard output stays clean for results. If
    nobody knows how many steps there are, only what is waited for and how long."""
    return Progress(
        SpinnerColumn(),
        _Description(),
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
