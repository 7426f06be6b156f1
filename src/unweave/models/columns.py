"""The columns of a model's data: the expected values, and the problem of an invalid value."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unweave.errors import ConfigError

__all__ = [
    "Column",
    "binary",
    "check_size",
    "column_names",
    "count",
    "label",
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
    """One column: its name, its expected values in words, and their bounds."""

    name: str
    expects: str = "a finite number"
    low: float = -np.inf
    high: float = np.inf
    whole: bool = False
    strict: bool = False  # exclude the lower bound

    @property
    def binary(self) -> bool:
        """Whether the values are 0 and 1; then true is read as 1 and false as 0."""
        return self.whole and (self.low, self.high) == (0.0, 1.0)

    def problem(self, values: NDArray[np.float64]) -> tuple[int, str] | None:
        """The first invalid row and the cause, or None. The cause never quotes a value."""
        # Valid data needs only these passes; the rest finds the cause.
        below = values <= self.low if self.strict else values < self.low
        good = np.isfinite(values) & ~below & (values <= self.high)
        if self.whole:
            good &= values == np.rint(values)
        if good.all():
            return None
        row = int(np.argmin(good))
        value = values[row]
        if np.isnan(value):
            return row, "is missing (NaN)"
        if np.isinf(value):
            return row, "is infinite"
        if self.whole and value != np.rint(value):
            return row, "is not a whole number"
        if below[row]:
            return row, f"is {'not above' if self.strict else 'below'} {self.low:g}"
        return row, f"is above {self.high:.0f}"


def truth(text: str) -> float | None:
    """1 for the text true, 0 for false, in upper or lower case; None for other texts."""
    return {"true": 1.0, "false": 0.0}.get(text.strip(" ").lower())


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


def binary(name: str) -> Column:
    return Column(name, "0 or 1, false or true", low=0.0, high=1.0, whole=True)


def label(name: str, classes: int) -> Column:
    return Column(
        name, f"a class from 0 to {classes - 1}", low=0.0, high=float(classes - 1), whole=True
    )
