"""What rounding does to a posterior: nothing that matters, or the data are refused.

The closed forms here use unrounded float64 data and share no code with the models.
"""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unweave import Federation, simulate
from unweave.errors import ConfigError, DataError, GridOverflow
from unweave.models import (
    BetaBernoulli,
    GammaExponential,
    LinearRegression,
    LinearRegressionUnknownNoise,
    MultivariateNormalModel,
    NormalKnownVariance,
    NormalUnknown,
)
from unweave.models.atoms.prior import PriorAtoms
from unweave.models.resolution import check_shards, extremes_of, measured, rounding_problem
from unweave.models.scaling import proposed
from unweave.testing.models import CASES, Case

REFUSED = (DataError, GridOverflow, ConfigError)
FAR = 0.02  # standard deviations


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_resolution_is_the_step_to_which_records_are_rounded(case: Case) -> None:
    """Less than half a step changes no factor; a step does. Columns of step 0 are not rounded."""
    model = case.model
    row = case.rows(1, seed=3)
    for j, step in enumerate(model.resolution):
        if not step:
            # Log-likelihoods at atoms are rounded, not the records.
            assert model.schema[j].whole or isinstance(model, PriorAtoms)
            continue
        on_grid = row.copy()
        on_grid[:, j] = np.rint(row[:, j] / step) * step
        base = model.factor(model.shard(on_grid))
        for shift, same in ((0.4, True), (1.0, False)):
            moved = on_grid.copy()
            moved[:, j] += shift * step
            assert np.array_equal(model.factor(model.shard(moved)), base) is same


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_what_rounding_added_is_measured(case: Case) -> None:
    """Against more bits: the sums less what rounding added are those of a finer grid."""
    model, rows = case.model, case.rows(50, seed=4)
    added = model.rounding(rows)
    if not any(model.resolution):
        assert not added.any()
        return
    finer = replace(model, bits=tuple(b + 8 for b in model.grid.bits))
    if isinstance(model, LinearRegression | NormalKnownVariance):
        assert finer.used_noise == pytest.approx(model.used_noise, rel=1e-4)  # part of the sums
    coarse = model.grid.decode(model.statistics(rows))
    truth = finer.grid.decode(finer.statistics(rows)) - finer.rounding(rows)
    np.testing.assert_allclose(coarse - added, truth, rtol=1e-4)


# -- closed forms on unrounded data -----------------------------------------------------------


def _least_squares(x, y, mean, sd):
    """θ ~ N(mean, diag(sd²)), y ~ N(xθ, 1): mean, covariance and squared residual by QR."""
    design = np.vstack([x, np.diag(1 / sd)])
    target = np.concatenate([y, mean / sd])
    size = np.linalg.norm(design, axis=0)
    q, r = np.linalg.qr(design / size)
    theta = np.linalg.solve(r, q.T @ target) / size
    root = np.linalg.inv(r) / size[:, None]
    return theta, root @ root.T, float(np.sum((target - design @ theta) ** 2))


def _student(location, spread, a, b):
    """Means and sds of (location, σ²) for σ² ~ InverseGamma(a, b) and spread·σ²."""
    sds = np.sqrt(spread * b / (a - 1))
    variance = b / (a - 1)
    return np.append(location, variance), np.append(sds, variance / np.sqrt(a - 2))


def known(rows, noise, mean, sd):
    theta, cov, _ = _least_squares(np.ones((len(rows), 1)) / noise, rows[:, 0] / noise, mean, sd)
    return theta, np.sqrt(np.diag(cov))


def unknown(rows, mean, kappa, a, b):
    x = rows[:, 0] - mean
    n, middle = len(x), x.mean()
    b = b + ((x - middle) ** 2).sum() / 2 + kappa * n * middle**2 / (2 * (kappa + n))
    location = mean + n * middle / (kappa + n)
    return _student([location], np.array([1 / (kappa + n)]), a + n / 2, b)


