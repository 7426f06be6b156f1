"""Staged atoms: against quadrature, and refusals."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import special, stats

from unweave import Federation
from unweave.errors import ConfigError, DomainError
from unweave.families.atoms import ess
from unweave.manifest.brief import brief_settings
from unweave.models import NegativeBinomial, StagedAtomModel, StudentT, Weibull
from unweave.models.atoms.ellipsoid import Ellipsoid, best_fit, gaussian_sobol
from unweave.models.atoms.likelihood import CLIP
from unweave.models.atoms.prior import shift
from unweave.models.atoms.stages import PRIOR


def logit(theta, record):
    eta = sum(theta[f"b{j}"] * record[f"x{j}"] for j in range(len(theta)))
    return eta * record["y"] - np.logaddexp(0.0, eta)


def logistic(d):
    columns = {**{f"x{j}": "real" for j in range(d)}, "y": "binary"}
    return StagedAtomModel(logit, {f"b{j}": "normal(0, 1)" for j in range(d)}, columns)


def labelled(rng, n, d):
    x = rng.standard_normal((n, d))
    return np.column_stack([x, rng.random(n) < special.expit(x.sum(axis=1))])


CASES = {
    "weibull": (Weibull(), lambda rng, n: rng.weibull(1.4, (n, 1))),
    "negative-binomial": (
        NegativeBinomial(),
        lambda rng, n: rng.negative_binomial(3, 0.3, (n, 1)).astype(float),
    ),
    "student-t": (StudentT(), lambda rng, n: 1.5 + rng.standard_t(4, (n, 1))),
    "logit 2": (logistic(2), lambda rng, n: labelled(rng, n, 2)),
    "logit 3": (logistic(3), lambda rng, n: labelled(rng, n, 3)),
}


def settled(model, rows, agents=3, **kwargs):
    return Federation(model, np.array_split(rows, agents), **kwargs).learn()


def quadrature(model, rows, mean, cov, reach=6.5, n=None):
    """Moments of u and the evidence by a product of trapezoids in the posterior's own axes."""
    d = model.space.dim
    n = n or {1: 401, 2: 121, 3: 33}[d]
    axis = np.linspace(-reach, reach, n)
    z = np.stack(np.meshgrid(*[axis] * d, indexing="ij"), axis=-1).reshape(-1, d)
    root = np.linalg.cholesky(cov)
    u = mean + z @ root.T
    theta = model.space.outward(u)
    named = {name: theta[:, j] for j, name in enumerate(model.space.names)}
    value = model.space.log_prior(u)
    for row in rows:
        value = value + model.log_likelihood(named, dict(zip(model.columns, row, strict=True)))
    weights = np.exp(value - value.max())
    cell = (axis[1] - axis[0]) ** d * np.prod(np.diag(root))
    evidence = value.max() + np.log(weights.sum() * cell)
    weights /= weights.sum()
    first = weights @ u
    return first, np.sqrt(weights @ (u - first) ** 2), evidence


@pytest.mark.parametrize("n", [60, 400])
@pytest.mark.parametrize("name", CASES)
def test_posteriors_agree_with_quadrature(name, n):
    """Mean and sd within 1e-2 sd, the evidence within 1e-2; from 400 records on within 2e-3."""
    model, draw = CASES[name]
    rows = draw(np.random.default_rng(n), n)
    found = settled(model, rows).posterior
    cloud = model.cloud(found.eta)
    centre = cloud.weights @ cloud.u
    cov = (cloud.weights[:, None] * (cloud.u - centre)).T @ (cloud.u - centre)
    mean, sd, evidence = quadrature(model, rows, centre, cov)
    error = 1e-2 if n == 60 else 2e-3
    assert (np.abs(centre - mean) < error * sd).all()
    assert np.sqrt(np.diag(cov)) == pytest.approx(sd, rel=2 * error)
    assert cloud.log_evidence == pytest.approx(evidence, abs=error)
    assert model.staged.read(found.eta).estimate < 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("n", [40, 200, 2000])
@pytest.mark.parametrize("name", CASES)
def test_many_posteriors_agree_with_quadrature(name, n, seed):
    model, draw = CASES[name]
    rows = draw(np.random.default_rng([n, seed]), n)
    found = settled(model, rows).posterior
    cloud = model.cloud(found.eta)
    centre = cloud.weights @ cloud.u
    cov = (cloud.weights[:, None] * (cloud.u - centre)).T @ (cloud.u - centre)
    mean, sd, _ = quadrature(model, rows, centre, cov)
    assert (np.abs(centre - mean) < 0.02 * sd).all()
    assert np.sqrt(np.diag(cov)) == pytest.approx(sd, rel=0.04)


