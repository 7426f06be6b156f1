"""How finely records are rounded, and the warning where rounding leaves nothing of a column."""

import warnings

import numpy as np
import pytest

from unweave import Federation, simulate
from unweave.errors import RoundingWarning
from unweave.models import (
    BetaBernoulli,
    GammaExponential,
    LinearRegression,
    MultivariateNormalModel,
    NormalKnownVariance,
    NormalUnknown,
)
from unweave.models.resolution import flattened
from unweave.testing.models import CASES, Case


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_resolution_is_the_step_to_which_records_are_rounded(case: Case) -> None:
    """Less than half a step changes no factor; a step does. Columns of step 0 are not rounded."""
    model = case.model
    if not model.conjugate:
        assert model.resolution == (0.0,) * len(model.columns)
        return
    row = case.rows(1, seed=3)
    for j, step in enumerate(model.resolution):
        if not step:
            assert model.schema[j].whole
            continue
        on_grid = row.copy()
        on_grid[:, j] = np.rint(row[:, j] / step) * step
        base = model.factor(model.shard(on_grid))
        for shift, same in ((0.4, True), (1.0, False)):
            moved = on_grid.copy()
            moved[:, j] += shift * step
            assert np.array_equal(model.factor(model.shard(moved)), base) is same


@pytest.mark.parametrize(
    ("low", "high", "becomes"),
    [
        (0.0, 0.0, None),
        (5.0, 5.0, None),
        (0.0, 0.4, "0"),
        (-0.4, 0.4, "0"),
        (0.3, 0.3, "0"),
        (5.0, 5.3, "one constant"),
        (0.0, 0.6, None),
        (-0.6, 0.4, None),
    ],
)
def test_the_extremes_tell_whether_a_column_is_flattened(low, high, becomes):
    assert flattened(low, high, 1.0) == becomes
    assert flattened(low, high, 0.0) is None


@pytest.mark.parametrize(
    ("model", "shard", "column"),
    [
        (NormalUnknown(), [1e-7, 2e-7], "'x' becomes 0"),
        (NormalUnknown(), [7 + 1e-7, 7.0], "'x' becomes one constant"),
        (GammaExponential(), [1e-10, 3e-10], "'x' becomes 0"),
        (NormalKnownVariance(noise=0.5), [1e-10, 2e-10], "'x' becomes 0"),
        (LinearRegression(2), ([[1e-6, 2], [2e-6, 3]], [1, 2]), "'x1' becomes 0"),
        (MultivariateNormalModel(["u", "v"]), [[1, 1e-6], [2, 3e-6]], "'v' becomes 0"),
    ],
)
def test_a_flattened_column_is_said_once(model, shard, column):
    for run in (
        lambda: Federation(model, [shard, shard, shard], "ring"),
        lambda: simulate(model, [shard] * 3, "ring", iterations=2, replicas=2),
    ):
        with pytest.warns(RoundingWarning, match=f"{column}.*agents a1, a2, a3.*more bits") as seen:
            run()
        assert len(seen) == 1
        assert seen[0].filename == __file__


def test_data_that_the_grid_can_tell_apart_pass_in_silence():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for case in CASES:
            Federation(case.model, {"a": case.rows(8, seed=1), "b": case.rows(5, seed=2)}, "path")
        Federation(LinearRegression(1), [([[2.0], [2.0]], [0.0, 0.0])], "path")  # constant data
        network = Federation(NormalUnknown(), [[0.5, 1.0]], "path")
    with pytest.warns(RoundingWarning, match="agent a1"):
        network.update("a1", [1e-9, 2e-9])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Federation(BetaBernoulli(), [[0, 0]], "path")
