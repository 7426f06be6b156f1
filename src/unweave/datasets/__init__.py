"""Small real data sets in the package; `README.md` in this folder names sources and licences.

>>> columns = load("breast_cancer")
>>> len(columns["id"]), int(columns["diagnosis"].sum())
(569, 212)
"""

from __future__ import annotations

import csv
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unweave.errors import ConfigError

__all__ = ["load", "names"]

_WHOLE = ("id", "diagnosis")  # columns of whole numbers; all others are measurements


def names() -> tuple[str, ...]:
    """The data sets that `load` knows."""
    found = (path.name for path in files(__name__).iterdir())
    return tuple(sorted(name.removesuffix(".csv") for name in found if name.endswith(".csv")))


def load(name: str) -> dict[str, NDArray[Any]]:
    """The columns of a data set by name, in the order of its file."""
    if name not in names():
        raise ConfigError(f"unknown data set {name!r}. Fix: choose from {', '.join(names())}")
    text = files(__name__).joinpath(f"{name}.csv").read_text(encoding="utf-8")
    header, *rows = csv.reader(text.splitlines())
    return {
        column: np.array(cells, dtype=np.int64 if column in _WHOLE else np.float64)
        for column, cells in zip(header, zip(*rows, strict=True), strict=True)
    }
