"""Independent members of one family, one per label: eta is their natural parameters in order.

q(θ) = Π_g q_g(θ_g),   A = Σ_g A(eta_g),   KL = Σ_g KL_g
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unweave.families.base import Family, Floats, Params
from unweave.families.marginals import Marginal
from unweave.rng import Rng

__all__ = ["RepeatedFamily"]


class RepeatedFamily(Family):
    """One member of `base` for each of `labels`; θ holds their parameters one after another."""

    name = "Repeated"

    def __init__(self, base: Family, labels: Sequence[str]) -> None:
        self.base = base
        self.labels = tuple(labels)
        copies = self._at_least(1, "labels", len(self.labels))
        self.size = prod(base.event_shape)  # numbers in one member's θ
        self._set(
            tuple(f"{name}[{label}]" for label in self.labels for name in base.component_names),
            tuple(f"{name}[{label}]" for label in self.labels for name in base.theta_names),
            (copies * self.size,),
            copies * base.base_constant,
            np.tile(base.base_weights, copies),
        )

    def members(self, eta: Floats) -> Floats:
        """The natural parameters of the members, [..., labels, d]."""
        return eta.reshape(*eta.shape[:-1], len(self.labels), self.base.dim)

    def parts(self, theta: Floats) -> Floats:
        """The parameters of the members, [..., labels, *event of one]."""
        return theta.reshape(*theta.shape[:-1], len(self.labels), *self.base.event_shape)

    def _joined(self, values: Floats) -> Floats:
        return values.reshape(*values.shape[:-2], self.dim)

    def log_partition(self, eta: Floats) -> Floats:
        return np.asarray(self.base.log_partition(self.members(eta)).sum(-1))

    def mean(self, eta: Floats) -> Floats:
        return self._joined(self.base.mean(self.members(eta)))

    def natural(self, mu: Floats) -> Floats:
        return self._joined(self.base.natural(self.members(mu)))

    def statistics(self, theta: Floats) -> Floats:
        return self._joined(self.base.statistics(self.parts(theta)))

    def in_support(self, theta: Floats) -> NDArray[np.bool_]:
        return np.asarray(self.base.in_support(self.parts(theta)).all(-1))

    def margin(self, eta: Floats) -> Floats:
        return np.asarray(self.base.margin(self.members(eta)).min(-1))

    def violation(self, eta: Floats) -> str:
        members = self.members(eta)
        worst = int(np.argmin(self.base.margin(members)))
        return f"{self.labels[worst]}: {self.base.violation(members[worst])}"

    def sample(self, eta: Floats, rng: Rng, size: tuple[int, ...] = ()) -> Floats:
        draws = self.base.sample(self.members(eta), rng, size)
        return draws.reshape(*size, *eta.shape[:-1], *self.event_shape)

    def marginals(self, eta: Floats) -> tuple[Marginal, ...]:
        members = self.members(eta)
        return tuple(
            law.renamed(f"{law.name}[{label}]")
            for g, label in enumerate(self.labels)
            for law in self.base.marginals(members[..., g, :])
        )

    def covariance(self, eta: Floats) -> Floats:
        each = self.base.covariance(self.members(eta))
        size = each.shape[-1]
        found = np.zeros((*eta.shape[:-1], *[len(self.labels) * size] * 2))
        for g in range(len(self.labels)):
            place = slice(g * size, (g + 1) * size)
            found[..., place, place] = each[..., g, :, :]
        return found

    def to_params(self, eta: Floats) -> Params:
        return self.base.to_params(self.members(eta))

    def from_params(self, **params: ArrayLike) -> Floats:
        return self._joined(self.base.from_params(**params))

    def fisher_dot(self, eta: Floats, v: Floats) -> Floats:
        return self._joined(self.base.fisher_dot(self.members(eta), self.members(v)))

    def fisher_solve(self, eta: Floats, v: Floats) -> Floats:
        return self._joined(self.base.fisher_solve(self.members(eta), self.members(v)))

    def _log_prob(self, eta: Floats, theta: Floats) -> Floats:
        each = self.base._log_prob(self.members(eta), self.parts(theta))
        return np.asarray(each.sum(-1))

    def _kl(self, p: Floats, q: Floats) -> Floats:
        return np.asarray(self.base._kl(self.members(p), self.members(q)).sum(-1))

    def _entropy(self, eta: Floats) -> Floats:
        return np.asarray(self.base._entropy(self.members(eta)).sum(-1))

    def _support_point(self) -> Floats:
        return np.tile(np.ravel(self.base._support_point()), len(self.labels))

    def _sizes(self) -> tuple[int, ...]:
        return (len(self.labels), hash(self.base))

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, RepeatedFamily)
            and self.labels == other.labels
            and self.base == other.base
        )

    def __hash__(self) -> int:
        return hash((self.labels, self.base))

    def __repr__(self) -> str:
        return f"RepeatedFamily({self.base!r}, {len(self.labels)})"
