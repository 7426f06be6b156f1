"""Splitting data: every record once, nobody empty, the same split for the same seed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unweave.errors import ConfigError, DataError
from unweave.sharding import partition

HOW = ["iid", "dirichlet", "by_label", "quantity", "sorted"]


@given(
    n=st.integers(1, 80),
    data=st.data(),
    how=st.sampled_from(HOW),
    seed=st.integers(0, 2**63),
    classes=st.integers(1, 12),
    concentration=st.sampled_from([1e-3, 0.1, 0.5, 10.0]),
)
def test_every_record_has_exactly_one_owner(
    n: int, data: st.DataObject, how: str, seed: int, classes: int, concentration: float
) -> None:
    agents = data.draw(st.integers(1, n), label="agents")
    labels = np.random.default_rng(seed % 1000).integers(0, classes, n)
    records = np.arange(n)
    split = partition(records, agents, how, seed, labels=labels, concentration=concentration)
    assert list(split) == [f"a{k + 1}" for k in range(agents)]
    assert all(len(shard) > 0 for shard in split.values())
    np.testing.assert_array_equal(np.sort(np.concatenate(list(split.values()))), records)
    assert all((np.diff(shard) > 0).all() for shard in split.values())
    again = partition(records, agents, how, seed, labels=labels, concentration=concentration)
    assert all(np.array_equal(split[name], again[name]) for name in split)


def test_iid_sizes_are_equal_and_seeds_matter() -> None:
    split = partition(np.arange(103), 10, seed=1)
    assert {len(s) for s in split.values()} == {10, 11}
    other = partition(np.arange(103), 10, seed=2)
    assert any(not np.array_equal(split[k], other[k]) for k in split)


def test_iid_is_not_in_order() -> None:
    means = [s.mean() for s in partition(np.arange(10_000), 10).values()]
    # sd of the mean of 1,000 of 10,000 records is about 87.
    assert np.ptp(means) < 1000


def test_sorted_and_by_label_separate_labels() -> None:
    labels = np.tile(np.arange(5), 20)
    for how in ("sorted", "by_label"):
        split = partition(labels, 5, how)
        assert [sorted(set(s.tolist())) for s in split.values()] == [[0], [1], [2], [3], [4]]
    shared = partition(labels, 10, "by_label")
    assert all(len(set(s.tolist())) == 1 and len(s) == 10 for s in shared.values())
    several = partition(labels, 2, "by_label")
    assert set(several["a1"]) == {0, 2, 4}


def test_concentration_says_how_unlike_agents_are() -> None:
    labels = np.repeat(np.arange(4), 1000)

    def spread(concentration: float) -> float:
        split = partition(labels, 5, "dirichlet", seed=3, concentration=concentration)
        shares = [np.bincount(s, minlength=4) / 1000 for s in split.values()]
        return float(np.std(shares))

    # sd of a share: 0.33, 0.16 and 0.02
    assert spread(0.1) > 1.3 * spread(1.0) > 4 * spread(100.0)


def test_quantity_varies_sizes_but_not_labels() -> None:
    labels = np.tile([0, 1], 5000)
    split = partition(labels, 5, "quantity", seed=4)
    sizes = [len(s) for s in split.values()]
    assert max(sizes) > 3 * min(sizes)
    assert abs(max(split.values(), key=len).mean() - 0.5) < 0.05


X = np.arange(12).reshape(6, 2)
Y = np.array([0, 1, 0, 1, 0, 1])


@pytest.mark.parametrize(
    ("data", "last"),
    [
        (np.column_stack([X, Y]), lambda s: s[:, -1]),
        ((X, Y), lambda s: s[1]),
        ({"x": X[:, 0], "y": Y}, lambda s: s["y"]),
        (pd.DataFrame({"x": X[:, 0], "y": Y}), lambda s: s["y"].to_numpy()),
        (Y, lambda s: s),
        (Y.tolist(), np.array),
    ],
    ids=["array", "tuple", "mapping", "frame", "1-D", "list"],
)
def test_shards_keep_the_form_and_the_last_column_is_the_label(data: Any, last: Any) -> None:
    split = partition(data, ["east", "west"], how="by_label")
    assert list(split) == ["east", "west"]
    for k, shard in enumerate(split.values()):
        assert type(shard) is type(data)
        assert set(np.asarray(last(shard)).tolist()) == {k}


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"agents": 7}, DataError, "6 records cannot be split among 7 agents"),
        ({"agents": 0}, ConfigError, "at least 1"),
        ({"agents": ["a", "a"]}, ConfigError, "different names"),
        ({"agents": 2, "how": "iidd"}, ConfigError, "choose from iid, dirichlet"),
        ({"agents": 2, "how": "dirichlet", "concentration": 0}, ConfigError, "above 0"),
        (
            {"agents": 2, "how": "sorted", "labels": [1, 2]},
            DataError,
            r"labels: shape .2,. for 6 records",
        ),
        ({"data": (X, Y[:3]), "agents": 2}, DataError, "different lengths"),
        ({"data": 3, "agents": 2}, DataError, "give an array"),
        ({"data": (), "agents": 2}, DataError, "0 records"),
        ({"data": {}, "agents": 2}, DataError, "0 records"),
    ],
)
def test_impossible_splits_are_refused(arguments: dict, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        partition(**{"data": Y, **arguments})


def test_the_split_never_changes_between_versions() -> None:
    """Counter-based draws: these numbers hold on every machine."""
    split = partition(np.arange(8), 3, seed=7)
    assert {k: v.tolist() for k, v in split.items()} == {
        "a1": [3, 4, 5],
        "a2": [0, 7],
        "a3": [1, 2, 6],
    }
