"""`python -m benchmarks [words]`: measure, print a table, write benchmarks/results.json.

With words, only entries whose title contains one of them are measured, and no file is written.
"""

from __future__ import annotations

import json
import platform
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks import diagonal as _diagonal  # noqa: F401
from benchmarks import front_door as _front_door  # noqa: F401 — registers its entries
from benchmarks import glm as _glm  # noqa: F401
from benchmarks import ingest as _ingest  # noqa: F401 — registers its entries
from benchmarks import masks as _masks  # noqa: F401 — registers its entries
from benchmarks import node as _node  # noqa: F401 — registers its entries
from benchmarks import page as _page  # noqa: F401 — registers its entries
from benchmarks import paper as _paper  # noqa: F401
from benchmarks import privacy as _privacy  # noqa: F401
from benchmarks import replicas as _replicas  # noqa: F401
from benchmarks import store as _store  # noqa: F401
from benchmarks import transport as _transport  # noqa: F401 — registers its entries
from benchmarks import web as _web  # noqa: F401
from benchmarks import world as _world  # noqa: F401
from benchmarks.harness import ENTRIES, Measured


def main(words: list[str]) -> int:
    console = Console()
    if {"-h", "--help"} & {*words}:
        console.print(__doc__, "Entries:", *(entry.title for entry in ENTRIES), sep="\n")
        return 0
    chosen = [e for e in ENTRIES if not words or any(w.lower() in e.title.lower() for w in words)]
    results: list[Measured] = []
    failed: list[str] = []
    for entry in chosen:
        with console.status(entry.title):
            try:
                results.append(entry.run())
            except Exception:  # the others are measured all the same
                console.print_exception()
                failed.append(entry.title)
    table = Table(
        "", "mode", "measured", "target", "met", title="Speed (CPU time, median of repeats)"
    )
    for result in results:
        table.add_row(
            result.title,
            result.privacy,
            f"{result.value:,.3g} {result.unit}",
            f"{'≤' if result.at_most else '≥'} {result.target:,g} {result.unit}",
            "[green]yes[/]" if result.met else "[red]no[/]",
        )
    console.print(table)
    if not words:
        machine = {"python": platform.python_version(), "numpy": np.__version__}
        report = {"machine": machine, "results": [asdict(result) for result in results]}
        path = Path(__file__).with_name("results.json")
        path.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    for title in failed:
        console.print(f"failed: {title}", style="red")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
