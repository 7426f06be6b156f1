"""Tables in files: rows to predict for, and draws and predictions for other tools."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unweave.errors import ConfigError, DataError, UnweaveError
from unweave.models.fitted.posterior import Posterior
from unweave.models.fitted.tables import typed
from unweave.node.api.report import NO_TOKEN
from unweave.node.config import AgentFolder
from unweave.node.data.duckdb_reader import connect
from unweave.node.data.duckdb_records import quoted
from unweave.operations.cluster import LOOK, open_cluster
from unweave.operations.reading import WHOLE, ask_posteriors, newest, read_posteriors
from unweave.text import quote

__all__ = ["check_table_path", "current_posterior", "posterior_of", "read_table", "write_table"]


def current_posterior(folder: Path) -> Posterior:
    """The newest complete posterior that the agents of DIR know, or that their stores hold."""
    with open_cluster(folder, LOOK) as agents:
        found = ask_posteriors(agents) if agents.agents else read_posteriors(agents)
        best = newest(found) if found else {"state": "unknown", "why": NO_TOKEN}
    if best["state"] not in WHOLE or best.get("fitting") is not None:
        raise UnweaveError(
            f"{folder}: no complete posterior yet ({best.get('why') or best['state']}). "
            f"Fix: wait for it with `unweave posterior {quote(folder)} --wait 60`"
        )
    return posterior_of(folder, best)


def posterior_of(folder: Path, report: Mapping[str, Any]) -> Posterior:
    """The posterior of an agent's report, with the model of the manifest."""
    if "units" not in report:
        raise ConfigError(
            f"{folder}: the posterior has {report.get('units_total', 'no')} numbers, too many for "
            "a report. Fix: use Federation.posterior in Python"
        )
    with open_cluster(folder, LOOK) as agents:
        model = AgentFolder.read(next(iter(agents.folders.values()))).manifest.build_model()
    return model.posterior(np.array([int(unit) for unit in report["units"]], dtype=np.int64))


def check_table_path(path: Path) -> None:
    """ConfigError unless the file's ending is one that `write_table` knows."""
    if path.suffix.lower() not in (".csv", ".parquet"):
        raise ConfigError(f"{path}: unknown kind of file. Fix: name it .csv or .parquet")


def write_table(path: Path, table: Mapping[str, NDArray[Any]]) -> None:
    """Write columns of equal length as CSV or Parquet, by the file's ending."""
    check_table_path(path)
    if path.suffix.lower() == ".csv":
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(table)
            writer.writerows(zip(*(column.tolist() for column in table.values()), strict=True))
        return
    with connect(path.absolute().parent, 1) as engine:
        engine.register("columns", {name: np.asarray(one) for name, one in table.items()})
        engine.execute(f"COPY (FROM columns) TO {quoted(str(path), chr(39))} (FORMAT parquet)")


def read_table(path: Path) -> dict[str, NDArray[Any]]:
    """The columns of a CSV or Parquet file: numbers if all their cells are, else texts."""
    check_table_path(path)
    if not path.is_file():
        raise ConfigError(f"{path}: no such file. Fix: check the path")
    if path.suffix.lower() == ".csv":
        with path.open(newline="", encoding="utf-8-sig") as file:
            try:
                rows = [row for row in csv.reader(file) if row]
            except (UnicodeError, csv.Error):
                raise DataError(f"{path}: not a CSV file in UTF-8. Fix: save it as one") from None
        if not rows or any(len(row) != len(rows[0]) for row in rows):
            raise DataError(
                f"{path}: a line has another number of fields than the header. Fix: complete it"
            )
        return {name: typed([row[j] or None for row in rows[1:]]) for j, name in enumerate(rows[0])}
    with connect(path.absolute().parent, 1) as engine:
        found = engine.execute(f"FROM read_parquet({quoted(str(path), chr(39))})")
        names = [column[0] for column in found.description or ()]
        columns = list(zip(*found.fetchall(), strict=True)) or [()] * len(names)
    return {
        name: typed([None if v is None else str(v) for v in column])
        for name, column in zip(names, columns, strict=True)
    }
