"""A model whose carrier, the vector that is added on the token, is not the eta of q."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

from unweave import Federation
from unweave.experiments.replicas import simulate
from unweave.families import Beta, Distribution
from unweave.grid import Ints
from unweave.models import BetaBernoulli, ConjugateModel
from unweave.models.base import REGISTRY
from unweave.models.columns import Column, binary
from unweave.models.sums import count_sum
from unweave.solvers.worker import influence

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Counted(ConjugateModel):
    """A Bernoulli model that adds (records, successes, failures); q needs two of the three."""

    name: ClassVar[str] = "counted-bernoulli"

    @property
    def prior(self) -> Distribution:
        return Beta(a=2, b=2)

    @property
    def schema(self) -> tuple[Column, ...]:
        return (binary("x"),)

    @property
    def carrier_names(self) -> tuple[str, ...]:
        return ("records", "successes", "failures")

    @property
    def carrier_prior(self) -> Floats:
        return np.zeros(3)

    def decode(self, units: Ints) -> Floats:
        eta: Floats = 2.0 + self.grid.decode(units)[..., 1:]
        return eta

    def sums(self, rows: Floats) -> list[int]:
        ones = count_sum(rows[:, 0])
        counts = (len(rows), ones, len(rows) - ones)
        return [n << q for n, q in zip(counts, self.grid.bits, strict=True)]


del REGISTRY["counted-bernoulli"]  # not a model for users

RNG = np.random.default_rng(5)
SHARDS = {name: RNG.integers(0, 2, 12) for name in "abcd"}


def test_the_federation_learns_and_forgets_in_the_carrier() -> None:
    ours = Federation(Counted(), SHARDS, "ring", seed=2).learn()
    plain = Federation(BetaBernoulli(a=2, b=2), SHARDS, "ring", seed=2).learn()
    assert ours.units.shape == (3,)
    assert np.array_equal(ours.posterior.eta, plain.posterior.eta)
    assert ours.influence() == plain.influence()
    ours.forget("b", records={"c": [0, 5]})
    plain.forget("b", records={"c": [0, 5]})
    assert np.array_equal(ours.posterior.eta, plain.posterior.eta)
    assert ours.erasures[0].moved == pytest.approx(plain.erasures[0].moved, rel=1e-12)
    assert ours.posterior.mean() == plain.posterior.mean()
    assert ours.audit().included == ("a", "c", "d")


def test_influence_is_measured_on_q() -> None:
    model = Counted()
    factor = model.factor(model.shard(SHARDS["a"]))
    alone = model.grid.add(model.eta0, factor)
    expected = Beta(*model.decode(alone)).kl(Beta(a=2, b=2))
    assert influence(model, alone, factor) == pytest.approx(float(expected), rel=1e-12)


def test_replicas_measure_kl_on_q() -> None:
    found = simulate(Counted(), SHARDS, "ring", iterations=12, replicas=3, seed=1)
    same = simulate(BetaBernoulli(a=2, b=2), SHARDS, "ring", iterations=12, replicas=3, seed=1)
    assert np.array_equal(found.eta, same.eta)
