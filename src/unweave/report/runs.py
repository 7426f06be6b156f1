"""The report of a run's file: which kind of run it is, within bounds.

A file may come from others: its size and shape are bounded, and every value that is used is
checked. Its claims are shown as those of the run.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from unweave.bounded import load_json, read_bytes
from unweave.errors import ConfigError, UnweaveError
from unweave.federation import Federation
from unweave.report.demonstration import demonstration_report
from unweave.report.facts import Report
from unweave.report.federation import federation_report
from unweave.report.simulation import simulation_report
from unweave.text import clip, dated

__all__ = ["run_report"]

_MOST_BYTES = 64 << 20
_FEDERATION = b'{"unweave": "federation"'
_GIVE = (
    "give a network's folder, report.json of `unweave demo`, the output of `unweave simulate "
    "--json`, or a file of Federation.save"
)


def run_report(path: Path) -> Report:
    """The report of the run in this file; ConfigError if it is none."""
    try:
        with path.open("rb") as file:
            first = file.read(len(_FEDERATION))
        written = path.stat().st_mtime
        if first == _FEDERATION:
            return federation_report(Federation.load(path), path.stem, dated(written))
        values = load_json(read_bytes(path, _MOST_BYTES))
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot be read ({error.strerror or error}). Fix: check the path"
        ) from None
    except ValueError as error:
        if isinstance(error, UnweaveError):
            raise
        raise ConfigError(f"{path}: not JSON: {clip(error, 100)}. Fix: {_GIVE}") from None
    kind = values.get("unweave") if isinstance(values, dict) else None
    try:
        if kind == "simulation":
            return simulation_report(values, dated(written))
        if kind == "demonstration":
            return demonstration_report(values, path.parent, dated(written))
    except ValidationError as error:
        place = ".".join(map(str, error.errors()[0]["loc"]))
        raise ConfigError(
            f"{path}: {clip(place, 100)} is missing or has another form. Fix: repeat the run with "
            "this version of unweave"
        ) from None
    raise ConfigError(f"{path}: the file names no run that a report can tell of. Fix: {_GIVE}")
