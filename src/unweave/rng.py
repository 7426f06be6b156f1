"""Counter-based random numbers: every draw is a function of a key and a counter.

The key holds the network's seed, the epoch, the hop and a purpose, but not the number of earlier
draws. Therefore a thousand replicas on arrays, a Federation in memory, and real processes that
crash and resume make the same draws.

The generator is SplitMix64 (Steele, Lea, Flood 2014): the n-th output of a stream is
mix64(key + n·0x9E3779B97F4A7C15). It is not suitable for secrets.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Protocol, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["C1", "C2", "GOLDEN", "Purpose", "Rng", "Stream", "derive", "mix64", "uniform"]


GOLDEN = 0x9E3779B97F4A7C15
_MASK = 0xFFFFFFFFFFFFFFFF
C1 = 0xBF58476D1CE4E5B9
C2 = 0x94D049BB133111EB

Floats = NDArray[np.float64]
Words = NDArray[np.uint64]


class Purpose(IntEnum):
    """The purpose of a draw: part of its key, so that purposes never share numbers."""

    GENESIS = 1  # the agent that starts epoch 1
    ROUTE = 2  # the next agent of the token
    SOLVE = 3  # samples of a stochastic gradient
    ORDER = 4  # a fixed order of neighbours (sweep)
    REPLICA = 5  # seeds of replicas
    NONCE = 6  # incarnations and request ids, in the simulator only
    GRAPH = 8  # the edges of a random graph
    PARTITION = 9  # the owner of each record of a split data set
    ATOMS = 10  # the digital shift of a model's atoms


@overload
def mix64(x: int) -> int: ...
@overload
def mix64(x: Words) -> Words: ...
def mix64(x: Any) -> Any:
    """The finaliser of SplitMix64: a bijection of 64-bit words that scatters every bit.

    One word, or an array of them. `experiments.replicas.kernels.mix` is the same for numba.
    """
    x = x & _MASK
    x = ((x ^ (x >> 30)) * C1) & _MASK
    x = ((x ^ (x >> 27)) * C2) & _MASK
    return x ^ (x >> 31)


def derive(key: int, *parts: int) -> int:
    """A new key from `key` and `parts`; each part is absorbed by one round of mixing."""
    for part in parts:
        key = mix64((key ^ mix64(part)) + GOLDEN)
    return key


def uniform(key: int, counter: int) -> float:
    """Draw number `counter` of the stream `key`, uniform on [0, 1) with 53 bits."""
    return (mix64(key + counter * GOLDEN) >> 11) * 2.0**-53


class Rng(Protocol):
    """The methods that families use; `numpy.random.Generator` and `Stream` have them."""

    def random(self, size: tuple[int, ...]) -> Floats: ...
    def standard_normal(self, size: tuple[int, ...]) -> Floats: ...
    def standard_gamma(self, shape: ArrayLike, size: tuple[int, ...]) -> Floats: ...
    def beta(self, a: ArrayLike, b: ArrayLike, size: tuple[int, ...]) -> Floats: ...


class Stream:
    """Arrays of draws from one key. Call n uses a key of its own, so a result depends on the order
    of calls within the stream only."""

    def __init__(self, key: int) -> None:
        self.key = key & _MASK
        self._calls = 0

    def _fresh(self) -> int:
        self._calls += 1
        return derive(self.key, self._calls)

    def random(self, size: tuple[int, ...]) -> Floats:
        return _uniforms(self._fresh(), np.arange(int(np.prod(size, dtype=np.int64)))).reshape(size)

    def standard_normal(self, size: tuple[int, ...]) -> Floats:
        """Box–Muller on two uniforms per element."""
        index = np.arange(int(np.prod(size, dtype=np.int64)))
        key = self._fresh()
        z, _ = _box_muller(_uniforms(key, 2 * index), _uniforms(key, 2 * index + 1))
        return z.reshape(size)

    def standard_gamma(self, shape: ArrayLike, size: tuple[int, ...]) -> Floats:
        """Marsaglia and Tsang (2000); element i, attempt t: counters 4t+1 … 4t+3 of its own key."""
        a = np.broadcast_to(np.asarray(shape, dtype=np.float64), size).ravel()
        keys = _element_keys(self._fresh(), a.size)
        d, c = _squeeze(a)
        g = np.empty(a.size)
        todo = np.arange(a.size)
        attempt = 0
        while todo.size:
            k = keys[todo]
            z, _ = _box_muller(_at(k, 4 * attempt + 1), _at(k, 4 * attempt + 2))
            v, log_ratio = _propose(z, d[todo], c[todo])
            ok = np.log1p(-_at(k, 4 * attempt + 3)) < log_ratio
            g[todo[ok]] = (d[todo] * v)[ok]
            todo = todo[~ok]
            attempt += 1
        return (g * np.exp(_log_boost(a, keys, 0))).reshape(size)

    def beta(self, a: ArrayLike, b: ArrayLike, size: tuple[int, ...]) -> Floats:
        """G_a/(G_a + G_b) with two gammas from one Box–Muller pair, accepted or rejected together.

        Element i, attempt t uses counters 3t+2 … 3t+4 of its own key: two for the pair of normals,
        one for the joint test, whose probability is the product of Marsaglia and Tsang's two.
        Counters 0 and 1 are for shapes below 1. The replica kernels make the same draws.
        """
        a = np.broadcast_to(np.asarray(a, dtype=np.float64), size).ravel()
        b = np.broadcast_to(np.asarray(b, dtype=np.float64), size).ravel()
        keys = _element_keys(self._fresh(), a.size)
        (da, ca), (db, cb) = _squeeze(a), _squeeze(b)
        ga, gb = np.empty(a.size), np.empty(a.size)
        todo = np.arange(a.size)
        attempt = 0
        while todo.size:
            k = keys[todo]
            za, zb = _box_muller(_at(k, 3 * attempt + 2), _at(k, 3 * attempt + 3))
            va, log_a = _propose(za, da[todo], ca[todo])
            vb, log_b = _propose(zb, db[todo], cb[todo])
            ok = np.log1p(-_at(k, 3 * attempt + 4)) < log_a + log_b
            ga[todo[ok]] = (da[todo] * va)[ok]
            gb[todo[ok]] = (db[todo] * vb)[ok]
            todo = todo[~ok]
            attempt += 1
        theta = ga / (ga + gb)
        if np.any(small := (a < 1.0) | (b < 1.0)):
            # The factors U^(1/a) underflow for small shapes; the difference of logarithms does not.
            odds = np.log(gb / ga) + (_log_boost(b, keys, 1) - _log_boost(a, keys, 0))
            with np.errstate(over="ignore"):
                theta[small] = 1.0 / (1.0 + np.exp(odds[small]))
        return theta.reshape(size)


def _squeeze(a: Floats) -> tuple[Floats, Floats]:
    """Marsaglia and Tsang's d and c; shapes below 1 are drawn one higher, then scaled."""
    d = np.where(a < 1.0, a + 1.0, a) - 1.0 / 3.0
    return d, 1.0 / np.sqrt(9.0 * d)


