"""Posteriors by NumPyro's NUTS, and regressions by statsmodels' least squares."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from unweave.models import Model, by_name

__all__ = ["FILE", "conjugate_references", "references"]

FILE = Path(__file__).parents[1] / "golden" / "posteriors.json"

_CHAINS, _WARMUP, _DRAWS = 4, 1_000, 20_000
_REGRESSION = {"features": ["dose", "age"], "target": "effect", "intercept": True}
SETTINGS: dict[str, dict[str, Any]] = {
    "linear-regression": {**_REGRESSION, "noise": 0.5, "sd": 2.0},
    "linear-regression-unknown-noise": {**_REGRESSION, "sd": 2.0, "a": 2.0, "b": 1.0},
    "gamma-poisson": {"a": 2.0, "b": 0.5},
    "beta-exponential": {"a": 3.0, "b": 3.0},
}


def draw_records(name: str) -> list[list[float]]:
    """Records for a case. Three digits are enough, and a file shows them exactly."""
    rng = np.random.default_rng(11)
    if name == "gamma-poisson":
        rows = rng.poisson(3.2, (40, 1)).astype(float)
    elif name == "beta-exponential":
        rows = rng.exponential(0.4, (40, 1))
    else:
        x = rng.normal(size=(60, 2))
        noise = rng.normal(0, 0.5, 60)
        rows = np.column_stack([x, 0.7 + x @ [1.5, -0.5] + noise])
    return [[round(float(value), 3) for value in row] for row in rows]


def nuts(model: Model, rows: np.ndarray) -> dict[str, dict[str, float]]:
    """Mean, standard deviation and effective sample size of every quantity of the model."""
    import jax
    import numpyro
    from numpyro import distributions as dist
    from numpyro.diagnostics import summary
    from numpyro.infer import MCMC, NUTS

    jax.config.update("jax_enable_x64", True)
    settings = model.settings()
    x, y = np.insert(rows[:, :-1], 0, 1.0, axis=1), rows[:, -1]

    def mean(sd: Any) -> Any:
        """The targets' means, from coefficients with this prior standard deviation."""
        names = ("intercept", "dose", "age")
        return sum(x[:, j] * numpyro.sample(names[j], dist.Normal(0.0, sd)) for j in range(3))

    def linear_regression() -> None:
        numpyro.sample("y", dist.Normal(mean(settings["sd"]), settings["noise"]), obs=y)

    def linear_regression_unknown_noise() -> None:
        sigma2 = numpyro.sample("sigma2", dist.InverseGamma(settings["a"], settings["b"]))
        sigma = sigma2**0.5
        numpyro.sample("y", dist.Normal(mean(settings["sd"] * sigma), sigma), obs=y)

    def gamma_poisson() -> None:
        theta = numpyro.sample("theta", dist.Gamma(settings["a"], settings["b"]))
        with numpyro.plate("records", len(y)):
            numpyro.sample("x", dist.Poisson(theta), obs=y)

    def beta_exponential() -> None:
        theta = numpyro.sample("theta", dist.Beta(settings["a"], settings["b"]))
        with numpyro.plate("records", len(y)):
            numpyro.sample("z", dist.Exponential(1.0 / theta), obs=y)

    programs = (linear_regression, linear_regression_unknown_noise, gamma_poisson, beta_exponential)
    program = {one.__name__.replace("_", "-"): one for one in programs}[model.name]
    chains = MCMC(
        NUTS(program),
        num_warmup=_WARMUP,
        num_samples=_DRAWS,
        num_chains=_CHAINS,
        chain_method="vectorized",
        progress_bar=False,
    )
    chains.run(jax.random.PRNGKey(5))
    found = summary(chains.get_samples(group_by_chain=True))
    return {
        name: {
            "mean": float(found[name]["mean"]),
            "sd": float(found[name]["std"]),
            "effective": float(found[name]["n_eff"]),
        }
        for name in model.quantities
    }


def ordinary_least_squares(rows: np.ndarray) -> dict[str, Any]:
    """Coefficients, (XᵀX)⁻¹'s diagonal as standard errors of noise 1, and the residual squares."""
    import statsmodels.api as sm

    x, y = sm.add_constant(rows[:, :-1]), rows[:, -1]
    unit = sm.OLS(y, x).fit(cov_type="fixed scale", cov_kwds={"scale": 1.0})
    fit = sm.OLS(y, x).fit()
    return {
        "coefficients": fit.params.tolist(),
        "standard_errors": fit.bse.tolist(),
        "standard_errors_of_noise_1": unit.bse.tolist(),
        "residual_squares": float(fit.ssr),
    }


def references(name: str, settings: dict[str, Any], records: list[list[float]]) -> dict[str, Any]:
    """What the other software says about one case."""
    rows = np.array(records)
    found: dict[str, Any] = {"numpyro": nuts(by_name(name, **settings), rows)}
    if name.startswith("linear"):
        found["statsmodels"] = ordinary_least_squares(rows)
    return found


def conjugate_references() -> dict[str, Any]:
    """What tests/golden/posteriors.json holds, with the records that were drawn."""
    cases = {}
    for name, settings in SETTINGS.items():
        records = draw_records(name)
        cases[name] = {
            "settings": settings,
            "records": records,
            **references(name, settings, records),
        }
    packages = ("numpyro", "jax", "statsmodels")
    return {
        "command": "make golden",
        "versions": {package: version(package) for package in packages},
        "cases": cases,
    }
