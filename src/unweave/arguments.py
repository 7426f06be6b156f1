"""Checks of a user's arguments: each returns a value of the right type, or raises ConfigError.

NumPy scalars count as Python numbers. Text and truth values are not numbers, and floats are not
whole numbers.
"""

from __future__ import annotations

import operator
from numbers import Real
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from unweave.errors import ConfigError

__all__ = [
    "floats",
    "generator",
    "is_whole",
    "levels",
    "number",
    "seed_number",
    "share",
    "shown",
    "whole_number",
]


def is_whole(value: Any) -> TypeGuard[int]:
    """Whether `value` is an integer of Python or NumPy; True and False are not."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def whole_number(value: Any, what: str, least: int | None = None) -> int:
    """`value` as an int, at least `least`."""
    expected = "a whole number" + ("" if least is None else f", at least {least}")
    if not is_whole(value):
        raise _wrong(what, shown(value), expected)
    found = operator.index(value)
    if least is not None and found < least:
        raise _wrong(what, str(found), expected)
    return found


def number(value: Any, what: str, *, least: float | None = None) -> float:
    """`value` as a finite float, at least `least`."""
    expected = "a finite number" + ("" if least is None else f", at least {least:g}")
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value.item()
    if isinstance(value, bool | np.bool_) or not isinstance(value, Real):
        raise _wrong(what, shown(value), expected)
    try:
        found = float(value)
    except OverflowError:
        found = np.inf
    if not np.isfinite(found) or (least is not None and found < least):
        raise _wrong(what, f"{found:g}", expected)
    return found


def share(p: Any, what: str) -> float:
    """A probability strictly between 0 and 1."""
    found = number(p, what)
    if not 0.0 < found < 1.0:
        raise _wrong(what, f"{found:g}", "a number between 0 and 1")
    return found


def floats(value: Any, what: str) -> NDArray[np.float64]:
    """An array of numbers."""
    try:
        return np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise _wrong(what, shown(value), "numbers") from None


def levels(p: Any) -> NDArray[np.float64]:
    """Levels of quantiles, from 0 to 1."""
    found = floats(p, "quantile: p")
    if not ((found >= 0.0) & (found <= 1.0)).all():
        raise ConfigError("quantile: p: a level is outside [0, 1]. Fix: give levels from 0 to 1")
    return found


def generator(n: Any, seed: Any) -> np.random.Generator:
    """NumPy's generator for n draws, both arguments checked."""
    whole_number(n, "the number of draws", 0)
    return np.random.default_rng(whole_number(seed, "seed", 0))


def seed_number(value: Any) -> int:
    """A seed: any whole number."""
    if not is_whole(value):
        raise _wrong("seed", shown(value), "a whole number, which makes the run repeatable")
    return operator.index(value)


def _wrong(what: str, value: str, expected: str) -> ConfigError:
    return ConfigError(f"{what} = {value} cannot be used. Fix: give {expected}")


def shown(value: Any) -> str:
    """A value in the form for error messages: short, and only the type of large values."""
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if value is None or isinstance(value, str | bool | int | float | np.generic):
        text = repr(value.item() if isinstance(value, np.generic) else value)
        return text if len(text) <= 40 else f"{text[:37]}…"
    return f"a {type(value).__name__}"
