"""The sampler: exact probabilities, and the comparisons that its tables leave undecided."""

import itertools
import random
from decimal import Decimal, localcontext
from fractions import Fraction
from math import ceil, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from unweave.errors import ConfigError
from unweave.privacy import discrete_gaussian as module
from unweave.privacy.discrete_gaussian import MOST_VARIANCE, DiscreteGaussian, exp_bounds

SMALL = [Fraction(1, 9), Fraction(1), Fraction(31, 4), Fraction(660)]
CELLED = [Fraction(5000), Fraction(20_001, 2), Fraction(100_000)]
LARGE = [Fraction(10**12 + 7), Fraction(2**80 + 12345), Fraction(MOST_VARIANCE - 1)]


def exactly(x):
    return Decimal(x.numerator) / Decimal(x.denominator)


def probabilities(variance):
    """P(x) for |x| ≤ 12σ by Decimal's exp, which is correctly rounded: another implementation."""
    reach = ceil(12 * sqrt(variance)) + 3
    with localcontext() as context:
        context.prec = 40
        weights = [(-(x * x) / (2 * exactly(variance))).exp() for x in map(Decimal, range(reach))]
        total = weights[0] + 2 * sum(weights[1:])
        half = np.array([float(weight / total) for weight in weights])
    return np.arange(1 - reach, reach), np.concatenate([half[:0:-1], half])


def seeded(seed):
    """Random bytes that a test can repeat."""
    return random.Random(seed).randbytes


def chi_square(x, variance, least=10):
    """The p-value of draws against the exact probabilities; rare values are one class."""
    values, p = probabilities(variance)
    counts = np.bincount(x - values[0], minlength=len(values))
    common = p * len(x) >= least
    observed = np.append(counts[common], counts[~common].sum())
    expected = np.append(p[common], p[~common].sum()) * len(x)
    if expected[-1] < least:
        observed, expected = observed[:-1], expected[:-1]
    return stats.chi2.sf(((observed - expected) ** 2 / expected).sum(), len(observed) - 1)


@pytest.mark.parametrize("variance", SMALL + CELLED, ids=str)
def test_frequencies_are_the_exact_probabilities(variance):
    x = DiscreteGaussian(variance).draw(400_000, seeded(3))
    assert chi_square(x, variance) > 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("variance", SMALL + CELLED, ids=str)
def test_frequencies_of_many_draws(variance):
    x = DiscreteGaussian(variance).draw(40_000_000)
    assert chi_square(x, variance) > 1e-5


@pytest.mark.parametrize("variance", CELLED[-1:] + LARGE, ids=lambda v: f"{float(v):.0e}")
def test_moments_law_and_low_bits_of_large_variances(variance):
    n, sd = 400_000, sqrt(variance)
    x = DiscreteGaussian(variance).draw(n, seeded(4))
    z = x / sd
    assert stats.kstest(z, "norm").pvalue > 1e-4
    assert abs(z.mean()) < 4.5 / sqrt(n)
    assert abs(z.var() - 1) < 4.5 * sqrt(2 / n)
    assert abs((z**4).mean() - 3) < 4.5 * sqrt(96 / n)
    # P(x mod 16) is uniform but for exp(−2π²σ²/256), which is 0 here.
    assert stats.chisquare(np.bincount(x & 15, minlength=16)).pvalue > 1e-4


def test_draws_are_independent_of_each_other_and_of_blocks():
    x = DiscreteGaussian(Fraction(100_000)).draw(300_000, seeded(5)).astype(float)
    for lag in (1, 2, 7):
        assert abs(np.corrcoef(x[:-lag], x[lag:])[0, 1]) < 4.5 / sqrt(len(x))
        assert abs(np.corrcoef(abs(x[:-lag]), abs(x[lag:]))[0, 1]) < 4.5 / sqrt(len(x))
    table = stats.contingency.crosstab(x[::2] > 0, abs(x[1::2]) > 213)[1]
    assert stats.chi2_contingency(table).pvalue > 1e-4


def test_the_operating_system_is_asked_and_blocks_are_filled():
    a, b = (DiscreteGaussian(7).draw(100_001) for _ in range(2))
    assert len(a) == 100_001
    assert not np.array_equal(a, b)
    assert DiscreteGaussian(7).draw(0).shape == (0,)


@given(
    x=st.fractions(min_value=0, max_value=200, max_denominator=10**9),
    bits=st.sampled_from([32, 64, 128, 300]),
)
def test_bounds_of_exp_hold_the_exact_value(x, bits):
    low, high = exp_bounds(x, bits)
    with localcontext() as context:
        context.prec = 200
        exact = (-exactly(x)).exp() * 2**bits
        assert low <= exact <= high
    assert high - low <= 2


def test_bounds_of_exp_are_rounded_outwards():
    """Few digits and many numbers: a bound that is rounded inwards passes an exact value."""
    draw = random.Random(8)
    with localcontext() as context:
        context.prec = 30
        for _ in range(30_000):
            x = Fraction(draw.randrange(1, 2**40), 2**40)
            low, high = exp_bounds(x, 8)
            assert low <= (-exactly(x)).exp() * 256 <= high, x


