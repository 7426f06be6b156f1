"""Exact sums against Python integers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from unweave.errors import GridOverflow
from unweave.models import GammaExponential, NormalUnknown
from unweave.models.sums import count_sum, gram_sum


def _naive_gram(z: np.ndarray) -> list[list[int]]:
    rows = [[int(v) for v in row] for row in z]
    m = z.shape[1]
    return [[sum(r[i] * r[j] for r in rows) for j in range(m)] for i in range(m)]


@given(
    hnp.arrays(
        np.int64,
        st.tuples(st.integers(1, 8), st.integers(1, 4)),
        elements=st.integers(-(2**31) + 1, 2**31 - 1),
    )
)
def test_gram_is_exact_for_large_features(z: np.ndarray) -> None:
    assert gram_sum(z.astype(np.float64)).tolist() == _naive_gram(z)


@given(
    hnp.arrays(
        np.int64,
        st.tuples(st.integers(1, 8), st.integers(1, 4)),
        elements=st.integers(-(2**17), 2**17),
    )
)
def test_gram_is_exact_for_small_features(z: np.ndarray) -> None:
    assert gram_sum(z.astype(np.float64)).tolist() == _naive_gram(z)


@pytest.mark.parametrize("largest", [2**20 - 1, 2**20, 2**31 - 1])
def test_gram_is_exact_where_one_block_would_round(largest: int) -> None:
    """Odd features at their largest: a float64 sum of 100,000 products loses low bits."""
    rng = np.random.default_rng(3)
    z = largest - 2 * rng.integers(0, 2, (100_000, 2))
    total = gram_sum(z.astype(np.float64))
    truth = z.astype(object).T @ z.astype(object)
    assert total.tolist() == truth.tolist()


def test_counts_beyond_float64_are_exact() -> None:
    values = np.full(1001, 2.0**53 - 1)
    assert count_sum(values) == 1001 * (2**53 - 1)
    assert count_sum(np.ones(1000)) == 1000


@given(st.lists(st.floats(-1e4, 1e4), max_size=20), st.integers(0, 48))
def test_real_sums_round_each_record(values: list[float], bits: int) -> None:
    from fractions import Fraction

    truth = sum(round(Fraction(v) * 2**bits) for v in values)
    model = GammaExponential(bits=(0, bits))
    assert model.sums(np.array(values)[:, None])[1] == truth


@pytest.mark.parametrize("value", [1e300, -1e300, 2.0**31])
def test_a_record_too_large_is_refused_with_the_scale_that_would_do(value: float) -> None:
    with pytest.raises(GridOverflow, match=r"column 'x': a record is too large .* Fix: scale"):
        NormalUnknown().sums(np.array([[0.0], [value]]))
