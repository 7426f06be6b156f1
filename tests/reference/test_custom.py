"""Models of one's own agree with closed forms and with the models that we wrote by hand."""

import re
import runpy
from pathlib import Path

import numpy as np
import pytest

from unweave import CustomModel, Federation
from unweave.errors import ConfigError, SolverError
from unweave.models import LinearRegression, LogisticRegression
from unweave.solvers import Diagonal

pytestmark = [pytest.mark.reference, pytest.mark.filterwarnings("default")]
jax = pytest.importorskip("jax", reason="JAX is not installed: run `make test-slow`")
jnp = jax.numpy

RECORDS = {"x": ["x1", "x2", "x3"], "y": "real"}


def predictor(params, record):
    return record["x"] @ params["w"] + params["b"]


def logistic(params, record):
    t = predictor(params, record)
    return record["y"] * t - jnp.logaddexp(0.0, t)


def linear(params, record):
    return -0.5 * (record["y"] - predictor(params, record)) ** 2


def custom(likelihood, posterior="full", prior=1.0, **settings):
    params = {"w": jnp.zeros(3), "b": 0.0}
    return CustomModel(likelihood, params, prior, records=RECORDS, posterior=posterior, **settings)


def shards(seed, agents=4, records=40):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(agents, records, 3))
    t = x @ [1.0, -0.5, 0.3] + 0.2
    y = rng.random(t.shape) < 1 / (1 + np.exp(-t))
    return [np.column_stack([a, b]) for a, b in zip(x, y, strict=True)]


def as_written(posterior, model):
    """Mean and covariance in the order of a regression: the intercept first."""
    found = posterior.params
    assert model.quantities == ("b", "w[0]", "w[1]", "w[2]")
    return found["mean"], found["cov"]


@pytest.mark.parametrize("seed", range(3))
def test_a_linear_likelihood_gives_the_exact_posterior(seed):
    data, model = shards(seed), custom(linear)
    federation = Federation(model, data).learn(tol=1e-10)
    exact = Federation(LinearRegression(3, intercept=True, noise=1.0), data).learn()
    mean, cov = as_written(federation.posterior, model)
    np.testing.assert_allclose(mean, exact.posterior.params["mean"], atol=1e-5)
    np.testing.assert_allclose(cov, exact.posterior.params["cov"], atol=1e-5)


@pytest.mark.parametrize("seed", range(3))
def test_a_logistic_likelihood_learns_and_forgets_like_the_model_by_hand(seed):
    data, model = shards(seed), custom(logistic)
    found = Federation(model, data).learn(tol=1e-8)
    wanted = Federation(LogisticRegression(3, intercept=True), data).learn(tol=1e-8)
    for agent in ("a2", "a4"):
        mean, cov = as_written(found.posterior, model)
        sd = wanted.posterior.sd()
        # 32 draws against quadrature
        np.testing.assert_allclose(mean, wanted.posterior.mean(), atol=0.05 * sd.max())
        np.testing.assert_allclose(np.sqrt(np.diag(cov)), sd, rtol=0.05)
        found.forget(agent).refine(tol=1e-8)
        wanted.forget(agent).refine(tol=1e-8)


def test_the_estimate_is_small_at_rest_and_large_before():
    data, model = shards(0), custom(logistic)
    worker_shards = [model.shard(part, str(k)) for k, part in enumerate(data)]
    federation = Federation(model, data).learn(iterations=4)
    kls = []
    for _ in range(2):
        terms = [
            model.freeze(federation.units, federation.factor(f"a{k + 1}"), shard)
            for k, shard in enumerate(worker_shards)
        ]
        kls.append(model.appraise(federation.units, np.sum(terms, axis=0))["kl_to_optimum"])
        federation.learn(tol=1e-10)
    assert kls[0] > 1e-4
    assert kls[1] < 1e-8


def test_a_diagonal_posterior_stops_after_its_passes():
    data, model = shards(1), custom(logistic, "diagonal")
    federation = Federation(model, data, solver=Diagonal(passes=12)).learn()
    assert federation.token.passes >= 12  # also where a pass moved q by less than tol
    wanted = Federation(LogisticRegression(3, intercept=True), data).learn()
    np.testing.assert_allclose(
        federation.posterior.mean(), wanted.posterior.mean(), atol=wanted.posterior.sd().max()
    )
    before = federation.posterior
    assert federation.learn().posterior == before


