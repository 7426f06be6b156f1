"""Tables in files: rows to predict for, and draws and predictions for other tools."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unweave.errors import ConfigError, DataError, UnweaveError
from unweave.models.columns import Column, cell_text
from unweave.models.fitted.posterior import Posterior
from unweave.node.api.report import NO_TOKEN
from unweave.node.data.duckdb_parts import delimiter_of
from unweave.node.data.duckdb_reader import connect
from unweave.node.data.duckdb_records import quoted
from unweave.node.storage.atomic import check_writable, unwritable
from unweave.operations.cluster import LOOK, open_cluster
from unweave.operations.reading import WHOLE, ask_posteriors, newest, read_posteriors, whole_sum
from unweave.operations.split import found_delimiter
from unweave.text import quote

__all__ = [
    "RowBlock",
    "check_output",
    "current_posterior",
    "delimiter_in",
    "posterior_of",
    "read_rows",
    "values_of",
    "write_table",
]

Table = Mapping[str, NDArray[Any]]
"""Columns of equal length, by name."""

_BLOCK = 20_000  # rows in memory


def current_posterior(folder: Path) -> Posterior:
    """The newest complete posterior that the agents of DIR know, or that their stores hold."""
    with open_cluster(folder, LOOK) as agents:
        found = ask_posteriors(agents) if agents.agents else read_posteriors(agents)
        best = newest(found) if found else {"state": "unknown", "why": NO_TOKEN}
        wait = f"wait for it with `unweave posterior {quote(folder)} --wait 60`"
        if not agents.agents:
            how = "agent" if folder in agents.folders.values() else "up"
            wait = f"start the network with `unweave {how} {quote(folder)}`, then {wait}"
    if best["state"] not in WHOLE or best.get("fitting") is not None:
        raise UnweaveError(
            f"{folder}: no complete posterior yet ({best.get('why') or best['state']}). Fix: {wait}"
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


def check_output(path: Path, *sources: Path) -> None:
    """ConfigError unless `write_table` can write the file, which must not be one of `sources`."""
    check_table_path(path)
    check_writable(path)
    if any(path.exists() and source.exists() and path.samefile(source) for source in sources):
        raise ConfigError(f"{path}: the output would replace the input. Fix: name another file")


def write_table(
    path: Path, blocks: Iterable[Table], beside: Path | None = None, delimiter: str = ","
) -> None:
    """Write blocks of rows, with the same columns, as CSV or Parquet by the file's ending. The file
    appears when it is complete. `beside`: a Parquet file, whose columns come first, with their
    types; for a Parquet file only. `delimiter`: of a CSV file."""
    check_table_path(path)
    part = path.with_name(f".{path.name}.part")
    try:
        if path.suffix.lower() == ".csv":
            _write_csv(part, blocks, delimiter)
        else:
            _write_parquet(part, blocks, beside)
        os.replace(part, path)
    except OSError as error:
        raise unwritable(path, error) from None
    finally:
        part.unlink(missing_ok=True)


def _write_csv(path: Path, blocks: Iterable[Table], delimiter: str) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter=delimiter)
        for number, block in enumerate(blocks):
            if not number:
                writer.writerow(block)
            writer.writerows(zip(*(column.tolist() for column in block.values()), strict=True))


def _write_parquet(path: Path, blocks: Iterable[Table], beside: Path | None) -> None:
    """The engine collects the rows; beyond its memory, in temporary files beside the result."""
    with connect(path.absolute().parent, 1) as engine:
        for number, block in enumerate(blocks):
            if not number:  # an engine that guesses would type a block without texts as numbers
                kinds = (
                    "VARCHAR" if one.dtype.kind in "OU" else "DOUBLE" for one in block.values()
                )
                columns = zip(map(quoted, block), kinds, strict=True)
                engine.execute(f"CREATE TABLE result ({', '.join(map(' '.join, columns))})")
            engine.register("block", {name: np.asarray(one) for name, one in block.items()})
            engine.execute("INSERT INTO result FROM block")
        whole = "FROM result"
        if beside is not None:
            whole = f"FROM read_parquet({quoted(str(beside), chr(39))}) POSITIONAL JOIN result"
        engine.execute(f"COPY ({whole}) TO {quoted(str(path), chr(39))} (FORMAT parquet)")


class RowBlock(NamedTuple):
    """Some rows of a file: their cells as texts, by column, and the place of each row."""

    cells: dict[str, list[str | None]]
    places: Sequence[int]
    unit: str  # "line" of a CSV file, or "row"


def read_rows(path: Path) -> Iterator[RowBlock]:
    """The rows of a CSV or Parquet file in blocks."""
    check_table_path(path)
    if not path.is_file():
        raise ConfigError(f"{path}: no such file. Fix: check the path")
    return _csv_rows(path) if path.suffix.lower() == ".csv" else _parquet_rows(path)


def delimiter_in(path: Path) -> str:
    """The delimiter in the first line of a CSV file, as `unweave init` finds it; else ","."""
    return found_delimiter(path) or delimiter_of(path) if path.suffix.lower() == ".csv" else ","


def _csv_rows(path: Path) -> Iterator[RowBlock]:
    with path.open(newline="", encoding="utf-8-sig") as file:
        try:
            reader = csv.reader(file, delimiter=delimiter_in(path))
            names = next(reader, [])
            if len(set(names)) < len(names):
                raise DataError(f"{path}: two columns have one name. Fix: rename one")
            while block := list(islice(_numbered(reader), _BLOCK)):
                for line, row in block:
                    if len(row) != len(names):
                        raise DataError(
                            f"{path}, line {line}: another number of fields than in the header. "
                            "Fix: complete it"
                        )
                cells = zip(*(row for _, row in block), strict=True)
                columns = dict(zip(names, map(list, cells), strict=True))
                yield RowBlock(columns, [line for line, _ in block], "line")
        except (UnicodeError, csv.Error):
            raise DataError(f"{path}: not a CSV file in UTF-8. Fix: save it as one") from None


def _numbered(reader: Any) -> Iterator[tuple[int, list[str]]]:
    """The first line of each record of a CSV reader, and its fields; without empty lines."""
    line = reader.line_num + 1
    for row in reader:
        if row:
            yield line, row
        line = reader.line_num + 1


def _parquet_rows(path: Path) -> Iterator[RowBlock]:
    with connect(path.absolute().parent, 1) as engine:
        name = quoted(str(path), chr(39))
        found = engine.execute(f"SELECT COLUMNS(*)::VARCHAR FROM read_parquet({name})")
        names = [column[0] for column in found.description or ()]
        done = 0
        while rows := found.fetchmany(_BLOCK):
            cells = dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))
            yield RowBlock(cells, range(done + 1, done + len(rows) + 1), "row")
            done += len(rows)


def values_of(rows: RowBlock, columns: Sequence[Column], decimal: str = ".") -> dict[str, Any]:
    """The cells of these columns, those that the rows have, as a model reads them: numbers, and
    the texts of levels. DataError, with the place, for a value that the column cannot have."""
    return {
        column.given: _values(rows, column, decimal)
        for column in columns
        if column.given in rows.cells
    }


def _values(rows: RowBlock, column: Column, decimal: str) -> NDArray[Any]:
    name, cells = column.given, rows.cells[column.given]

    def wrong(i: int, problem: str, fix: str) -> DataError:
        return DataError(
            f"{rows.unit} {rows.places[i]}, column {name!r}: the value {problem}. Fix: {fix}"
        )

    if column.codes:
        known = {text for text, _ in column.codes}
        texts = np.array([_level(cell, known) for cell in cells], dtype=object)
        for i, text in enumerate(texts):
            if text not in known:
                raise wrong(i, "is no known level" if text else "is missing", column.expects)
        return texts
    values = np.empty(len(cells))
    for i, cell in enumerate(cells):
        found = _number(cell, decimal)
        if found is None:
            if decimal == "." and _number(cell, ",") is not None:
                raise wrong(i, "looks like a number with a decimal comma", "add --decimal ,")
            raise wrong(i, "is not a number", column.expects)
        values[i] = found
    if (problem := column.problem(values)) is not None:
        raise wrong(*problem, column.expects)
    return values


def _level(cell: str | None, known: set[str]) -> str | None:
    """A cell as a level: the number 3.0 is the level "3"."""
    if cell in known:
        return cell
    number = _number(cell, ".")
    return cell if number is None else cell_text(number)


def _number(cell: str | None, decimal: str) -> float | None:
    """A cell as a number, NaN if it is empty; None for a text. With a decimal comma a point is no
    part of a number: it could separate thousands."""
    text = (cell or "").strip() or "nan"
    if "_" in text or (decimal == "," and "." in text):
        return None
    try:
        return float(text.replace(decimal, "."))
    except ValueError:
        return None
