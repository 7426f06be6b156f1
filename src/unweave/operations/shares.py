"""`unweave init --data`: assign the records to the agents, before any file is written."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from unweave.errors import ConfigError, DataError, UnweaveError
from unweave.models import ConjugateModel, Model
from unweave.models.columns import same_name, truth
from unweave.models.resolution import rounding_problem, sum_problem, weighted
from unweave.models.shards import Missing, MissingRule
from unweave.node.data.source import DataSource, format_of
from unweave.node.storage.atomic import create_private
from unweave.operations.split import (
    DryRun,
    Records,
    data_name,
    read_batches,
    read_extremes,
    read_missing,
    scale_for,
    try_records,
)
from unweave.sharding import partition
from unweave.text import quote

__all__ = ["SPLITS", "Columns", "Shares", "agents_of", "data_ranges", "shard_rows", "shares"]

SPLITS = ("iid", "quantity", "dirichlet", "by-label", "sorted")
_SHOWN = 10  # bad files in one error


@dataclass(frozen=True)
class Columns:
    """The names of the model's columns and of the key in the data."""

    model: Model
    names: dict[str, str]
    key: str | None
    decimal: Literal[".", ","] = "."
    missing: MissingRule = "refuse"
    where: str | None = None

    def table(self, path: str, delimiter: str | None = None) -> dict[str, Any]:
        """The [data] table of agent.toml."""
        found = {"path": path, "key": self.key, "columns": self.names, "delimiter": delimiter}
        if self.decimal != ".":
            found["decimal"] = self.decimal
        if self.missing != "refuse":
            found["missing"] = self.missing
        found["where"] = self.where
        return {name: value for name, value in found.items() if value}

    def check(self, records: Records) -> None:
        """Every column that is named must be there."""
        for column in self.model.inputs:
            name = self.names.get(column, column)
            if name not in records.columns:
                near = quote(f"{column}={_near(name, records.columns)}")
                fix = f"name the one to use: --column {near}"
                raise _no_column(name, f"{self.model.name} needs it", records, fix)
        if self.key is not None and self.key not in records.columns:
            fix = f"name the one to use: --key {quote(_near(self.key, records.columns))}"
            raise _no_column(self.key, "--key", records, fix)

    def try_on(self, records: Records) -> DryRun:
        """Every record must be one that the model can use."""
        self.check(records)
        return try_records(self._source(records), records, self.model, self.names)

    def ranges(self, path: Path) -> dict[str, tuple[float, float]]:
        """The smallest and the largest number of each of the model's columns that has numbers."""
        records = Records(path)
        self.check(records)
        found = read_extremes(path, self._source(records), self.model, self.names)
        ranges = {
            name: range_
            for name, range_ in zip(self.model.columns, found, strict=bool(found))
            if not np.isnan(range_).all()
        }
        for name, range_ in ranges.items():
            if not np.isfinite(range_).all():
                raise self._not_finite(path, name)
        return ranges

    def left_out(self, path: Path) -> Missing:
        """The records with a missing value."""
        return read_missing(path, self._source(Records(path)), self.model, self.names)

    def rows(self, path: Path) -> Iterator[NDArray[np.float64]]:
        """The numbers of all records, in the model's columns, some at a time."""
        records = Records(path)
        self.check(records)
        for rows in read_batches(path, self._source(records), self.model, self.names):
            fine = np.isfinite(rows).all(axis=0)
            if not fine.all():
                raise self._not_finite(path, self.model.columns[int(np.argmin(fine))])
            yield rows

    def _not_finite(self, path: Path, name: str) -> DataError:
        return DataError(
            f"{path}: a value of column {self.names.get(name, name)!r} is not a finite "
            "number, so the column has no range. Fix: correct it, or give --scale "
            f"{name}=NUMBER"
        )

    def _source(self, records: Records) -> DataSource:
        return DataSource(
            path=records.path.name,
            key=self.key,
            delimiter=records.delimiter,
            decimal=self.decimal,
            missing=self.missing,
            where=self.where,
        )

    def fit(self, trials: Mapping[str, DryRun], whose: str, path: Path | None = None) -> None:
        """Raise unless the sum over all agents fits the grid and rounding does not move the
        posterior. `path` is the one file of all records, if there is one."""
        model, sums = self.model, [t.sums for t in trials.values() if t.sums is not None]
        if not sums or not isinstance(model, ConjugateModel):
            return
        total = weighted(model, sums[0].n, sums[0].units, sums[0].added)
        for one in sums[1:]:
            total = total.plus(weighted(model, one.n, one.units, one.added))
        problem = sum_problem(model, total.units, whose)
        if problem is None and (moved := rounding_problem(model, total)) is not None:
            problem = moved, "a scale for its columns (--scale auto proposes one)"
        if problem is None:
            return
        fix = problem[1]
        if path is not None and any(model.resolution):
            source = self._source(Records(path))
            fix = scale_for(path, source, model, self.names) + " (or --scale auto)"
        raise ConfigError(f"--data: {problem[0]}. Fix: {fix}")