def test_draws_densities_and_the_predictive():
    model, rows = Weibull(), np.random.default_rng(2).weibull(1.4, (80, 1))
    network = settled(model, rows)
    found = network.posterior
    draws = found.sample(20_000, seed=3)
    for j, (name, law) in enumerate(zip(("shape", "scale"), found.marginals, strict=True)):
        assert draws[name].mean() == pytest.approx(found.mean()[j], abs=0.04 * found.sd()[j])
        assert draws[name].std() == pytest.approx(found.sd()[j], rel=0.04)
        x = np.linspace(*law.quantile([1e-5, 1 - 1e-5]), 2001)
        assert np.trapezoid(law.pdf(x), x) == pytest.approx(1.0, abs=3e-3)
        assert law.cdf(x[1000]) == pytest.approx(
            np.trapezoid(law.pdf(x[:1001]), x[:1001]), abs=0.01
        )

    axes = np.linspace(found.mean() - 6 * found.sd(), found.mean() + 6 * found.sd(), 121).T
    points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)
    cell = (axes[0][1] - axes[0][0]) * (axes[1][1] - axes[1][0])
    assert np.exp(found.log_prob(points)).sum() * cell == pytest.approx(1.0, abs=3e-3)
    predictive = found.predict()
    truth = np.mean(stats.weibull_min.pdf(0.7, draws["shape"], scale=draws["scale"]))
    assert np.exp(predictive.log_prob([0.7])[0]) == pytest.approx(truth, rel=0.01)
    assert predictive.sample(5000).mean() == pytest.approx(rows.mean(), rel=0.1)
    assert set(network.influence()) == set(network.agents)
    assert all(0.0 <= value < 10.0 for value in network.influence().values())
    loss = model.loss(found.mean(), rows)
    assert loss == pytest.approx(
        -stats.weibull_min.logpdf(rows, found.mean()[0], scale=found.mean()[1]).sum()
    )


def test_no_agents_give_the_prior():
    model = StudentT()
    prior = model.posterior(model.eta0)
    assert prior.mean()[0] == pytest.approx(0.0, abs=0.1)
    assert prior.marginals[1].quantile(0.5) == pytest.approx(1.0, rel=0.02)
    assert np.median(prior.sample(4000)["df"]) == pytest.approx(4.0, rel=0.1)


# -- ellipsoids and fits ---------------------------------------------------------------------------


def test_ellipsoids_are_near_their_gaussian_and_come_back_from_it():
    rng = np.random.default_rng(1)
    for d in range(1, 7):
        root = np.tril(rng.standard_normal((d, d))) + 2 * np.eye(d)
        mean = 30 * rng.standard_normal(d)
        box = Ellipsoid.around(mean, root @ root.T)
        white = np.linalg.solve(box.root, root)
        values = np.linalg.svd(white, compute_uv=False)
        assert values.min() > 0.4
        assert values.max() < 2.5
        assert np.abs(box.inward(mean)).max() < 0.25 * d + 0.3
        assert Ellipsoid.around(box.mean, box.root @ box.root.T) == box
        z = rng.standard_normal((7, d))
        assert box.inward(box.outward(z)) == pytest.approx(z, abs=1e-9)


def test_a_small_change_mostly_keeps_the_ellipsoid():
    rng = np.random.default_rng(5)
    cov = np.array([[1.0, 0.3], [0.3, 0.5]])
    means = rng.standard_normal((300, 2))
    same = [Ellipsoid.around(m, cov) == Ellipsoid.around(m + 0.01, 1.01 * cov) for m in means]
    assert np.mean(same) > 0.85


def test_the_hold_out_estimate_is_near_the_true_divergence():
    """½ Var of a residual is the KL of a small misfit: within a factor of 20 here."""
    z = 1.6 * gaussian_sobol(512, 1, shift(0, 1))
    line = np.linspace(-5.5, 5.5, 4001)
    for amount in (0.3, 0.1):

        def value(x, amount=amount):
            return -0.5 * x**2 + amount * np.sin(2.0 * x)

        fitted = best_fit(z, value(z[:, 0]), value(z[:, 0]) + 0.5 * (z[:, 0] / 1.6) ** 2)
        log_q, log_p = fitted(line[:, None]), value(line)
        log_q -= special.logsumexp(log_q)
        log_p -= special.logsumexp(log_p)
        kl = float(np.exp(log_q) @ (log_q - log_p))
        assert 0.05 < fitted.estimate / kl < 20.0


