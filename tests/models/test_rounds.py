"""Private rounds: sums at public points lead to the optimum of the plain mode, whoever wrote a
point."""

from __future__ import annotations

import pickle
import struct
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from tests.models.test_staged_atoms import CASES as STAGED
from tests.solvers.test_glm_learning import real_data
from tests.support.glm import CASES as GLMS
from tests.support.glm import Central, GlmCase, central_optimum, gaussian_kl, split
from tests.support.real_data import real_case
from tests.support.rounds import Learned, in_rounds, round_sum

from unweave import Federation, partition
from unweave.errors import ConfigError, SolverError, WireError
from unweave.families.numerics.packed import pack, unpack
from unweave.families.point import NormalPoint
from unweave.models import (
    BetaExponential,
    LinearRegression,
    LogisticRegression,
    Model,
    PoissonRegression,
    SoftmaxRegression,
    by_name,
)
from unweave.models.data import Data, chunks
from unweave.models.glm.bound import distance_bound
from unweave.models.glm.trial import MEMORY, TrialPoint
from unweave.protocol.events import Advance, Appraise, Solve
from unweave.solvers import as_solver
from unweave.solvers import in_rounds as private
from unweave.solvers.worker import ModelWorker, record_key
from unweave.testing.models import CASES as CONJUGATE

all_glms = pytest.mark.parametrize("case", GLMS.values(), ids=GLMS)


def shards_of(model: Model, parts: list[np.ndarray]) -> list[Data]:
    return [model.shard(part, f"a{k + 1}") for k, part in enumerate(parts)]


def learn(model: Model, parts: list[np.ndarray], **how: Any) -> Learned:
    """From the first point; `model` is of the plain mode."""
    found = model.in_rounds(len(parts))
    return in_rounds(found, shards_of(found, parts), **how)


def moments(learned: Learned) -> tuple[np.ndarray, np.ndarray]:
    params = learned.model.family.to_params(learned.eta)
    return params["mean"], params["cov"]


# -- one round --------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CONJUGATE, ids=lambda case: case.id)
def test_a_conjugate_model_takes_one_round_with_the_same_sum(case: Any) -> None:
    parts = [case.rows(n, seed) for seed, n in enumerate((7, 1, 20))]
    found = learn(case.model, parts)
    assert len(found.rounds) == 1
    assert not found.model.iterates
    plain = Federation(case.model, parts, "path").learn()
    assert np.array_equal(found.total, plain.units)


# -- stages -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["weibull", "negative-binomial", "logit 2"])
def test_a_settled_sum_of_stages_is_that_of_the_plain_mode(name: str) -> None:
    model, draw = STAGED[name]
    parts = np.array_split(draw(np.random.default_rng(3), 90), 3)
    found = learn(model, parts)
    assert 2 <= len(found.rounds) <= 8
    assert np.array_equal(found.total, Federation(model, parts).learn().units)
    estimate = found.model.appraise_round(found.point, found.total)
    assert estimate["kl_to_optimum"] < 1e-3
    # Without an agent, from the same ellipsoids and from the prior: the same sum.
    rest = shards_of(model, parts[1:])
    warm = in_rounds(model, rest, start=model.restart(found.point))
    cold = in_rounds(model, rest)
    assert np.array_equal(warm.total, cold.total)
    assert len(warm.rounds) <= len(cold.rounds)


def test_stages_with_forged_ellipsoids_are_never_served() -> None:
    model, draw = STAGED["weibull"]
    shards = shards_of(model, np.array_split(draw(np.random.default_rng(3), 60), 3))
    honest = in_rounds(model, shards)
    numbers = np.frombuffer(honest.point, "<i8").copy()
    numbers[4] += 1  # a shear of the first ellipsoid
    forged = numbers.tobytes()
    total = round_sum(model, forged, shards)
    assert not model.family.margin(model.decode(total)) > 0.0
    assert model.appraise_round(forged, total)["kl_to_optimum"] is None
    # The next round is at the ellipsoids that follow from the sum.
    assert np.array_equal(in_rounds(model, shards, start=forged).total, honest.total)


