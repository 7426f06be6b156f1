"""The command `unweave`: one file per command; heavy modules are imported inside the command."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer

from unweave.cli.agent import agent
from unweave.cli.audit import audit
from unweave.cli.backup import backup, restore
from unweave.cli.check import check
from unweave.cli.common import fail, hush, program
from unweave.cli.dashboard import dashboard
from unweave.cli.demo import demo
from unweave.cli.evaluate import evaluate
from unweave.cli.forget import forget
from unweave.cli.influence import influence
from unweave.cli.init import init
from unweave.cli.learn import learn
from unweave.cli.models import models
from unweave.cli.paper import paper
from unweave.cli.plan import plan
from unweave.cli.posterior import posterior
from unweave.cli.predict import predict
from unweave.cli.report import report
from unweave.cli.simulate import simulate
from unweave.cli.status import status
from unweave.cli.up import up
from unweave.cli.verify import verify
from unweave.cli.vote import vote
from unweave.errors import UnweaveError, UsageError
from unweave.text import crash

__all__ = ["app", "main"]

app = typer.Typer(
    name="unweave",
    help="Learn one Bayesian model together over a peer graph, with no server; "
    "then take any contribution out again, with evidence.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        sys.stdout.write(f"unweave {version('unweave')}\n")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Exit codes: 0 done, 1 refused or a check failed, 2 bad input."""


_COMMANDS: dict[str, tuple[Callable[..., None], ...]] = {
    "See it": (demo, paper, plan, simulate, evaluate, models),
    "Make a network and run it": (init, check, up, agent, backup, restore),
    "Ask a running network": (dashboard, status, posterior, predict, influence, learn),
    "Forget, with evidence": (forget, vote, audit, verify, report),
}
for _panel, _commands in _COMMANDS.items():
    for _command in _commands:
        app.command(rich_help_panel=_panel)(_command)


def main() -> None:
    """Run one command. An expected error is printed as text or JSON, without a traceback."""
    json = "--json" in sys.argv[1:]
    try:
        raise SystemExit(app(standalone_mode=False))
    except UnweaveError as error:
        found = error
    except _Usage as error:
        found = _usage(error)
    except BrokenPipeError:
        # `unweave … | head` closes the pipe: not an error.
        hush()
        raise SystemExit(0) from None
    except OSError as error:
        place = "" if error.filename is None else f"{error.filename}: "
        fix = "Fix: check the path, its permissions and the disk's free space"
        found = UnweaveError(f"{place}{error.strerror or error}. {fix}")
    except Exception as error:  # its text may quote a record, or come from another
        found = UnweaveError(crash(error))
    fail(found, json=json)
    raise SystemExit(found.exit_code)


# Typer names the base of its usage errors differently from version to version.
_Usage: type[Exception] = typer.BadParameter.__mro__[1]


def _usage(error: Any) -> UnweaveError:
    """The parser's error, with the command that prints the help."""
    if not sys.argv[1:]:  # `unweave` alone: the message is the help
        error.show()
        raise SystemExit(error.exit_code)
    if error.ctx is not None:
        command = error.ctx.info_name if error.ctx.parent else ""
    else:  # the parser does not say where an option lacks its value
        known = {one.__name__ for commands in _COMMANDS.values() for one in commands}
        command = sys.argv[1] if sys.argv[1] in known else ""
    how = f"see `{program()} {command}{' ' * bool(command)}--help`"
    problem = error.format_message()
    return UsageError(f"{problem}{'' if problem.endswith(('.', '?')) else '.'} Fix: {how}")