@pytest.mark.parametrize("variance", SMALL + CELLED[:1], ids=str)
def test_thresholds_are_the_cumulative_probabilities(variance):
    sampler = DiscreteGaussian(variance)
    with localcontext() as context:
        context.prec = 80
        c = exactly(sampler._c)
        weights = [(-c * k * k).exp() for k in range(1200)]
        total, below = sum(weights), Decimal(0)
        for threshold, weight in zip(sampler._table.tolist(), weights, strict=False):
            below += weight
            assert threshold == int(below / total * 2**64)
    assert sampler._table[-1] == 2**64 - 1


def scripted(*parts):
    """A source that gives these bytes in turn, and then random ones."""
    rest = iter(parts)

    def source(n):
        part = next(rest, None)
        return seeded(1)(n) if part is None else part.ljust(n, b"\0")[:n]

    return source


def test_a_word_on_a_threshold_is_decided_by_further_bits():
    """The uniform number agrees with C_1 in its first 64 bits: the next 64 decide the cell."""
    c = DiscreteGaussian(Fraction(31, 4))._c
    low, high = next(iter(module._cumulative(c, 128)))
    word, next_bits = low >> 64, (low + high) // 2 % 2**64
    below = (next_bits - 2**20).to_bytes(8, "little")
    above = (next_bits + 2**20).to_bytes(8, "little")
    assert module._cell(c, word, scripted(below)) == 0
    assert module._cell(c, word, scripted(above)) == 1
    # On the bounds themselves even 128 bits do not decide, and more are drawn.
    asked = []
    on = scripted((low % 2**64).to_bytes(8, "little"), b"\xff" * 8)

    def counting(n):
        asked.append(n)
        return on(n)

    assert module._cell(c, word, counting) in (0, 1)
    assert len(asked) >= 2


def test_the_tail_has_no_end():
    """64 ones lie beyond every threshold of the table; what follows decides how far."""
    c = DiscreteGaussian(Fraction(1))._c
    cells = [module._cell(c, 2**64 - 1, scripted(*[b"\xff" * 8] * more)) for more in (0, 1, 3, 9)]
    assert cells == sorted(set(cells))
    table = len(DiscreteGaussian(Fraction(1))._table)
    assert cells[0] >= table - 1 < cells[1]


def test_words_on_thresholds_are_not_decided_by_the_table():
    """Followed by zeros, T_k is at most C_k: the cell before it. Followed by ones, it is above."""
    sampler = DiscreteGaussian(Fraction(31, 4))
    words = sampler._table[:-1].copy()
    cells = np.arange(len(words))
    np.testing.assert_array_equal(sampler._cells(words, lambda n: bytes(n)), cells)
    np.testing.assert_array_equal(sampler._cells(words, lambda n: b"\xff" * n), cells + 1)
    # One word to either side, no further bits are asked for.
    np.testing.assert_array_equal(sampler._cells(words - np.uint64(1), None), cells)
    np.testing.assert_array_equal(sampler._cells(words + np.uint64(1), None), cells + 1)


@pytest.mark.parametrize("variance", [CELLED[0], *LARGE], ids=lambda v: f"{float(v):.0e}")
def test_the_fast_rejection_decides_as_exact_arithmetic(variance):
    """Words around ⌊exp(−γ)·2^32⌋, which itself is the only one that needs further bits."""
    sampler = DiscreteGaussian(variance)
    draw = random.Random(6)
    b, n = sampler._shift, 3000
    k = [draw.randrange(len(sampler._table)) for _ in range(n)]
    u = [draw.randrange(1, 2**b) for _ in range(n)]
    gamma = [ui * (ki * 2 ** (b + 1) + ui) / (2 * variance) for ki, ui in zip(k, u, strict=True)]
    edge = np.array([exp_bounds(g, 96)[0] >> 64 for g in gamma])
    at, fine = (np.array(x, dtype=np.uint64) for x in (k, u))

    def decided(words, *more):
        return sampler._kept(at, fine, scripted(words.astype("<u4").tobytes(), *more))

    for distance in (1, 2, 5, 11, 40, 2**14):
        assert decided(np.maximum(edge - distance, 0))[edge >= distance].all()
        assert not decided(np.minimum(edge + distance, 2**32 - 1))[edge + distance < 2**32].any()
    assert sampler._kept(at, fine, lambda n: bytes(n)).all()


def test_undecided_rejections_are_rare_and_happen(monkeypatch):
    asked = itertools.count()
    decide = module._bernoulli_exp

    def counted(*args):
        next(asked)
        return decide(*args)

    monkeypatch.setattr(module, "_bernoulli_exp", counted)
    DiscreteGaussian(Fraction(2**80)).draw(3_000_000, seeded(7))
    assert 0 < next(asked) < 300


@pytest.mark.parametrize("variance", [0, -1, MOST_VARIANCE + 1])
def test_impossible_variances_are_refused(variance):
    with pytest.raises(ConfigError, match="Fix"):
        DiscreteGaussian(variance)