@pytest.mark.parametrize(
    "wrong", [b"x", bytes(8), struct.pack("<2q", 9, 0), struct.pack("<2q", 1, 0),
              struct.pack("<7q", 1, 2, 0, 0, 0, 0, 0), struct.pack("<7q", 1, 0, 9**9, 0, 0, 0, 0),
              struct.pack("<7q", 1, 1, 0, 0, 0, 0, 0) * 2, bytes(8) * 4000],
)  # fmt: skip
def test_bytes_that_are_no_stages_are_named(wrong: bytes) -> None:
    model, draw = STAGED["weibull"]
    shard = model.shard(draw(np.random.default_rng(3), 5))
    for call in (lambda: model.factor_at(wrong, shard), lambda: model.restart(wrong)):
        with pytest.raises(WireError, match="a point"):
            call()


# -- generalised linear models ----------------------------------------------------------------


@all_glms
def test_rounds_find_the_central_optimum(case: GlmCase) -> None:
    rows = case.rows(240, 11)
    found = learn(case.model, split(rows, 6), tol=1e-10)
    x, y = case.design(rows)
    far = gaussian_kl(*moments(found), central_optimum(x, y, case.loss))
    plain = Federation(case.model, split(rows, 6), "ring").learn(tol=1e-11)
    assert case.model.family.kl(found.eta, case.model.decode(plain.units)) < 1e-8
    assert far < (1e-6 if case.model.convex else 0.02)  # a clipped curvature moves the fixed point


@all_glms
def test_the_default_tolerance_is_kept_and_the_estimate_is_honest(case: GlmCase) -> None:
    rows = case.rows(240, 12)
    best, found = (learn(case.model, split(rows, 4), tol=tol) for tol in (1e-12, 1e-4))
    kl = float(case.model.family.kl(found.eta, best.eta))
    assert kl <= 1e-4
    estimate = found.model.appraise_round(found.point, found.total)
    assert kl <= 10 * estimate["kl_to_optimum"] <= 1e-3
    if case.model.bounded:
        assert kl <= estimate["bound"] < 1e-2
        assert estimate["published"]["step"] == 1e-3
    else:
        assert estimate["bound"] == "no bound"


def test_agents_and_split_do_not_matter() -> None:
    """Sums are over records: only rounding to the grid differs."""
    case = GLMS["logistic-regression"]
    rows = case.rows(200, 5)
    alone = learn(case.model, [rows])
    for agents, by_label in ((4, True), (4, False), (40, True)):
        found = learn(case.model, split(rows, agents, by_label))
        assert len(found.rounds) == len(alone.rounds)
        assert case.model.family.kl(found.eta, alone.eta) < 1e-12


