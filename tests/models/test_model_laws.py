"""Every conjugate model obeys the laws of the case table, bit for bit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unweave.errors import ConfigError, GridOverflow
from unweave.models import ConjugateModel, LinearRegression, NormalUnknown, by_name, names
from unweave.models.atoms.prior import PriorAtoms
from unweave.models.base import REGISTRY
from unweave.testing import models as laws
from unweave.testing.models import CASES, Case

all_cases = pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
SEEDS = st.integers(0, 2**32 - 1)
SIZES = st.integers(1, 60)


def test_every_conjugate_model_has_a_case() -> None:
    ours = {n: cls for n, cls in REGISTRY.items() if cls.__module__.startswith("unweave.")}
    conjugate = {name for name, cls in ours.items() if issubclass(cls, ConjugateModel)}
    assert {case.id for case in CASES} == conjugate
    assert conjugate <= set(names())


@all_cases
@given(n=SIZES, seed=SEEDS, chunk=st.integers(1, 70), shuffle=st.randoms(use_true_random=False))
@settings(max_examples=15)
def test_order_and_chunks(case: Case, n: int, seed: int, chunk: int, shuffle) -> None:
    permutation = list(range(n))
    shuffle.shuffle(permutation)
    laws.order_and_chunks_do_not_matter(case.model, case.rows(n, seed), permutation, chunk)


@all_cases
@given(n=st.integers(2, 60), seed=SEEDS, data=st.data())
@settings(max_examples=10)
def test_parts_and_whole(case: Case, n: int, seed: int, data: st.DataObject) -> None:
    laws.parts_sum_to_the_whole(
        case.model, case.rows(n, seed), data.draw(st.integers(1, n - 1), label="cut")
    )


@all_cases
@given(n=SIZES, seed=SEEDS, data=st.data())
@settings(max_examples=10)
def test_dropping_records(case: Case, n: int, seed: int, data: st.DataObject) -> None:
    dropped = data.draw(st.lists(st.integers(0, n - 1), max_size=n), label="dropped")
    for model in (case.model, replace(case.model, reduction="mean", alpha=0.7)):
        laws.dropped_records_leave_no_trace(model, case.rows(n, seed), dropped)


@all_cases
@given(n=SIZES, seed=SEEDS, alpha=st.floats(0.01, 100))
@settings(max_examples=10)
def test_temperature_and_mean(case: Case, n: int, seed: int, alpha: float) -> None:
    laws.weight_is_applied_once(case.model, case.rows(n, seed), alpha)


@all_cases
@pytest.mark.parametrize("changes", [{}, {"alpha": 0.3}, {"reduction": "mean"}], ids=str)
def test_settings_round_trip(case: Case, changes: dict) -> None:
    laws.settings_round_trip(replace(case.model, **changes))


@all_cases
def test_the_prior_lies_on_the_grid_and_inside_the_domain(case: Case) -> None:
    model = case.model
    prior = model.posterior(model.eta0)
    assert prior.kl(model.prior) < 1e-9
    with pytest.raises(ValueError, match="read-only"):
        model.eta0[0] = 1


@pytest.mark.parametrize(
    # Atoms have at most 24 bits, and their records are clipped: see test_atoms.
    "case",
    [case for case in CASES if not isinstance(case.model, PriorAtoms)],
    ids=lambda case: case.id,
)
def test_a_sum_that_does_not_fit_names_its_component_and_the_remedy(case: Case) -> None:
    model = replace(case.model, bits=56)
    rows = np.repeat(case.rows(60, 1), 40, axis=0)
    with pytest.raises(GridOverflow, match=r"(leaves the grid|too large).*Fix: .*scale") as error:
        model.factor(model.shard(rows))
    assert any(name in str(error.value) for name in (*model.grid.names, model.name))


@all_cases
def test_a_shard_without_records_has_a_zero_factor(case: Case) -> None:
    for reduction in ("sum", "mean"):
        model = replace(case.model, reduction=reduction)
        shard = model.shard(case.rows(3, 1)).drop([0, 1, 2])
        assert shard.n == 0
        assert not model.factor(shard).any()


def test_unknown_names_and_settings_are_explained() -> None:
    with pytest.raises(ConfigError, match="did you mean 'beta-bernoulli'"):
        by_name("beta-bernouli")
    with pytest.raises(ConfigError, match=r"choose from .*gamma-poisson"):
        by_name("zzz")
    with pytest.raises(ConfigError, match="settings are a, b, alpha, reduction, bits"):
        by_name("beta-bernoulli", c=3)


@pytest.mark.parametrize(
    ("settings_", "message"),
    [
        ({"alpha": 0}, "Fix: a temperature above 0"),
        ({"alpha": float("nan")}, "alpha = nan.* Fix: give a finite number"),
        ({"reduction": "median"}, 'choose "sum" or "mean"'),
        ({"bits": (1, 2, 3)}, "bits has 3 numbers. Fix: give one, or one for each of a, b"),
        ({"bits": 0, "a": 0.3}, "prior rounded to the grid is outside the domain"),
        ({"bits": 0, "a": 2.4}, r"would move the prior \(a from 2.4 to 2.*more bits"),
    ],
)
def test_impossible_settings_are_refused(settings_: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        by_name("beta-bernoulli", **settings_)


def test_bits_are_resolved_into_the_settings() -> None:
    assert by_name("beta-bernoulli").settings()["bits"] == [24, 24]
    assert by_name("beta-bernoulli", bits=0).factor(
        by_name("beta-bernoulli", bits=0).shard([1, 0, 1])
    ).tolist() == [2, 1]


def test_rounding_must_not_use_up_the_prior() -> None:
    weak = {"features": 2, "sd": 3000.0, "bits": 40}
    LinearRegression(**weak).check_agents(10**6)  # exact sums take nothing
    mean = LinearRegression(**weak, reduction="mean")
    mean.check_agents(10**4)
    with pytest.raises(ConfigError, match=r"smallest eigenvalue .* rounding 1000000 factors"):
        mean.check_agents(10**6)
    NormalUnknown(reduction="mean").check_agents(10**6)


@pytest.mark.parametrize("noise", [1e-4, 0.013, 1 / 3, 1.0, 7.7, 1234.5])
@pytest.mark.parametrize("name", ["linear-regression", "normal-known-variance"])
def test_the_noise_on_the_grid_is_the_noise_asked_for(name: str, noise: float) -> None:
    extra = {"features": 2} if name == "linear-regression" else {}
    model = by_name(name, noise=noise, **extra)
    assert abs(model.used_noise / noise - 1) < 2e-5


def test_a_noise_that_the_bits_cannot_hold_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"the noise .* Fix: scale = {x = 100}"):
        by_name("normal-known-variance", noise=300.0, bits=16)
    by_name("normal-known-variance", noise=300.0, bits=16, scale={"x": 100})
    with pytest.raises(ConfigError, match=r"the noise .* Fix: scale = {y = 100}"):
        by_name("linear-regression", features=2, noise=300.0, bits=20)
