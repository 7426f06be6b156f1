"""Bad data is refused with the agent, the column, the row, the problem and what was expected."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest

from unweave.errors import ConfigError, DataError
from unweave.models import (
    BetaBernoulli,
    BetaBinomial,
    BetaGeometric,
    DirichletCategorical,
    DirichletMultinomial,
    GammaExponential,
    GammaPoisson,
    LinearRegression,
    Model,
    MultivariateNormalModel,
    NormalKnownVariance,
    by_name,
)
from unweave.testing.models import CASES, Case

REGRESSION = LinearRegression(features=["age", "dose"], target="effect")


@pytest.mark.parametrize(
    ("model", "data", "message"),
    [
        (
            BetaBernoulli(),
            [0, 1, np.nan],
            "'x', row 2: the value is missing .NaN.. Fix: 0 or 1",
        ),
        (BetaBernoulli(), [0, 2], "row 1: the value is above 1. Fix: 0 or 1"),
        (BetaBernoulli(), [0, 0.5], "row 1: the value is not a whole number"),
        (BetaBernoulli(), [], "has no records. Fix: at least one"),
        (BetaBernoulli(), np.zeros((0, 1)), "has no records"),
        (BetaBernoulli(), 3, "the data is of type int. Fix: an array"),
        (BetaBernoulli(), np.zeros((2, 2, 2)), "3 dimensions"),
        (BetaBernoulli(), np.zeros((3, 2)), r"has 2 columns. Fix: give 1 \(x\)"),
        (BetaBernoulli(), ["0", "1"], "row 0: the value is text. Fix: a number"),
        (BetaBernoulli(), [1, None], "row 1: the value is missing"),
        (BetaBernoulli(), [1, 1j], "row 1: the value is of type complex"),
        (BetaBernoulli(), np.array(["2020-01-01"], dtype="M8[D]"), "of type date"),
        (
            GammaPoisson(),
            [3, -1],
            "row 1: the value is below 0. Fix: a whole number, at least 0",
        ),
        (GammaPoisson(), [3, np.inf], "row 1: the value is infinite"),
        (GammaPoisson(), [3, 2**60], r"row 1: a whole number above 2\^53"),
        (GammaExponential(), [1.0, -0.5], "row 1: the value is below 0"),
        (
            BetaGeometric(),
            [1, 0],
            "row 1: the value is below 1. Fix: a whole number, at least 1",
        ),
        (
            DirichletCategorical(classes=3),
            [0, 3],
            "row 1: .* above 2. Fix: a class from 0 to 2",
        ),
        (DirichletMultinomial(classes=2), [[1, 0], [0, 0]], "row 1.*at least one draw"),
        (
            BetaBinomial(),
            [[3, 5], [6, 5]],
            "'successes', row 1: the value is above the row's trials",
        ),
        (BetaBinomial(trials=4), [3, 5], "'successes', row 1: the value is above 4"),
        (BetaBinomial(), ([1, 2], [3]), r"different lengths \[2, 1\]"),
        (
            REGRESSION,
            {"age": [1], "effect": [2]},
            "column 'dose' is missing; the names .* Fix: rename one",
        ),
        (
            REGRESSION,
            {"age": [1, 2], "dose": [1, 2], "effect": [2]},
            "different lengths {'age': 2, 'dose': 2, 'effect': 1}",
        ),
        (REGRESSION, {"age": [[1, 2]], "dose": [1], "effect": [2]}, "'age' has several dim"),
        (REGRESSION, [[1, 2, 3], [1, 2]], r"different lengths. Fix: give 3 columns"),
        (REGRESSION, [[1, 2, 3], [1, "x", 2]], "column 'dose', row 1: the value is text"),
        (REGRESSION, (np.zeros((3, 2)), [1, 2, np.nan]), "column 'effect', row 2: .*missing"),
        (REGRESSION, np.zeros((3, 2)), r"has 2 columns. Fix: give 3 \(age, dose, effect\)"),
        (MultivariateNormalModel(dim=12), np.zeros((3, 2)), r"x8, … \(12 in all\)"),
    ],
)
def test_bad_data(model: Model, data: Any, message: str) -> None:
    with pytest.raises(DataError, match=message) as error:
        model.shard(data, agent="clinic-7")
    assert "clinic-7" in str(error.value)


def test_values_are_never_quoted() -> None:
    """A shard is private; error messages travel to logs."""
    with pytest.raises(DataError) as error:
        GammaPoisson().shard([-987654], agent="a1")
    assert "987654" not in str(error.value)
    with pytest.raises(DataError) as error:
        NormalKnownVariance().shard(["Jane Doe"], agent="a1")
    assert "Jane" not in str(error.value)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_every_column_of_every_model_refuses_what_is_not_finite(case: Case, value: float) -> None:
    for j, column in enumerate(case.model.columns):
        rows = np.array(case.rows(5, 1))
        rows[3, j] = value
        with pytest.raises(DataError, match=f"agent 'a1', column '{column}', row 3"):
            case.model.shard(rows, agent="a1")


X = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
Y = np.array([7.0, 8.0, 9.0])


@pytest.mark.parametrize(
    "data",
    [
        np.column_stack([X, Y]),
        (X, Y),
        (X[:, 0], X[:, 1], Y),
        [[1, 2, 7], [3, 4, 8], [5, 6, 9]],
        {"effect": Y, "dose": X[:, 1], "age": X[:, 0]},
        pd.DataFrame({"effect": Y, "age": X[:, 0].astype(int), "dose": X[:, 1]}, index=[9, 8, 7]),
        np.array([[1, 2, 7], [3, 4, 8], [5, Decimal(6).__float__(), 9]], dtype=object),
        np.column_stack([X, Y]).astype(np.float32),
    ],
    ids=["array", "X,y", "columns", "lists", "mapping", "frame", "objects", "float32"],
)
def test_every_form_of_data_gives_the_same_shard(data: Any) -> None:
    shard = REGRESSION.shard(data)
    np.testing.assert_array_equal(shard.rows, np.column_stack([X, Y]))
    assert shard.n == 3
    assert shard.rows.dtype == np.float64


def test_one_column_comes_in_many_forms() -> None:
    for data in ([1, 0, 1], (1, 0, 1), np.array([True, False, True]), np.array([[1], [0], [1]])):
        np.testing.assert_array_equal(BetaBernoulli().shard(data).rows, [[1], [0], [1]])
    frame = pd.DataFrame({"x": pd.array([1, None, 0], dtype="Int64")})
    with pytest.raises(DataError, match="row 1: the value is missing"):
        BetaBernoulli().shard(frame)


def test_a_shard_is_a_copy_and_read_only() -> None:
    data = np.array([1.0, 0.0])
    shard = BetaBernoulli().shard(data)
    data[:] = 0
    np.testing.assert_array_equal(shard.rows[:, 0], [1, 0])
    with pytest.raises(ValueError, match="read-only"):
        shard.rows[0] = 5
    frame = pd.DataFrame({"x": [1.0, 0.0]})
    assert not np.shares_memory(BetaBernoulli().shard(frame).rows, frame["x"].to_numpy())


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ([True, False], "one entry for each of 3 records"),
        ([3], "record 3 does not exist. Fix: choose from 0 to 2"),
        ([-1], "record -1 does not exist"),
        ([0.5], "boolean mask, or row indices"),
        ([[0]], "boolean mask, or row indices"),
    ],
)
def test_records_to_drop_must_exist(records: Any, message: str) -> None:
    shard = BetaBernoulli().shard([1, 0, 1], agent="a3")
    with pytest.raises(DataError, match=message) as error:
        shard.drop(records)
    assert "'a3'" in str(error.value)


def test_dropping_nothing_and_one() -> None:
    shard = BetaBernoulli().shard([1, 0, 1])
    assert shard.drop([]).n == 3
    assert shard.drop(1).rows[:, 0].tolist() == [1, 1]
    assert shard.drop([0, 0, 2]).rows[:, 0].tolist() == [0]


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("beta-binomial", {"trials": 0}, "trials = 0"),
        ("beta-negative-binomial", {"successes": 0}, "successes = 0"),
        ("dirichlet-categorical", {"classes": 1}, "classes = 1. Fix: at least 2"),
        (
            "dirichlet-categorical",
            {"classes": 3, "concentration": [1, 2]},
            "2 numbers. Fix: give one, or one for each of 3",
        ),
        ("normal-known-variance", {"noise": 0.0}, "noise = 0.0. Fix: a number above 0"),
        ("linear-regression", {"features": 0}, "no features. Fix: a number of at least 1"),
        ("linear-regression", {"features": 1.5}, "or a list of names"),
        ("linear-regression", {"features": ["y", "x"]}, "the same name. Fix: rename"),
        ("linear-regression", {"features": 2, "sd": [1]}, r"sd has 1 numbers. Fix: .*x1, x2"),
        ("linear-regression", {"features": 2, "sd": -1}, "sd is not above 0"),
        ("linear-regression", {"features": 2, "noise": -1}, "noise = -1. Fix: a number above 0"),
        ("multivariate-normal", {"dim": 0}, "Fix: a number of at least 1"),
        ("multivariate-normal", {"dim": ["a", "a"]}, "the same name. Fix: rename"),
        ("multivariate-normal", {"dim": 2, "mean": [1]}, "mean has 1 numbers. Fix: give 2"),
        ("multivariate-normal", {"dim": 2, "psi": [[1]]}, "a number or a 2×2 matrix"),
    ],
)
def test_impossible_settings(name: str, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        by_name(name, **settings)
