"""The history of a network, one row per iteration: a tidy table without a data-frame library."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from unweave.errors import DomainError, MissingExtra
from unweave.grid import Ints
from unweave.models import Model
from unweave.models.fitted.posterior import Posterior

__all__ = ["History", "Step"]


class Step(NamedTuple):
    """One iteration: the scheduled agent, its action, and the token after it."""

    iteration: int
    epoch: int
    agent: str
    action: str  # "learn", "update", "forget" or "pass"
    included: int  # number of agents in the token
    units: Ints


class History(Sequence[Step]):
    """The steps so far. `columns()`, `to_csv` and `to_pandas` add the posterior's marginals."""

    def __init__(self, model: Model, read: Callable[[Ints], Posterior] | None = None) -> None:
        self._model = model
        self._read = model.posterior if read is None else read
        self._steps: list[Step] = []

    def append(self, step: Step) -> None:
        self._steps.append(step)

    def __len__(self) -> int:
        return len(self._steps)

    def __getitem__(self, index: Any) -> Any:
        return self._steps[index]

    def __iter__(self) -> Iterator[Step]:
        return iter(self._steps)

    def columns(self) -> dict[str, list[Any]]:
        """iteration, epoch, agent, action, included, digest, and mean and sd of each marginal.

        A token whose sum is not a proper posterior yet has None there.
        """
        table: dict[str, list[Any]] = {
            name: [] for name in ("iteration", "epoch", "agent", "action", "included", "digest")
        }
        names = self._model.quantities
        for name in names:
            table[f"{name}_mean"], table[f"{name}_sd"] = [], []
        for step in self._steps:
            for key, value in zip(table, step[:5], strict=False):
                table[key].append(value)
            found = self._posterior(step.units)
            proper = found is not None
            marginals = () if found is None else found.marginals
            table["digest"].append(None if found is None else found.digest)
            for i, name in enumerate(names):
                table[f"{name}_mean"].append(float(marginals[i].mean()) if proper else None)
                table[f"{name}_sd"].append(float(marginals[i].sd()) if proper else None)
        return table

    def _posterior(self, units: Ints) -> Posterior | None:
        try:
            return self._read(units)
        except DomainError:
            return None

    def to_csv(self, path: str | Path) -> Path:
        table = self.columns()
        target = Path(path)
        with target.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(table)
            writer.writerows(zip(*table.values(), strict=True))
        return target

    def to_pandas(self) -> Any:
        try:
            import pandas
        except ImportError:
            raise MissingExtra("pandas", "pandas", "History.to_pandas") from None
        return pandas.DataFrame(self.columns())

    def __repr__(self) -> str:
        if not self._steps:
            return "History(nothing has happened yet)"
        last = self._steps[-1]
        return (
            f"History({len(self)} iterations; the last: {last.action} at {last.agent}, "
            f"{last.included} agents included)"
        )
