"""Distribution: a family and its natural parameters, the type that users work with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np
from numpy.typing import ArrayLike

from unweave.arguments import floats, whole_number
from unweave.errors import ConfigError
from unweave.families.base import Family, Floats, Params
from unweave.families.marginals import Marginal
from unweave.rng import Rng

__all__ = ["Distribution"]


@dataclass(frozen=True, eq=False, repr=False)
class Distribution:
    """A frozen pair (family, eta); eta[..., D] is checked, copied and read-only.

    >>> from unweave.families import Beta
    >>> Beta(a=2, b=2).kl(Beta(a=3, b=1)).round(4)
    np.float64(0.6931)
    """

    family: Family
    eta: Floats

    def __post_init__(self) -> None:
        point = np.array(self.family.check(self.eta), dtype=np.float64)
        point.flags.writeable = False
        object.__setattr__(self, "eta", point)

    @property
    def batch_shape(self) -> tuple[int, ...]:
        return self.eta.shape[:-1]

    @property
    def params(self) -> Params:
        """The usual parameters by name."""
        return self.family.to_params(self.eta)

    @property
    def marginals(self) -> tuple[Marginal, ...]:
        """The law of each quantity, in the order of `family.theta_names`."""
        return self.family.marginals(self.eta)

    def mean(self) -> Floats:
        """Mean of each quantity: batch shape for one, batch + (quantities,) for several."""
        return self._stack([m.mean() for m in self.marginals])

    def sd(self) -> Floats:
        """Standard deviation of each quantity."""
        return self._stack([m.sd() for m in self.marginals])

    def interval(self, p: float = 0.95) -> tuple[Floats, Floats]:
        """Central interval of probability p of each quantity: (lower, upper)."""
        ends = [m.interval(p) for m in self.marginals]
        return self._stack([low for low, _ in ends]), self._stack([high for _, high in ends])

    def sample(self, n: int | tuple[int, ...] = (), seed: int | Rng = 0) -> Floats:
        """Draws of θ, shape n + batch + event; the same seed gives the same draws."""
        sizes = n if isinstance(n, tuple) else (n,)
        size = tuple(whole_number(s, "the number of draws", 0) for s in sizes)
        if hasattr(seed, "standard_normal"):
            return self.family.sample(self.eta, cast(Rng, seed), size)
        rng = np.random.default_rng(whole_number(seed, "seed", 0))
        return self.family.sample(self.eta, cast(Rng, rng), size)

    def log_prob(self, theta: ArrayLike) -> Floats:
        points, event = floats(theta, "log_prob: theta"), self.family.event_shape
        if event and points.shape[-len(event) :] != event:
            raise ConfigError(
                f"log_prob: theta has shape {points.shape}. Fix: give {event[0]} numbers, "
                f"{self.family.name}'s theta, along the last axis"
            )
        return self.family.log_prob(self.eta, points)

    def entropy(self) -> Floats:
        return self.family.entropy(self.eta)

    def kl(self, other: Distribution) -> Floats:
        """KL(self‖other)."""
        if other.family != self.family:
            raise ConfigError(
                f"kl of {self.family!r} and {other.family!r}. Fix: give members of one family"
            )
        return self.family.kl(self.eta, other.eta)

    def _stack(self, values: list[Floats]) -> Floats:
        if self.family.event_shape == ():
            return np.asarray(values[0])[()]
        shape = self.batch_shape
        return np.stack([np.broadcast_to(v, shape) for v in values], axis=-1)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Distribution):
            return NotImplemented
        return self.family == other.family and np.array_equal(self.eta, other.eta)

    def __hash__(self) -> int:
        return hash((self.family, self.eta.shape, self.eta.tobytes()))

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={_short(value)}" for name, value in self.params.items())
        return f"{self.family.name}({shown})"


def _short(value: Floats) -> str:
    array = np.asarray(value)
    if array.ndim == 0:
        return f"{float(array):.6g}"
    return np.array2string(array, precision=4, threshold=8, separator=", ").replace("\n", "")