@dataclass(frozen=True)
class Shares:
    """Each agent's [data] table and number of records (if known), and `fill`, which writes its
    file."""

    tables: dict[str, dict[str, Any]]
    counts: dict[str, int] = field(default_factory=dict)
    fill: Callable[[str, Path], None] | None = None
    repeated: int = 0  # records with the key of another


def shares(
    data: Path | None, agents: Sequence[str], columns: Columns, split: str, seed: int
) -> Shares:
    """The shares of a file (split among the agents), of a folder (one file per agent), or of no
    data yet."""
    how = _known_split(split)
    if data is None:
        return Shares(dict.fromkeys(agents, columns.table("data.csv")))
    if data.is_dir():
        return _own_files(data, agents, columns)
    if not data.exists():
        raise ConfigError(f"--data {data}: no such file. Fix: check the path")
    return _split(data, agents, columns, how, seed)


def _known_split(split: str) -> str:
    if split.replace("_", "-") not in SPLITS:
        raise ConfigError(f"--split {split}: no such split. Fix: choose from {', '.join(SPLITS)}")
    return split.replace("-", "_")


def _split(path: Path, agents: Sequence[str], columns: Columns, split: str, seed: int) -> Shares:
    records = Records(path)
    trial = columns.try_on(records)
    if columns.model.reduction == "sum":  # else it depends on who gets what
        columns.fit({"": trial}, f"all {trial.size} records", path)
    rows = _parts(records, agents, columns, split, seed)
    name = data_name(path)
    return Shares(
        dict.fromkeys(agents, columns.table(name, records.delimiter)),
        {agent: len(rows[agent]) for agent in agents},
        lambda agent, home: records.write(home / name, rows[agent]),
        trial.repeated,
    )


def _parts(
    records: Records, agents: Sequence[str], columns: Columns, split: str, seed: int
) -> Mapping[str, Any]:
    """The numbers of each agent's records in the file."""
    last = columns.model.inputs[-1]
    labels = _labels(records.column(columns.names.get(last, last)), columns.decimal)
    try:
        return partition(np.arange(records.size), list(agents), how=split, seed=seed, labels=labels)
    except DataError as error:
        raise ConfigError(f"--data {records.path}: {error}") from None


@contextmanager
def shard_rows(
    data: Path, agents: Sequence[str], columns: Columns, split: str, seed: int
) -> Iterator[dict[str, Callable[[], Iterator[NDArray[np.float64]]]]]:
    """Each agent's records, as it will read them: those of its file in a folder, or its part of one
    file."""
    with tempfile.TemporaryDirectory() as temporary:  # only this user can read it
        files: dict[str, Path] = {}
        if data.is_dir():
            files = {agent: _file_of(data, agent) for agent in agents}
        else:
            records = Records(data)
            columns.check(records)
            parts = _parts(records, agents, columns, _known_split(split), seed)
            for n, agent in enumerate(agents):
                files[agent] = Path(temporary) / str(n) / data_name(data)
                files[agent].parent.mkdir()
                records.write(files[agent], parts[agent])
        yield {agent: partial(columns.rows, path) for agent, path in files.items()}


def _labels(values: list[Any], decimal: str) -> Any:
    """The values as numbers if all are numbers, so that 10 follows 9; else as text."""
    try:
        if decimal != ".":
            values = [value.replace(decimal, ".") for value in values]
        return np.array([float(value) for value in values])
    except (AttributeError, TypeError, ValueError):
        words = [str(value) for value in values]
        return np.array(
            [word if (said := truth(word)) is None else str(int(said)) for word in words]
        )