@pytest.mark.parametrize("seed", range(2))
def test_atoms_give_the_exact_posterior_and_forget_exactly(seed):
    """Of a linear likelihood, which has a closed form; the order of agents and of records changes
    no bit, and neither does forgetting."""
    data, model = shards(seed), custom(linear, "atoms")
    federation = Federation(model, data, "ring").learn()
    exact = Federation(LinearRegression(3, intercept=True, noise=1.0), data).learn().posterior
    sd = exact.sd()
    np.testing.assert_allclose(federation.posterior.mean(), exact.mean(), atol=1e-3 * sd.min())
    np.testing.assert_allclose(federation.posterior.sd(), sd, rtol=1e-3)
    mixed = [np.random.default_rng(seed).permutation(part) for part in data[::-1]]
    assert Federation(model, mixed, "path").learn().posterior == federation.posterior
    federation.forget("a3", records={"a1": [0, 3, 17]})
    rest = [np.delete(data[0], [0, 3, 17], 0), data[1], data[3]]
    assert federation.posterior == Federation(model, rest).learn().posterior
    assert federation.erasures[-1].kind == "exact"


def test_atoms_follow_the_tree_and_refuse_what_they_cannot_do():
    model = custom(logistic, "atoms", prior={"w": 1.5, "b": 0.123456789})
    assert model.quantities == ("b", "w[0]", "w[1]", "w[2]")
    assert model.params["b"] == "normal(0, 0.123456789)"  # no digit of a prior is lost
    draws = Federation(model, shards(0)).learn().posterior.sample(5)
    assert draws["w"].shape == (5, 3)
    assert draws["b"].shape == (5,)
    assert model.build(np.arange(4.0))["w"].tolist() == [1, 2, 3]
    assert "logistic" in model.settings()["likelihood"]
    assert model != custom(linear, "atoms")
    assert model.settings() != custom(linear, "atoms").settings()
    assert model == custom(logistic, "atoms", prior={"w": 1.5, "b": 0.123456789})
    with pytest.raises(ConfigError, match=r"7 parameters at atoms. Fix: at most 6"):
        CustomModel(logistic, jnp.zeros(7), records=RECORDS, posterior="atoms")
    with pytest.raises(ConfigError, match="one number per record"):
        custom(lambda params, record: 0.0, "atoms")
    with pytest.raises(ConfigError, match='Fix: "full", "diagonal" or "atoms"'):
        custom(logistic, "atom")


@pytest.mark.parametrize("posterior", ["full", "diagonal"])
def test_there_are_no_private_rounds(posterior):
    with pytest.raises(ConfigError, match="private rounds"):
        custom(logistic, posterior).in_rounds(4)


def test_names_and_values_follow_the_tree():
    params = {"layers": [{"w": jnp.ones((2, 2))}, {"w": jnp.zeros(2)}], "scale": 3.0}
    model = CustomModel(
        lambda p, r: -((r["y"] - p["scale"] - p["layers"][1]["w"].sum()) ** 2),
        params,
        {"layers": [{"w": 0.5}, {"w": jnp.ones(2)}], "scale": 2.0},
        records=["y"],
    )
    assert model.quantities[:2] == ("layers.0.w[0,0]", "layers.0.w[0,1]")
    assert model.quantities[-1] == "scale"
    np.testing.assert_allclose(model.prior.params["mean"], [1, 1, 1, 1, 0, 0, 3])
    np.testing.assert_allclose(np.diag(model.prior.params["cov"]), [0.25] * 4 + [1, 1, 4])
    tree = model.build(np.arange(7.0))
    assert tree["layers"][0]["w"].tolist() == [[0, 1], [2, 3]]
    assert tree["scale"] == 6
    draws = model.posterior(model.eta0).sample(5)
    assert draws["layers.0.w"].shape == (5, 2, 2)
    assert draws["scale"].shape == (5,)


def test_equal_settings_make_equal_models():
    assert custom(logistic) == custom(logistic)
    assert hash(custom(logistic)) == hash(custom(logistic))
    assert custom(logistic) != custom(linear)
    assert custom(logistic).settings() != custom(logistic, prior=2.0).settings()


