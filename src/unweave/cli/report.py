"""`unweave report`: what was learned and forgotten, as one HTML file for people."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unweave.cli.common import Json, RunModel, emit_json, errors, say
from unweave.errors import ConfigError

__all__ = ["report"]


def report(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="DIR|RUN.json",
            help="A network's folder; or the file of a run: report.json of `demo`, the output of "
            "`simulate --json`, a saved Federation.",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            help="The HTML file to write.",
            show_default="report.html; none with --json",
        ),
    ] = None,
    run_model: RunModel = False,
    json: Json = False,
) -> None:
    """Report what was learned and forgotten, and how that was verified, in words for everyone.

    One HTML file that needs nothing else: no network, no script. Its first page is a summary for a
    data-protection officer; printing it (or saving as PDF) keeps it on one page. It holds the
    certificates of erasure, verified when the report is made, and says what they do not prove.

    Of a network, running agents are asked, and of stopped ones the stores are read; certificates
    are those in DIR and in the agents' folders. A folder with network.toml and certificates alone
    will do, too. The report of a network shows the current posterior in two digits and no earlier
    one, because the difference of two posteriors is what was erased. In plain mode it also shows
    the change of mean and standard deviation, in the same digits, by erasures that `unweave forget`
    or the page asked for.

    Exit code 1 if a certificate is not valid, an agent has lied or the network has stopped; the
    file is written.

    Examples:

        unweave report clinics --out report.html

        unweave report demo-out/report.json

        unweave report clinics --json
    """
    from unweave.node.storage.atomic import check_writable, unwritable, write_atomic
    from unweave.report import report_of
    from unweave.report.page import page

    file = Path("report.html") if out is None and not json else out
    if file is not None and file.suffix.lower() not in (".html", ".htm"):
        raise ConfigError(f"--out {file}: the report is an HTML file. Fix: name it .html")
    if file is not None:
        check_writable(file)
    with errors.status("reading …"):
        found = report_of(source, run_model=run_model)
        if file is not None:
            try:
                write_atomic(file, page(found))
            except OSError as error:
                raise unwritable(file, error) from None
    if json:
        emit_json({**found.to_dict(), "file": None if file is None else str(file)})
    else:
        say(f"{found.verdict.headline}.", style=_STYLES[found.verdict.level])
        say(f"Wrote {file}: open it in a browser, or print it.")
    if found.verdict.level == "bad":
        raise typer.Exit(1)


_STYLES = {"good": "green", "open": "yellow", "bad": "red"}