SETTINGS: dict[str, tuple[Model, Any]] = {
    "exposure": (
        PoissonRegression(features=["age", "dose"], intercept=True, exposure="years"),
        lambda rng, x: [*x.T, rng.poisson(3 * np.exp(x[:, 0])), rng.uniform(1, 5, len(x))],
    ),
    "center and scale": (
        LogisticRegression(
            features=["age", "dose"], intercept=True, center={"age": 50}, scale={"age": 10}
        ),
        lambda rng, x: [50 + 10 * x[:, 0], x[:, 1], rng.random(len(x)) < 1 / (1 + np.exp(x[:, 0]))],
    ),
    "priors by name": (
        LogisticRegression(
            features=["age", "dose"], mean={"dose": 2.0}, sd={"age": 0.1, "dose": 3.0}
        ),
        lambda rng, x: [*x.T, rng.random(len(x)) < 1 / (1 + np.exp(-x[:, 1]))],
    ),
    "temperature": (
        LogisticRegression(features=2, intercept=True, alpha=2.0),
        lambda rng, x: [*x.T, rng.random(len(x)) < 0.7],
    ),
    "mean": (
        LogisticRegression(features=2, reduction="mean"),
        lambda rng, x: [*x.T, rng.random(len(x)) < 0.7],
    ),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_mean_what_they_mean_in_the_plain_mode(name: str) -> None:
    model, draw = SETTINGS[name]
    rng = np.random.default_rng(4)
    rows = np.column_stack(draw(rng, rng.standard_normal((90, 2))))
    parts = [rows[:20], rows[20:70], rows[70:]]
    found = learn(model, parts, tol=1e-9)
    plain = Federation(model, parts, "path").learn(tol=1e-10)
    assert model.family.kl(found.eta, model.decode(plain.units)) < 1e-8
    ours = found.model.posterior(found.total)
    np.testing.assert_allclose(ours.mean(), plain.posterior.mean(), atol=1e-4 * ours.sd().min())
    assert ours.table()[0].name == plain.posterior.table()[0].name


@pytest.mark.parametrize("kind", [LogisticRegression, PoissonRegression])
def test_the_agents_intercepts_are_those_of_the_joint_optimum(kind: type) -> None:
    """Against L-BFGS on the joint model, with an indicator of each agent as a column."""
    rng, tau, owner = np.random.default_rng(2), 1.5, np.repeat(np.arange(4), (40, 60, 30, 50))
    x = np.column_stack([np.ones(180), rng.standard_normal((180, 2))])
    t = x @ [0.3, 1.0, -0.7] + tau * rng.standard_normal(4)[owner]
    case = GLMS[kind.name]
    y = case.draw(rng, t)
    model = kind(2, intercept=True, agent_sd=tau, sd=1.0)
    rows = np.column_stack([x[:, 1:], y])
    found = learn(model, [rows[owner == k] for k in range(4)], tol=1e-10)
    best = central_optimum(np.column_stack([x, tau * np.eye(4)[owner]]), y, case.loss)
    mean, cov = moments(found)
    assert gaussian_kl(mean, cov, type(best)(best.mean[:3], best.cov[:3, :3])) < 1e-6
    assert found.model.appraise_round(found.point, found.total)["kl_to_optimum"] < 1e-9


def counts(intercept: bool) -> tuple[PoissonRegression, np.ndarray, Any]:
    """Counts of 5,000, for a model that knows of its intercept, or takes it for a feature."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((60, 1))
    y = rng.poisson(5000 * np.exp(0.2 * x[:, 0]))
    design = np.column_stack([np.ones(60), x])
    model = PoissonRegression(features=1 if intercept else 2, intercept=intercept, sd=10.0)
    best = central_optimum(
        design, y, lambda t, y: -stats.poisson.logpmf(y, np.exp(t)), prior_sd=10.0
    )
    return model, np.column_stack([design[:, int(intercept) :], y]), best


def test_counts_far_from_the_prior_are_reached_by_shorter_steps() -> None:
    """Newton's first step leads to rates of e^5000, which no agent can evaluate."""
    model, rows, best = counts(intercept=False)
    found = learn(model, np.array_split(rows, 3))
    unable = [int(total[found.model.slots.unable]) for _, total in found.rounds]
    assert max(unable) > 0
    assert unable[-1] == 0
    assert len(found.rounds) <= 25
    assert abs(moments(found)[0][0] - np.log(5000)) < 0.01
    # L-BFGS is not exact for so large a curvature.
    assert gaussian_kl(*moments(found), best) < 1e-3


def test_an_intercept_starts_where_the_rates_add_up_to_the_counts() -> None:
    model, rows, best = counts(intercept=True)
    found = learn(model, np.array_split(rows, 3))
    assert not any(total[found.model.slots.unable] for _, total in found.rounds)
    assert len(found.rounds) <= 6
    assert gaussian_kl(*moments(found), best) < 1e-3
    trial = TrialPoint.parse(found.rounds[1][0], 2)
    q = found.model.descent.normal(trial.q)
    rates = np.exp(q.mean[0] + q.mean[1] * rows[:, 0])
    assert rates.sum() == pytest.approx(rows[:, 1].sum(), rel=1e-6)
    # Without counts there is no such intercept, and the rounds find their way as before.
    none = learn(model, [np.column_stack([rows[:20, 0], np.zeros(20)])] * 3)
    assert none.model.inside(none.total)


def test_what_no_agent_can_evaluate_gives_no_posterior() -> None:
    model = PoissonRegression(features=1, mean=1e6)
    found = learn(model, [np.array([[1.0, 3.0], [2.0, 5.0]])] * 3)
    assert len(found.rounds) == 1
    assert not found.model.inside(found.total)
    assert found.model.appraise_round(found.point, found.total)["kl_to_optimum"] is None


# -- real data --------------------------------------------------------------------------------

# Rounds to a KL of 1e-4, and until the rule stops.
ROUNDS = {
    ("wine", 1.0): (7, 9),
    ("wine", 10.0): (17, 19),
    ("breast_cancer", 1.0): (10, 12),
    ("breast_cancer", 10.0): (18, 20),
    ("diabetes", 1.0): (5, 7),
    ("diabetes", 10.0): (5, 7),
    ("digits", 1.0): (14, 16),
    ("digits", 10.0): (42, 45),
}


def check_rounds(name: str, sd: float, agents: int, by_label: bool) -> None:
    rows = real_data(name)
    model = LogisticRegression(features=rows.shape[1] - 1, intercept=True, sd=sd)
    goal = learn(model, [rows], tol=1e-11)
    found = learn(model, split(rows, agents, by_label))
    to, stopped = ROUNDS[name, sd]
    assert model.family.kl(found.eta, goal.eta) <= 1e-4
    reached = found.to(goal.eta, 1e-4)
    assert reached is not None
    assert reached <= to
    assert len(found.rounds) <= stopped


@pytest.mark.parametrize("name", ["wine", "diabetes"])
@pytest.mark.parametrize("sd", [1.0, 10.0])
def test_logistic_regression_needs_few_rounds(name: str, sd: float) -> None:
    check_rounds(name, sd, 10, True)


@pytest.mark.parametrize("name", ["diabetes", "digits", "linnerud"])
@pytest.mark.parametrize("sd", [1.0, 10.0])
def test_poisson_regression_needs_few_rounds(name: str, sd: float) -> None:
    model, rows = real_case("poisson-regression", name, sd=sd)
    goal = learn(model, [rows], tol=1e-11)
    found = learn(model, split(rows, 10))
    assert model.family.kl(found.eta, goal.eta) <= 1e-4
    reached = found.to(goal.eta, 1e-4)
    assert reached is not None
    assert reached <= 5
    assert len(found.rounds) <= 7


@pytest.mark.slow
@pytest.mark.parametrize(("name", "sd"), ROUNDS)
@pytest.mark.parametrize(("agents", "by_label"), [(10, True), (10, False), (50, True)])
def test_logistic_regression_needs_few_rounds_everywhere(
    name: str, sd: float, agents: int, by_label: bool
) -> None:
    check_rounds(name, sd, agents, by_label)


def check_forgetting(name: str, sd: float, gone: range, warm: int) -> None:
    """From the last point, at most `warm` rounds to 1e-4; always at most half of retraining's."""
    rows = real_data(name)
    parts = split(rows, 10)
    model = LogisticRegression(features=rows.shape[1] - 1, intercept=True, sd=sd).in_rounds(10)
    shards = shards_of(model, parts)
    last = in_rounds(model, shards)
    for k in gone:
        rest = shards[:k] + shards[k + 1 :]
        cold = in_rounds(model, rest, tol=1e-9)
        again = in_rounds(model, rest, start=model.restart(last.point))
        assert model.family.kl(again.eta, cold.eta) <= 1e-4
        reached, retrained = again.to(cold.eta, 1e-4), cold.to(cold.eta, 1e-4)
        assert reached is not None
        assert retrained is not None
        assert reached <= warm
        assert reached < retrained


def test_forgetting_goes_on_from_the_last_point() -> None:
    check_forgetting("wine", 1.0, range(0, 10, 3), 5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "sd", "warm"), [("wine", 1.0, 5), ("breast_cancer", 1.0, 6), ("digits", 1.0, 8)]
)
def test_forgetting_goes_on_from_the_last_point_everywhere(name: str, sd: float, warm: int) -> None:
    check_forgetting(name, sd, range(10), warm)


