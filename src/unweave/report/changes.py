"""By how much an erasure changed means and standard deviations, kept for the report.

`unweave forget` and the page read the posterior before a request and after its certificate, and
keep the difference of the two in the coarse numbers of a report: what two reports, made before and
after, would tell, and no more. Agents keep nothing of it. Under private rounds there is no change
to keep: it would be a number about one agent.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError
from typing_extensions import TypedDict

from unweave.bounded import load_json, read_bytes
from unweave.errors import UnweaveError
from unweave.json_form import as_json
from unweave.node.storage.atomic import write_atomic
from unweave.operations.cluster import LOOK, open_cluster
from unweave.operations.reading import WHOLE, newest
from unweave.operations.tables import posterior_of
from unweave.report.facts import ChangeFact, Moments
from unweave.report.quantities import changes, live_moments

__all__ = ["Before", "keep_change", "kept_changes"]

_MOST_BYTES = 1 << 16


class _File(TypedDict):
    """The file: the erasure, and by quantity the changes of mean and standard deviation."""

    request: str
    changes: dict[str, tuple[float, float]]


_file = TypeAdapter(_File)


@dataclass(frozen=True)
class Before:
    """The coarse numbers before a request, and the erasures that were known then: requests, and
    names of agents that were out."""

    moments: Mapping[str, Moments]
    erasures: frozenset[str]

    @classmethod
    def of(cls, folder: Path) -> Before | None:
        """None: there is no posterior now, or private rounds make it."""
        reports, moments = _read(folder)
        return None if moments is None else cls(moments, frozenset(_erasures(reports)))


def keep_change(folder: Path, name: str, request: str, before: Before) -> bool:
    """Write the change by this certified erasure, unless the numbers before do not belong to it
    (it was asked for earlier), or those after it do not (another erasure has followed). False:
    there is no posterior again yet."""
    own = {name, request}  # an agent that was voted out has no request
    if own & before.erasures:
        return True
    reports, now = _read(folder)
    new = _erasures(reports) - before.erasures
    if now is None or not new:
        return False
    if new <= own:
        kept: _File = {"request": request, "changes": changes(before.moments, now)}
        # As in the certificate's name: the first 8 digits of a request are the agent's.
        path = folder / f"change-{name}-{request[8:16]}.json"
        with contextlib.suppress(OSError):  # the certificate matters, and is written
            write_atomic(path, as_json(kept).encode())
    return True


def kept_changes(folders: Iterable[Path]) -> dict[str, tuple[ChangeFact, ...]]:
    """What `keep_change` has written in these folders, by request. Other files are ignored."""
    found: dict[str, tuple[ChangeFact, ...]] = {}
    for folder in folders:
        for path in sorted(folder.glob("change-*.json")):
            with contextlib.suppress(OSError, ValueError, ValidationError):
                kept = _file.validate_python(load_json(read_bytes(path, _MOST_BYTES)))
                found[kept["request"]] = tuple(
                    ChangeFact(name, mean, sd) for name, (mean, sd) in kept["changes"].items()
                )
    return found


def _read(folder: Path) -> tuple[dict[str, dict[str, Any]], dict[str, Moments] | None]:
    """The agents' reports, and the coarse numbers of the newest posterior; None under private
    rounds, while the posterior is not complete, and while an erasure is under way. An agent that
    does not answer is no reason to fail."""
    reports: dict[str, dict[str, Any]] = {}
    with contextlib.suppress(UnweaveError), open_cluster(folder, LOOK) as agents:
        if agents.manifest.privacy.masked:
            return reports, None
        answers = agents.ask_all("posterior", LOOK, erasures=True)
        reports = {name: answer["posterior"] for name, answer in answers.items()}
        best = newest(reports) if reports else {"state": "unknown"}
        whole = best["state"] in WHOLE and best.get("fitting") is None and "marginals" in best
        if whole and not any(report.get("asked") for report in reports.values()):
            return reports, live_moments(posterior_of(folder, best))
    return reports, None


def _erasures(reports: Mapping[str, Mapping[str, Any]]) -> set[str]:
    """Erasures that were carried out, or asked for: requests, and names of agents that are out."""
    found: set[str] = set()
    for report in reports.values():
        found.update(report.get("asked", {}))
        for name, tomb in report.get("erasures", {}).get("known", {}).items():
            found.update(tomb["ids"], [name] if tomb["out"] else [])
    return found