def times(rows, a, b):
    a, b = a + len(rows), b + rows.sum()
    return np.array([a / b]), np.array([np.sqrt(a) / b])


def vectors(rows, mean, kappa, df, psi):
    x = rows - mean
    n, d, middle = len(x), x.shape[1], x.mean(axis=0)
    scatter = ((x - middle) ** 2).sum(axis=0) + kappa * n / (kappa + n) * middle**2
    scale, free = psi + scatter, df + n - d + 1
    location = mean + n * middle / (kappa + n)
    sd = np.sqrt(scale / ((kappa + n) * free) * free / (free - 2))
    variance = scale / (free - 2)
    return (
        np.concatenate([location, variance]),
        np.concatenate([sd, variance / np.sqrt(free / 2 - 2)]),
    )


def _design(rows, intercept, at):
    """The columns from their centers, and how the intercept moves from there to x = 0."""
    if not intercept:
        return rows[:, :-1], np.eye(2), 0.0
    x = np.insert(rows[:, :-1] - at[:-1], 0, 1.0, axis=1)
    back = np.eye(3)
    back[0, 1:] = -at[:-1]
    return x, back, at[-1]


def line(rows, intercept, at, mean, sd, noise):
    x, back, zero = _design(rows, intercept, at)
    theta, cov, _ = _least_squares(x / noise, (rows[:, -1] - zero) / noise, mean, sd)
    theta = back @ theta
    theta[0] += zero
    return theta, np.sqrt(np.diag(back @ cov @ back.T))


def noisy_line(rows, at, mean, sd, a, b):
    x, back, zero = _design(rows, True, at)
    theta, cov, left = _least_squares(x, rows[:, -1] - zero, mean, sd)
    theta = back @ theta
    theta[0] += zero
    return _student(theta, np.diag(back @ cov @ back.T), a + len(rows) / 2, b + left / 2)


# -- data of every scale ------------------------------------------------------------------------


def _problem(which, seed, n, ex, ey, far, prior):
    """(model to be made, records, closed form given center and scale). Priors are about the data,
    `prior` times as wide; of an intercept none is stated."""
    rng = np.random.default_rng(seed)
    sx, sy = 10.0**ex, 10.0**ey
    far = 0.0 if which == "line through 0" else far  # it has no center
    noise = sy * 10 ** rng.uniform(-1.5, 0)
    x = sx * (rng.normal(size=(n, 1)) + far)
    z = sx * (rng.normal(size=(n, 2)) + np.array([far, 0.0]))
    y = sy * (z @ [1.5, -0.5]) / sx + noise * rng.normal(size=n)
    table, pair = np.column_stack([z, y]), np.column_stack([x, y])
    mean, sd = np.array([sy / sx, 0.0]), np.array([1.0, prior]) * (sy / sx)
    names = ("x1", "x2")
    if which == "times":
        t = rng.exponential(sx, size=(n, 1))
        return partial(GammaExponential, a=2, b=prior * sx), t, lambda *_: times(t, 2, prior * sx)
    if which == "known":
        own = {"noise": sx, "mean": far * sx, "sd": prior * sx}
        stated = {**own, "mean": np.array([far * sx]), "sd": np.array([prior * sx])}
        return partial(NormalKnownVariance, **own), x, lambda *_: known(x, **stated)
    if which == "unknown":
        own = {"mean": far * sx, "kappa": 1 / prior, "a": 3, "b": prior * sx**2}
        return partial(NormalUnknown, **own), x, lambda *_: unknown(x, **own)
    if which == "vectors":
        own, middle = {"kappa": 1 / prior, "df": 7}, np.array([far * sx, 1.5 * far * sy])
        by_name = dict(zip(("u", "v"), middle, strict=True))
        psi = {"u": sx**2, "v": sy**2}
        make = partial(MultivariateNormalModel, ["u", "v"], mean=by_name, psi=psi, **own)
        sizes = np.array(list(psi.values()))
        return make, pair, lambda *_: vectors(pair, middle, psi=sizes, **own)
    slopes = {"mean": dict(zip(names, mean, strict=True)), "sd": dict(zip(names, sd, strict=True))}
    if which == "line through 0":
        make = partial(LinearRegression, 2, noise=noise, **slopes)
        return make, table, lambda *_: line(table, False, None, mean, sd, noise)
    if which == "line":
        make = partial(LinearRegression, 2, noise=noise, intercept=True, **slopes)

        def truth(at, scale):
            own = np.insert(mean, 0, 0.0), np.insert(sd, 0, scale[-1])
            return line(table, True, at, *own, noise)

        return make, table, truth
    slopes["sd"] = {name: value / noise for name, value in slopes["sd"].items()}
    own = {"a": 3, "b": noise**2}
    make = partial(LinearRegressionUnknownNoise, 2, intercept=True, **slopes, **own)
    wide = np.insert(sd / noise, 0, 1.0)
    return make, table, lambda at, _: noisy_line(table, at, np.insert(mean, 0, 0.0), wide, **own)


