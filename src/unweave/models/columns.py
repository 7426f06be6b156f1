"""The columns of a model's data: the expected values, and the problem of an invalid value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from unweave.errors import ConfigError
from unweave.text import listed

__all__ = [
    "Column",
    "binary",
    "cell_text",
    "check_levels",
    "check_size",
    "column_names",
    "count",
    "events",
    "feature_columns",
    "label",
    "labels",
    "nonnegative",
    "positive",
    "real",
    "same_name",
    "truth",
    "unseen",
]

# float64 represents every whole number up to this limit.
_WHOLE_LIMIT = 2.0**53

_MOST_COMPONENTS = 1 << 21


@dataclass(frozen=True)
class Column:
    """One column: its name, its expected values in words, and their bounds.

    A column with `codes` is read from texts: each known text (a level) has a number, and other
    texts are invalid. Several columns may be coded from one column of the data, `source`.
    """

    name: str
    expects: str = "a finite number"
    low: float = -np.inf
    high: float = np.inf
    whole: bool = False
    strict: bool = False  # exclude the lower bound
    truth: bool = False  # read true as 1 and false as 0
    codes: tuple[tuple[str, float], ...] = ()
    source: str = ""  # the name in the data; empty: `name`

    def __post_init__(self) -> None:
        if self.two_valued and not self.codes:  # of every model, whatever its column means
            object.__setattr__(self, "truth", True)

    @property
    def given(self) -> str:
        """The name of the column in the data, before an owner renames it."""
        return self.source or self.name

    @property
    def two_valued(self) -> bool:
        """Whether the values are 0 and 1."""
        return self.whole and (self.low, self.high) == (0.0, 1.0)

    def bad(self, values: NDArray[np.float64]) -> NDArray[np.bool_]:
        """The invalid rows."""
        below = values <= self.low if self.strict else values < self.low
        good: NDArray[np.bool_] = np.isfinite(values) & ~below & (values <= self.high)
        if self.whole:
            good &= values == np.rint(values)
        return ~good

    def why(self, value: float) -> str:
        """The cause of an invalid value, without the value."""
        if np.isnan(value):
            return "is missing (NaN)"
        if np.isinf(value):
            return "is infinite"
        if self.whole and value != np.rint(value):
            return "is not a whole number"
        if value < self.low or (self.strict and value == self.low):
            return f"is {'not above' if self.strict else 'below'} {self.low:g}"
        return f"is above {self.high:.0f}"

    def problem(self, values: NDArray[np.float64]) -> tuple[int, str] | None:
        """The first invalid row and the cause, or None. The cause never quotes a value."""
        bad = self.bad(values)
        if not bad.any():
            return None
        row = int(np.argmax(bad))
        return row, self.why(float(values[row]))


def truth(text: str) -> float | None:
    """1 for the text true, 0 for false, in upper or lower case; None for other texts."""
    return {"true": 1.0, "false": 0.0}.get(text.strip(" ").lower())


def cell_text(value: object) -> str | None:
    """The text of a cell, to compare with levels: the number 3 (also 3.0) has the text of the level
    "3", and true that of "true". None for a missing value."""
    if value is None or value != value or type(value).__name__ in ("NAType", "NaTType"):
        return None
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value) or None


def check_levels(model: str, setting: str, levels: Sequence[str]) -> None:
    """Refuse levels that no record could be told apart by."""
    if len(levels) < 2:
        raise ConfigError(f"{model}: {setting} has {len(levels)} level. Fix: give at least 2")
    if len(set(levels)) != len(levels):
        twice = next(level for k, level in enumerate(levels) if level in levels[:k])
        raise ConfigError(f"{model}: {setting} has {twice!r} twice. Fix: name each level once")


def check_size(model: str, setting: str, columns: int | Sequence[str], squares: bool) -> None:
    """Refuse a number of columns or classes whose natural parameters would not fit the memory; with
    `squares`, every pair of columns has one."""
    count = columns if isinstance(columns, int) else len(columns)
    components = count * (count + 1) // 2 if squares else count
    if components > _MOST_COMPONENTS:
        raise ConfigError(
            f"{model}: {setting} = {count}: {components} natural parameters, more than the "
            f"{_MOST_COMPONENTS} that fit. Fix: choose fewer"
        )


def column_names(given: int | Sequence[str]) -> tuple[str, ...]:
    """Names as given, or x1, x2, … for a number of columns."""
    return tuple(f"x{j + 1}" for j in range(given)) if isinstance(given, int) else tuple(given)


def same_name(wanted: str, found: Iterable[str]) -> str | None:
    """The name that differs from `wanted` in case, spaces or punctuation only."""

    def plain(name: str) -> str:
        return "".join(c for c in name.casefold() if c.isalnum())

    return next((name for name in found if plain(name) == plain(wanted)), None)


def unseen(wanted: str, found: Sequence[str]) -> str:
    """What an error says of the names in a file that lacks the column `wanted`. It shows none of
    them, unless it is nearly `wanted`: the first line of a file without a header is a record, and
    the keys of a JSON object may be the names of people."""
    near = same_name(wanted, found)
    if near is not None:
        return f"it has {near!r}"
    number = f"{len(found)} column{'s' * (len(found) != 1)}"
    return f"the names of its {number} are not shown: without a header they are a record"


def real(name: str) -> Column:
    return Column(name)


def positive(name: str) -> Column:
    return Column(name, "a finite number above 0", low=0.0, strict=True)


def nonnegative(name: str) -> Column:
    return Column(name, "a finite number, at least 0", low=0.0)


def count(name: str, low: int = 0, high: float = _WHOLE_LIMIT) -> Column:
    top = "" if high == _WHOLE_LIMIT else f" and at most {high:.0f}"
    return Column(name, f"a whole number, at least {low}{top}", low=low, high=high, whole=True)


def events(name: str) -> Column:
    """A number of events; one event may also be true, and none false."""
    return replace(count(name), truth=True)


def binary(name: str) -> Column:
    return Column(name, "0 or 1, false or true", low=0.0, high=1.0, whole=True)


def labels(name: str, levels: Sequence[str]) -> Column:
    """A column of texts; its values are their positions in `levels`."""
    codes = tuple((level, float(k)) for k, level in enumerate(levels))
    return Column(
        name, _one_of(levels), low=0.0, high=float(len(levels) - 1), whole=True, codes=codes
    )


def feature_columns(
    model: str, features: int | Sequence[str], levels: Mapping[str, Sequence[str]] | None
) -> tuple[Column, ...]:
    """The columns of a regression's features: numbers, and dummy columns for those with levels."""
    names, levels = column_names(features), levels or {}
    for name, known in levels.items():
        if name not in names:
            raise ConfigError(
                f"{model}: levels names {name!r}, which is no feature. Fix: choose from "
                f"{', '.join(names)}"
            )
        check_levels(model, f"levels of {name!r}", known)
    return tuple(
        column
        for name in names
        for column in (_dummies(name, levels[name]) if name in levels else (real(name),))
    )


def _dummies(name: str, levels: Sequence[str]) -> tuple[Column, ...]:
    """A column of texts as columns of 0 and 1, one for each level but the first (the reference)."""
    return tuple(
        Column(
            f"{name}[{chosen}]",
            _one_of(levels),
            low=0.0,
            high=1.0,
            whole=True,
            codes=tuple((level, float(level == chosen)) for level in levels),
            source=name,
        )
        for chosen in levels[1:]
    )


def _one_of(levels: Sequence[str]) -> str:
    return f"one of {listed([repr(level) for level in levels], 12)}"


def label(name: str, classes: int) -> Column:
    return Column(
        name, f"a class from 0 to {classes - 1}", low=0.0, high=float(classes - 1), whole=True
    )
