"""A file is written as a whole or not at all."""

import os

import pytest

from unweave.node.storage.atomic import write_atomic


def test_a_file_takes_the_place_of_another(tmp_path):
    path = tmp_path / "data.seen"
    for content in (b"one", b"", b"three"):
        write_atomic(path, content)
        assert path.read_bytes() == content
    assert [p.name for p in tmp_path.iterdir()] == ["data.seen"]


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_failure_leaves_what_was_there(tmp_path, monkeypatch, call):
    path = tmp_path / "data.seen"
    path.write_bytes(b"before")

    def fails(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(os, call, fails)
        with pytest.raises(OSError, match="No space"):
            write_atomic(path, b"after")
    assert path.read_bytes() == b"before"
    assert [p.name for p in tmp_path.iterdir()] == ["data.seen"]


def test_file_and_name_reach_the_disk_in_order(tmp_path, monkeypatch):
    calls = []
    for name in ("fsync", "replace"):
        real = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *a, _n=name, _r=real: (calls.append(_n), _r(*a))[1])
    write_atomic(tmp_path / "key", b"x")
    assert calls == ["fsync", "replace", "fsync"]
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600
