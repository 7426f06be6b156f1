"""Records with a missing value in memory: refused, or left out with their row numbers kept."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unweave import Federation
from unweave.errors import ConfigError, DataError
from unweave.models import LinearRegression, NormalUnknown

cells = st.none() | st.just(float("nan")) | st.integers(-64, 64).map(lambda k: k / 16)
shards = st.lists(cells, min_size=3, max_size=12).filter(
    lambda cells: sum(c is not None and c == c for c in cells) >= 2
)


def known(shard: list[float | None]) -> list[int]:
    return [k for k, cell in enumerate(shard) if cell is not None and cell == cell]


@given(st.lists(shards, min_size=2, max_size=3), st.data())
def test_dropped_records_leave_no_trace_and_rows_keep_their_numbers(parts, data) -> None:
    fed = Federation(NormalUnknown(), parts, missing="drop").learn()
    clean = [[part[k] for k in known(part)] for part in parts]
    assert fed.posterior == Federation(NormalUnknown(), clean).learn().posterior
    lost = {f"a{i + 1}": len(p) - len(known(p)) for i, p in enumerate(parts)}
    assert {name: one.records for name, one in fed.dropped.items()} == {
        name: n for name, n in lost.items() if n
    }
    rows = data.draw(st.sets(st.integers(0, len(parts[0]) - 1), min_size=1))
    mask = np.isin(np.arange(len(parts[0])), list(rows))
    fed.forget(records={"a1": data.draw(st.sampled_from([rows, mask]))})
    left = [parts[0][k] for k in known(parts[0]) if k not in rows]
    if left:
        retrained = Federation(NormalUnknown(), [left, *clean[1:]]).learn()
        assert fed.posterior == retrained.posterior
    fed.update("a2", [1.0, None, 2.0])
    assert fed.dropped["a2"].columns == {"x": 1}


def test_missing_values_are_refused_unless_they_may_be_dropped() -> None:
    table = {"dose": [1.0, None, 3.0], "ward": ["a", "b", None], "y": [1.0, 2.0, 3.0]}
    model = LinearRegression(["dose", "ward"], levels={"ward": ["a", "b"]})
    with pytest.raises(DataError, match="column 'dose', row 1: the value is missing"):
        Federation(model, [table, table])
    fed = Federation(model, [table, table], missing="drop")
    assert fed.dropped["a1"].report == {"records": 2, "columns": {"dose": 1, "ward": 1}}
    with pytest.raises(DataError, match="has no records left: 1 record dropped"):
        Federation(NormalUnknown(), [[None], [1.0]], missing="drop")
    with pytest.raises(ConfigError, match='choose "refuse" or "drop"'):
        Federation(model, [table], missing="keep")  # type: ignore[arg-type]
