"""The solver of many independent normals: it fits, keeps its limits and stops after its passes."""

from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from unweave import Federation
from unweave.errors import ConfigError
from unweave.families import DiagonalNormal
from unweave.models import BetaBernoulli, LossModel
from unweave.models.columns import real
from unweave.rng import Stream
from unweave.solvers import Context, Diagonal, as_solver


@dataclass(frozen=True)
class Quartic(LossModel, registered=False):
    """L = Σ_n ¼ (x_n − θ)⁴ in two independent coordinates: its gradient at draws is noisy."""

    strength: float = 1.0
    name: ClassVar[str] = "quartic"
    solver_name: ClassVar[str] = "diagonal"

    @property
    def prior(self):
        return DiagonalNormal(mean=[0.0, 0.0], sd=[1.0, 1.0])

    @property
    def schema(self):
        return (real("x1"), real("x2"))

    def default_bits(self):
        return (32,) * 4

    def loss(self, theta, data):
        return 0.25 * self.strength * ((theta[..., None, :] - data) ** 4).sum((-1, -2))

    def diagonal_curvature(self, theta, data):
        away = theta[:, None, :] - data.rows
        gradient, curvature = away**3, 3 * away**2
        return (
            float(self.loss(theta, data.rows).mean()),
            self.strength * gradient.sum(1).mean(0),
            self.strength * curvature.sum(1).mean(0),
        )


def shards(seed=0, agents=3, records=20):
    rng = np.random.default_rng(seed)
    return [rng.normal([1.0, -1.0], 0.5, size=(records, 2)) for _ in range(agents)]


def test_the_optimum_is_reached_up_to_noise():
    data = shards()
    federation = Federation(Quartic(), data, solver=Diagonal(passes=40)).learn()
    # The optimum of the free energy, by quadrature over the independent coordinates.
    z, weight = np.polynomial.hermite_e.hermegauss(20)
    weight = weight / weight.sum()
    rows = np.concatenate(data)
    mean, sd = np.zeros(2), np.ones(2)
    for _ in range(500):
        away = mean + sd * z[:, None, None] - rows
        g = np.tensordot(weight, (away**3).sum(1), 1) + mean
        precision = 1.0 + np.tensordot(weight, (3 * away**2).sum(1), 1)
        mean, sd = mean - 0.5 * g / precision, 1 / np.sqrt(precision)
    np.testing.assert_allclose(federation.posterior.mean(), mean, atol=0.2 * sd.min())
    np.testing.assert_allclose(federation.posterior.sd(), sd, rtol=0.05)


@given(
    seed=st.integers(0, 10**6),
    strength=st.floats(1e-3, 1e4),
    rho=st.floats(0.01, 1.0),
    steps=st.integers(1, 3),
)
@example(seed=0, strength=1e-3, rho=1.0, steps=1)
def test_no_step_moves_a_mean_far_or_halves_a_precision_twice(seed, strength, rho, steps):
    model = Quartic(strength)
    data = model.shard(shards(seed, 1)[0])
    start = model.grid.encode(np.array([0.3, -0.2, 5.0, 40.0]))
    solution = Diagonal(steps=steps, rho=rho).solve(
        model, data, model.eta0, start, Context(Stream(seed))
    )
    before = model.family.to_params(model.decode(model.eta0 + start))
    after = model.family.to_params(model.decode(model.eta0 + solution.factor))
    # Each step is measured in the sd before it, which grows by at most √2.
    farthest = 0.2 * before["sd"] * sum(2 ** (0.5 * i) for i in range(steps))
    assert (np.abs(after["mean"] - before["mean"]) <= farthest * (1 + 1e-6)).all()
    assert (after["sd"] <= before["sd"] * 2 ** (0.5 * steps) * (1 + 1e-6)).all()


def test_steps_fall_in_the_second_half_and_then_the_factor_stays():
    solver = Diagonal(rho=0.1, passes=20)
    sizes = [solver.step_size(t) for t in range(22)]
    assert sizes[:11] == [0.1] * 11
    assert all(a > b for a, b in pairwise(sizes[10:21]))
    assert sizes[20:] == [0.0, 0.0]
    model = Quartic()
    data, start = model.shard(shards(0, 1)[0]), model.grid.encode(np.array([0.3, -0.2, 5.0, 4.0]))
    kept = solver.solve(model, data, model.eta0, start, Context(Stream(0), passes=20))
    np.testing.assert_array_equal(kept.factor, start)


def test_a_federation_gives_the_solver_all_its_passes():
    federation = Federation(Quartic(strength=1e-9), shards(), solver=Diagonal(passes=7)).learn()
    assert federation.token.passes >= 7  # although no pass moves q by tol
    first = federation.posterior
    assert federation.learn().posterior == first
    federation.forget("a1").refine()
    assert federation.token.passes >= 7


@pytest.mark.parametrize(
    "settings", [{"steps": 0}, {"rho": 0.0}, {"rho": 2.0}, {"samples": 3}, {"passes": 0}]
)
def test_settings_are_checked(settings):
    with pytest.raises(ConfigError, match="Fix: "):
        Diagonal(**settings)


def test_a_model_without_curvature_is_refused():
    with pytest.raises(ConfigError, match="gives no diagonal curvature"):
        as_solver("diagonal", BetaBernoulli(a=1, b=1))
