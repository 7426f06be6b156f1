"""The report: what a network or a run learned and forgot, as one HTML file for people.

    facts.py       the value that every source makes: plain facts
    network.py     a source: a network's folder, with dates from timeline.py
    runs.py        a source: the file of a run, read by simulation.py, demonstration.py or
                   federation.py; values.py states the form of values
    words.py settings.py quantities.py    sentences and numbers
    markup.py      HTML and SVG, safe by construction
    page.py plots.py style.css            the page

`html_of(folder)` is the report of a network's folder; `report_of(path)` the facts of anything.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from unweave.report.facts import Report

__all__ = ["html_of", "report_of"]


def report_of(path: str | Path, *, run_model: bool = True) -> Report:
    """The facts of a network's folder, or of the JSON file of a run."""
    path = Path(path)
    if path.is_dir() or not path.exists():
        from unweave.report.network import network_report

        return network_report(path, run_model=run_model)
    from unweave.report.runs import run_report

    return run_report(path)


def html_of(folder: str | Path) -> bytes:
    """The report of a network's folder, or of a run's file, as one HTML file."""
    from unweave.report.page import page

    return page(report_of(folder))
