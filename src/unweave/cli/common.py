"""What commands share: consoles, JSON, errors, progress, shell completion, common options.

The consoles do not interpret markup: `[kg]` in a name is text, and styles are given to `styled`.
All text passes through `visible` before it is printed, whatever is printed: a string, a table, or a
text that was made elsewhere.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TimeElapsedColumn,
)
from rich.segment import Segment
from rich.status import Status
from rich.text import Text

from unweave.bounded import load_toml, read_bytes
from unweave.errors import ConfigError, UnweaveError
from unweave.json_form import as_json, error_report
from unweave.text import clip, quote, visible

__all__ = [
    "Edges",
    "Folder",
    "Json",
    "RunModel",
    "check_timeout",
    "command",
    "complete_agent",
    "complete_model",
    "console",
    "emit_json",
    "errors",
    "fail",
    "hush",
    "live_text",
    "open_page",
    "pair",
    "program",
    "progress",
    "quote",
    "say",
    "stop_on_sigterm",
    "styled",
]

# Options and arguments of several commands.
Folder = Annotated[Path, typer.Argument(metavar="DIR", help="A network's folder, or one agent's.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
RunModel = Annotated[
    bool,
    typer.Option(
        "--run-model",
        help="Run the model's own program (module:object) that lies beside the manifest.",
    ),
]

Edges = Annotated[
    Path | None,
    typer.Option(
        "--edges",
        metavar="FILE",
        help='A graph of your own, instead of --graph: one edge per line, "a,b" or "a b"; # starts '
        "a comment. Files of networkx.write_edgelist will do.",
    ),
]

# A pipe has no width, and a table that is folded at 80 columns is hard to search.
_PIPE = 160
_LONGEST = 4000  # characters of an error: it may quote a text of another's choice


class _Plain(Console):
    """A console that prints text as it is, and control characters as escapes."""

    def __init__(self, **how: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **how)

    def render_str(self, text: str, **how: Any) -> Text:
        return super().render_str(visible(text), **how)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterator[Segment]:
        for segment in super().render(renderable, options):
            if segment.control:
                yield segment
            else:
                lines = segment.text.split("\n")
                yield Segment("\n".join(map(visible, lines)), segment.style)

    def status(self, status: RenderableType, **how: Any) -> Status:
        return _Status(styled(status) if isinstance(status, str) else status, console=self, **how)


class _Status(Status):
    """A spinner with a text, which is not markup."""

    def update(self, status: RenderableType | None = None, **how: Any) -> None:
        super().update(styled(status) if isinstance(status, str) else status, **how)


class _Description(ProgressColumn):
    """The current step."""

    def render(self, task: Task) -> Text:
        return styled(task.description)


class _Console(_Plain):
    """A console whose reader may close the pipe (`… | head`): the command still ends with its own
    exit code."""

    def on_broken_pipe(self) -> None:
        self.quiet = True
        hush()


class _Stopped(KeyboardInterrupt):
    """SIGTERM. CPython ends a process by SIGINT if a KeyboardInterrupt, and none of its subclasses,
    was raised in a text that is executed (a dataclass that is just imported), handled or not."""


def stop_on_sigterm() -> None:
    """From now on SIGTERM raises KeyboardInterrupt, as Ctrl-C does."""

    def stop(*_: object) -> None:
        raise _Stopped

    signal.signal(signal.SIGTERM, stop)


def hush() -> None:
    """Redirect standard output to the null device, after its reader has closed the pipe."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


console = _Console(
    soft_wrap=False, width=None if sys.stdout.isatty() or "COLUMNS" in os.environ else _PIPE
)
errors = _Plain(stderr=True)


def styled(*parts: str | tuple[str, str]) -> Text:
    """Text from pieces; a piece with a style is (piece, style)."""
    pieces = ((part, "") if isinstance(part, str) else part for part in parts)
    return Text.assemble(*((visible(piece), style) for piece, style in pieces))


def program() -> str:
    """The command that starts this program: `unweave` if the shell finds it, else its path."""
    started = Path(sys.argv[0])
    if shutil.which("unweave") or len(started.parts) < 2:
        return "unweave"
    if started.name == "__main__.py":
        return f"{quote(sys.executable)} -m unweave"
    near = os.path.relpath(started)
    return quote(started.absolute() if near.startswith("..") else near)