def _own_files(folder: Path, agents: Sequence[str], columns: Columns) -> Shares:
    files: dict[str, Path] = {}
    tables, counts, trials = {}, {}, {}
    wrong: list[UnweaveError] = []
    for agent in agents:
        try:
            files[agent] = path = _file_of(folder, agent)
            records = Records(path)
            trials[agent] = columns.try_on(records)
            columns.fit({agent: trials[agent]}, f"the records of {path}", path)
        except UnweaveError as error:
            wrong.append(error)
            continue
        tables[agent] = columns.table(f"data{_ending(path, agent)}", records.delimiter)
        counts[agent] = records.size
    if wrong:
        raise _all_of(wrong)
    columns.fit(trials, f"all {len(agents)} agents")

    def fill(agent: str, home: Path) -> None:
        target = home / str(tables[agent]["path"])
        with files[agent].open("rb") as source, create_private(target) as copy:
            shutil.copyfileobj(source, copy)

    repeated = sum(trial.repeated for trial in trials.values())
    return Shares(tables, counts, fill, repeated)


def _all_of(wrong: list[UnweaveError]) -> UnweaveError:
    """One error for all bad files, so that they can be corrected together."""

    class Several(ConfigError):
        lines = property(lambda self: list(self.args))

        def __str__(self) -> str:
            return "\n".join(self.args)

    if len(wrong) == 1:
        return wrong[0]
    shown = [f"  {error}" for error in wrong[:_SHOWN]]
    if len(wrong) > _SHOWN:
        shown.append(f"  … and {len(wrong) - _SHOWN} more")
    return Several(f"--data: {len(wrong)} files cannot be used", *shown)


def _ending(path: Path, agent: str) -> str:
    return path.name[len(agent) :].lower()


def data_ranges(
    data: Path, agents: Sequence[str], columns: Columns
) -> dict[str, tuple[float, float]]:
    """The range of each of the model's columns over the file, or over the agents' files."""
    files = [_file_of(data, agent) for agent in agents] if data.is_dir() else [data]
    found: dict[str, tuple[float, float]] = {}
    for path in files:
        for name, (low, high) in columns.ranges(path).items():
            before = found.get(name, (low, high))
            found[name] = min(low, before[0]), max(high, before[1])
    if not found and (left_out := columns.left_out(files[0])).records:
        raise DataError(
            f"{files[0]}: no record is left for the range of a column: {left_out}. Fix: correct "
            "the data, or give --scale COLUMN=NUMBER for each column"
        )
    return found


def agents_of(folder: Path) -> list[str]:
    """The agents with a file in the folder: NAME.csv is the file of NAME."""
    names = []
    for path in _files(folder):
        try:
            format_of(path, "")
        except DataError:
            continue
        plain = path.with_suffix("") if path.suffix.lower() == ".gz" else path
        names.append(plain.stem)
    if not names:
        raise ConfigError(
            f"--data {folder}: no data file. Fix: add one for each agent (NAME.csv, or .tsv, "
            ".json, .ndjson, .parquet)"
        )
    return list(dict.fromkeys(names))


def _files(folder: Path) -> list[Path]:
    try:
        found = [path for path in folder.iterdir() if path.is_file() and path.name[0] != "."]
    except OSError as error:
        raise ConfigError(
            f"--data {folder}: cannot be read ({error.strerror or error}). "
            "Fix: allow this user to read it"
        ) from None
    return sorted(found)


def _file_of(folder: Path, agent: str) -> Path:
    """NAME.csv, or NAME with another ending that agents read."""
    found = []
    for path in _files(folder):
        ending = _ending(path, agent)
        if path.name.startswith(agent) and ending.startswith("."):
            try:
                format_of(Path(f"data{ending}"), agent)
            except DataError:
                continue
            found.append(path)
    if not found:
        raise ConfigError(
            f"--data {folder}: there is no file for agent {agent!r}. Fix: add {agent}.csv (or "
            ".tsv, .json, .ndjson, .parquet), or leave --agents out to take the names of the files"
        )
    if len(found) > 1:
        names = ", ".join(path.name for path in found)
        raise ConfigError(f"--data {folder}: {names} are all for agent {agent!r}. Fix: keep one")
    return found[0]


def _near(name: str, columns: Sequence[str]) -> str:
    return same_name(name, columns) or "NAME"


def _no_column(name: str, why: str, records: Records, fix: str) -> Exception:
    found = records.described(name)
    return ConfigError(f"{records.path}: there is no column {name!r} ({why}); {found}. Fix: {fix}")