# -- points that a peer wrote -----------------------------------------------------------------


def small() -> tuple[Any, list[Data], Learned]:
    case = GLMS["logistic-regression"]
    model = case.model.in_rounds(3)
    shards = shards_of(model, np.array_split(case.rows(60, 9), 3))
    return model, shards, in_rounds(model, shards, tol=1e-8)


_SMALL = small()


def test_a_point_is_the_same_bytes_again_and_has_a_known_size() -> None:
    model, _, found = small()
    size, length = model.size, model.slots.carrier
    for point, _ in found.rounds[1:]:
        trial = TrialPoint.parse(point, size)
        assert trial.to_bytes() == point
        assert len(point) <= 32 + length * (24 + 8 * MEMORY)
    assert model.advance(found.rounds[2][0], found.rounds[2][1]) == found.rounds[3][0]
    assert len(TrialPoint.parse(model.restart(found.point), size).to_bytes()) == 32 + 8 * length


def test_bytes_that_are_no_trial_are_named() -> None:
    model, shards, found = _SMALL
    trial = TrialPoint.parse(found.rounds[-1][0], model.size)
    assert trial.base is not None
    odd = trial.q.copy()
    odd[3] = np.nan
    good = trial.to_bytes()
    for wrong in (
        b"x",
        good[:-1],
        good + bytes(8),
        b"nrm2" + good[4:],
        good[:4] + struct.pack("<H", MEMORY + 1) + good[6:],
        good[:6] + struct.pack("<H", 16) + good[8:],
        replace(trial, q=odd).to_bytes(),
        replace(trial, q=trial.q * np.inf).to_bytes(),
        replace(trial, base=trial.base._replace(residual=odd)).to_bytes(),
        replace(trial, base=trial.base._replace(energy=np.nan)).to_bytes(),
        replace(trial, base=trial.base._replace(energy=-np.inf)).to_bytes(),
        replace(trial, changes=np.full_like(trial.changes, np.inf)).to_bytes(),
        replace(trial, t=0.0).to_bytes(),
        replace(trial, t=np.nan).to_bytes(),
    ):
        for ask in (
            lambda point: model.factor_at(point, shards[0]),
            lambda point: model.advance(point, found.total),
            lambda point: model.appraise_round(point, found.total),
            model.restart,
        ):
            with pytest.raises(WireError, match=r"a point .* Fix: "):
                ask(wrong)


