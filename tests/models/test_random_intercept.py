"""Regressions in which every agent has an intercept of its own, which it integrates out."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.glm import Central, gaussian_kl
from tests.support.real_data import real_data

from unweave import Federation
from unweave.errors import ConfigError
from unweave.models import LinearRegression, LogisticRegression, PoissonRegression

NAMES = ("east", "north", "west")


def data(seed: int, sizes=(12, 20, 9), tau: float = 2.0) -> dict[str, tuple]:
    rng = np.random.default_rng(seed)
    found = {}
    for name, n in zip(NAMES, sizes, strict=True):
        x = rng.normal(size=(n, 2))
        y = 0.5 + x @ [1.0, -2.0] + tau * rng.normal() + 0.7 * rng.normal(size=n)
        found[name] = (np.round(x, 4), np.round(y, 4))
    return found


def closed_form(shards, noise: float, tau: float) -> tuple[np.ndarray, np.ndarray]:
    """The posterior of the shared coefficients: y_k ~ Normal(X theta, noise² I + tau² 11ᵀ)."""
    precision, h = np.eye(3), np.zeros(3)
    for x, y in shards:
        design = np.column_stack([np.ones(len(x)), x])
        cov = noise**2 * np.eye(len(y)) + tau**2
        precision += design.T @ np.linalg.solve(cov, design)
        h += design.T @ np.linalg.solve(cov, y)
    return np.linalg.solve(precision, h), np.linalg.inv(precision)


@settings(max_examples=20)
@given(st.integers(0, 10_000), st.sampled_from([0.05, 0.7, 3.0]), st.sampled_from([0.5, 1.0]))
def test_the_agents_integrate_their_intercepts(seed, tau, noise):
    shards = data(seed, tau=tau)
    model = LinearRegression(2, intercept=True, noise=noise, agent_sd=tau, sd=1.0)
    q = Federation(model, shards, "path").learn().posterior
    mean, cov = closed_form(shards.values(), noise, tau)
    sd = np.sqrt(np.diag(cov))
    assert np.allclose(q.mean(), mean, atol=2e-2 * sd.min(), rtol=0)
    assert np.allclose(q.sd(), sd, rtol=1e-2)


def test_an_erasure_is_exact_and_a_small_spread_changes_nothing():
    shards = data(1)
    model = LinearRegression(2, intercept=True, agent_sd=1.5, sd=1.0)
    network = Federation(model, shards, "ring").learn()
    network.forget("north", records={"east": [0, 3]})
    rest = {
        "west": shards["west"],
        "east": tuple(np.delete(part, [0, 3], 0) for part in shards["east"]),
    }
    assert network.posterior == Federation(model, rest).learn().posterior
    pooled = Federation(LinearRegression(2, intercept=True, sd=1.0), shards).learn().posterior
    tiny = LinearRegression(2, intercept=True, sd=1.0, agent_sd=1e-6)
    assert np.allclose(Federation(tiny, shards).learn().posterior.mean(), pooled.mean(), atol=1e-6)
    # Agents that differ tell less about the shared intercept than records that do not.
    assert network.posterior.sd()[0] > 1.3 * pooled.sd()[0]


@pytest.mark.parametrize(
    "wrong", [{"agent_sd": 0.0}, {"agent_sd": -1.0}, {"agent_sd": 1.0, "intercept": False},
              {"agent_sd": 1.0, "reduction": "mean"}],
)  # fmt: skip
def test_impossible_settings_are_named(wrong):
    with pytest.raises(ConfigError, match="agent_sd"):
        LinearRegression(**{"features": 2, "intercept": True, **wrong})


def classes(seed, kind, tau=1.5, sizes=(40, 60, 30, 50)):
    rng = np.random.default_rng(seed)
    found = {}
    for k, n in enumerate(sizes):
        x = np.round(rng.normal(size=(n, 2)), 4)
        t = 0.3 + x @ [1.0, -0.7] + tau * rng.normal()
        y = (
            rng.uniform(size=n) < 1 / (1 + np.exp(-t))
            if kind is LogisticRegression
            else rng.poisson(np.exp(t))
        )
        found[f"a{k + 1}"] = (x, y.astype(float))
    return found


def joint_optimum(kind, shards, tau):
    """The posterior of all coefficients: the joint model has one more for each agent, of an
    indicator with the prior sd `tau`. The agents' intercepts are the last ones."""
    x = np.vstack([part[0] for part in shards])
    owner = np.concatenate([np.full(len(part[1]), k) for k, part in enumerate(shards)])
    design = np.column_stack([x, np.eye(len(shards))[owner]])
    y = np.concatenate([part[1] for part in shards])
    names = [f"x{j}" for j in range(design.shape[1])]
    prior = {name: 1.0 if j < x.shape[1] else tau for j, name in enumerate(names)}
    joint = kind(names, intercept=True, sd={"intercept": 1.0, **prior})
    table = dict(zip([*names, "y"], [*design.T, y], strict=True))
    return Federation(joint, [table]).learn(tol=1e-16, max_iterations=200).posterior


@pytest.mark.parametrize("name", ["breast_cancer", "digits"])
def test_a_solve_does_not_end_short_of_the_joint_optimum(name):
    """By label, ten steps from the mode ended at KL 5e-6 and 7e-5, however many passes followed."""
    rows = real_data(name)
    parts = np.array_split(rows[np.argsort(rows[:, -1], kind="stable")], 10)
    shards = [(part[:, :-1], part[:, -1]) for part in parts]
    model = LogisticRegression(rows.shape[1] - 1, intercept=True, agent_sd=1.0, sd=1.0)
    network = Federation(model, shards).learn(tol=1e-11, max_iterations=400)
    q = network.posterior.distribution.params
    best = joint_optimum(LogisticRegression, shards, 1.0).distribution.params
    shared = slice(0, len(q["mean"]))
    optimum = Central(best["mean"][shared], best["cov"][shared, shared])
    assert gaussian_kl(q["mean"], q["cov"], optimum) < 1e-9


@pytest.mark.parametrize("kind", [LogisticRegression, PoissonRegression])
@pytest.mark.parametrize("seed", [0, 1])
def test_a_network_finds_the_marginal_of_the_joint_optimum(kind, seed):
    tau, shards = 1.5, classes(seed, kind)
    network = Federation(kind(2, intercept=True, agent_sd=tau, sd=1.0), shards, "ring")
    q = network.learn(tol=1e-10).posterior
    best = joint_optimum(kind, list(shards.values()), tau)
    assert np.allclose(q.mean(), best.mean()[:3], atol=1e-4 * best.sd()[:3].min())
    assert np.allclose(q.sd(), best.sd()[:3], rtol=1e-4)
    network.forget("a3")
    rest = {name: part for name, part in shards.items() if name != "a3"}
    never = Federation(network.model, rest).learn(tol=1e-10).posterior
    assert network.posterior.kl(never) < 1e-4
    with pytest.raises(ConfigError, match="agent_sd"):
        Federation(network.model, shards, solver="ep")
