"""The base of generalised linear models: the loss of a record depends on its predictor t = xᵀtheta.

The posterior is a normal distribution. With the sums of a shard at q,

    g = Σ E_q[f'(t)] x,     H = Σ E_q[f''(t)] x xᵀ,

the factor (H m − g, H) is a fixed point of the local free energy's natural gradient. All
expectations are over one predictor, a normal variable (`quadrature`). H ⪰ 0, so every cavity is a
proper distribution.

The carrier is always (P m, triangle of P). A diagonal posterior is another `decode` of the same
sum: the independent normals N(P⁻¹h, 1/P_jj). They need the curvatures between coefficients, too.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unweave.errors import ConfigError
from unweave.families import DiagonalNormal, Distribution, MultivariateNormal
from unweave.families.numerics.packed import pack, smallest_eigenvalue, unpack
from unweave.families.point import NormalMoments, NormalPoint
from unweave.grid import Grid, Ints
from unweave.models.columns import Column
from unweave.models.curvature import CurvatureModel, Sums
from unweave.models.data import Data
from unweave.models.fitted.published import publish
from unweave.models.glm.bound import distance_bound, least_curvature
from unweave.models.glm.own_intercept import OwnIntercept
from unweave.models.glm.quadrature import Triple, expectations, tilted_moments
from unweave.models.regression import Regression, check_agent_sd
from unweave.models.shards import Shard

__all__ = ["GLM", "Sums"]


Floats = NDArray[np.float64]

_FLAT = 20.0  # the prior sd of a predictor above which probabilities are 0 or 1 beforehand
_EXPANDED = 1 << 21  # cells of a design whose records have several rows


@dataclass(frozen=True)
class GLM(Regression, CurvatureModel):
    """A loss per record, f(t; y) with t = xᵀtheta. A subclass defines `target_column` and
    `pointwise`, and may replace `derivatives` by closed forms.

    `covariance` is "full", or "diagonal" for independent coefficients; factors are the same, and a
    diagonal one hides nothing more. With `agent_sd`, every agent has an intercept of its own,
    Normal(0, agent_sd²) around the shared one, which it integrates out (`own_intercept`).
    """

    _: KW_ONLY
    covariance: Literal["full", "diagonal"] = "full"
    agent_sd: float | None = None

    classifies: ClassVar[bool] = False  # y is a class, and f < log 2 where it is predicted right
    convex: ClassVar[bool] = True  # f'' ≥ 0: one optimum, which no step can miss
    self_concordant: ClassVar[bool] = False  # |f'''| ≤ f'': there is a bound (`bound`)
    _scaled_target: ClassVar[bool] = False  # y is measured in units of its scale, as features are

    # -- defined by subclasses --------------------------------------------------------------------

    @abstractmethod
    def target_column(self) -> Column:
        """The column of y."""

    @abstractmethod
    def pointwise(self, t: Floats, y: Floats) -> Triple:
        """f(t; y), f'(t; y) and f''(t; y)."""

    @property
    def width(self) -> float:
        """Half the width of the strip around the real line in which f is analytic."""
        return np.pi

    @property
    def expansion(self) -> int:
        """How many rows of the design a record has."""
        return 1

    def derivatives(self, a: Floats, v: Floats, y: Floats) -> Triple:
        """The expectations of `pointwise` over t ~ Normal(a, v); all arrays are [N]."""
        f, first, second = expectations(self.pointwise, a, v, self.width, y)
        return f, first, second

    def tilted(self, a: Floats, v: Floats, y: Floats) -> tuple[Floats, Floats]:
        """Mean and variance of t under Normal(a, v) times the likelihood of y."""
        return tilted_moments(self.pointwise, a, v, self.width, y)

    def start(
        self, mean: Floats, gradient: Floats, curvature: Floats
    ) -> tuple[Floats, Floats] | None:
        """From Σ g and Σ H at `mean`: a better start than Newton's step, and the curvature there;
        None if the model knows none."""
        return None

    def outcomes(self, rows: Floats) -> tuple[Floats, Floats, Floats | float]:
        """Design [N, D], targets y [N] and offsets [N] of the predictor, from records."""
        return self.standard_design(rows), rows[:, len(self.feature_names)], 0.0

    # -- settings ---------------------------------------------------------------------------------

    def check_settings(self) -> None:
        if self.covariance not in ("full", "diagonal"):
            raise ConfigError(
                f'{self.name}: covariance = {self.covariance!r}. Fix: "full" or "diagonal"'
            )
        super().check_settings()
        check_agent_sd(self, self.agent_sd)
        if self.agent_sd is not None and (self.expansion > 1 or self.covariance != "full"):
            raise ConfigError(
                f"{self.name}: agent_sd needs one predictor and a full covariance. Fix: leave "
                "agent_sd out"
            )

    def _check_column(self, setting: str, name: str, value: float) -> None:
        super()._check_column(setting, name, value)
        plain = 1.0 if setting == "scale" else 0.0
        if value != plain and not self.scalable(name):
            raise ConfigError(
                f"{self.name}: column {name!r} has no {setting}: it is used as it is. Fix: name "
                "features only"
            )

    def scalable(self, name: str) -> bool:
        return name in self.feature_names or self._scaled_target

    @property
    def schema(self) -> tuple[Column, ...]:
        return (*self._feature_columns, self.target_column())

    @property
    def predictor_units(self) -> tuple[float, float]:
        return super().predictor_units if self._scaled_target else (1.0, 0.0)

    @property
    def unit_sd(self) -> float:
        return self.predictor_units[0]

    def default_bits(self) -> Sequence[int]:
        return (32,) * len(self.carrier_names)

    # -- prior and carrier ------------------------------------------------------------------------

    @property
    def prior(self) -> Distribution:
        mean, precision = self.prior_moments()
        if self.covariance == "diagonal":
            return DiagonalNormal(mean=mean, sd=1.0 / np.sqrt(np.diag(precision)))
        return MultivariateNormal(mean=mean, precision=precision)

    @property
    def carrier_prior(self) -> Floats:
        mean, precision = self.prior_moments()
        return MultivariateNormal(mean=mean, precision=precision).eta

    @property
    def independent(self) -> bool:
        return self.covariance == "diagonal"

    def decode(self, units: Ints) -> Floats:
        carrier = self.grid.decode(units)
        if self.covariance == "full":
            return carrier
        h, precision = self.carrier_family.split(carrier)
        eta = np.full((*h.shape[:-1], 2 * self.size), np.nan)  # NaN: P is no precision
        proper = smallest_eigenvalue(precision) > 0.0
        diagonal = np.diagonal(precision, axis1=-2, axis2=-1)[proper]
        mean = np.linalg.solve(precision[proper], h[proper][..., None])[..., 0]
        eta[proper] = np.concatenate([mean * diagonal, diagonal], axis=-1)
        return eta

    # -- the loss ---------------------------------------------------------------------------------

    def loss(self, theta: Floats, data: Floats) -> Floats:
        x, y, offset = self.outcomes(data)
        total: Floats = self.pointwise(theta @ x.T + offset, y)[0].sum(axis=-1)
        return total / len(data) if self.reduction == "mean" else total

    @cached_property
    def own_intercept(self) -> OwnIntercept | None:
        """How an agent fits its own intercept; None without `agent_sd`."""
        if self.agent_sd is None:
            return None
        return OwnIntercept(self, self.agent_sd / self.predictor_units[0])

    def curvature(
        self, at: NormalPoint | NormalMoments | Floats, data: Data, own: bool = False
    ) -> Sums:
        """(E_q[L], g, H) of all records at q, or at a single theta; without 1/alpha. `own`: the
        last coefficient is the agent's own intercept."""

        def part(rows: Floats) -> tuple[Any, ...]:
            if self.expansion > 1 and len(rows) > _EXPANDED // (self.expansion * self.size):
                half = len(rows) // 2
                return tuple(
                    a + b for a, b in zip(part(rows[:half]), part(rows[half:]), strict=True)
                )
            x, y, offset = self.outcomes(rows)
            if own:
                x = np.column_stack([x, np.ones(len(x))])
            with np.errstate(over="ignore", invalid="ignore"):  # the solver sees what is infinite
                if isinstance(at, np.ndarray):
                    f, first, second = self.pointwise(x @ at + offset, y)
                    second = np.maximum(second, 0.0)
                else:
                    f, first, second = self.derivatives(x @ at.mean + offset, at.spread(x), y)
                return float(f.sum()), first @ x, (x.T * second) @ x

        loss, gradient, curvature = data.reduce(part)
        scale = 1.0 / data.n if self.reduction == "mean" else 1.0
        return loss * scale, gradient * scale, curvature * scale

    def flatness(self, data: Iterable[Data]) -> float:
        """The prior sd of a typical predictor, if probabilities are 0 or 1 beforehand; else 0."""
        if not self.classifies:
            return 0.0
        prior = self.gaussian(self.carrier_prior)
        wide = max(
            (
                float(np.median(prior.spread(self.outcomes(rows)[0])) ** 0.5)
                for part in data
                for rows in part.batches()
            ),
            default=0.0,
        )
        return wide if wide >= _FLAT else 0.0

    def concern(self, units: Ints, data: Iterable[Data]) -> str | None:
        """Classes that a plane separates have no best coefficients: any prior wider than the data
        chooses their size, and a nearly flat one makes them huge."""
        parts = list(data)
        wide = self.flatness(parts)
        if not wide:
            return None
        mean = self.gaussian(self.grid.decode(units)).mean
        for part in parts:
            for rows in part.batches():
                x, y, offset = self.outcomes(rows)
                if not (self.pointwise(x @ mean + offset, y)[0] < math.log(2.0)).all():
                    return None
        return (
            f"{self.name}: the features separate the classes of all records, and the prior is "
            f"nearly flat (sd {wide:.3g} of a predictor): it alone limits the coefficients. "
            "Fix: a smaller sd, such as 1 to 3 per scale of a feature"
        )

    # -- the certificate's estimate ---------------------------------------------------------------

    @property
    def bounded(self) -> bool:
        """Whether the certificate can state a bound on the distance from the optimum."""
        return self.self_concordant and self.covariance == "full" and self.agent_sd is None

    @cached_property
    def frozen_grid(self) -> Grid:
        """Of r_k and, for the bound, of the agent's least curvature."""
        if not self.bounded:
            return self.grid
        more = len(self.grid.bits) - self.size
        names = (*self.grid.names, *(f"κ {name}" for name in self.grid.names[self.size :]))
        return Grid(self.grid.bits + self.grid.bits[-1:] * more, names)

    def freeze(self, units: Ints, factor: Ints, data: Data) -> Floats | None:
        """r_k, and for the bound the least curvature of the agent's records."""
        if self.agent_sd is not None:
            return None  # the agent's intercept belongs to its optimum, too
        rest = super().freeze(units, factor, data)
        if rest is None or not self.bounded:
            return rest
        q = self.gaussian(self.grid.decode(units))
        (least,) = data.reduce(lambda rows: (least_curvature(self, q, rows),))
        return np.concatenate([rest, pack(least * float(self.weight(data.n)))])

    def appraise(self, units: Ints, frozen: Floats) -> dict[str, Any]:
        if self.agent_sd is not None:
            return {"kl_to_optimum": None, "method": "none: agents have intercepts of their own"}
        rest = frozen[: len(self.grid.bits)]
        found = super().appraise(units, rest)
        if self.bounded:
            q = self.gaussian(self.grid.decode(units))
            least = unpack(frozen[len(self.grid.bits) :], self.size)
            bound = distance_bound(
                q, self.prior_moments()[1], *self.carrier_family.split(rest), least
            )
            if bound is not None:
                found["bound"] = bound.kl
                found["published"] = publish(self.posterior(units)).report(bound.sds)
        return found

    def in_rounds(self, agents: int) -> GLM:
        from unweave.models.glm.rounds import in_rounds

        return in_rounds(self, agents)

    # -- results ----------------------------------------------------------------------------------

    def log_density(self, eta: Floats, rows: Floats) -> Floats:
        """log p(y | x, q) of each record."""
        at = len(self.feature_names)
        found: Floats = self.predictive(eta, Shard("", rows.view())).log_prob(rows[:, at])
        return found

    def outcomes_of(self, rows: Floats) -> Floats:
        at = len(self.feature_names)
        return rows[:, at : at + 1]

    def replicate(self, theta: Floats, rows: Floats, rng: np.random.Generator) -> Floats:
        """The same features and exposures with new targets."""
        at = len(self.feature_names)
        x = np.insert(rows[:, :at], 0, 1.0, axis=1) if self.intercept else rows[:, :at]
        found = rows.copy()
        found[:, at] = self.unit_law().draw(rng, self.predictors(x, theta, rows))
        return found

    def unit_law(self) -> Any:
        """A predictive, which knows how to draw targets given t."""
        return self.predictive(self.decode(self.eta0), self._zero_row)

    @property
    def _zero_row(self) -> Shard:
        return Shard("", np.zeros((1, len(self.schema))))

    def predictors(self, x: Floats, theta: Floats, rows: Floats) -> Floats:
        """t of each record, for a design x and theta in the user's units."""
        found: Floats = x @ theta + self.outcomes(rows)[2]
        return found

    def mean_and_cov(self, eta: ArrayLike) -> tuple[Floats, Floats]:
        """Of theta, in the model's units."""
        q = self.family.to_params(np.asarray(eta, dtype=np.float64))
        return q["mean"], q["cov"] if "cov" in q else np.diag(q["sd"] ** 2)

    def predictor(self, eta: ArrayLike, x: Any) -> tuple[Floats, Floats]:
        """Mean and sd of xᵀtheta for the rows x."""
        design = self.design(x)
        mean, cov = self.mean_and_cov(eta)
        return design @ mean, np.sqrt(np.einsum("ij,ij->i", design @ cov, design))