def _propose(z: Floats, d: Floats, c: Floats) -> tuple[Floats, Floats]:
    """The proposal v, Gamma = d·v, and the logarithm of its probability of being accepted."""
    x = 1.0 + c * z
    v = x * x * x
    # v ≤ 0 is never accepted: its log-probability is −infinity, computed without warnings.
    log_v = np.log(np.where(x > 0.0, v, 1.0))
    return v, np.where(x > 0.0, 0.5 * z * z + d * (1.0 - v + log_v), -np.inf)


def _log_boost(a: Floats, keys: Words, counter: int) -> Floats:
    """Gamma(a) = Gamma(a+1)·U^(1/a) for a < 1; 1−U lies in (0, 1], so the logarithm is finite."""
    boost = np.zeros(a.size)
    small = a < 1.0
    boost[small] = np.log1p(-_at(keys[small], counter)) / a[small]
    return boost


def _element_keys(key: int, n: int) -> Words:
    with np.errstate(over="ignore"):
        return mix64(
            np.uint64(key) + (np.arange(n, dtype=np.uint64) + np.uint64(1)) * np.uint64(GOLDEN)
        )


def _at(keys: Words, counter: int) -> Floats:
    offset = np.uint64((counter * GOLDEN) & _MASK)
    return (mix64(keys + offset) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _uniforms(key: int, counters: NDArray[np.int64]) -> Floats:
    words = mix64(np.uint64(key) + counters.astype(np.uint64) * np.uint64(GOLDEN))
    return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _box_muller(u1: Floats, u2: Floats) -> tuple[Floats, Floats]:
    radius = np.sqrt(-2.0 * np.log(1.0 - u1))  # 1 − u is exact, and above 0
    angle = 2.0 * np.pi * u2
    return radius * np.cos(angle), radius * np.sin(angle)
