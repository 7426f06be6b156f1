"""Exact draws from the discrete Gaussian N_Z(0, σ²): P(x) ∝ exp(−x²/2σ²) for every whole number x.

Differential privacy counts on this distribution, so the draws follow it exactly: no floating-point
number, no table that is cut off, no generator but the operating system's. Canonne, Kamath and
Steinke (2020) have the distribution and an exact sampler of one draw at a time; this one draws in
bulk. A draw is a sign and a magnitude m = k·2^b + u with 0 ≤ u < 2^b:

1. The cell k ≥ 0 has the weight w_k = exp(−(k·2^b)²/2σ²), the largest of its magnitudes.
2. u is uniform: b random bits.
3. The draw is kept with probability exp(−γ), γ = u(2k·2^b + u)/2σ², and tried again otherwise.
   w_k·exp(−γ) = exp(−m²/2σ²), so every m is kept in proportion to its weight.
4. The sign is a random bit; −0 is tried again, so that 0 does not count twice.

b is such that σ/2^b is from 32 to 64 (or b = 0): about 1% of the draws are tried again.

Why this is exact. Steps 1 and 3 compare a uniform real number in [0, 1) with a real number: with
C_k = Σ_{j<k} w_j / Σ_j w_j, and with exp(−γ). The uniform number has infinitely many random bits,
of which only the first 64 (32) are drawn at once. Whole numbers that bound the other side prove the
outcome of nearly every comparison for *all* continuations of these bits. If they do not (once in
about 2^55 cells and in about 10^6 rejections), more bits are drawn and the bounds are computed with
more digits, until they do. The list of cells has no end: the last threshold of the table is
2^64 − 1, so that a draw beyond it is such an undecided comparison. All bounds are whole numbers
that are rounded outwards.

Draws beyond ±2^63 are returned modulo 2^64, as masks are; for σ < 2^54 nobody will see one
(probability below e^−131,000). The time of a draw depends on its value.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import lru_cache
from itertools import count as count_from

import numpy as np
from numpy.typing import NDArray

from unweave.errors import ConfigError
from unweave.grid import Ints

__all__ = ["MOST_VARIANCE", "DiscreteGaussian", "Source", "exp_bounds"]

# So many random bytes; `os.urandom`, except in tests.
Source = Callable[[int], bytes]

MOST_VARIANCE = 1 << 108  # σ < 2^54

_BLOCK = 1 << 15  # draws at a time: their arrays stay in the cache
_WORD = 1 << 64
_CELLS = 5  # σ/2^b ≥ 2^5
_ONE = np.uint64(1 << 32)  # 1 in the fixed point of the rejection

Words = NDArray[np.uint64]


class DiscreteGaussian:
    """N_Z(0, variance). `draw(count)` gives independent draws as int64."""

    def __init__(self, variance: int | Fraction) -> None:
        self.variance = Fraction(variance)
        if not 0 < self.variance <= MOST_VARIANCE:
            raise ConfigError(
                f"a discrete Gaussian of variance {float(variance):.3g} cannot be drawn. Fix: a "
                "variance above 0 and below 2^108; fewer bits of the grid (bits=…) make it smaller"
            )
        whole = int(self.variance)
        self._shift = max(0, (whole.bit_length() - 1) // 2 - _CELLS)
        # c = 4^b/2σ²: w_k = exp(−k²c).
        self._c = Fraction(1 << (2 * self._shift)) / (2 * self.variance)
        self._table = np.array(_thresholds(self._c), dtype=np.uint64)
        self._c_low = np.uint64(int(self._c * (1 << 42))) if self._shift else np.uint64(0)

    def draw(self, count: int, source: Source = os.urandom) -> Ints:
        """`count` independent draws."""
        found = np.empty(count, dtype=np.int64)
        have = 0
        while have < count:
            some = self._block(min(_BLOCK, int(1.05 * (count - have)) + 16), source)
            some = some[: count - have]
            found[have : have + len(some)] = some
            have += len(some)
        return found

    def _block(self, tries: int, source: Source) -> Ints:
        """The accepted ones of this many tries."""
        words = np.frombuffer(source(16 * tries), dtype="<u8").reshape(2, tries)
        k, rest = self._cells(words[0], source), words[1]
        negative = (rest >> np.uint64(63)).astype(np.bool_)
        u = rest & np.uint64((1 << self._shift) - 1)
        m = ((k << np.uint64(self._shift)) + u).view(np.int64)
        keep = ~(negative & (m == 0))
        if self._shift:
            keep &= self._kept(k, u, source)
        signed: Ints = np.where(negative, -m, m)[keep]
        return signed

    def _cells(self, words: Words, source: Source) -> Words:
        """The cell of each uniform number whose first 64 bits are given. With T_k = ⌊C_k·2^64⌋, a
        word strictly between T_k and T_{k+1} lies in cell k whatever bits follow."""
        k = np.searchsorted(self._table, words, side="right")
        below = self._table[np.maximum(k - 1, 0)]
        for i in np.flatnonzero((below == words) & (k > 0)):
            k[i] = _cell(self._c, int(words[i]), source)
        return k.astype(np.uint64)

    def _kept(self, k: Words, u: Words, source: Source) -> NDArray[np.bool_]:
        """Bernoulli(exp(−γ)) of each draw. With f = u/2^b, γ = c·f·(2k + f)."""
        b = self._shift
        # f in units of 2^-30, 2k + f and the product in units of 2^-20, c in units of 2^-42, γ in
        # units of 2^-32; no product reaches 2^62. Every truncation lowers the value.
        thirty = u >> np.uint64(b - 30) if b > 30 else u << np.uint64(30 - b)
        sum_ = (k << np.uint64(21)) + (thirty >> np.uint64(10))
        low = (((thirty * sum_) >> np.uint64(30)) * self._c_low) >> np.uint64(30)
        # 2k + 1 < 2^11 and c ≤ 2^-11: f·(2k + f) lost less than 2^11·2^-30 + 2·2^-20 = 2^-18, which
        # is 8 units of γ; c took at most 2^11·2^-42, 2 units; the last truncation 1.
        high = low + np.uint64(11)
        square = (high * high) >> np.uint64(32)
        cube = ((square + np.uint64(1)) * high) >> np.uint64(32)
        # 1 − y + y²/2 − y³/6 ≤ exp(−y) ≤ 1 − y + y²/2
        least = _ONE - high + (square >> np.uint64(1)) - (cube + np.uint64(2)) // np.uint64(6) - 1
        most = _ONE - low + ((low * low) >> np.uint64(33)) + 1
        random = np.frombuffer(source(4 * len(k)), dtype="<u4").astype(np.uint64)
        kept: NDArray[np.bool_] = (
            random < least
        )  # and so is every real number from `random` to `random` + 1
        for i in np.flatnonzero(~kept & (random < most) | (k >= len(self._table))):
            ui = int(u[i])
            gamma = ui * ((int(k[i]) << (b + 1)) + ui) / (2 * self.variance)
            kept[i] = _bernoulli_exp(gamma, int(random[i]), source)
        return kept


def exp_bounds(x: Fraction, bits: int) -> tuple[int, int]:
    """Whole numbers with low ≤ exp(−x)·2^bits ≤ high, for x ≥ 0; they differ by a few units.

    exp(−x) = exp(−x/2^s)^(2^s) with x/2^s ≤ ½, and the Taylor series of the latter alternates, so
    that its remainder is at most its next term. Every operation rounds outwards.
    """
    s = max(0, (2 * x.numerator // x.denominator).bit_length())
    at = bits + 2 * s + 16
    scaled = (x.numerator << at, x.denominator << s)
    y_low = scaled[0] // scaled[1]
    y_high = y_low + 1
    low = high = term_low = term_high = 1 << at
    for i in count_from(1):
        term_low = (term_low * y_low >> at) // i
        term_high = -(-(term_high * y_high) // (i << at))
        if i % 2:
            low, high = low - term_high, high - term_low
        else:
            low, high = low + term_low, high + term_high
        if term_high <= 1:
            break
    low, high = max(low - term_high, 0), min(high + term_high, 1 << at)
    for _ in range(s):
        low, high = low * low >> at, -(-(high * high) >> at)
    return low >> (at - bits), -(-high >> (at - bits))


def _weights(c: Fraction, bits: int) -> Iterator[tuple[int, int]]:
    """Bounds of w_k·2^bits, k = 0, 1, …: w_{k+1} = w_k·exp(−(2k+1)c)."""
    ratio, step = exp_bounds(c, bits), exp_bounds(2 * c, bits)
    low = high = 1 << bits
    while True:
        yield low, high
        low, high = low * ratio[0] >> bits, -(-(high * ratio[1]) >> bits)
        ratio = ratio[0] * step[0] >> bits, -(-(ratio[1] * step[1]) >> bits)


def _cumulative(c: Fraction, bits: int) -> Iterator[tuple[int, int]]:
    """Bounds of C_k·2^bits, k = 1, 2, …; without end."""
    at = bits + 64
    total_low = total_high = 0
    for k, (low, high) in enumerate(_weights(c, at)):
        if high >> 64 <= 1:
            # w_{j+1}/w_j ≤ e^−x for j ≥ k, x = (2k+1)c, and 1/(1 − e^−x) ≤ 1 + 1/x.
            total_high += int(high * (1 + 1 / ((2 * k + 1) * c))) + 1
            break
        total_low, total_high = total_low + low, total_high + high
    sum_low = sum_high = 0
    for low, high in _weights(c, at):
        sum_low, sum_high = sum_low + low, sum_high + high
        yield (
            (sum_low << bits) // total_high,
            min(-(-(sum_high << bits) // total_low), 1 << bits),
        )


@lru_cache(64)
def _thresholds(c: Fraction) -> tuple[int, ...]:
    """T_k = ⌊C_k·2^64⌋ for k = 1, 2, …, up to the first that is 2^64 − 1."""
    for bits in count_from(192, 64):
        found = []
        for low, high in _cumulative(c, bits):
            # The bounds of the last one may reach 1, which no C_k does.
            word = low >> (bits - 64)
            if word != min(high >> (bits - 64), _WORD - 1):
                break  # a whole number lies between the bounds: more digits
            found.append(word)
            if word == _WORD - 1:
                return tuple(found)
    raise AssertionError("unreachable")


def _cell(c: Fraction, word: int, source: Source) -> int:
    """The cell of a uniform number whose first 64 bits do not decide it."""
    bits = 64
    while True:
        word, bits = word << 64 | int.from_bytes(source(8), "little"), bits + 64
        for k, (low, high) in enumerate(_cumulative(c, bits)):
            if word < low:
                return k  # all smaller thresholds were at most `word`
            if word < high:
                break  # undecided: more bits


def _bernoulli_exp(gamma: Fraction, word: int, source: Source) -> bool:
    """Whether a uniform number whose first 32 bits are given is below exp(−gamma)."""
    bits = 32
    while True:
        low, high = exp_bounds(gamma, bits)
        if word < low:
            return True
        if word >= high:
            return False
        word, bits = word << 32 | int.from_bytes(source(4), "little"), bits + 32
