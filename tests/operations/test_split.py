"""One file is split among agents: each record reaches one of them as it stands."""

from __future__ import annotations

import csv
import gzip
import io
import json
from pathlib import Path

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unweave.errors import DataError
from unweave.operations.split import Records, data_name

_WORDS = ["007", "1e2", "1.50", "NULL", "nan", " x ", "-", "2024-01-01", "true"]
_MARKS = "aé 0.,;\t|#'\"\\\n\r"
_CELL = st.text(st.sampled_from(_MARKS), max_size=4) | st.sampled_from(_WORDS)
_ROWS = st.integers(1, 3).flatmap(
    lambda n: st.lists(st.lists(_CELL, min_size=n, max_size=n), min_size=1, max_size=6)
)


def split(path: Path, shares: int) -> list[bytes]:
    records = Records(path)
    texts = []
    for k in range(shares):
        share = path.with_name(f"{k}-{data_name(path)}")
        records.write(share, range(k, records.size, shares))
        texts.append(share.read_bytes())
    return texts


@given(_ROWS, st.sampled_from(",;\t|"), st.booleans())
def test_the_cells_of_a_csv_file_keep_their_text(
    tmp_path_factory: pytest.TempPathFactory, rows: list[list[str]], mark: str, zipped: bool
) -> None:
    header = ["x", "x", "a b"][: len(rows[0])]
    if len(header) == 1:
        mark = ","  # nothing in the header tells another
    text = io.StringIO()
    writer = csv.writer(text, delimiter=mark, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerows([header, *rows])
    raw = text.getvalue().encode("utf-8-sig")
    path = tmp_path_factory.mktemp("data") / ("v.csv.gz" if zipped else "v.csv")
    path.write_bytes(gzip.compress(raw) if zipped else raw)
    for k, share in enumerate(split(path, 2)):
        # A share may be empty but for its header; a record of one empty cell is an empty line.
        found = csv.reader(io.StringIO(share.decode(), newline=""), delimiter=mark)
        assert [row or [""] for row in found] == [header, *rows[k::2]]


@pytest.mark.parametrize("array", [False, True])
def test_json_records_keep_their_text(tmp_path: Path, array: bool) -> None:
    texts = ['{"id": 1e2,  "x": 1}', '{"x": 0.0, "é": [1]}', '{"x": "a\\nb, \\"c\\""}', "{}"]
    if array:
        texts.append('{"x":\n 1}')
    path = tmp_path / "v.json"
    path.write_text(f"[{', '.join(texts)}]" if array else "\n".join(texts))
    for k, share in enumerate(split(path, 2)):
        mine = texts[k::2]
        expected = "[\n" + ",\n".join(mine) + "\n]\n" if array else "\n".join(mine) + "\n"
        assert share.decode() == expected
        if array:
            assert json.loads(share) == [json.loads(text) for text in mine]


def test_parquet_columns_keep_their_types(tmp_path: Path) -> None:
    path = tmp_path / "v.parquet"
    duckdb.execute(
        "COPY (SELECT range AS i, CAST(range AS DECIMAL(9,3)) AS d, DATE '2024-01-01' AS at, "
        f"[range] AS many FROM range(7)) TO '{path}' (FORMAT parquet)"
    )
    split(path, 2)
    whole = duckdb.execute(f"DESCRIBE FROM '{path}'").fetchall()
    for k in range(2):
        share = tmp_path / f"{k}-data.parquet"
        assert duckdb.execute(f"DESCRIBE FROM '{share}'").fetchall() == whole
        ids = duckdb.execute(f"SELECT i FROM '{share}'").fetchall()
        assert [i for (i,) in ids] == list(range(k, 7, 2))


def test_a_file_that_cannot_be_opened_says_why(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.csv: cannot be read .No such file"):
        Records(tmp_path / "none.csv")


def test_a_json_record_is_read_within_bounds(tmp_path: Path) -> None:
    """The engine accepts it; a number of 5,000 digits would cost the reader much time."""
    file = tmp_path / "v.ndjson"
    file.write_text('{"id": 1}\n{"id": ' + "9" * 5000 + "}\n")
    with pytest.raises(DataError, match=r"record 2 .*: a number of more than 64 digits\. Fix:"):
        Records(file).column("id")
