"""GLMs on real data by other software: posteriors by NumPyro's NUTS, and best coefficients by
statsmodels and scikit-learn. The data are those of tests/support/real_data.py."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.real_data import real_case

__all__ = ["FILE", "FITS", "POSTERIORS", "best_coefficients", "glm_references", "nuts"]

FILE = Path(__file__).parents[1] / "golden" / "glms.json"

# The draws are bounded: 4 chains of 2,500 take seconds to a few minutes. With a dense mass matrix
# their effective number is above 5,000, so the error of a mean is below 0.015 sd.
_CHAINS, _WARMUP, _DRAWS, _DEPTH = 4, 600, 2_500, 7

POSTERIORS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("logistic-regression", "breast_cancer", {}),
    ("logistic-regression", "digits", {}),
    ("logistic-regression", "wine", {}),
    ("probit-regression", "wine", {}),
    ("poisson-regression", "digits", {"exposure": "ink"}),
    ("negative-binomial-regression", "diabetes", {"shape": 2.0}),
    ("softmax-regression", "iris", {"classes": 3}),
    ("robust-regression", "diabetes", {"noise": 0.5}),
)
FITS: tuple[tuple[str, str, str, dict[str, Any]], ...] = (
    ("statsmodels", "logistic-regression", "diabetes", {}),
    ("statsmodels", "probit-regression", "diabetes", {}),
    ("statsmodels", "poisson-regression", "digits", {"exposure": "ink"}),
    ("statsmodels", "negative-binomial-regression", "diabetes", {"shape": 2.0}),
    ("statsmodels", "robust-regression", "diabetes", {}),
    ("scikit-learn", "logistic-regression", "breast_cancer", {}),
    ("scikit-learn", "softmax-regression", "breast_cancer", {"classes": 2}),
    ("scikit-learn", "poisson-regression", "diabetes", {}),
)


def columns(kind: str, name: str, **settings: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Design with an intercept, target, and exposure (1 without one)."""
    model, rows = real_case(kind, name, **settings)
    d = len(model.feature_names)
    x = np.column_stack([np.ones(len(rows)), rows[:, :d]])
    return x, rows[:, d], rows[:, d + 1] if rows.shape[1] > d + 1 else np.ones(len(rows))


def nuts(kind: str, name: str, **settings: Any) -> dict[str, list[float]]:
    """Mean, sd and effective sample size of every coefficient; prior Normal(0, 1)."""
    import jax
    import jax.numpy as jnp
    import numpyro
    from numpyro import distributions as dist
    from numpyro.diagnostics import summary
    from numpyro.infer import MCMC, NUTS

    jax.config.update("jax_enable_x64", True)
    x, y, exposure = columns(kind, name, **settings)
    classes = settings.get("classes", 1)

    def program() -> None:
        theta = numpyro.sample("theta", dist.Normal(0.0, 1.0).expand([classes * x.shape[1]]))
        t = x @ theta.reshape(classes, -1).T  # the coefficients stand class by class
        if kind == "softmax-regression":
            numpyro.sample("y", dist.Categorical(logits=t), obs=y.astype(int))
            return
        t = t[:, 0] + np.log(exposure)
        likelihood = {
            "logistic-regression": lambda: dist.Bernoulli(logits=t),
            "probit-regression": lambda: dist.Bernoulli(probs=jax.scipy.stats.norm.cdf(t)),
            "poisson-regression": lambda: dist.Poisson(jnp.exp(t)),
            "negative-binomial-regression": lambda: dist.NegativeBinomial2(
                jnp.exp(t), settings["shape"]
            ),
            "robust-regression": lambda: dist.StudentT(4.0, t, settings["noise"]),
        }[kind]()
        numpyro.sample("y", likelihood, obs=y)

    chains = MCMC(
        NUTS(program, dense_mass=True, max_tree_depth=_DEPTH),
        num_warmup=_WARMUP,
        num_samples=_DRAWS,
        num_chains=_CHAINS,
        chain_method="vectorized",
        progress_bar=False,
    )
    chains.run(jax.random.PRNGKey(5))
    found = summary(chains.get_samples(group_by_chain=True))["theta"]
    return {
        "mean": found["mean"].tolist(),
        "sd": found["std"].tolist(),
        "effective": found["n_eff"].tolist(),
        "r_hat": found["r_hat"].tolist(),
    }


