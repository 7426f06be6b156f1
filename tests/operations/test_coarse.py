"""Ranges of columns from private rounds: functions of the sum of all agents' counts alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unweave.errors import ConfigError
from unweave.federation import Federation
from unweave.models import LinearRegression
from unweave.models.scaling import proposed
from unweave.operations import coarse
from unweave.operations.coarse import CoarseRanges, coarse_ranges


def found(values: np.ndarray, agents: int = 4, *, movable: bool = True) -> CoarseRanges:
    parts = np.array_split(values[:, None], agents)
    shards = {f"a{k}": (lambda part=part: iter([part])) for k, part in enumerate(parts)}
    return coarse_ranges(shards, ["x"], [movable])


def constants(values: np.ndarray) -> tuple[float, float]:
    """(center, scale) that a regression with an intercept gets."""
    model = LinearRegression(features=["x"], intercept=True)
    centers, scales = proposed(model, found(values).ranges)
    return centers["x"], scales["x"]


@pytest.mark.parametrize(
    ("values", "center", "scale"),
    [
        (np.linspace(20, 80, 200), 50, 10),
        (np.linspace(1950, 2020, 200), 1985, 10),
        (np.linspace(-3e-5, 4e-5, 200), 5e-6, 1e-5),
        (np.linspace(-2020, -1950, 200), -1985, 10),
        (1.7e9 + np.linspace(0, 5e4, 200), 1.70002e9, 1e4),
        (np.tile([0.0, 1.0], 100), 0.5, 1),
        (np.full(60, 5.0), 5, 1),
        (np.zeros(60), 0, 1),
        (np.r_[np.zeros(995), np.full(5, 4000.0)], 2000, 1000),
    ],
    ids=["ages", "years", "doses", "negative", "dates", "0 or 1", "constant", "zero", "rare"],
)
def test_constants_fit_the_column(values: np.ndarray, center: float, scale: float) -> None:
    assert constants(values) == (pytest.approx(center), pytest.approx(scale))


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.integers(4, 7), st.floats(-8, 8), st.floats(-8, 8))
def test_neither_the_split_nor_one_outlier_decides(
    seed: int, agents: int, size: float, shift: float
) -> None:
    rng = np.random.default_rng(seed)
    values = 10.0**size * rng.standard_normal(50) + rng.choice([-1, 1]) * 10.0**shift
    ours = found(values, agents)
    assert ours.records == 50
    again = found(rng.permutation(values), 4)
    assert again == ours
    # The smallest and the largest record may be anything beyond the others.
    order = np.sort(values)
    order[0], order[-1] = -1e30, 1e30
    assert found(order, agents) == ours
    low, high = ours.ranges["x"]
    assert low <= order[1] + 1e-9 * abs(order[1])
    assert high >= order[-2] - 1e-9 * abs(order[-2])
    assert high - low <= 4.001 * (order[-2] - order[1])


def test_a_column_with_a_zero_of_its_own_shows_its_order_of_magnitude_only() -> None:
    ours = found(np.linspace(300, 700, 100), movable=False)
    assert ours.rounds == 1
    assert ours.ranges["x"] == (100.0, pytest.approx(1000.0))
    assert ours.ranges["x"][1] < 1000.0


def test_fewer_than_four_agents_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"fewer than 4 gives each one away\. Fix: "):
        found(np.arange(9.0), agents=3)


def test_the_sums_are_those_of_private_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """No token but a complete one shows counts: they are not whole numbers of records."""
    made: list[Federation] = []

    def spy(*given: Any, **settings: Any) -> Federation:
        made.append(Federation(*given, **settings))
        return made[-1]

    monkeypatch.setattr(coarse, "Federation", spy)
    ours = found(np.linspace(0, 1, 40), agents=5)
    assert len(made) == ours.rounds
    assert all(one.privacy.masked for one in made)
    assert all(len(one.included) == 5 for one in made)