KINDS = ["times", "known", "unknown", "vectors", "line", "line through 0", "noisy line"]
SCALES = st.integers(-9, 12)
DATA = {
    "seed": st.integers(0, 2**32),
    "n": st.integers(8, 300),
    "ex": SCALES,
    "ey": SCALES,
    "far": st.sampled_from([0.0, 0.0, 3.0, 1e3, 1e5]),
    "prior": st.sampled_from([1.0, 30.0]),
}


def _learned(model, rows):
    """What `Federation` checks and learns, without a walk for every example."""
    shards = [model.shard(part) for part in np.array_split(rows, 2)]
    check_shards(model, shards)
    one, two = (model.factor(shard) for shard in shards)
    return model.posterior(model.grid.add(model.eta0, model.grid.add(one, two)))


def _agrees(posterior, truth):
    means, sds = truth
    np.testing.assert_array_less(np.abs(np.atleast_1d(posterior.mean()) - means) / sds, FAR)
    np.testing.assert_array_less(np.abs(np.atleast_1d(posterior.sd()) / sds - 1), 0.02)


@pytest.mark.parametrize("which", KINDS)
@given(**DATA)
@settings(max_examples=40)
def test_data_of_any_scale_agree_with_the_closed_form_or_are_refused(which, **data):
    make, rows, truth = _problem(which, **data)
    try:
        model = make()
        posterior = _learned(model, rows)
    except REFUSED:
        return
    _agrees(posterior, truth(model.centers, model.scales))


PLAIN = {
    "times": GammaExponential(),
    "known": NormalKnownVariance(),
    "unknown": NormalUnknown(),
    "vectors": MultivariateNormalModel(["u", "v"]),
    "line": LinearRegression(2, intercept=True),
    "line through 0": LinearRegression(2),
    "noisy line": LinearRegressionUnknownNoise(2, intercept=True),
}


@pytest.mark.parametrize("which", KINDS)
@given(**DATA)
@settings(max_examples=40)
def test_with_the_proposed_scale_nothing_is_refused(which, **data):
    make, rows, truth = _problem(which, **data)
    ranges = dict(zip(PLAIN[which].columns, extremes_of([PLAIN[which].shard(rows)]), strict=True))
    center, scale = proposed(PLAIN[which], ranges)
    model = make(center=center, scale=scale)
    _agrees(_learned(model, rows), truth(model.centers, model.scales))


