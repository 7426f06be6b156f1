"""Base class of exponential families: q(θ | eta) = h(θ) exp(eta·s(θ) − A(eta)), eta[..., D] flat.

A family implements the abstract methods; the base class implements the identities:

    log q(θ)  = log h(θ) + eta·s(θ) − A(eta)
    KL(p‖q)   = A(q) − A(p) − (q − p)·mu(p)
    entropy   = A(eta) − eta·mu − E[log h]
    log h(θ)  = c₀ + c·s(θ), so that E[log h] = c₀ + c·mu

Where an identity subtracts large numbers, a family may override `_kl`, `_entropy` or
`_log_prob` with a form that does not; the law suite compares both forms.
The methods expect eta inside the domain: callers `check` eta where it enters.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unweave.arguments import is_whole, shown
from unweave.errors import ConfigError, DomainError
from unweave.families.marginals import Marginal
from unweave.rng import Rng

__all__ = ["Family", "Floats", "Params", "Positive"]


Floats = NDArray[np.float64]
Params = dict[str, Floats]


class Family(ABC):
    """One exponential family of fixed sizes; stateless, hashable, equal by type and sizes."""

    name: ClassVar[str]
    # What helps if learning leads out of the domain, for error messages.
    remedy: ClassVar[str] = "use a stronger prior, remove a smaller factor, or take a shorter step"
    dim: int  # D, the length of eta
    component_names: Sequence[str]
    theta_names: Sequence[str]  # one per marginal
    event_shape: tuple[int, ...]  # shape of one θ
    base_constant: float  # c₀ of log h
    base_weights: Floats  # c of log h

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # `fisher` and `fisher_dot` are each derived from the other; one must be supplied.
        if cls.fisher is Family.fisher and cls.fisher_dot is Family.fisher_dot:
            raise TypeError(f"{cls.__name__} must define fisher or fisher_dot")

    def _set(
        self,
        component_names: Sequence[str],
        theta_names: Sequence[str],
        event_shape: tuple[int, ...],
        base_constant: float,
        base_weights: ArrayLike,
    ) -> None:
        """Fill in the attributes above; called once, from the constructor."""
        self.dim = len(component_names)
        self.component_names = component_names
        self.theta_names = theta_names
        self.event_shape = event_shape
        self.base_constant = float(base_constant)
        weights = np.array(base_weights, dtype=np.float64)
        weights.flags.writeable = False
        self.base_weights = weights

    def _at_least(self, least: int, what: str, given: int) -> int:
        """A size of this family, for its constructor."""
        if not is_whole(given) or given < least:
            raise ConfigError(f"{self.name} of {shown(given)}. Fix: at least {least} {what}")
        return int(given)

    # The methods that a family implements

    @abstractmethod
    def log_partition(self, eta: Floats) -> Floats:
        """A(eta), shape [...]."""

    @abstractmethod
    def mean(self, eta: Floats) -> Floats:
        """mu = ∇A(eta) = E[s(θ)], shape [..., D]."""

    @abstractmethod
    def natural(self, mu: Floats) -> Floats:
        """The eta with mean(eta) = mu."""

    @abstractmethod
    def statistics(self, theta: Floats) -> Floats:
        """s(θ), shape [..., D]."""

    @abstractmethod
    def in_support(self, theta: Floats) -> NDArray[np.bool_]:
        """Whether θ has a density, shape [...]."""

    @abstractmethod
    def margin(self, eta: Floats) -> Floats:
        """The distance of eta from the domain's boundary: above 0 inside, NaN for NaN."""

    @abstractmethod
    def violation(self, eta: Floats) -> str:
        """Which condition the single point `eta` [D] breaks, with its value."""

    @abstractmethod
    def sample(self, eta: Floats, rng: Rng, size: tuple[int, ...] = ()) -> Floats:
        """Draws of θ, shape size + batch + event_shape."""

    @abstractmethod
    def marginals(self, eta: Floats) -> tuple[Marginal, ...]:
        """The law of each component of θ on its usual scale."""

    @abstractmethod
    def to_params(self, eta: Floats) -> Params:
        """The usual parameters by name."""

    @abstractmethod
    def from_params(self, **params: ArrayLike) -> Floats:
        """eta from the usual parameters; checked."""

    def covariance(self, eta: Floats) -> Floats:
        """The covariance of the quantities of `marginals`, [..., Q, Q]; not finite where a moment
        does not exist."""
        if len(self.theta_names) > 1:
            raise ConfigError(
                f"{self.name} has no closed covariance. Fix: np.cov of draws (posterior.sample)"
            )
        return np.asarray(self.sd(eta)[..., None] ** 2)

    def fisher(self, eta: Floats) -> Floats:
        """∇²A(eta), shape [..., D, D]; formed column by column from `fisher_dot`."""
        columns: Floats = self.fisher_dot(eta[..., None, :], np.eye(self.dim))
        return columns

    def fisher_dot(self, eta: Floats, v: Floats) -> Floats:
        """∇²A(eta) v: how far mu moves when eta moves along v."""
        result: Floats = np.matmul(self.fisher(eta), v[..., None])[..., 0]
        return result

    def fisher_solve(self, eta: Floats, v: Floats) -> Floats:
        """∇²A(eta)⁻¹ v: the natural gradient of a gradient v with respect to eta."""
        solution = np.linalg.solve(self.fisher(eta), v[..., None])[..., 0]
        return np.asarray(solution, dtype=np.float64)

    def _log_prob(self, eta: Floats, theta: Floats) -> Floats:
        weights = eta + self.base_weights
        with np.errstate(divide="ignore", invalid="ignore"):
            products = weights * self.statistics(theta)
        # 0 · log 0 is 0 here: the density of Beta(1, 1) is 1 up to the boundary.
        total = np.where(weights == 0.0, 0.0, products).sum(-1)
        result: Floats = total + self.base_constant - self.log_partition(eta)
        return result

    def _kl(self, p: Floats, q: Floats) -> Floats:
        result: Floats = (
            self.log_partition(q) - self.log_partition(p) - ((q - p) * self.mean(p)).sum(-1)
        )
        return result

    def _entropy(self, eta: Floats) -> Floats:
        weighted = ((eta + self.base_weights) * self.mean(eta)).sum(-1)
        result: Floats = self.log_partition(eta) - weighted - self.base_constant
        return result

    # The identities

    @final
    def log_base(self, theta: ArrayLike) -> Floats:
        """log h(θ) = c₀ + c·s(θ)."""
        statistics = self.statistics(np.asarray(theta, dtype=np.float64))
        result: Floats = self.base_constant + statistics @ self.base_weights
        return result

    @final
    def log_prob(self, eta: ArrayLike, theta: ArrayLike) -> Floats:
        """log q(θ | eta); −inf outside the support. Batch shapes of eta and θ broadcast."""
        x = np.asarray(theta, dtype=np.float64)
        inside = self.in_support(x)
        if inside.all():
            return self._log_prob(np.asarray(eta, dtype=np.float64), x)
        event = (...,) + (None,) * len(self.event_shape)
        safe = np.where(inside[event], x, self._support_point())
        return np.where(inside, self._log_prob(np.asarray(eta, dtype=np.float64), safe), -np.inf)

    @final
    def kl(self, p: ArrayLike, q: ArrayLike) -> Floats:
        """KL(p‖q) = A(q) − A(p) − (q−p)·mu(p) ≥ 0, and exactly 0 for p = q."""
        first, second = np.asarray(p, dtype=np.float64), np.asarray(q, dtype=np.float64)
        divergence = self._kl(first, second)
        # Rounding may leave −1e-17, which means 0.
        return np.maximum(divergence, 0.0)

    @final
    def entropy(self, eta: ArrayLike) -> Floats:
        """−E[log q] = A(eta) − eta·mu − E[log h], with respect to Lebesgue measure on θ."""
        return self._entropy(np.asarray(eta, dtype=np.float64))

    @final
    def check(self, eta: ArrayLike, what: str = "eta", *, stated: bool = False) -> Floats:
        """`eta` as float64 [..., D], or a DomainError with cause and fix.

        `stated`: eta comes from a user's parameters, not from learning.
        """
        point = np.asarray(eta, dtype=np.float64)
        if point.ndim == 0 or point.shape[-1] != self.dim:
            raise DomainError(
                f"{what}: a natural parameter of {self.name} has shape {point.shape}. Fix: give "
                f"{self.dim} numbers {self._shown_names()}"
            )
        finite = np.isfinite(point)
        if not finite.all():
            place = tuple(int(i) for i in np.argwhere(~finite)[0])
            name, where = self.component_names[place[-1]], _at(place[:-1])
            problem = f"{name} = {point[place]} is not finite"
            if stated:
                raise DomainError(f"{what}{where}: {problem}. Fix: give finite numbers")
            raise DomainError(
                f"{what}{where} is outside the domain of {self.name}: {problem}. Fix: look for NaN "
                "or overflow in the data or the last step"
            )
        inside = self.margin(point) > 0.0
        if not inside.all():
            index = tuple(int(i) for i in np.argwhere(~inside)[0])
            problem = self.violation(point[index])
            if stated:
                raise DomainError(f"{what}{_at(index)}: {problem}. Fix: change the parameters")
            raise DomainError(
                f"{what}{_at(index)} is outside the domain of {self.name}: {problem}. "
                f"Fix: {self.fix(point[index])}"
            )
        return point

    def fix(self, eta: Floats) -> str:
        """What to do about a point [D] outside the domain."""
        return self.remedy

    @final
    def sd(self, eta: Floats) -> Floats:
        """Standard deviation of each marginal, shape [..., number of marginals]."""
        return np.stack([m.sd() for m in self.marginals(eta)], axis=-1)

    def _support_point(self) -> Floats:
        """A θ inside the support; it replaces values outside before logarithms are taken."""
        return np.ones(self.event_shape)

    def _shown_names(self) -> str:
        names = self.component_names
        shown = ", ".join(names if len(names) <= 6 else (*names[:3], "…", names[-1]))
        return f"({shown})"

    def _sizes(self) -> tuple[int, ...]:
        return (self.dim,)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self._sizes() == other._sizes()

    def __hash__(self) -> int:
        return hash((type(self).__name__, self._sizes()))

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class Positive:
    """The domain is eta > 0 in each component. List this class before `Family` among the bases."""

    component_names: Sequence[str]

    def margin(self, eta: Floats) -> Floats:
        result: Floats = eta.min(-1)
        return result

    def violation(self, eta: Floats) -> str:
        j = int(np.argmin(eta))
        return f"{self.component_names[j]} = {eta[j]:.6g} must be above 0"


def _at(index: tuple[int, ...]) -> str:
    return f"[{', '.join(str(i) for i in index)}]" if index else ""
