"""The integer grid: exact sums, exact differences, one rounding, and no silent wrap."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from unweave.errors import ConfigError, DataError, GridOverflow
from unweave.grid import Grid, exact_sum

INT64 = st.integers(-(2**63) + 1, 2**63 - 1)
SMALL = st.integers(-(2**40), 2**40)


def ints(values: list[int]) -> np.ndarray:
    return np.array(values, dtype=np.int64)


@given(st.lists(st.tuples(SMALL, SMALL), min_size=1, max_size=20), st.randoms())
def test_sums_do_not_depend_on_their_order(records: list[tuple[int, int]], random) -> None:
    grid = Grid((3, 40))
    shuffled = list(records)
    random.shuffle(shuffled)
    first, second = grid.zeros(), grid.zeros()
    for a, b in zip(records, shuffled, strict=True):
        first, second = grid.add(first, ints(a)), grid.add(second, ints(b))
    np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(first, grid.total(ints(records)))


@given(st.tuples(SMALL, SMALL), st.tuples(SMALL, SMALL))
def test_subtracting_undoes_adding(a: tuple[int, int], b: tuple[int, int]) -> None:
    grid = Grid((0, 24))
    np.testing.assert_array_equal(grid.subtract(grid.add(ints(a), ints(b)), ints(b)), ints(a))


@given(INT64, INT64)
def test_add_and_subtract_are_exact_or_refused(a: int, b: int) -> None:
    grid = Grid((5,), names=("shape",))
    for method, true in ((grid.add, a + b), (grid.subtract, a - b)):
        if -(2**63) <= true < 2**63:
            assert int(method(ints([a]), ints([b]))[0]) == true
        else:
            with pytest.raises(GridOverflow, match=r"shape leaves the grid.*5 fractional bits"):
                method(ints([a]), ints([b]))


@given(hnp.arrays(np.int64, st.tuples(st.integers(1, 12), st.just(2)), elements=INT64))
def test_exact_sum_never_wraps(records: np.ndarray) -> None:
    truth = [sum(int(v) for v in records[:, j]) for j in range(2)]
    assert exact_sum(records) == truth
    grid = Grid((0, 7), names=("count", "sum"))
    if all(abs(t) < 2**63 for t in truth):
        assert grid.total(records).tolist() == truth
    else:
        with pytest.raises(GridOverflow, match=r"count|sum"):
            grid.total(records)


def test_a_partial_sum_that_would_wrap_does_not_decide() -> None:
    big = 2**62
    records = ints([[big], [big], [big], [-big], [-big], [-big]])
    assert Grid((0,)).total(records).tolist() == [0]


def test_total_of_nothing_is_zero() -> None:
    assert Grid((1, 2)).total(np.empty((0, 2), dtype=np.int64)).tolist() == [0, 0]


@given(
    st.lists(INT64, min_size=1, max_size=4),
    st.fractions(min_value=Fraction(1, 10**6), max_value=1, max_denominator=10**9),
)
def test_rescale_rounds_once_half_to_even(values: list[int], factor: Fraction) -> None:
    grid = Grid((0,) * len(values))
    scaled = grid.rescale(ints(values), factor)
    for value, units in zip(values, scaled.tolist(), strict=True):
        exact = value * factor
        assert abs(units - exact) <= Fraction(1, 2)
        if abs(units - exact) == Fraction(1, 2):
            assert units % 2 == 0


def test_rescale_ties_and_overflow() -> None:
    grid = Grid((0,), names=("sum",))
    assert [int(grid.rescale(ints([v]), Fraction(1, 2))[0]) for v in (1, 3, -1, -3, 5)] == [
        0, 2, 0, -2, 2,
    ]  # fmt: skip
    with pytest.raises(GridOverflow, match="sum leaves the grid"):
        grid.rescale(ints([2**62]), Fraction(3))


@given(st.floats(-1e6, 1e6), st.integers(0, 30))
def test_encode_is_the_nearest_point_and_decode_inverts_it(value: float, bits: int) -> None:
    grid = Grid((bits,))
    units = grid.encode([value])
    assert abs(Fraction(int(units[0]), 2**bits) - Fraction(value)) <= Fraction(1, 2 ** (bits + 1))
    np.testing.assert_array_equal(grid.encode(grid.decode(units)), units)


def test_encode_breaks_ties_to_even_and_keeps_batches() -> None:
    np.testing.assert_array_equal(Grid((0, 1)).encode([[0.5, 0.25], [1.5, 0.75]]), [[0, 0], [2, 2]])


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_encode_refuses_what_is_not_a_number(value: float) -> None:
    with pytest.raises(DataError, match="precision"):
        Grid((8, 8), names=("mean", "precision")).encode([1.0, value])


def test_encode_says_how_much_fits() -> None:
    with pytest.raises(GridOverflow, match=r"precision leaves .*scale.*fewer bits"):
        Grid((8, 24), names=("mean", "precision")).encode([1.0, 1e18])


@pytest.mark.parametrize("bits", [(), (-1,), (63,)])
def test_impossible_grids_are_refused(bits: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match="from 0 to 62"):
        Grid(bits)


def test_names_must_match() -> None:
    with pytest.raises(ConfigError, match="2 components, 1 names"):
        Grid((1, 2), names=("a",))
