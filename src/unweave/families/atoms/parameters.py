"""Parameters of a likelihood with independent priors, in coordinates u without bounds.

    law                    support     u(θ)                    density of u
    normal(mean, sd)       real        θ                       Normal(mean, sd²)
    lognormal(mean, sd)    above 0     log θ                   Normal(mean, sd²)
    gamma(shape, rate)     above 0     log θ                   ∝ exp(shape·u − rate·e^u)
    beta(a, b)             0 to 1      logit θ                 ∝ θ^a (1−θ)^b
    uniform(low, high)     low to high logit (θ−low)/(high−low) ∝ t (1−t), t = (θ−low)/(high−low)

Ellipsoids and polynomials need a space without bounds; reports are in θ.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unweave.arguments import shown
from unweave.errors import ConfigError
from unweave.lazy import special

__all__ = ["Parameter", "Space", "sobol"]

Floats = NDArray[np.float64]

# The law → the names of its two numbers, and which of them must be above 0.
_LAWS = {
    "normal": (("mean", "sd"), (False, True)),
    "lognormal": (("mean", "sd"), (False, True)),
    "gamma": (("shape", "rate"), (True, True)),
    "beta": (("a", "b"), (True, True)),
    "uniform": (("low", "high"), (False, False)),
}
_FORM = re.compile(r"\s*([a-z]+)\s*\(([^,()]+),([^,()]+)\)\s*")
_EXAMPLE = 'write "normal(0, 1)", "lognormal(0, 1)", "gamma(2, 1)", "beta(2, 2)" or "uniform(0, 5)"'


def _text(x: float) -> str:
    """Short, but without losing a digit: the text is the setting."""
    short = f"{x:g}"
    return short if float(short) == x else repr(x)


@dataclass(frozen=True)
class Parameter:
    """One parameter and its prior. `Parameter.parse("shape", "lognormal(0, 1)")`."""

    name: str
    law: str
    a: float
    b: float

    def __post_init__(self) -> None:
        if self.law not in _LAWS:
            raise ConfigError(f"prior of {self.name}: {shown(self.law)}. Fix: {_EXAMPLE}")
        words, positive = _LAWS[self.law]
        for word, value, above in zip(words, (self.a, self.b), positive, strict=True):
            if not math.isfinite(value) or (above and value <= 0.0):
                limit = "a finite number above 0" if above else "a finite number"
                raise ConfigError(f"prior of {self.name}: {word} = {value:g}. Fix: {limit}")
        if self.law == "uniform" and not self.a < self.b:
            raise ConfigError(f"prior of {self.name}: low is not below high. Fix: exchange them")

    @classmethod
    def parse(cls, name: str, text: Any) -> Parameter:
        found = _FORM.fullmatch(text) if isinstance(text, str) else None
        try:
            assert found is not None
            return cls(name, found[1], float(found[2]), float(found[3]))
        except (AssertionError, ValueError):
            raise ConfigError(f"prior of {name}: {shown(text)}. Fix: {_EXAMPLE}") from None

    def inward(self, theta: Floats) -> Floats:
        """u of θ inside the support."""
        if self.law == "normal":
            return np.asarray(theta, dtype=np.float64)
        if self.law in ("lognormal", "gamma"):
            return np.asarray(np.log(theta))
        return np.asarray(special.logit(self._share(theta)))

    def outward(self, u: Floats) -> Floats:
        """θ of u."""
        if self.law == "normal":
            return np.asarray(u, dtype=np.float64)
        if self.law in ("lognormal", "gamma"):
            return np.asarray(np.exp(u))
        share = special.expit(u)
        if self.law == "beta":
            return np.asarray(share)
        return np.asarray(self.a + (self.b - self.a) * share)

    def log_slope(self, u: Floats) -> Floats:
        """log dθ/du."""
        if self.law == "normal":
            return np.zeros_like(u)
        if self.law in ("lognormal", "gamma"):
            return u
        both: Floats = special.log_expit(u) + special.log_expit(-u)
        return both + (math.log(self.b - self.a) if self.law == "uniform" else 0.0)

    def supported(self, theta: Floats) -> NDArray[np.bool_]:
        if self.law == "normal":
            return np.isfinite(theta)
        if self.law in ("lognormal", "gamma"):
            return np.isfinite(theta) & (theta > 0.0)
        share = self._share(theta)
        return np.asarray((share > 0.0) & (share < 1.0))

    def log_prior(self, u: Floats) -> Floats:
        """The log-density of u."""
        a, b = self.a, self.b
        if self.law in ("normal", "lognormal"):
            z = (u - a) / b
            result: Floats = -0.5 * z * z - math.log(b) - 0.5 * math.log(2.0 * math.pi)
        elif self.law == "gamma":
            result = a * (u + math.log(b)) - b * np.exp(u) - math.lgamma(a)
        elif self.law == "beta":
            result = a * special.log_expit(u) + b * special.log_expit(-u) - special.betaln(a, b)
        else:
            result = special.log_expit(u) + special.log_expit(-u)
        return result

    def quantile(self, p: Floats) -> Floats:
        """The u with P(U ≤ u) = p under the prior."""
        if self.law in ("normal", "lognormal"):
            return np.asarray(self.a + self.b * special.ndtri(p))
        if self.law == "gamma":
            return np.asarray(np.log(special.gammaincinv(self.a, p) / self.b))
        if self.law == "beta":
            # Both tails from the smaller probability: 1 − θ would round to 0.
            low = special.betaincinv(self.a, self.b, np.minimum(p, 0.5))
            high = special.betaincinv(self.b, self.a, np.minimum(1.0 - p, 0.5))
            upper = np.log1p(-high) - np.log(high)
            return np.asarray(np.where(p < 0.5, np.log(low) - np.log1p(-low), upper))
        return np.asarray(special.logit(p))

    def _share(self, theta: Floats) -> Floats:
        return theta if self.law == "beta" else (theta - self.a) / (self.b - self.a)

    def __str__(self) -> str:
        return f"{self.law}({_text(self.a)}, {_text(self.b)})"


@dataclass(frozen=True)
class Space:
    """The parameters together: points are u [..., d]."""

    parameters: tuple[Parameter, ...]

    @property
    def dim(self) -> int:
        return len(self.parameters)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(p.name for p in self.parameters)

    def inward(self, theta: Floats) -> Floats:
        return np.stack([p.inward(theta[..., j]) for j, p in enumerate(self.parameters)], axis=-1)

    def outward(self, u: Floats) -> Floats:
        return np.stack([p.outward(u[..., j]) for j, p in enumerate(self.parameters)], axis=-1)

    def log_slope(self, u: Floats) -> Floats:
        """log |dθ/du|."""
        parts = [p.log_slope(u[..., j]) for j, p in enumerate(self.parameters)]
        return np.asarray(sum(parts), dtype=np.float64)

    def supported(self, theta: Floats) -> NDArray[np.bool_]:
        inside = [p.supported(theta[..., j]) for j, p in enumerate(self.parameters)]
        return np.asarray(np.logical_and.reduce(inside))

    def log_prior(self, u: Floats) -> Floats:
        parts = [p.log_prior(u[..., j]) for j, p in enumerate(self.parameters)]
        return np.asarray(sum(parts), dtype=np.float64)

    def quantile(self, p: Floats) -> Floats:
        laws = self.parameters
        return np.stack([law.quantile(p[..., j]) for j, law in enumerate(laws)], axis=-1)


# Direction numbers of Joe and Kuo (2008) for dimensions 2 to 6: degree, polynomial, first m.
_DIRECTIONS = (
    (1, 0, (1,)),
    (2, 1, (1, 3)),
    (3, 1, (1, 3, 1)),
    (3, 2, (1, 1, 1)),
    (4, 1, (1, 1, 3, 3)),
)
_BITS = 32


def sobol(n: int, dim: int, shift: NDArray[np.uint64] | None = None) -> Floats:
    """The first n points of the Sobol sequence in (0, 1)^dim, dim ≤ 6, [n, dim].

    `shift` (one 32-bit number per dimension) is a digital shift: points are XORed with it. Points
    are integers until the last step, so every machine makes the same ones. Half a unit is added, so
    that no point is 0.
    """
    index = np.arange(n, dtype=np.uint64)
    gray = index ^ (index >> np.uint64(1))
    columns = []
    for j in range(dim):
        word = np.zeros(n, dtype=np.uint64)
        for bit, direction in enumerate(_direction_numbers(j)):
            on = (gray >> np.uint64(bit)) & np.uint64(1)
            word ^= on * np.uint64(direction)
        if shift is not None:
            word ^= shift[j]
        columns.append((word.astype(np.float64) + 0.5) * 2.0**-_BITS)
    return np.stack(columns, axis=-1)


def _direction_numbers(j: int) -> list[int]:
    if j == 0:
        return [1 << (_BITS - 1 - i) for i in range(_BITS)]
    s, a, first = _DIRECTIONS[j - 1]
    m = list(first)
    while len(m) < _BITS:
        i = len(m)
        value = m[i - s] ^ (m[i - s] << s)
        for k in range(1, s):
            if (a >> (s - 1 - k)) & 1:
                value ^= m[i - k] << k
        m.append(value)
    return [m[i] << (_BITS - 1 - i) for i in range(_BITS)]
