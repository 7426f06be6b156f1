"""DiagonalNormal: d independent normals. eta = (P m, P), s = (θ, −½θ²), h = (2π)^(−d/2),
A = ½ Σ (P m²) − ½ Σ log P, with P the precisions."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unweave.errors import DomainError
from unweave.families.base import Family, Floats, Params
from unweave.families.marginals import Marginal, NormalMarginal
from unweave.families.names import Names
from unweave.families.numerics.special import HALF_LOG_2PI, log_excess
from unweave.rng import Rng

__all__ = ["DiagonalNormalFamily", "NormalFamily"]


class DiagonalNormalFamily(Family):
    """`dim` coordinates with their own means and precisions; eta has 2·dim components."""

    name = "DiagonalNormal"

    def __init__(self, dim: int) -> None:
        self.d = self._at_least(1, "coordinate", dim)
        names, thetas = Names(("h", (dim,)), ("P", (dim,))), Names(("theta", (dim,)))
        self._set(names, thetas, (dim,), -dim * HALF_LOG_2PI, np.zeros(2 * dim))

    def _columns(self, theta: Floats) -> Floats:
        """θ as [..., d]."""
        return theta

    def _split(self, eta: Floats) -> tuple[Floats, Floats]:
        return eta[..., : self.d], eta[..., self.d :]

    def log_partition(self, eta: Floats) -> Floats:
        h, precision = self._split(eta)
        result: Floats = 0.5 * (h * h / precision - np.log(precision)).sum(-1)
        return result

    def mean(self, eta: Floats) -> Floats:
        h, precision = self._split(eta)
        m = h / precision
        return np.concatenate([m, -0.5 * (m * m + 1.0 / precision)], axis=-1)

    def natural(self, mu: Floats) -> Floats:
        m, second = self._split(mu)
        variance = -2.0 * second - m * m
        if not (variance > 0.0).all():
            raise DomainError(
                f"mu of {self.name}: the variance E[θ²] − E[θ]² = {float(np.min(variance)):.6g} "
                "must be above 0. Fix: mean parameters of a distribution"
            )
        return np.concatenate([m / variance, 1.0 / variance], axis=-1)

    def fisher_dot(self, eta: Floats, v: Floats) -> Floats:
        h, precision = self._split(eta)
        u, change = self._split(v)
        m = h / precision
        dm = (u - change * m) / precision
        return np.concatenate([dm, 0.5 * change / precision**2 - m * dm], axis=-1)

    def fisher_solve(self, eta: Floats, v: Floats) -> Floats:
        h, precision = self._split(eta)
        dm, second = self._split(v)
        m = h / precision
        change = 2.0 * precision**2 * (second + m * dm)
        return np.concatenate([precision * dm + change * m, change], axis=-1)

    def _kl(self, p: Floats, q: Floats) -> Floats:
        """½ Σ (r − 1 − log r + (m_q − m_p)² P_q), r = P_q/P_p."""
        h, precision = self._split(p)
        dh, change = self._split(q - p)
        after = q[..., self.d :]
        shift = dh - change * (h / precision)  # P_q (m_q − m_p)
        spread = log_excess(change / precision, after / precision)
        result: Floats = 0.5 * (spread + shift * shift / after).sum(-1)
        return result

    def _entropy(self, eta: Floats) -> Floats:
        precision = eta[..., self.d :]
        result: Floats = self.d * (HALF_LOG_2PI + 0.5) - 0.5 * np.log(precision).sum(-1)
        return result

    def _log_prob(self, eta: Floats, theta: Floats) -> Floats:
        h, precision = self._split(eta)
        residual = self._columns(theta) - h / precision
        terms = np.log(precision) - precision * residual * residual
        result: Floats = 0.5 * terms.sum(-1) - self.d * HALF_LOG_2PI
        return result

    def statistics(self, theta: Floats) -> Floats:
        x = self._columns(theta)
        return np.concatenate([x, -0.5 * x * x], axis=-1)

    def in_support(self, theta: Floats) -> NDArray[np.bool_]:
        return np.asarray(np.isfinite(self._columns(theta)).all(-1))

    def margin(self, eta: Floats) -> Floats:
        result: Floats = eta[..., self.d :].min(-1)
        return result

    def violation(self, eta: Floats) -> str:
        j = self.d + int(np.argmin(eta[self.d :]))
        return f"the precision {self.component_names[j]} = {eta[j]:.6g} must be above 0"

    def sample(self, eta: Floats, rng: Rng, size: tuple[int, ...] = ()) -> Floats:
        h, precision = self._split(eta)
        draws = rng.standard_normal(size + h.shape)
        result: Floats = h / precision + draws / np.sqrt(precision)
        return result.reshape(size + eta.shape[:-1] + self.event_shape)

    def marginals(self, eta: Floats) -> tuple[Marginal, ...]:
        h, precision = self._split(eta)
        m, sd = h / precision, 1.0 / np.sqrt(precision)
        return tuple(
            NormalMarginal(name, m[..., i], sd[..., i]) for i, name in enumerate(self.theta_names)
        )

    def covariance(self, eta: Floats) -> Floats:
        return np.asarray(np.eye(len(self.theta_names)) / self._split(eta)[1][..., None])

    def to_params(self, eta: Floats) -> Params:
        h, precision = self._split(eta)
        shape = eta.shape[:-1] + self.event_shape
        m, sd = h / precision, 1.0 / np.sqrt(precision)
        return {"mean": m.reshape(shape), "sd": sd.reshape(shape)}

    def from_params(self, **params: ArrayLike) -> Floats:
        m = self._columns(np.asarray(params["mean"], dtype=np.float64))
        sd = self._columns(np.asarray(params["sd"], dtype=np.float64))
        if not (sd > 0.0).all():
            raise DomainError(
                f"{self.name}(mean, sd): sd = {float(np.min(sd)):.6g} must be above 0. Fix: change "
                "it"
            )
        precision = 1.0 / sd**2
        pair = np.broadcast_arrays(m * precision, precision)
        return self.check(np.concatenate(pair, axis=-1), f"{self.name}(mean, sd)", stated=True)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(dim={self.d})"


class NormalFamily(DiagonalNormalFamily):
    """A location; a record x with noise variance v adds (x/v, 1/v)."""

    name = "Normal"

    def __init__(self) -> None:
        super().__init__(1)
        self._set(("h", "P"), ("theta",), (), self.base_constant, self.base_weights)

    def _columns(self, theta: Floats) -> Floats:
        return theta[..., None]

    def __repr__(self) -> str:
        return "NormalFamily()"
