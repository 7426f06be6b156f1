"""Draws are functions of their key, and have the distributions they claim."""

import numpy as np
import pytest
from scipy import stats

from unweave.rng import GOLDEN, Purpose, Stream, derive, mix64, uniform


def test_splitmix64_reference_outputs() -> None:
    # The first outputs of SplitMix64 seeded with 1234567 (Steele, Lea, Flood; Vigna's C code).
    expected = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    assert [mix64(1234567 + n * GOLDEN) for n in (1, 2, 3)] == expected


def test_keys_depend_on_every_part_and_its_place() -> None:
    keys = {
        derive(0, 1, 2, Purpose.ROUTE),
        derive(0, 2, 1, Purpose.ROUTE),
        derive(0, 1, 2, Purpose.SOLVE),
        derive(1, 1, 2, Purpose.ROUTE),
        derive(0, 1, 2),
    }
    assert len(keys) == 5


def test_arrays_equal_scalars() -> None:
    stream = Stream(7)
    key = derive(7, 1)
    assert stream.random((3, 2)).ravel().tolist() == [uniform(key, n) for n in range(6)]
    assert not np.array_equal(stream.random((3, 2)), Stream(7).random((3, 2)))


@pytest.mark.parametrize(
    ("a", "b"), [(500.0, 520.0), (3.0, 4.0), (1.0, 1.0), (2.5, 0.3), (0.2, 0.4), (1e6, 3.0)]
)
def test_beta(a: float, b: float) -> None:
    theta = Stream(3).beta(a, b, (40_000,))
    assert stats.kstest(theta, stats.beta(a, b).cdf).pvalue > 1e-3
    assert np.all((theta >= 0.0) & (theta <= 1.0))


@pytest.mark.parametrize("a", [0.05, 0.7, 1.0, 9.0, 1e5])
def test_gamma(a: float) -> None:
    g = Stream(4).standard_gamma(a, (40_000,))
    assert stats.kstest(g, stats.gamma(a).cdf).pvalue > 1e-3


def test_normal_and_uniform() -> None:
    stream = Stream(5)
    assert stats.kstest(stream.standard_normal((40_000,)), stats.norm.cdf).pvalue > 1e-3
    assert stats.kstest(stream.random((40_000,)), stats.uniform.cdf).pvalue > 1e-3


def test_tiny_shapes_neither_underflow_to_nan_nor_warn() -> None:
    theta = Stream(6).beta(1e-3, 1e-3, (2000,))
    assert np.isfinite(theta).all()
    # Beta(ε, ε) is a coin: half of the mass at each end.
    assert abs((theta > 0.5).mean() - 0.5) < 0.05


def test_broadcasting_shapes() -> None:
    a = np.array([2.0, 200.0])
    theta = Stream(8).beta(a, 5.0, (3000, 2))
    assert theta.shape == (3000, 2)
    np.testing.assert_allclose(theta.mean(axis=0), a / (a + 5.0), atol=0.02)


def test_draws_are_their_definitions_written_out() -> None:
    """`derive` and `uniform` mix in place; the definition is in terms of `mix64`."""
    for key in (0, 7, -3, 2**64 - 1, 2**70 + 5):
        for part in (0, 1, -1, Purpose.ROUTE, 2**63, 2**80):
            assert derive(key, part) == mix64((key ^ mix64(part)) + GOLDEN)
            assert derive(key, part, 9) == derive(derive(key, part), 9)
            assert uniform(key, part) == (mix64(key + part * GOLDEN) >> 11) * 2.0**-53
