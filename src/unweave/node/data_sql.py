"""Grid statistics as SQL: the engine's own sums, bit for bit those of `ConjugateModel.statistics`.

The records are columns c0, c1, … of type DOUBLE, NULL where a cell is no number. Casting a DOUBLE
to BIGINT rounds half to even, as `numpy.rint` does, and the sum of BIGINTs is an exact integer of
128 bits. TRY_CAST gives NULL for NaN, infinity and overflow, which COUNT then shows.

A model without a form here is summed in batches instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import singledispatch

import numpy as np

from unweave.models import (
    BetaBernoulli,
    BetaBinomial,
    BetaGeometric,
    BetaNegativeBinomial,
    DirichletCategorical,
    DirichletMultinomial,
    GammaExponential,
    GammaPoisson,
    Model,
    NormalKnownVariance,
    NormalUnknown,
)
from unweave.models.columns import Column

__all__ = ["Form", "double", "form"]

# More classes than this are counted in batches: each would be an aggregate of its own.
_MOST_CLASSES = 64


@dataclass(frozen=True)
class Form:
    """SELECT COUNT(*), `valid`, `sums`… FROM (SELECT `columns`… FROM records).

    All records are sound when `valid` counts as many as COUNT(*) does; `units` makes the grid's
    sums of the number of records and the engine's sums.
    """

    columns: tuple[str, ...]
    valid: str
    sums: tuple[str, ...]
    units: Callable[[int, Sequence[int]], list[int]]

    def query(self, records: str) -> str:
        chosen = ", ".join(("COUNT(*)", self.valid, *self.sums))
        return f"SELECT {chosen} FROM (SELECT {', '.join(self.columns)} FROM {records})"


def double(value: float) -> str:
    """A DOUBLE literal with exactly this value: with an exponent, it is never read as DECIMAL."""
    return f"CAST({value:.17e} AS DOUBLE)"


def form(model: Model) -> Form | None:
    """The model's statistics as SQL, or None. A subclass may count differently: it has no form."""
    make = _form.registry.get(type(model))
    return None if make is None else make(model)


@singledispatch
def _form(model: Model) -> Form | None:
    return None


def _sound(column: Column, c: str) -> str:
    """What `Column.problem` checks. NaN is the largest DOUBLE to the engine, and equals itself."""
    rules = [f"isfinite({c})"]
    if column.low > -np.inf:
        rules.append(f"{c} {'>' if column.strict else '>='} {double(column.low)}")
    if column.high < np.inf:
        rules.append(f"{c} <= {double(column.high)}")
    if column.whole:
        rules.append(f"{c} = trunc({c})")
    return " AND ".join(rules)


def _counts(
    model: Model, units: Callable[[int, Sequence[int]], list[int]], rule: str | None = None
) -> Form:
    """Sums of whole numbers, one for each column."""
    cells = range(len(model.schema))
    whole = tuple(f"TRY_CAST(c{j} AS BIGINT) AS z{j}" for j in cells)
    rules = [_sound(column, f"c{j}") for j, column in enumerate(model.schema)]
    valid = " AND ".join([*rules, *([rule] if rule else [])])
    return Form(
        tuple(f"c{j}" for j in cells) + whole,
        f"COUNT(*) FILTER (WHERE {valid})",
        tuple(f"SUM(z{j})" for j in cells),
        units,
    )


def _shifted(model: Model, values: Sequence[int]) -> list[int]:
    return [int(v) << q for v, q in zip(values, model.grid.bits, strict=True)]


@_form.register
def _(model: BetaBernoulli) -> Form:
    return _counts(model, lambda n, s: _shifted(model, (s[0], n - s[0])))


@_form.register
def _(model: BetaBinomial) -> Form:
    trials = model.trials
    if trials is not None:
        return _counts(model, lambda n, s: _shifted(model, (s[0], n * trials - s[0])))
    return _counts(model, lambda n, s: _shifted(model, (s[0], s[1] - s[0])), "c0 <= c1")


@_form.register
def _(model: BetaGeometric) -> Form:
    return _counts(model, lambda n, s: _shifted(model, (n, s[0] - n)))


@_form.register
def _(model: BetaNegativeBinomial) -> Form:
    return _counts(model, lambda n, s: _shifted(model, (model.successes * n, s[0])))


@_form.register
def _(model: DirichletCategorical) -> Form | None:
    if model.classes > _MOST_CLASSES:
        return None
    (column,) = model.schema
    classes = range(model.classes)
    return Form(
        ("c0",),
        f"COUNT(*) FILTER (WHERE {_sound(column, 'c0')})",
        tuple(f"COUNT(*) FILTER (WHERE c0 = {double(k)})" for k in classes),
        lambda n, s: _shifted(model, s),
    )


@_form.register
def _(model: DirichletMultinomial) -> Form:
    some = " OR ".join(f"c{j} > 0" for j in range(model.classes))
    return _counts(model, lambda n, s: _shifted(model, s), f"({some})")


@_form.register
def _(model: GammaPoisson) -> Form:
    return _counts(model, lambda n, s: _shifted(model, (s[0], n)))


@_form.register
def _(model: GammaExponential) -> Form:
    bits = model.grid.bits
    return Form(
        ("c0", f"TRY_CAST(c0 * {double(2.0 ** bits[1])} AS BIGINT) AS z0"),
        f"COUNT(z0) FILTER (WHERE c0 >= {double(0.0)})",
        ("SUM(z0)",),
        lambda n, s: [n << bits[0], int(s[0])],
    )


@_form.register
def _(model: NormalKnownVariance) -> Form:
    # round(w·x)·2^q = round(x·(w·2^q)): scaling by a power of two is exact.
    _, w = model.sums(np.zeros((1, 1)))  # a record adds (w·x, w)
    scale = float(np.ldexp(float(w) * 2.0 ** -model.grid.bits[1], model.grid.bits[0]))
    return Form(
        (f"TRY_CAST(c0 * {double(scale)} AS BIGINT) AS z0",),
        f"COUNT(*) FILTER (WHERE z0 >= {-(2**63 - 1)})",
        ("SUM(z0)",),
        lambda n, s: [int(s[0]), n * w],
    )


@_form.register
def _(model: NormalUnknown) -> Form:
    p = model.feature_bits
    shifts = [q - 2 * p for q in model.grid.bits]

    def units(n: int, s: Sequence[int]) -> list[int]:
        parts = (int(s[0]) << p, n << (2 * p), int(s[1]), n << (2 * p))
        return [v << k for v, k in zip(parts, shifts, strict=True)]

    # 32 bits hold exactly the features that the model takes, but for the smallest number.
    return Form(
        (f"CAST(TRY_CAST(c0 * {double(2.0**p)} AS INTEGER) AS BIGINT) AS z0",),
        f"COUNT(*) FILTER (WHERE z0 > {-(2**31)})",
        ("SUM(z0)", "SUM(z0 * z0)"),
        units,
    )
