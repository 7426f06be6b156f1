"""Grid statistics as SQL: the engine's sums are bit for bit those of `ConjugateModel.statistics`.

The records are numeric columns c0, c1, …, NULL where a cell is not a number. Casting a DOUBLE
to BIGINT rounds half to even, as `numpy.rint` does, and the sum of BIGINTs is an exact integer of
128 bits. TRY_CAST gives NULL for NaN, infinity and overflow, and COUNT shows these NULLs.

The statistics of a model without a form are summed in batches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

import numpy as np

from unweave.models import (
    BetaBernoulli,
    BetaBinomial,
    BetaGeometric,
    BetaNegativeBinomial,
    DirichletCategorical,
    DirichletMultinomial,
    GammaEvents,
    GammaExponential,
    GammaPoisson,
    Model,
    NormalKnownVariance,
    NormalUnknown,
)
from unweave.node.data.reader import Sums

__all__ = ["Form", "double", "form"]


# More classes are counted in batches, because each class needs an aggregate.
_MOST_CLASSES = 64


@dataclass(frozen=True)
class Form:
    """SELECT COUNT(*), COUNT(`whole`)…, `checks`…, `sums`…, `rounding`… FROM (SELECT `columns`…
    FROM records).

    All records are valid if no value of `whole` is NULL and every check is in its range. Then
    `units` computes the sums in grid units from the number of records and the engine's sums, and
    `added` computes their rounding error from the aggregates `rounding`. Range checks use MIN and
    MAX, which cost less than a condition on every record.
    """

    columns: tuple[str, ...]
    whole: tuple[str, ...]
    checks: tuple[tuple[str, float, float], ...]  # aggregate, lowest, highest
    sums: tuple[str, ...]
    units: Callable[[int, Sequence[int]], list[int]]
    rounding: tuple[str, ...] = ()
    added: Callable[[Sequence[float]], list[float]] | None = None

    def query(self, records: str) -> str:
        counts = [f"COUNT({column})" for column in self.whole]
        checks = [check[0] for check in self.checks]
        chosen = ["COUNT(*)", *counts, *checks, *self.sums, *self.rounding]
        return f"SELECT {', '.join(chosen)} FROM (SELECT {', '.join(self.columns)} FROM {records})"

    def read(self, row: Sequence[Any]) -> Sums | None:
        """The sums from the row of the query's result; None if a record is invalid."""
        n, a = row[0], 1 + len(self.whole)
        b = a + len(self.checks)
        c = b + len(self.sums)
        if any(count != n for count in row[1:a]):
            return None
        for value, (_, low, high) in zip(row[a:b], self.checks, strict=True):
            if value is not None and not low <= value <= high:  # NULL without records
                return None
        units = self.units(n, [int(s or 0) for s in row[b:c]])
        added = (
            [0.0] * len(units) if self.added is None else self.added([s or 0.0 for s in row[c:]])
        )
        return Sums(n, units, np.array(added))


def double(value: float) -> str:
    """A DOUBLE literal of exactly this value; a literal with an exponent is never DECIMAL."""
    return f"CAST({value:.17e} AS DOUBLE)"


def form(model: Model) -> Form | None:
    """The model's statistics as SQL, or None. A subclass has no form: its sums may differ."""
    make = _form.registry.get(type(model))
    return None if make is None else make(model)


@singledispatch
def _form(model: Model) -> Form | None:
    return None