def test_a_small_dose_is_refused_with_the_scale_that_gives_its_slope():
    rng = np.random.default_rng(0)
    dose = 1e-5 * rng.normal(size=3000)
    data = {"dose": dose, "y": 1998 * dose + 1e-3 * rng.normal(size=3000)}
    model = LinearRegressionUnknownNoise(["dose"], sd=1e4, b=1e-4, intercept=True)
    for run in (
        lambda: Federation(model, [data, data], "path"),
        lambda: simulate(model, [data, data], "path", iterations=2, replicas=2),
    ):
        with pytest.raises(
            DataError, match=r"rounding would move .* Fix: scale = \{dose = 1e-05\}$"
        ):
            run()
    scaled = replace(model, scale={"dose": 1e-5}, sd={"dose": 1e7}, b=1e-6)
    row = Federation(scaled, [data], "path").learn().posterior.table()
    assert abs(row[1].mean - 1998) < 4 * row[1].sd < 20


def test_rounding_that_moves_a_rate_by_a_quarter_of_a_percent_is_refused():
    x = np.random.default_rng(1).exponential(1e-6, 50_000)
    with pytest.raises(DataError, match=r"move theta by .* Fix: scale = \{x = 1e-05\}"):
        Federation(GammaExponential(b=1e-3, bits=(24, 24)), [x], "path")


def test_raw_incomes_are_refused_with_the_scale_that_would_do():
    rng = np.random.default_rng(2)
    income = np.exp(rng.normal(10.5, 0.7, 500))
    with pytest.raises(GridOverflow, match=r"Fix: scale = \{x = 100000\}") as found:
        Federation(NormalUnknown(), [income], "path")
    assert "bits" not in str(found.value)
    model = NormalUnknown(scale={"x": 1e5})
    mean = Federation(model, [income], "path").learn().posterior.mean()[0]
    assert mean == pytest.approx(income.sum() / 501, rel=1e-6)


def test_a_column_far_from_zero_is_refused_with_a_center():
    x = np.random.default_rng(3).normal(size=60)
    with pytest.raises(GridOverflow, match=r"Fix: center = \{x = 1e\+06\}$"):
        Federation(NormalUnknown(), [1e6 + x], "path")
    near = NormalUnknown(center={"x": 1e6})
    assert Federation(near, [1e6 + x], "path").learn().posterior.mean()[0] == pytest.approx(1e6)


def test_sums_from_which_float64_cannot_compute_the_posterior_are_refused():
    """Rounding moves nothing here, but Σx² − (Σx)²/n has lost its digits."""
    x = 2e4 + 1e-3 * np.random.default_rng(3).normal(size=4)
    with pytest.raises(DataError, match=r"center = \{x = 20000\}"):
        Federation(NormalUnknown(mean=2e4, b=1e-6), [x], "path")


def test_harmless_data_pass():
    for case in CASES:
        Federation(case.model, {"a": case.rows(8, seed=1), "b": case.rows(5, seed=2)}, "path")
    Federation(LinearRegression(1), [([[2.0], [2.0]], [0.0, 0.0])], "path")  # constant data
    Federation(LinearRegression(2), [([[2.0, 0], [1, 0]], [1, 2])], "path")  # a column of zeros
    Federation(BetaBernoulli(), [[0, 0]], "path")
    tiny = ([[1e-9], [2e-9]], [0.1, 0.2])  # they say nothing about a slope of 0 ± 1
    Federation(LinearRegression(1), [tiny], "path")


def test_new_data_are_checked_together_with_those_of_the_others():
    network = Federation(NormalUnknown(), [[0.5, 1.0, 0.7]], "path")
    with pytest.raises(GridOverflow, match="Fix: scale"):
        network.update("a1", [1e9, 2e9])


def test_rounding_is_checked_for_all_agents_together():
    """A bias that is small beside what each agent knows is large beside what they know together."""
    rng = np.random.default_rng(5)
    model = LinearRegression(1, sd=1e4, noise=1.0)
    shards = [
        model.shard(
            np.column_stack([x := 6e-5 * rng.normal(size=400), 1e4 * x + rng.normal(size=400)])
        )
        for _ in range(60)
    ]
    alone = [rounding_problem(model, measured(model, [shard])) for shard in shards]
    assert None in alone
    assert rounding_problem(model, measured(model, shards)) is not None
