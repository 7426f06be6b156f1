"""Models of atoms by name."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from unweave.errors import ConfigError
from unweave.families.atoms.parameters import Parameter
from unweave.lazy import special
from unweave.models.atoms.likelihood import Named
from unweave.models.atoms.prior import PriorAtoms
from unweave.models.atoms.staged import StagedAtoms
from unweave.models.columns import Column, count, nonnegative, positive, real

__all__ = ["BetaExponentialAtoms", "NegativeBinomial", "StudentT", "Weibull"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class BetaExponentialAtoms(PriorAtoms):
    """The paper's model at atoms: records z ≥ 0, exponential with mean θ; prior θ ~ Beta(a, b).

    `beta-exponential` finds the best Beta; this model reaches the exact posterior, forgets bit for
    bit, and needs no passes: 512 atoms from the prior do for up to some thousand records.

    >>> model = BetaExponentialAtoms(a=3, b=3)
    >>> model.posterior(model.factor(model.shard([0.2, 0.7, 0.3]))).mean().round(3)
    np.float64(0.457)
    """

    a: float = 3.0
    b: float = 3.0
    _: KW_ONLY
    atoms: int = 512

    name: ClassVar[str] = "beta-exponential-atoms"

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return (Parameter("theta", "beta", self.a, self.b),)

    @property
    def schema(self) -> tuple[Column, ...]:
        return (nonnegative("z"),)

    def log_likelihood(self, theta: Named, record: Named) -> Floats:
        mean = theta["theta"]
        result: Floats = -np.log(mean) - record["z"] / mean
        return result

    def simulate(self, theta: Named, rng: np.random.Generator) -> Floats:
        draws: Floats = theta["theta"] * rng.standard_exponential(len(theta["theta"]))
        return draws[:, None]


@dataclass(frozen=True)
class Weibull(StagedAtoms):
    """Times t > 0 with shape and scale unknown: log p = log(k/λ) + (k−1) log(t/λ) − (t/λ)^k.

    The priors of both are log-normal: `shape` and `scale` are their medians, `shape_sd` and
    `scale_sd` the standard deviations of their logarithms.
    """

    shape: float = 1.0
    shape_sd: float = 1.0
    scale: float = 1.0
    scale_sd: float = 1.0

    name: ClassVar[str] = "weibull"

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return (
            _median("shape", self.shape, self.shape_sd),
            _median("scale", self.scale, self.scale_sd),
        )

    @property
    def schema(self) -> tuple[Column, ...]:
        return (positive("t"),)

    def log_likelihood(self, theta: Named, record: Named) -> Floats:
        k, ratio = theta["shape"], record["t"] / theta["scale"]
        result: Floats = np.log(k / theta["scale"]) + (k - 1.0) * np.log(ratio) - ratio**k
        return result

    def simulate(self, theta: Named, rng: np.random.Generator) -> Floats:
        draws: Floats = theta["scale"] * rng.weibull(theta["shape"])
        return draws[:, None]


@dataclass(frozen=True)
class NegativeBinomial(StagedAtoms):
    """Counts x with mean m and size r unknown; their variance is m + m²/r.

    The priors of both are log-normal: `mean` and `size` are their medians, `mean_sd` and `size_sd`
    the standard deviations of their logarithms.
    """

    mean: float = 1.0
    mean_sd: float = 2.0
    size: float = 1.0
    size_sd: float = 2.0

    name: ClassVar[str] = "negative-binomial"

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return (
            _median("mean", self.mean, self.mean_sd),
            _median("size", self.size, self.size_sd),
        )

    @property
    def schema(self) -> tuple[Column, ...]:
        return (count("x"),)

    def log_likelihood(self, theta: Named, record: Named) -> Floats:
        m, r, x = theta["mean"], theta["size"], record["x"]
        choose = special.gammaln(x + r) - special.gammaln(r) - special.gammaln(x + 1.0)
        result: Floats = choose - r * np.log1p(m / r) + x * np.log(m / (r + m))
        return result

    def simulate(self, theta: Named, rng: np.random.Generator) -> Floats:
        rates = rng.gamma(theta["size"], theta["mean"] / theta["size"])
        return rng.poisson(rates).astype(np.float64)[:, None]


@dataclass(frozen=True)
class StudentT(StagedAtoms):
    """Real numbers x, Student's t with location, scale and degrees of freedom unknown.

    The prior of the location is normal; those of scale and degrees of freedom are log-normal with
    the stated medians and standard deviations of the logarithm.
    """

    loc: float = 0.0
    loc_sd: float = 10.0
    scale: float = 1.0
    scale_sd: float = 2.0
    df: float = 4.0
    df_sd: float = 1.0

    name: ClassVar[str] = "student-t"

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return (
            Parameter("loc", "normal", self.loc, self.loc_sd),
            _median("scale", self.scale, self.scale_sd),
            _median("df", self.df, self.df_sd),
        )

    @property
    def schema(self) -> tuple[Column, ...]:
        return (real("x"),)

    def log_likelihood(self, theta: Named, record: Named) -> Floats:
        v, s = theta["df"], theta["scale"]
        z = (record["x"] - theta["loc"]) / s
        norm = special.gammaln(0.5 * (v + 1.0)) - special.gammaln(0.5 * v)
        norm = norm - 0.5 * np.log(np.pi * v) - np.log(s)
        result: Floats = norm - 0.5 * (v + 1.0) * np.log1p(z * z / v)
        return result

    def simulate(self, theta: Named, rng: np.random.Generator) -> Floats:
        draws: Floats = theta["loc"] + theta["scale"] * rng.standard_t(theta["df"])
        return draws[:, None]


def _median(name: str, median: float, sd: float) -> Parameter:
    """A log-normal prior by its median."""
    if not median > 0.0:
        raise ConfigError(f"prior of {name}: median {median:g}. Fix: a number above 0")
    return Parameter(name, "lognormal", math.log(median), sd)
