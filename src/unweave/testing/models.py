"""The laws of conjugate models, and one table of cases to test them on.

A new model adds one `Case` and inherits every law. Each law raises AssertionError.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unweave.models import (
    BetaBernoulli,
    BetaBinomial,
    BetaExponentialAtoms,
    BetaGeometric,
    BetaNegativeBinomial,
    ConjugateModel,
    DirichletCategorical,
    DirichletMultinomial,
    GammaEvents,
    GammaExponential,
    GammaPoisson,
    Grouped,
    LinearRegression,
    LinearRegressionUnknownNoise,
    Model,
    MultivariateNormalModel,
    NormalKnownVariance,
    NormalUnknown,
    by_name,
)

__all__ = [
    "CASES",
    "Case",
    "dropped_records_leave_no_trace",
    "order_and_chunks_do_not_matter",
    "parts_sum_to_the_whole",
    "settings_round_trip",
    "weight_is_applied_once",
]

Floats = NDArray[np.float64]
Draw = Callable[[np.random.Generator, int], Floats]


@dataclass(frozen=True)
class Case:
    """A model and how to draw n records [n, C] that it accepts."""

    model: ConjugateModel
    draw: Draw

    @property
    def id(self) -> str:
        return self.model.name

    def rows(self, n: int, seed: int) -> Floats:
        return self.model.shard(self.draw(np.random.default_rng(seed), n)).rows


def _binomial(rng: np.random.Generator, n: int) -> Floats:
    trials = rng.integers(1, 20, n)
    return np.stack([rng.binomial(trials, 0.3), trials], axis=1).astype(np.float64)


def _censored(rng: np.random.Generator, n: int) -> Floats:
    """Durations that end at 1 if no event came before."""
    times = rng.exponential(0.7, n)
    return np.column_stack([times <= 1.0, np.minimum(times, 1.0)]).astype(np.float64)


def _linear(rng: np.random.Generator, n: int) -> Floats:
    x = rng.standard_normal((n, 3))
    y = x @ [1.5, -2.0, 0.25] + 0.7 + 0.5 * rng.standard_normal(n)
    return np.column_stack([x, y])


def _plane(rng: np.random.Generator, n: int) -> Floats:
    mix = np.array([[1.0, 0.4, 0.0], [0.0, 0.8, -0.3], [0.0, 0.0, 1.3]])
    points: Floats = rng.standard_normal((n, 3)) @ mix + np.array([0.5, -1.0, 2.0])
    return points


CASES: tuple[Case, ...] = (
    Case(BetaBernoulli(a=2, b=2), lambda rng, n: rng.integers(0, 2, (n, 1)).astype(np.float64)),
    Case(BetaBinomial(a=1.5, b=0.5), _binomial),
    Case(BetaExponentialAtoms(atoms=64, least=1), lambda rng, n: rng.exponential(0.4, (n, 1))),
    Case(BetaGeometric(), lambda rng, n: rng.geometric(0.2, (n, 1)).astype(np.float64)),
    Case(
        BetaNegativeBinomial(successes=3),
        lambda rng, n: rng.negative_binomial(3, 0.4, (n, 1)).astype(np.float64),
    ),
    Case(
        DirichletCategorical(classes=4, concentration=0.5),
        lambda rng, n: rng.integers(0, 4, (n, 1)).astype(np.float64),
    ),
    Case(
        DirichletMultinomial(classes=3, concentration=(1, 2, 3)),
        lambda rng, n: rng.multinomial(7, [0.2, 0.3, 0.5], n).astype(np.float64),
    ),
    Case(GammaPoisson(a=2, b=0.1), lambda rng, n: rng.poisson(4.5, (n, 1)).astype(np.float64)),
    Case(GammaExponential(a=2, b=3), lambda rng, n: rng.exponential(0.7, (n, 1))),
    Case(GammaEvents(a=2, b=3), _censored),
    Case(
        # The texts of these levels are their positions, so that checked rows can be read again.
        Grouped(["0", "1", "2"], by="ward", each=BetaBinomial(a=1.5, b=0.5)),
        lambda rng, n: np.column_stack([rng.integers(0, 3, n), _binomial(rng, n)]),
    ),
    Case(
        NormalKnownVariance(noise=1.7, mean=0.3, sd=10),
        lambda rng, n: rng.normal(2.0, 1.7, (n, 1)),
    ),
    Case(
        NormalUnknown(mean=0.3, kappa=0.1, a=1.5, b=0.7),
        lambda rng, n: rng.normal(2.0, 1.7, (n, 1)),
    ),
    Case(MultivariateNormalModel(dim=3), _plane),
    Case(LinearRegression(features=3, noise=0.5, sd=3, intercept=True), _linear),
    Case(LinearRegressionUnknownNoise(features=3, sd=3, b=1, intercept=True), _linear),
)


def order_and_chunks_do_not_matter(
    model: ConjugateModel, rows: Floats, permutation: Sequence[int], chunk: int
) -> None:
    """A factor is a function of the set of records."""
    straight = model.statistics(rows)
    assert straight.dtype == np.int64
    shuffled = np.ascontiguousarray(rows[np.asarray(permutation, dtype=np.intp)])
    assert np.array_equal(straight, model.statistics(shuffled, chunk=chunk))
    assert np.array_equal(
        model.factor(model.shard(rows, "a")), model.factor(model.shard(shuffled, "b"))
    )


def parts_sum_to_the_whole(model: ConjugateModel, rows: Floats, cut: int) -> None:
    """With the sum at alpha = 1, two agents give the posterior of one agent with all records."""
    assert model.reduction == "sum"
    assert model.alpha == 1
    one, two = model.shard(rows[:cut], "a"), model.shard(rows[cut:], "b")
    both = model.grid.add(model.factor(one), model.factor(two))
    assert np.array_equal(both, model.factor(model.shard(rows)))
    prior = model.eta0
    together = model.posterior(model.grid.add(prior, both))
    pooled = model.posterior(model.grid.add(prior, model.factor(model.shard(rows))))
    assert together == pooled
    assert together.digest == pooled.digest
    back = model.grid.subtract(model.grid.add(prior, both), both)
    assert np.array_equal(back, prior)


def dropped_records_leave_no_trace(
    model: ConjugateModel, rows: Floats, dropped: Sequence[int]
) -> None:
    """Dropping records gives the bits of a shard that never held them."""
    keep = np.setdiff1d(np.arange(len(rows)), dropped)
    remaining = model.shard(rows).drop(np.asarray(dropped, dtype=np.intp))
    mask = np.ones(len(rows), dtype=bool)
    mask[keep] = False
    assert np.array_equal(remaining.rows, model.shard(rows).drop(mask).rows)
    expected = model.grid.zeros() if keep.size == 0 else model.factor(model.shard(rows[keep]))
    assert np.array_equal(model.factor(remaining), expected)


def weight_is_applied_once(model: ConjugateModel, rows: Floats, alpha: float) -> None:
    """factor = round(Σ s / (alpha·N)), ties to even, from the same integer sums."""
    sums = model.statistics(rows)
    for reduction, n in (("sum", 1), ("mean", len(rows))):
        tempered = replace(model, alpha=alpha, reduction=reduction)  # type: ignore[arg-type]
        expected = [round(Fraction(int(s)) / (Fraction(alpha) * n)) for s in sums]
        assert tempered.factor(tempered.shard(rows)).tolist() == expected


def settings_round_trip(model: Model) -> None:
    """A model equals itself after its settings were written as JSON and read again."""
    settings: dict[str, Any] = json.loads(json.dumps(model.settings()))
    again = by_name(model.name, **settings)
    assert again == model
    assert hash(again) == hash(model)
    assert np.array_equal(again.eta0, model.eta0)