def test_a_predictive_integrates_over_the_posterior():
    model = custom(logistic)
    federation = Federation(model, shards(0)).learn()
    x = np.array([[1.0, 0.0, 0.0]] * 2)
    both = np.exp(federation.posterior.predict().log_prob(np.column_stack([x, [0, 1]])))
    assert both.sum() == pytest.approx(1.0)
    wanted = Federation(LogisticRegression(3, intercept=True), shards(0)).learn()
    assert both[1] == pytest.approx(wanted.posterior.predict(x[:1]).mean()[0], abs=0.02)


# what cannot work is said in words


def bad(likelihood, match, params=None, prior=1.0):
    params = {"w": jnp.zeros(3), "b": 0.0} if params is None else params
    with pytest.raises(ConfigError, match=match):
        CustomModel(likelihood, params, prior, records=RECORDS)


def test_a_log_likelihood_gives_one_number_per_record():
    bad(lambda p, r: logistic(p, r).sum(), r"for 3 records, log_likelihood gives \(\)")
    bad(lambda p, r: r["x"] * p["w"], r"gives \(3, 3\)")
    bad(lambda p, r: None, "gives NoneType")
    bad(lambda p, r: r["z"], "log_likelihood fails: 'z'")
    bad("logistic", "no function")


def test_the_prior_fits_the_parameters():
    bad(logistic, "the prior of 'w' has shape", prior={"w": jnp.ones(2), "b": 1.0})
    bad(logistic, "the prior has the leaves b, but the parameters have b, w", prior={"b": 1.0})
    bad(logistic, "sd of the prior is not above 0", prior=-1.0)
    bad(logistic, "params 'w' is empty, or not finite", params={"w": np.full(3, np.nan), "b": 0.0})
    bad(logistic, "params holds no array", params={})
    with pytest.raises(ConfigError, match="posterior = 'other'"):
        custom(logistic, "other")


@pytest.mark.parametrize("posterior", ["full", "diagonal"])
@pytest.mark.parametrize(
    ("broken", "what"),
    [
        (lambda p, r: jnp.log(-1.0 - predictor(p, r) ** 2), "record 0: .* is not a number"),
        (lambda p, r: jnp.where(r["y"] > 0, -jnp.inf, logistic(p, r)), "infinite"),
        (lambda p, r: jnp.sqrt(0.0 * predictor(p, r)), "a derivative .* is not finite"),
    ],
)
def test_a_loss_that_is_not_finite_is_reported_with_agent_and_pass(posterior, broken, what):
    with pytest.raises(SolverError, match=rf"agent 'a\d', pass 1: .*{what}"):
        Federation(custom(broken, posterior), shards(0)).learn()


def test_the_guide_runs_and_prints_what_it_says(tmp_path, capsys):
    text = (Path(__file__).parents[2] / "docs" / "how-to" / "model.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"^```python jax\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    (tmp_path / "guide.py").write_text(code, encoding="utf-8")
    runpy.run_path(str(tmp_path / "guide.py"))
    printed = capsys.readouterr().out.splitlines()
    assert printed
    assert all(f"# {line}" in code for line in printed)


def test_a_diagonal_factor_of_one_record_is_the_record_up_to_its_size():
    """(P m − h) is the gradient of the loss: a multiple of x for a generalised linear model."""
    rng = np.random.default_rng(2)
    model = CustomModel(
        lambda p, r: -jnp.logaddexp(0.0, jnp.where(r["y"] == 1, -1.0, 1.0) * (r["x"] @ p["w"])),
        params={"w": np.zeros(20)},
        records={"x": [f"x{i}" for i in range(20)], "y": "binary"},
        posterior="diagonal",
    )
    x = rng.normal(size=(61, 20))
    y = (x[:, 0] > 0).astype(float)
    network = Federation(model, [(x[:1], y[:1]), (x[1:], y[1:])]).learn()
    h, precision = np.split(model.grid.decode(network.factor("a1")), 2)
    gradient = precision * network.posterior.mean() - h
    assert abs(np.corrcoef(gradient, x[0])[0, 1]) > 0.99
