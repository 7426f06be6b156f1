"""Tables in files: rows to predict for, and draws and predictions for other tools."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unweave.errors import ConfigError, DataError, UnweaveError
from unweave.models.fitted.posterior import Posterior
from unweave.models.fitted.tables import typed
from unweave.node.api.report import NO_TOKEN
from unweave.node.data.duckdb_reader import connect
from unweave.node.data.duckdb_records import quoted
from unweave.operations.cluster import LOOK, open_cluster
from unweave.operations.reading import WHOLE, ask_posteriors, newest, read_posteriors, whole_sum
from unweave.text import quote

__all__ = ["check_table_path", "current_posterior", "posterior_of", "read_table", "write_table"]

Table = Mapping[str, NDArray[Any]]
"""Columns of equal length, by name."""

_BLOCK = 20_000  # rows in memory


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
    with open_cluster(folder, LOOK) as agents:
        model, mechanism = agents.manifest.build_model(), agents.manifest.build_mechanism()
        found = report.get("units") or whole_sum(agents, report["digest"])
    units = np.array([int(unit) for unit in found], dtype=np.int64)
    if mechanism is not None:
        return mechanism.posterior(units, len(report["included"]))
    return model.posterior(units)


def check_table_path(path: Path) -> None:
    """ConfigError unless the file's ending is one that `write_table` knows."""
    if path.suffix.lower() not in (".csv", ".parquet"):
        raise ConfigError(f"{path}: unknown kind of file. Fix: name it .csv or .parquet")


def write_table(path: Path, blocks: Iterable[Table]) -> None:
    """Write blocks of rows, with the same columns, as CSV or Parquet by the file's ending. The file
    appears when it is complete."""
    check_table_path(path)
    part = path.with_name(f".{path.name}.part")
    try:
        if path.suffix.lower() == ".csv":
            _write_csv(part, blocks)
        else:
            _write_parquet(part, blocks)
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def _write_csv(path: Path, blocks: Iterable[Table]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        for number, block in enumerate(blocks):
            if not number:
                writer.writerow(block)
            writer.writerows(zip(*(column.tolist() for column in block.values()), strict=True))


def _write_parquet(path: Path, blocks: Iterable[Table]) -> None:
    """The engine collects the rows; beyond its memory, in temporary files beside the result."""
    with connect(path.absolute().parent, 1) as engine:
        for number, block in enumerate(blocks):
            engine.register("block", {name: np.asarray(one) for name, one in block.items()})
            how = "INSERT INTO result" if number else "CREATE TABLE result AS"
            engine.execute(f"{how} FROM block")
        engine.execute(f"COPY result TO {quoted(str(path), chr(39))} (FORMAT parquet)")


def read_table(path: Path) -> Iterator[Table]:
    """The rows of a CSV or Parquet file in blocks. A column holds numbers if all its cells in the
    file are numbers, else texts, so the file is read twice."""
    check_table_path(path)
    if not path.is_file():
        raise ConfigError(f"{path}: no such file. Fix: check the path")
    cells = _csv_cells if path.suffix.lower() == ".csv" else _parquet_cells
    texts = {
        name
        for block in cells(path)
        for name, column in block.items()
        if typed(column).dtype == object
    }
    for block in cells(path):
        yield {name: typed(column, text=name in texts) for name, column in block.items()}


Cells = dict[str, Sequence[str | None]]


def _csv_cells(path: Path) -> Iterator[Cells]:
    with path.open(newline="", encoding="utf-8-sig") as file:
        try:
            rows = (row for row in csv.reader(file) if row)
            names = next(rows, [])
            for block in _blocks(rows):
                if any(len(row) != len(names) for row in block):
                    raise DataError(
                        f"{path}: a line has another number of fields than the header. Fix: "
                        "complete it"
                    )
                yield {name: [row[j] or None for row in block] for j, name in enumerate(names)}
        except (UnicodeError, csv.Error):
            raise DataError(f"{path}: not a CSV file in UTF-8. Fix: save it as one") from None


def _parquet_cells(path: Path) -> Iterator[Cells]:
    with connect(path.absolute().parent, 1) as engine:
        found = engine.execute(f"FROM read_parquet({quoted(str(path), chr(39))})")
        names = [column[0] for column in found.description or ()]
        while rows := found.fetchmany(_BLOCK):
            yield {
                name: [None if row[j] is None else str(row[j]) for row in rows]
                for j, name in enumerate(names)
            }


def _blocks(rows: Iterator[list[str]]) -> Iterator[list[list[str]]]:
    while block := list(islice(rows, _BLOCK)):
        yield block
