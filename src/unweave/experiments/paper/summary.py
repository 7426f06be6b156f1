"""The summary of a run: every setting with its source and reason, and every number to quote."""

from __future__ import annotations

from dataclasses import asdict
from importlib.metadata import version
from typing import Any

from unweave.experiments.paper.report import Figure, Report

__all__ = ["as_json", "as_markdown"]


_PAPER = (
    "J. Gong, O. Simeone, J. Kang: Bayesian Variational Federated Learning and Unlearning in "
    "Decentralized Networks (2021)"
)


def as_json(
    seed: int, parts: list[tuple[Figure, Report]], files: dict[str, list[str]]
) -> dict[str, Any]:
    """The summary as one JSON value; nothing in it depends on when or where it was made."""
    return {
        "paper": _PAPER,
        "versions": {name: version(name) for name in ("unweave", "numpy", "scipy", "matplotlib")},
        "seed": seed,
        "figures": {
            figure.name: {
                "title": figure.title,
                "replicas": report.replicas,
                "files": files[figure.name],
                "settings": [asdict(s) for s in figure.settings_of(seed, report)],
                "results": report.results,
                "notes": list(report.notes),
            }
            for figure, report in parts
        },
    }


def as_markdown(seed: int, parts: list[tuple[Figure, Report]], files: dict[str, list[str]]) -> str:
    lines = [
        "# The paper's experiments",
        "",
        f"{_PAPER}. Settings marked “paper” are stated there; those marked “ours” are not, and the "
        "last column says why they are what they are. Numbers are in `summary.json`, curves in the "
        "CSV files; the figures are drawn from those.",
    ]
    for figure, report in parts:
        lines += ["", f"## {figure.name}: {figure.title}", ""]
        pictures = [name for name in files[figure.name] if name.endswith(".png")]
        lines += [f"![{figure.title}]({name})" for name in pictures]
        lines += ["", *(f"- {note}" for note in report.notes)]
        if report.markdown:
            lines += ["", report.markdown]
        lines += ["", "| Setting | Value | Source | Why |", "|---|---|---|---|"]
        for s in figure.settings_of(seed, report):
            lines.append(f"| {_cell(s.name)} | {_cell(s.value)} | {s.source} | {_cell(s.why)} |")
        lines += ["", "Files: " + ", ".join(f"`{name}`" for name in files[figure.name])]
    return "\n".join(lines) + "\n"


def _cell(value: Any) -> str:
    shown = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return shown.replace("|", "\\|")
