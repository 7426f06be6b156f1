"""The command `unweave`: one file per command; what is heavy is imported inside the command."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Annotated

import typer

from unweave.cli.agent import agent
from unweave.cli.audit import audit
from unweave.cli.backup import backup
from unweave.cli.check import check
from unweave.cli.common import errors, hush
from unweave.cli.demo import demo
from unweave.cli.forget import forget
from unweave.cli.influence import influence
from unweave.cli.init import init
from unweave.cli.learn import learn
from unweave.cli.models import models
from unweave.cli.paper import paper
from unweave.cli.plan import plan
from unweave.cli.posterior import posterior
from unweave.cli.restore import restore
from unweave.cli.simulate import simulate
from unweave.cli.status import status
from unweave.cli.up import up
from unweave.cli.verify import verify
from unweave.cli.vote import vote
from unweave.errors import UnweaveError

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
    "See it": (demo, paper, plan, simulate, models),
    "Make a network and run it": (init, check, up, agent, backup, restore),
    "Ask a running network": (status, posterior, influence, learn),
    "Forget, with evidence": (forget, vote, audit, verify),
}
for _panel, _commands in _COMMANDS.items():
    for _command in _commands:
        app.command(rich_help_panel=_panel)(_command)


def main() -> None:
    """Run one command; an expected error is one readable line, never a traceback."""
    try:
        app()
    except UnweaveError as error:
        errors.print("unweave:", style="red", end=" ")
        errors.print(str(error), markup=False, soft_wrap=True)
        raise SystemExit(error.exit_code) from None
    except KeyboardInterrupt:
        errors.print("unweave: interrupted")
        raise SystemExit(130) from None
    except BrokenPipeError:
        # `unweave … | head` closes our output; that is not an error of ours.
        hush()
        raise SystemExit(0) from None
    except OSError as error:
        place = "" if error.filename is None else f"{error.filename}: "
        errors.print(f"unweave: {place}{error.strerror or error}", markup=False, soft_wrap=True)
        raise SystemExit(1) from None