def _counts(
    model: Model,
    units: Callable[[int, Sequence[int]], list[int]],
    *,
    rule: str | None = None,
    sums: tuple[str, ...] | None = None,
) -> Form:
    """Whole numbers within the bounds of their columns; by default the sum of each column."""
    columns, checks = [], []
    schema = model.schema
    for j, column in enumerate(schema):
        columns += [f"c{j}", f"TRY_CAST(c{j} AS BIGINT) AS z{j}"]
        # A sum of distances is 0 only if every distance is 0, so all values are whole numbers.
        checks.append((f"SUM(abs(c{j} - z{j}))", 0.0, 0.0))
        checks += [(f"MIN(z{j})", column.low, np.inf), (f"MAX(z{j})", -np.inf, column.high)]
    if rule is not None:
        checks.append((f"bool_and({rule})", 1, 1))
    return Form(
        tuple(columns),
        tuple(f"z{j}" for j in range(len(schema))),
        tuple(checks),
        sums or tuple(f"SUM(z{j})" for j in range(len(schema))),
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
    return _counts(model, lambda n, s: _shifted(model, (s[0], s[1] - s[0])), rule="c0 <= c1")


@_form.register
def _(model: BetaGeometric) -> Form:
    return _counts(model, lambda n, s: _shifted(model, (n, s[0] - n)))


@_form.register
def _(model: BetaNegativeBinomial) -> Form:
    return _counts(model, lambda n, s: _shifted(model, (model.successes * n, s[0])))


@_form.register
def _(model: DirichletCategorical) -> Form | None:
    if model.size > _MOST_CLASSES:
        return None
    each = tuple(f"COUNT(*) FILTER (WHERE z0 = {k})" for k in range(model.size))
    return _counts(model, lambda n, s: _shifted(model, s), sums=each)


@_form.register
def _(model: DirichletMultinomial) -> Form:
    some = " OR ".join(f"c{j} > 0" for j in range(model.size))
    return _counts(model, lambda n, s: _shifted(model, s), rule=some)


@_form.register
def _(model: GammaPoisson) -> Form:
    return _counts(model, lambda n, s: _shifted(model, (s[0], n)))


@_form.register
def _(model: GammaExponential) -> Form:
    bits = model.grid.bits
    return Form(
        ("c0", *_rounded(model, "BIGINT")),
        ("z0",),
        (("MIN(c0)", 0.0, np.inf),),
        ("SUM(z0)",),
        lambda n, s: [n << bits[0], int(s[0])],
        ("SUM(z0 - u0)",),
        lambda added: [0.0, added[0] / model.multiplier],
    )


@_form.register
def _(model: GammaEvents) -> Form:
    bits = model.grid.bits
    most = 2.0 ** (63 - bits[1])  # as `Scaled.whole` limits both columns
    return Form(
        ("c0", "TRY_CAST(c0 AS BIGINT) AS n0", "c1", *_rounded(model, "BIGINT", 1)),
        ("n0", "z1"),
        (
            ("SUM(abs(c0 - n0))", 0.0, 0.0),
            ("MIN(n0)", 0.0, np.inf),
            ("MAX(n0)", -np.inf, min(2.0**53, np.nextafter(most, 0.0))),
            ("MIN(c1)", 0.0, np.inf),
        ),
        ("SUM(n0)", "SUM(z1)"),
        lambda n, s: [int(s[0]) << bits[0], int(s[1])],
        ("SUM(z1 - u1)",),
        lambda added: [0.0, added[0] / model.multiplier],
    )


@_form.register
def _(model: NormalKnownVariance) -> Form:
    w = model.sums(model.centers[None])[1]  # a record adds (w·z, w)
    return Form(
        _rounded(model, "BIGINT"),
        ("z0",),
        (("MIN(z0)", -(2**63 - 1), np.inf),),
        ("SUM(z0)",),
        lambda n, s: [int(s[0]), n * w],
        ("SUM(z0 - u0)",),
        lambda added: [added[0] * 2.0 ** -model.grid.bits[0], 0.0],
    )


@_form.register
def _(model: NormalUnknown) -> Form:
    p = model.feature_bits
    shifts = [q - 2 * p for q in model.grid.bits]

    def units(n: int, s: Sequence[int]) -> list[int]:
        parts = (int(s[0]) << p, n << (2 * p), int(s[1]), n << (2 * p))
        return [v << k for v, k in zip(parts, shifts, strict=True)]

    # 32 bits hold exactly the features that the model accepts, and −2^31, which the check refuses.
    return Form(
        _rounded(model, "INTEGER"),
        ("z0",),
        (("MIN(z0)", -(2**31 - 1), np.inf),),
        ("SUM(z0)", "SUM(CAST(z0 AS BIGINT) * z0)"),
        units,
        ("SUM(z0 - u0)", "SUM((z0 - u0) * (z0 + u0))"),
        lambda added: [added[0] * 2.0**-p, 0.0, added[1] * 4.0**-p, 0.0],
    )


def _rounded(
    model: GammaEvents | GammaExponential | NormalKnownVariance | NormalUnknown,
    kind: str,
    j: int = 0,
) -> tuple[str, str]:
    """z·multiplier of column j, and the same rounded: the operations of `Scaled.whole`."""
    z = f"CAST(c{j} AS DOUBLE)"
    if model.center is not None or model.scale is not None:
        z = f"(({z} - {double(model.centers[j])}) / {double(model.scales[j])})"
    exact = f"{z} * {double(model.multiplier)}"
    return f"{exact} AS u{j}", f"TRY_CAST({exact} AS {kind}) AS z{j}"