# -- refusals --------------------------------------------------------------------------------------


def test_a_likelihood_that_no_polynomial_fits_is_refused():
    def wavy(theta, record):
        return -0.5 * (record["x"] - theta["m"]) ** 2 + 3.0 * np.cos(9.0 * theta["m"])

    model = StagedAtomModel(wavy, {"m": "normal(0, 1)"}, ["x"])
    network = Federation(model, [[0.1], [0.2]]).learn()
    with pytest.raises(DomainError, match=r"hold-out estimate of the KL is .* above 0\.001"):
        _ = network.posterior


def test_too_few_records_for_a_polynomial_are_named_as_the_cause():
    network = Federation(Weibull(), [[1.0, 2.0], [3.0]], "path").learn()
    with pytest.raises(DomainError, match="too few records for the prior") as caught:
        _ = network.posterior
    fix = str(caught.value).partition("Fix: ")[2]
    assert fix == "more records, a narrower prior, or AtomModel (atoms of the prior)"


def test_bits_of_many_components_are_short():
    model = Weibull()
    assert len(repr(model)) < 400
    assert model.bits == model.grid.bits
    assert brief_settings(model)["bits"] == 24
    assert Weibull(bits=24) == model
    assert Weibull(bits=model.bits) == model


def test_records_are_rounded_to_the_bits_of_the_grid():
    rows = np.random.default_rng(0).weibull(1.4, (200, 1))
    fine, coarse = (settled(Weibull(bits=bits), rows).posterior for bits in (24, 12))
    assert coarse.digest != fine.digest
    assert np.allclose(coarse.mean(), fine.mean(), rtol=1e-3)
    assert np.allclose(coarse.sd(), fine.sd(), rtol=1e-2)
    for bits in (24, 12):
        model = Weibull(bits=bits)
        record = model.log_likelihood(
            model.named_samples(model.space.outward(model.layout.points(PRIOR))),
            {"t": rows[:1, 0]},
        )
        values = model.values(model.shard(rows[:1]), PRIOR)
        assert np.array_equal(values, np.rint(np.maximum(record, -CLIP) * 2.0**bits))


def test_bits_that_differ_between_atoms_are_refused():
    bits = list(Weibull().bits)
    bits[2] -= 1
    with pytest.raises(ConfigError, match="bits differ between atoms"):
        Weibull(bits=bits)


def test_a_sum_that_is_not_settled_is_no_posterior():
    rows = np.random.default_rng(0).weibull(1.4, (200, 1))
    network = Federation(Weibull(), np.array_split(rows, 3)).learn(4)
    with pytest.raises(DomainError, match=r"stage 1 is not complete.*learn\(\)"):
        _ = network.posterior
    assert network.learn().posterior.mean() == pytest.approx([1.4, 1.0], rel=0.2)


def test_too_few_stages_are_refused():
    model = Weibull(stages=2)
    rows = np.random.default_rng(0).weibull(1.4, (3000, 1))
    with pytest.raises(DomainError, match="2 stages and modes = 1 were not enough"):
        _ = settled(model, rows).posterior


def test_settings_that_cannot_work_are_explained():
    for wrong in ({"atoms": 10}, {"stages": 1}, {"modes": 0}, {"limit": 0}, {"shape": -1}):
        with pytest.raises(ConfigError, match=r"Fix: "):
            Weibull(**wrong)


def test_ess_of_equal_weights_is_their_number():
    assert ess(np.zeros(7)) == pytest.approx(7.0)
    assert ess(np.array([0.0, -800.0])) == pytest.approx(1.0)


def test_a_polynomial_that_rises_at_the_rim_is_refused():
    """Few atoms are there, so the hold-out estimate does not see it."""
    model = Weibull(atoms=256)
    network = settled(model, np.random.default_rng(3).weibull(1.4, (80, 1)))
    found = model.staged.read(network.posterior.eta)
    (fitted,) = found.fits
    rising = np.zeros_like(fitted.coefficients)
    rising[10] = 40.0  # (z_0/3)^4
    bent = replace(fitted, coefficients=fitted.coefficients + rising)
    assert not model.staged._checked(found).problem
    assert "does not end" in model.staged._checked(found._replace(fits=(bent,))).problem