@pytest.mark.parametrize("share", [-1.0, 0.0, 0.49])
def test_no_agent_evaluates_a_trial_wider_than_the_prior_allows(share: float) -> None:
    """The width of a predictor decides how many nodes a quadrature has."""
    model, shards, _ = _SMALL
    wide = model.packed(np.zeros(model.size), share * model.descent.precision)
    factor = model.factor_at(TrialPoint(wide).to_bytes(), shards[0])
    assert np.flatnonzero(factor).tolist() == [model.slots.unable]
    assert model.advance(TrialPoint(wide).to_bytes(), model.eta0 + factor) == b""


def _chosen_points(model: Any, length: float, count: int) -> list[np.ndarray]:
    """Trials with means of this length in prior standard deviations, and no spread: planes through
    the cloud of records, in random directions."""
    rng = np.random.default_rng(1)
    found = []
    for _ in range(count):
        mean = np.append(rng.uniform(-4.0, 4.0), rng.standard_normal(model.size - 1))
        mean[1:] /= np.linalg.norm(mean[1:])
        mean *= length / np.sqrt(mean @ model.descent.precision @ mean)
        precision = 1e6 * np.eye(model.size)
        found.append(np.concatenate([precision @ mean, pack(precision)]))
    return found


def _singled_out(model: Any, h: np.ndarray) -> bool:
    """Whether the sum of curvatures is that of one record."""
    values = np.linalg.eigvalsh(unpack(h, model.size))
    return bool(values[-1] > 1e-5 and values[-2] < 1e-3 * values[-1])


