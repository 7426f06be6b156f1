"""The records of a model with a solver: read once, streamed if they are many, enough of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from unweave.errors import DataError
from unweave.manifest import Manifest
from unweave.models import BetaExponential, LinearRegression, LogisticRegression
from unweave.models.base import REGISTRY
from unweave.node.compute import DataWorker
from unweave.node.data import private
from unweave.node.data.private import PrivateData
from unweave.node.data.source import DataSource
from unweave.rng import Stream
from unweave.solvers import Context, default_solver


@dataclass(frozen=True)
class Shy(BetaExponential):
    name: ClassVar[str] = "shy"

    def min_records(self) -> int:
        return 40

    def disclosure(self) -> str:
        return "its neighbours can reconstruct its records"


del REGISTRY["shy"]  # not a model for users


def write(folder: Path, values: Any) -> None:
    lines = "".join(f"{i},{value!r}\n" for i, value in enumerate(values))
    (folder / "d.csv").write_text(f"id,z\n{lines}")


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PrivateData:
    write(tmp_path, np.linspace(0.1, 2.0, 30).tolist())
    return PrivateData(
        tmp_path, DataSource(path="d.csv", key="id"), BetaExponential(), "north", b"secret"
    )


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """One entry for each time that the files were opened."""
    calls: list[Any] = []
    real = private.open_duck
    monkeypatch.setattr(private, "open_duck", lambda *args: calls.append(1) or real(*args))
    return calls


def test_two_solves_read_the_file_once(
    tmp_path: Path, data: PrivateData, opened: list[Any]
) -> None:
    model, solver = data.model, default_solver(data.model)
    for hop in range(3):
        first = solver.solve(model, data.shard(), model.eta0, None, Context(Stream(hop)))
    assert len(opened) == 1
    dropped, _ = data.commit_keys([3, 4])
    opened.clear()
    assert (data.shard(dropped).n, data.shard(dropped).n, len(opened)) == (28, 28, 1)
    write(tmp_path, [0.5] * 31)
    assert data.shard().n == 31, "a changed file is read again"
    again = solver.solve(model, data.shard(), model.eta0, None, Context(Stream(0)))
    assert (first.factor != again.factor).any()


def test_the_check_before_the_start_reads_for_the_first_solve(
    data: PrivateData, opened: list[Any]
) -> None:
    assert data.check() == data.shard().n == 30
    assert len(opened) == 1


def test_an_erasure_clears_the_cache(data: PrivateData, opened: list[Any]) -> None:
    data.shard()
    data.let_go(whole=False)
    data.shard()
    assert len(opened) == 2


def test_many_records_are_streamed(
    data: PrivateData, monkeypatch: pytest.MonkeyPatch, opened: list[Any]
) -> None:
    model = data.model
    kept = data.shard()
    monkeypatch.setattr(private, "_MOST_CELLS", 20)
    data.let_go(whole=False)
    data._chunk = 7
    streamed = data.shard()
    assert type(streamed) is not type(kept)
    assert streamed.n == kept.n == 30
    assert [len(rows) for rows in streamed.batches()] == [7, 7, 7, 7, 2]
    assert np.array_equal(streamed.rows, kept.rows)
    assert np.array_equal(model.summary(streamed), model.summary(kept))
    total, n = streamed.reduce(lambda rows: (rows.sum(), len(rows)))
    assert (total, n) == (pytest.approx(kept.rows.sum(), rel=1e-14), 30)


def test_a_model_may_need_more_records(tmp_path: Path) -> None:
    write(tmp_path, [0.5] * 39)
    source = DataSource(path="d.csv", key="id")
    strict = PrivateData(tmp_path, source, Shy(), "north", b"secret")
    with pytest.raises(
        DataError, match=r"39 records, fewer than the 40 that shy needs: its neigh.*small_shards ="
    ):
        strict.admit(10)
    agreed = PrivateData(tmp_path, source, Shy(), "north", b"secret", small_shards=True)
    assert agreed.admit(10) == 39
    with pytest.raises(DataError, match="min_records = 40"):
        agreed.admit(40)


def test_a_worker_gives_its_factor_to_a_private_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opened: list[Any]
) -> None:
    """Conjugate sums come from the data engine, others from rows that may be streamed; without the
    erased records, also after a change of the file."""
    lines = "".join(f"{i},{(i % 7) - 3},{i % 2}\n" for i in range(40))
    (tmp_path / "d.csv").write_text(f"id,x1,y\n{lines}")
    source = DataSource(path="d.csv", key="id")
    terms = Manifest.make(name="n", model=BetaExponential(), agents=3, graph="ring").terms()
    plain = LogisticRegression(features=1, intercept=True)
    for model in (LinearRegression(features=1), plain.in_rounds(3)):
        data = PrivateData(tmp_path, source, model, "north", b"secret")
        worker = DataWorker(model, default_solver(model), data, terms)
        rows = np.loadtxt(tmp_path / "d.csv", delimiter=",", skiprows=1)[:, 1:]
        dropped, _ = data.commit_keys([3, 4])
        for gone in (frozenset(), dropped):
            kept = np.delete(rows, [3, 4], axis=0) if gone else rows
            wanted = model.factor_at(b"", model.shard(kept))
            assert np.array_equal(worker.factor_at(b"", gone), wanted)
    opened.clear()
    worker.factor_at(b"", dropped)
    assert not opened, "the answer is kept"
    monkeypatch.setattr(private, "_MOST_CELLS", 20)
    worker.let_go(whole=False)
    data._chunk = 7
    streamed = worker.factor_at(b"", dropped)
    assert np.abs(streamed - wanted).max() <= 1
