"""Results of `simulate`: trajectories of all replicas (`Replicas`), and their KL (`Curves`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unweave.arguments import share, shown, whole_number
from unweave.errors import ConfigError
from unweave.families import Distribution
from unweave.graph import Topology
from unweave.grid import Ints
from unweave.models import Model, Posterior

__all__ = ["Curves", "Replicas", "Target"]


Floats = NDArray[np.float64]


@runtime_checkable
class Target(Protocol):
    """A distribution p that computes KL(q‖p) for eta [..., D] of q."""

    def kl_from(self, eta: Floats) -> Floats: ...


@dataclass(frozen=True, eq=False)
class Curves:
    """One curve per replica, values [R, I]."""

    values: Floats

    def mean(self) -> Floats:
        """Mean over replicas [I]; infinite where a replica is outside the domain."""
        result: Floats = self.values.mean(axis=0)
        return result

    def median(self) -> Floats:
        """Median over replicas [I]; a replica outside the domain ranks above all others."""
        return self._quantile(0.5)

    def band(self, p: float = 0.75) -> tuple[Floats, Floats]:
        """The central band [I] that holds a share p of the replicas at each iteration."""
        p = share(p, "band: p")
        return self._quantile(0.5 - p / 2), self._quantile(0.5 + p / 2)

    def _quantile(self, p: float) -> Floats:
        """The least value that a share p of the replicas does not exceed. The result is the value
        of one replica: interpolation towards infinity is undefined."""
        result: Floats = np.quantile(self.values, p, axis=0, method="inverted_cdf")
        return result


@dataclass(frozen=True, eq=False)
class Replicas:
    """R replicas over I iterations. Column i − 1 is the state after iteration i.

    `mean()` and `band(p)` are those of `kl()`: KL(q‖target), where the target is the exact
    posterior of the data of all agents that are not forgotten.

    A replica may leave the domain of q for two reasons. The other factors were fitted while the
    forgotten factor was included, so the sum without that factor may not be a distribution. Or
    noisy steps diverge. From then on the replica is `outside` and does not learn, and its KL is
    infinite. A Federation would retrain.
    """

    model: Model
    topology: Topology
    seeds: NDArray[np.uint64]  # [R]; replica r equals a Federation with seed=seeds[r]
    path: NDArray[np.int32]  # [R, I] index of the scheduled agent
    units: Ints  # [R, I, D] eta on the grid
    changed: NDArray[np.bool_]  # [R, I] whether the visit changed eta
    shortened: Ints  # [R] steps that were shortened
    outside: NDArray[np.bool_]  # [R, I] where eta is not a distribution
    find_target: Callable[[], Ints | Target | None]
    settings: dict[str, Any]

    def __repr__(self) -> str:
        replicas, iterations = self.path.shape
        count = int(self.outside.any(axis=1).sum())
        suffix = f", {count} left the domain" if count else ""
        return (
            f"Replicas({self.model.name}: {replicas} replicas, {iterations} iterations, "
            f"{len(self.topology)} agents{suffix})"
        )

    @property
    def eta(self) -> Floats:
        """Natural parameters [R, I, D]."""
        return self.model.decode(self.units)

    def posterior(self, replica: int, iteration: int = -1) -> Posterior:
        """The state of one replica after the column `iteration` (default: the last)."""
        replicas, iterations = self.path.shape
        for value, count, what in (
            (replica, replicas, "replica"),
            (iteration, iterations, "column"),
        ):
            if not -count <= whole_number(value, what) < count:
                raise ConfigError(f"{what} = {value}. Fix: choose from 0 to {count - 1}")
        return self.model.posterior(self.units[replica, iteration])

    @cached_property
    def first_visits(self) -> NDArray[np.int64]:
        """The iteration [R, K] at which each agent is first scheduled; 0 where it never is."""
        replicas, iterations = self.path.shape
        first = np.zeros((replicas, len(self.topology)), dtype=np.int64)
        rows = np.arange(replicas)
        # Backwards, so that the earliest iteration is written last.
        for i in range(iterations - 1, -1, -1):
            first[rows, self.path[:, i]] = i + 1
        return first

    def kl(
        self,
        target: Target | Posterior | Distribution | ArrayLike | None = None,
        at: NDArray[np.int64] | None = None,
    ) -> Curves:
        """KL(q‖target) along every trajectory; the default target is the exact posterior. `at`
        selects iterations (the KL at all iterations may be expensive)."""
        if target is None:
            return self._default_kl if at is None else Curves(self._kl(self._exact, at))
        if isinstance(target, Posterior | Distribution):
            return Curves(self._kl(np.asarray(target.eta), at))
        if isinstance(target, Target):
            return Curves(self._kl(target, at))
        try:
            point = np.asarray(target, dtype=np.float64)
        except (TypeError, ValueError):
            raise ConfigError(
                f"kl: target = {shown(target)}. Fix: give a posterior, a distribution, natural "
                "parameters, or anything with kl_from(eta)"
            ) from None
        return Curves(self._kl(point, at))

    @cached_property
    def target(self) -> Ints | Target | None:
        """The exact posterior without the forgotten agents: grid points [R or 1, 1, D] or a
        `Target`; None if the model has none."""
        return self.find_target()

    @cached_property
    def _default_kl(self) -> Curves:
        return Curves(self._kl(self._exact))

    @property
    def _exact(self) -> Target | Floats:
        if self.target is None:
            raise ConfigError(
                f"{self.model.name} has no exact posterior to compare with. Fix: give kl(target=…)"
            )
        if isinstance(self.target, np.ndarray):
            return self.model.decode(self.target)
        return self.target

    def _kl(self, target: Target | Floats, at: NDArray[np.int64] | None = None) -> Floats:
        columns: Any = slice(None) if at is None else np.asarray(at) - 1
        units, outside = self.units[:, columns], self.outside[:, columns]
        if outside.any():
            # KL formulas hold inside the domain only: evaluate the prior there, then set infinity.
            units = np.where(outside[..., None], self.model.eta0, units)
        if not isinstance(target, np.ndarray):
            values = target.kl_from(self.model.decode(units))
        else:
            # Most visits of a conjugate model do not change eta: evaluate only where eta changes
            # and repeat the value until the next change.
            fresh = self.changed.copy() if at is None else np.ones(outside.shape, dtype=bool)
            fresh[:, 0] = True
            goal = np.broadcast_to(target, units.shape)[fresh]
            found = self.model.family.kl(self.model.decode(units[fresh]), goal)
            values = found[np.cumsum(fresh.ravel()) - 1].reshape(fresh.shape)
        return np.where(outside, np.inf, values) if outside.any() else values

    def mean(self) -> Floats:
        return self.kl().mean()

    def band(self, p: float = 0.75) -> tuple[Floats, Floats]:
        return self.kl().band(p)