def test_sums_at_chosen_points_single_out_no_record() -> None:
    """An agent may forge points. Far out, the sum over all records is that of one: an eigenvector
    is the record. No agent evaluates such a point; at those that it does evaluate, for a prior
    of sd 1, many records have weight."""
    rows = real_data("breast_cancer")
    model = LogisticRegression(features=rows.shape[1] - 1, intercept=True).in_rounds(5)
    shards = shards_of(model, np.array_split(rows, 5))
    far = _chosen_points(model, 3000.0, 60)
    shown = 0
    for q in far:
        totals = sum(model.factor_at(TrialPoint(q).to_bytes(), one) for one in shards)
        assert np.flatnonzero(totals).tolist() == [model.slots.unable]
        where = model.descent.proper(q)
        curvature = sum(model.curvature(where, one)[2] for one in shards)  # without the limit
        shown += _singled_out(model, pack(curvature))
    assert shown > 0
    for q in _chosen_points(model, 0.999 * model.descent.reach**0.5, 60):
        totals = sum(model.factor_at(TrialPoint(q).to_bytes(), one) for one in shards)
        assert not totals[model.slots.unable]
        curvature = model.grid.decode(totals)[model.size : model.slots.carrier]
        assert not _singled_out(model, curvature)


def test_records_far_beyond_the_prior_are_told_in_words() -> None:
    """A prior that excludes the coefficients: learning would need points that show records."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2000, 2))
    y = x @ [3.0, -2.0] + rng.logistic(size=2000) > 0
    data = {"a": x[:, 0], "b": x[:, 1], "y": y.astype(float)}
    model = LogisticRegression(features=["a", "b"], target="y", intercept=True, sd=0.2)
    network = Federation(model, partition(data, 4), "complete", privacy="masked")
    with pytest.raises(SolverError, match=r"beyond the prior's mass.*Fix: a larger sd"):
        _ = network.learn(progress=False).posterior


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_a_forged_point_is_named_or_evaluated(data: Any) -> None:
    """Any bytes: a WireError, or a factor within the share of the grid and a next point."""
    model, shards, found = _SMALL
    point, total = data.draw(st.sampled_from(found.rounds[1:]))
    forged = bytearray(point)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(forged) - 1))
        forged[at] = data.draw(st.integers(0, 255))
    cut = data.draw(st.sampled_from([0, 0, 0, 1, 8, len(forged) - 3]))
    raw = bytes(forged[: len(forged) - cut])
    try:
        factor = model.factor_at(raw, shards[0])
        following = model.advance(raw, total)
        model.appraise_round(raw, total)
        model.restart(raw)
    except WireError:
        return
    assert (np.abs(factor) <= model.share).all()
    if following:
        model.factor_at(following, shards[0])


@pytest.mark.parametrize("value", [1e300, 1e154, -1e300, 1e-300])
def test_numbers_of_any_size_harm_nobody(value: float) -> None:
    model, shards, found = _SMALL
    trial = TrialPoint.parse(found.rounds[-2][0], model.size)
    assert trial.base is not None
    for forged in (
        replace(trial, q=trial.q * value),
        replace(trial, q=np.full_like(trial.q, value)),
        replace(trial, base=trial.base._replace(q=trial.q * value)),
        replace(trial, base=trial.base._replace(residual=trial.q * value)),
        replace(trial, base=trial.base._replace(energy=value)),
        replace(
            trial, changes=np.full_like(trial.changes, np.float32(np.clip(value, -3e38, 3e38)))
        ),
    ):
        point = forged.to_bytes()
        again = in_rounds(model, shards, start=point)
        assert again.model.inside(again.total)


def test_a_forged_path_cannot_hide_the_distance_from_the_optimum() -> None:
    """Points with an impossible free energy reject every step: learning ends early, and the sum
    itself says how far away it is."""
    model, shards, honest = _SMALL
    q = model.descent.normal(TrialPoint.parse(honest.point, model.size).q)
    ends = []
    for shift in (0.3, 1.0, 5.0):
        mean = q.mean + shift * np.sqrt(np.diag(q.cov))
        x = np.concatenate([q.precision @ mean, pack(q.precision)])
        trial = TrialPoint.parse(honest.point, model.size)
        base = trial.base._replace(q=x, energy=-1e300)
        forged = replace(trial, q=x, base=base, rounds=999)
        for point in (forged, replace(forged, rounds=1000, bound=True)):
            found = in_rounds(model, shards, start=point.to_bytes())
            kl = float(model.family.kl(found.eta, honest.eta))
            estimate = model.appraise_round(found.point, found.total)
            ends.append((kl, estimate["kl_to_optimum"]))
            assert estimate["bound"] == "no bound" or estimate["bound"] >= kl
    assert all(estimate >= kl / 10 for kl, estimate in ends), ends
    assert max(kl for kl, _ in ends) > 1e-3


@pytest.mark.parametrize("shift", [0.02, 0.1, 0.2])
def test_the_bound_is_for_the_posterior_that_is_served(shift: float) -> None:
    """At a trial at the optimum, for a q that is `shift` standard deviations away from it."""
    model, shards, found = _SMALL
    trial = TrialPoint.parse(found.point, model.size)
    q = model.descent.normal(trial.q)
    total = round_sum(model, replace(trial, bound=True).to_bytes(), shards)
    values = model.grid.decode(total)
    dh, dp = model.carrier_family.split(trial.q - values[: model.slots.carrier])
    least = unpack(values[model.slots.least :], model.size)
    near = distance_bound(q, model.descent.precision, dh, dp, least)
    away = NormalPoint(q.h + q.precision @ (shift * np.sqrt(np.diag(q.cov))), q.precision)
    served = distance_bound(q, model.descent.precision, dh, dp, least, away)
    kl = gaussian_kl(away.mean, away.cov, Central(*moments(found)))
    assert near is not None
    assert near.kl < kl / 10
    assert served is None or (served.kl >= kl and served.sds >= shift)
    assert served is not None or shift > 0.1
    told = model.appraise_round(replace(trial, bound=True).to_bytes(), total)["bound"]
    itself = model.gaussian(model.decode(total))
    wanted = distance_bound(q, model.descent.precision, dh, dp, least, itself)
    assert wanted is not None
    assert told == wanted.kl != near.kl


# -- around it --------------------------------------------------------------------------------


def test_what_has_no_private_rounds_is_refused_with_a_fix() -> None:
    logistic = LogisticRegression(features=2)
    for model, solver, message in (
        (logistic, "ep", "solver"),
        (LogisticRegression(features=2, covariance="diagonal"), None, 'covariance = "full"'),
        (BetaExponential(), None, "private rounds"),
        (LogisticRegression(features=2, sd=100.0, bits=24), None, "eigenvalue"),
    ):
        with pytest.raises(ConfigError, match=r"Fix: ") as caught:
            private(model, as_solver(solver, model), 5000)
        assert message in str(caught.value)
    with pytest.raises(ConfigError, match="in_rounds"):
        logistic.factor_at(b"", logistic.shard([[0.0, 1.0, 1.0]]))
    linear = LinearRegression(features=2)
    assert private(linear, as_solver(None, linear), 4) is linear


def test_a_factor_beyond_its_share_is_a_rejected_trial() -> None:
    """With 62 bits hardly a number fits: the agent says so, and adds nothing."""
    model = LogisticRegression(features=1, intercept=True, bits=58).in_rounds(2)
    rows = np.column_stack([np.linspace(-9, 9, 80), np.arange(80) % 2])
    factor = model.factor_at(b"", model.shard(rows))
    assert factor[model.slots.unable] == 1
    assert np.count_nonzero(factor) == 1
    assert not model.inside(model.eta0 + factor)


def test_an_agent_without_records_adds_nothing() -> None:
    model, shards, _ = small()
    empty = shards[0].drop(np.arange(20))
    assert not model.factor_at(b"", empty).any()
    first = in_rounds(model, shards)
    assert np.array_equal(in_rounds(model, [*shards[:2], empty, shards[2]]).total, first.total)


def test_the_model_of_rounds_is_the_model() -> None:
    plain = LogisticRegression(features=2, intercept=True)
    model = plain.in_rounds(5)
    assert isinstance(model, LogisticRegression)
    assert model.settings() == plain.settings()
    assert by_name(model.name, **model.settings()) == plain
    assert model == plain.in_rounds(5) == pickle.loads(pickle.dumps(model))  # noqa: S301
    assert model not in (plain, plain.in_rounds(6))
    assert len({model, plain.in_rounds(5), plain.in_rounds(6)}) == 2
    assert model.in_rounds(6) == plain.in_rounds(6)
    np.testing.assert_array_equal(model.decode(model.eta0), plain.decode(plain.eta0))
    assert model.posterior(model.eta0).sd()[0] == 1.0


def test_both_modes_publish_the_same_numbers() -> None:
    case = GLMS["logistic-regression"]
    parts = split(case.rows(150, 3), 4)
    plain = Federation(case.model, parts, "ring").learn(until="identical")
    found = learn(case.model, parts, tol=1e-13)
    ours = found.model.posterior(found.total).published()
    assert ours.digest == plain.posterior.published().digest
    said = found.model.appraise_round(found.point, found.total)["published"]
    assert said["identical"].startswith("proved")


class Streamed(Data):
    """Records in batches, never all at once."""

    agent = "files"

    def __init__(self, rows: np.ndarray) -> None:
        self._rows = rows
        self.reads = 0

    @property
    def n(self) -> int:
        return len(self._rows)

    def batches(self) -> Any:
        self.reads += 1
        return chunks(self._rows, 7)


@pytest.mark.parametrize("name", ["logistic-regression", "softmax-regression"])
def test_records_are_streamed(name: str) -> None:
    case = GLMS[name]
    rows = case.rows(60, 1)
    model = case.model.in_rounds(1)
    found = in_rounds(model, [Streamed(rows)])
    assert model.family.kl(found.eta, in_rounds(model, [model.shard(rows)]).eta) < 1e-12


def test_a_worker_answers_the_questions_of_a_round() -> None:
    model, shards, found = small()
    worker = ModelWorker(model, as_solver(None, model), shards[0], seed=1, tol=1e-8)
    point, total = found.rounds[2]
    first = worker.factor_at(point, frozenset())
    assert worker.factor_at(point, frozenset()) is first  # a round may ask again
    assert np.array_equal(first, model.factor_at(point, shards[0]))
    dropped = frozenset({record_key(0), record_key(4)})
    without = worker.factor_at(point, dropped)
    assert np.array_equal(without, model.factor_at(point, shards[0].drop(np.array([0, 4]))))
    assert worker.advance(Advance((), point, total)).point == found.rounds[3][0]
    at, last = found.rounds[-1]
    assert worker.advance(Advance((), at, last)).point is None
    assert worker.advance(Advance((), point, None)).point == model.restart(point)
    assert worker.appraise(Appraise((), last, None, at))["kl_to_optimum"] < 1e-8
    forged = Solve((), 1, 1, None, None, frozenset(), point=b"no point")
    assert worker.solve(forged).no_point
    assert worker.advance(Advance((), b"no point", total)).point == model.first_point()
    worker.replace(shards[1])
    assert not np.array_equal(worker.factor_at(point, frozenset()), first)


def test_stages_are_evaluated_once_by_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    model, draw = STAGED["weibull"]
    shard = model.shard(draw(np.random.default_rng(3), 60))
    worker = ModelWorker(model, as_solver(None, model), shard, seed=1)
    calls: list[Any] = []
    values = type(model).values
    monkeypatch.setattr(
        type(model), "values", lambda self, *of: calls.append(of) or values(self, *of)
    )
    found = in_rounds(model, [shard])
    calls.clear()
    for point, total in found.rounds:
        assert np.array_equal(model.eta0 + worker.factor_at(point, frozenset()), total)
    assert len(calls) == len(found.rounds)


def test_a_softmax_of_real_data_reaches_its_optimum() -> None:
    from sklearn import datasets

    x, y = datasets.load_wine(return_X_y=True)
    rows = np.column_stack([(x - x.mean(axis=0)) / x.std(axis=0), y])[:, [0, 6, 9, 13]]
    model = SoftmaxRegression(features=3, intercept=True, classes=3)
    found, best = (learn(model, split(rows, 10), tol=tol) for tol in (1e-4, 1e-10))
    assert model.family.kl(found.eta, best.eta) <= 1e-4
    assert len(found.rounds) <= 15