def say(*lines: str | Text, style: str | None = None) -> None:
    """Print lines of text, each in one line at any terminal width, so that it can be searched."""
    for line in lines:
        console.print(line, style=style, soft_wrap=True)


def command(*lines: str) -> None:
    """Print commands to copy, one line each at any terminal width. `unweave` is replaced by
    `program()`, because it may not be on the shell's path."""
    for line in lines:
        if line.startswith("unweave "):
            line = program() + line.removeprefix("unweave")
        console.print(f"  {line}", soft_wrap=True)


def check_timeout(seconds: float, option: str = "--timeout") -> None:
    """Raise unless `seconds` is above 0: zero or NaN would look like a timeout."""
    if not seconds > 0:
        raise ConfigError(f"{option} {seconds:g}: not above 0. Fix: give a number of seconds")


def emit_json(value: object) -> None:
    """Print one JSON document on standard output."""
    try:
        sys.stdout.write(as_json(value, indent=2) + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        hush()


def fail(error: UnweaveError, *, json: bool = False) -> None:
    """Print an error: as text on standard error, or as JSON on standard output."""
    if json:
        emit_json(error_report(error))
        return
    first, *more = (clip(line, _LONGEST) for line in error.lines)
    errors.print(styled(("unweave:", "red"), f" {first}"), soft_wrap=True)
    for line in more:
        errors.print(line, soft_wrap=True)


def progress(*, quiet: bool = False, counted: bool = True) -> Progress:
    """A progress display on standard error; standard output is for results. Without `counted` it
    shows the current step and the elapsed time only."""
    return Progress(
        SpinnerColumn(),
        _Description(),
        *((BarColumn(), MofNCompleteColumn()) if counted else ()),
        TimeElapsedColumn(),
        console=errors,
        transient=True,
        disable=quiet or not errors.is_terminal,
    )


def open_page(file: Path) -> bool:
    """Show a file in a browser, if a person would see it: in a terminal, with a display, and not in
    a run of continuous integration. A browser that fails is no error."""
    import webbrowser

    display = sys.platform == "darwin" or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY")))
    if not sys.stdout.isatty() or not display or os.environ.get("CI"):
        return False
    try:
        return webbrowser.open(file.absolute().as_uri())
    except (OSError, webbrowser.Error):
        return False


def pair(item: str, option: str) -> tuple[str, str]:
    """Split name=value."""
    key, sign, value = item.partition("=")
    if not sign or not key:
        raise ConfigError(f"{option} {item}: not of the form name=value. Fix: write name=value")
    return key.strip(), value.strip()


@contextmanager
def live_text(first: str, *, quiet: bool = False) -> Iterator[Callable[[str], None]]:
    """Yields a function that shows a progress text on standard error: in one line that is updated,
    or in a pipe as one line per change."""
    if quiet:
        yield lambda text: None
    elif errors.is_terminal:
        with progress(counted=False) as bar:
            task = bar.add_task(first, total=None)
            yield lambda text: bar.update(task, description=text)
    else:
        last = ""

        def tell(text: str) -> None:
            nonlocal last
            if text != last:
                last = text
                errors.print(text, soft_wrap=True)

        yield tell


# Shell completion calls these functions at every Tab: they must be fast and must not raise.
def complete_agent(context: typer.Context, incomplete: str) -> list[str]:
    """The agents of the network in DIR (or of the network of AGENT_DIR), read from its manifest."""
    folder: Any = context.params.get("folder")
    try:
        agents = load_toml(read_bytes(Path(folder) / "network.toml", 1 << 20))["agents"]
        names = [str(agent["name"]) for agent in agents]
    except (OSError, ValueError, KeyError, TypeError):
        return []
    # The shell prints them; a name that cannot be seen as it is can be typed only as an escape.
    return [name for name in names if name.startswith(incomplete) and visible(name) == name]


def complete_model(incomplete: str) -> list[str]:
    """The models' names."""
    from unweave.models import names

    return [name for name in names() if name.startswith(incomplete)]
