"""Finite exponential families: q is a law on M atoms θ_m, with natural parameter eta [M].

    q(θ_m) = exp(eta_m − A(eta)),   A = log Σ_m exp eta_m

eta is a log-likelihood at the atoms (plus log p0/r, if the atoms were drawn from r and not from the
prior p0). It is defined up to a constant. With one parameter the atoms are read as samples of a
smooth function: the density is p0(θ) times the exponential of a cubic spline through the
log-likelihood. With several parameters, means and draws are those of the weighted atoms.

An atom counts as far as it has weight: the effective sample size is ESS = 1/Σ q_m². Below a stated
limit the weights tell little about the posterior, and eta counts as outside the domain.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import OrderedDict
from hashlib import sha256
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unweave.errors import ConfigError
from unweave.families.atoms.clouds import Cloud, line_cloud
from unweave.families.atoms.parameters import Space
from unweave.families.base import Family, Floats, Params
from unweave.families.marginals import Marginal
from unweave.lazy import interpolate, special
from unweave.rng import Rng

__all__ = ["AtomFamily", "CloudFamily", "ess"]

_STEEP = 300.0  # nats below the maximum
_KEPT = 4  # clouds in memory: a report asks for the same posterior several times


def ess(log_weights: Floats) -> Floats:
    """(Σ w)²/Σ w² over the last axis: the number of atoms that count."""
    w = np.exp(log_weights - log_weights.max(axis=-1, keepdims=True))
    total = w.sum(axis=-1)
    result: Floats = total * total / (w * w).sum(axis=-1)
    return result


class CloudFamily(Family):
    """A family whose members are reported as clouds. Points of the domain have a cloud each."""

    def __init__(self, space: Space, component_names: tuple[str, ...]) -> None:
        self.space = space
        shape = () if space.dim == 1 else (space.dim,)
        self._set(component_names, space.names, shape, 0.0, np.zeros(len(component_names)))
        self._clouds: OrderedDict[bytes, Cloud] = OrderedDict()

    @abstractmethod
    def _cloud(self, eta: Floats) -> Cloud:
        """The cloud of one point [D]."""

    def cloud(self, eta: Floats) -> Cloud:
        key = sha256(eta.tobytes()).digest()
        found = self._clouds.pop(key, None)
        self._clouds[key] = self._cloud(eta) if found is None else found
        while len(self._clouds) > _KEPT:
            self._clouds.popitem(last=False)
        return self._clouds[key]

    def let_go(self) -> None:
        """Drop the clouds in memory, after an erasure."""
        self._clouds.clear()

    def in_support(self, theta: Floats) -> NDArray[np.bool_]:
        return self.space.supported(self._points(theta))

    def sample(self, eta: Floats, rng: Rng, size: tuple[int, ...] = ()) -> Floats:
        n = int(np.prod(size, dtype=np.int64))
        flat = eta.reshape(-1, self.dim)
        draws = [self.space.outward(self.cloud(one).draw(rng, n)) for one in flat]
        stacked = np.stack(draws, axis=1).reshape(*size, *eta.shape[:-1], self.space.dim)
        return stacked[..., 0] if self.event_shape == () else stacked

    def marginals(self, eta: Floats) -> tuple[Marginal, ...]:
        return self.cloud(eta).marginals()

    def to_params(self, eta: Floats) -> Params:
        cloud = self.cloud(eta)
        return {"mean": cloud.mean(), "cov": cloud.cov()}

    def from_params(self, **params: ArrayLike) -> Floats:
        raise ConfigError(f"{self.name}: a posterior has no usual parameters. Fix: give eta")

    def fisher_dot(self, eta: Floats, v: Floats) -> Floats:
        raise ConfigError(f"{self.name}: no Fisher matrix. Fix: use the draws or the marginals")

    def _log_prob(self, eta: Floats, theta: Floats) -> Floats:
        return self.cloud(eta).log_prob(self._points(theta))

    def _points(self, theta: Floats) -> Floats:
        return theta[..., None] if self.event_shape == () else theta

    def _support_point(self) -> Floats:
        middle = self.space.outward(self.space.quantile(np.full(self.space.dim, 0.5)))
        return self._points(middle) if self.event_shape else middle[0]


class AtomFamily(CloudFamily):
    """Laws on the atoms u [M, d]; `log_offset` [M] is log p0/r at the atoms."""

    name: ClassVar[str] = "Atoms"
    remedy: ClassVar[str] = "use more atoms, a box around the posterior, or a staged model"

    def __init__(self, space: Space, u: Floats, log_offset: Floats, least: float) -> None:
        super().__init__(space, tuple(f"atom{m}" for m in range(len(u))))
        self.u = np.array(u, dtype=np.float64)
        self.u.setflags(write=False)
        self.log_offset = log_offset
        self.least = least
        drawn = sha256(self.u.tobytes() + log_offset.tobytes()).hexdigest()
        self._identity = (space, least, drawn)

    def log_partition(self, eta: Floats) -> Floats:
        return np.asarray(special.logsumexp(eta, axis=-1))

    def mean(self, eta: Floats) -> Floats:
        return np.asarray(special.softmax(eta, axis=-1))

    def natural(self, mu: Floats) -> Floats:
        return np.asarray(np.log(mu))

    def fisher_dot(self, eta: Floats, v: Floats) -> Floats:
        mu = self.mean(eta)
        result: Floats = mu * (v - (mu * v).sum(axis=-1, keepdims=True))
        return result

    def statistics(self, theta: Floats) -> Floats:
        """1 for the atom nearest to θ."""
        points = self.space.inward(self._points(theta))
        far = ((points[..., None, :] - self.u) ** 2).sum(axis=-1)
        return np.asarray(far == far.min(axis=-1, keepdims=True), dtype=np.float64)

    def ess(self, eta: Floats) -> Floats:
        return ess(eta)

    def margin(self, eta: Floats) -> Floats:
        with np.errstate(invalid="ignore"):
            return np.asarray(ess(eta) / self.least - 1.0)

    def violation(self, eta: Floats) -> str:
        return (
            f"the effective sample size is {float(ess(eta)):.1f} of {self.dim} atoms, below "
            f"{self.least:g}"
        )

    def _kl(self, p: Floats, q: Floats) -> Floats:
        first, second = p - self.log_partition(p)[..., None], q - self.log_partition(q)[..., None]
        result: Floats = (np.exp(first) * (first - second)).sum(axis=-1)
        return result

    def _cloud(self, eta: Floats) -> Cloud:
        return self._line(eta) if self.space.dim == 1 else self._weighted(eta)

    def _line(self, eta: Floats) -> Cloud:
        """One parameter: p0 × exp(spline of the log-likelihood). Outside the spline's knots the
        log-likelihood goes on as a straight line."""
        order = np.argsort(self.u[:, 0])
        u, value = self.u[order, 0], (eta - self.log_offset)[order]
        # Atoms far below the maximum have clipped or very steep values, which would bend the
        # spline where it matters.
        near = np.flatnonzero(value > value.max() - _STEEP)
        part = slice(max(near[0] - 4, 0), near[-1] + 5)
        u, value = u[part], value[part]
        spline = interpolate.CubicSpline(u, value)
        slopes = spline([u[0], u[-1]], 1)

        def log_target(at: Floats) -> Floats:
            inner = np.clip(at, u[0], u[-1])
            beyond = np.where(at < u[0], slopes[0], slopes[1]) * (at - inner)
            result: Floats = spline(inner) + beyond + self.space.log_prior(at[..., None])
            return result

        return line_cloud(self.space, log_target, u[0], u[-1])

    def _weighted(self, eta: Floats) -> Cloud:
        """Several parameters: the weighted atoms; the joint density is smoothed by a Gaussian
        kernel with their covariance, narrower by ESS^(−1/(d+4)) (Scott's rule)."""
        weights, d = self.mean(eta), self.space.dim
        centred = self.u - weights @ self.u
        cov = (weights[:, None] * centred).T @ centred
        root = np.linalg.cholesky(cov) * float(ess(eta)) ** (-1.0 / (d + 4))
        white = np.linalg.solve(root, self.u.T).T
        log_w = eta - self.log_partition(eta)
        constant = np.log(np.diag(root)).sum() + 0.5 * d * np.log(2.0 * np.pi)

        def log_density(at: Floats) -> Floats:
            z = np.linalg.solve(root, at[..., None])[..., 0]
            far = ((z[..., None, :] - white) ** 2).sum(axis=-1)
            return np.asarray(special.logsumexp(log_w - 0.5 * far, axis=-1) - constant)

        level = np.cumsum(weights)

        def draw(rng: Rng, n: int) -> Floats:
            chosen = np.searchsorted(level, rng.random((n,)) * level[-1])
            return np.asarray(self.u[np.minimum(chosen, self.dim - 1)])

        evidence = float(self.log_partition(eta)) - np.log(self.dim)
        return Cloud(self.space, self.u, weights, log_density, draw, evidence)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AtomFamily) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    def __repr__(self) -> str:
        return f"AtomFamily({', '.join(self.space.names)}: {self.dim} atoms)"