def best_coefficients(program: str, kind: str, name: str, **settings: Any) -> dict[str, Any]:
    """statsmodels: maximum likelihood, with the standard errors of the observed information.
    scikit-learn: the mode with the prior Normal(0, 1) of all coefficients."""
    x, y, exposure = columns(kind, name, **settings)
    if program == "scikit-learn":
        from sklearn import linear_model

        if kind == "poisson-regression":
            fit = linear_model.PoissonRegressor(
                alpha=1 / len(y), fit_intercept=False, tol=1e-12, max_iter=5_000
            ).fit(x, y)
            return {"coefficients": fit.coef_.tolist()}
        # Two classes, u = theta_1 − theta_0: prior variance 2, and theta = ∓u/2 at the mode.
        design = np.sqrt(2.0) * x if kind == "softmax-regression" else x
        fit = linear_model.LogisticRegression(
            C=1.0, fit_intercept=False, tol=1e-12, solver="newton-cholesky", max_iter=1_000
        ).fit(design, y)
        theta = fit.coef_[0]
        if kind == "softmax-regression":
            theta = np.concatenate([-theta, theta]) / np.sqrt(2.0)
        return {"coefficients": theta.tolist()}

    import statsmodels.api as sm
    from statsmodels.miscmodels.tmodel import TLinearModel

    if kind == "robust-regression":

        class Student(TLinearModel):
            fix_df = 4.0

        model = Student(y, x)
        fit = model.fit(method="bfgs", gtol=1e-5, maxiter=5_000, disp=False)
        *theta, noise = fit.params.tolist()  # the noise is learned here, and given to ours
        inverse = np.linalg.inv(-model.hessian(fit.params)[: len(theta), : len(theta)])
        return {
            "coefficients": theta,
            "standard_errors": np.sqrt(np.diag(inverse)).tolist(),
            "settings": {"df": 4.0, "noise": abs(noise)},
            "log_likelihood": float(fit.llf),
        }
    if kind in ("logistic-regression", "probit-regression"):
        fit = (sm.Logit if kind == "logistic-regression" else sm.Probit)(y, x).fit(
            disp=False, method="newton", tol=1e-12
        )
        errors = fit.bse
    else:
        family = (
            sm.families.Poisson()
            if kind == "poisson-regression"
            else sm.families.NegativeBinomial(alpha=1 / settings["shape"])
        )
        model = sm.GLM(y, x, family=family, exposure=exposure)
        fit = model.fit(tol=1e-14, maxiter=200)
        errors = np.sqrt(np.diag(np.linalg.inv(-model.hessian(fit.params, observed=True))))
    return {
        "coefficients": fit.params.tolist(),
        "standard_errors": np.asarray(errors).tolist(),
        "log_likelihood": float(fit.llf),
    }


def glm_references() -> dict[str, Any]:
    """What tests/golden/glms.json holds."""
    packages = ("numpyro", "jax", "statsmodels", "scikit-learn")
    return {
        "command": "make golden",
        "versions": {package: version(package) for package in packages},
        "posteriors": [
            {"model": kind, "data": name, "settings": settings, **nuts(kind, name, **settings)}
            for kind, name, settings in POSTERIORS
        ],
        "fits": [
            {
                "program": program,
                "model": kind,
                "data": name,
                "settings": settings,
                **best_coefficients(program, kind, name, **settings),
            }
            for program, kind, name, settings in FITS
        ],
    }
