"""A new model is one small class: a prior, a schema, a loss. Here one whose answer is known."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from unweave.errors import ConfigError
from unweave.experiments.replicas import simulate
from unweave.families import Distribution, Gamma
from unweave.graph import graphs
from unweave.models import LossModel, by_name
from unweave.models.base import REGISTRY
from unweave.models.columns import Column, count
from unweave.rng import Stream
from unweave.solvers import Context, NaturalGradient


@dataclass(frozen=True)
class PoissonByLoss(LossModel):
    """Counts with a Gamma prior, told only by their loss: N·θ − Σx·log θ."""

    name: ClassVar[str] = "poisson-by-loss"

    @property
    def prior(self) -> Distribution:
        return Gamma(a=3.0, b=2.0)

    @property
    def schema(self) -> tuple[Column, ...]:
        return (count("x"),)

    def loss(self, theta: np.ndarray, data: np.ndarray) -> np.ndarray:
        return len(data) * theta - data.sum() * np.log(theta)


del REGISTRY["poisson-by-loss"]  # not a model for users

COUNTS = [[2, 0, 3], [1, 4], [5, 2, 2, 0], [1]]


def test_a_factor_from_samples_finds_the_conjugate_one() -> None:
    """L is linear in s(θ), so at the solution the control variate leaves no noise at all."""
    model, conjugate = PoissonByLoss(), by_name("gamma-poisson", a=3.0, b=2.0)
    for rows in COUNTS:
        shard = model.shard(rows, "a1")
        solution = NaturalGradient(steps=60).solve(
            model, shard, model.eta0, None, Context(Stream(1))
        )
        assert solution.info["estimator"] == "factor_cv"
        exact = conjugate.grid.decode(conjugate.factor(conjugate.shard(rows, "a1")))
        np.testing.assert_allclose(model.grid.decode(solution.factor), exact, atol=1e-6)


def test_it_runs_in_replicas() -> None:
    model = PoissonByLoss()
    graph = graphs.ring(4)
    result = simulate(model, COUNTS, graph, "sweep", iterations=14, replicas=2, steps=20)
    total = model.prior.eta
    for rows in COUNTS:
        conjugate = by_name("gamma-poisson", a=3.0, b=2.0)
        total = total + conjugate.grid.decode(conjugate.factor(conjugate.shard(rows, "a")))
    np.testing.assert_allclose(result.eta[:, -1], np.broadcast_to(total, (2, 2)), atol=1e-5)
    np.testing.assert_allclose(result.kl(total).values[:, -1], 0.0, atol=1e-9)
    with pytest.raises(ConfigError, match=r"no exact posterior .* kl\(target=…\)"):
        result.kl()


def test_what_it_does_not_offer_is_refused_by_name() -> None:
    model = PoissonByLoss()
    with pytest.raises(
        ConfigError, match=r"does not offer the estimator 'exact'\. Fix: choose from fac"
    ):
        NaturalGradient("exact").solve(
            model, model.shard([1], "a1"), model.eta0, None, Context(Stream(0))
        )
