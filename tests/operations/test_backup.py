"""Backups of an agent's folder: complete, private, checked, and no way back for erased data."""

from __future__ import annotations

import io
import json
import shutil
import tarfile
from pathlib import Path

import pytest
from tests.support.commands import run_command
from tests.support.processes import Processes, erase

from unweave.errors import ConfigError
from unweave.node.agent import open_identity
from unweave.node.config import AgentFolder
from unweave.node.storage.sqlite import open_store
from unweave.operations.backup import back_up, restore
from unweave.protocol.state import State


def members(archive: Path) -> dict[str, bytes]:
    with tarfile.open(archive) as tar:
        return {m.name: tar.extractfile(m).read() for m in tar}


def rewrite(archive: Path, files: dict[str, bytes], *more: tarfile.TarInfo) -> None:
    with tarfile.open(archive, "w") as tar:
        for name, raw in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(raw)
            tar.addfile(member, io.BytesIO(raw))
        for member in more:
            tar.addfile(member, io.BytesIO(b"?" * member.size))


@pytest.fixture
def asleep(tmp_path):
    """A folder with a store, and no process."""
    with Processes(tmp_path / "net", agents=2) as net:
        home = AgentFolder.read(net.folder("a1"))
        with open_store(home, open_identity(home)) as store:
            before = State(home.terms, home.me)
            after = before.fork()
            after.own.counter = 7
            store.commit(before, after)
        yield net.folder("a1")


def test_erased_data_do_not_come_back_with_a_backup(tmp_path):
    with Processes(tmp_path / "net", agents=3) as net:
        net.start()
        assert net.settled() == {net.expected()}
        archive, folder = tmp_path / "a2.tar", net.folder("a2")
        made = run_command("backup", folder, archive, "--data", "--json")
        assert made.code == 0, made.err
        assert made.json["running"]
        assert made.json["data"]
        assert archive.stat().st_mode & 0o777 == 0o600
        held = members(archive)
        assert {"key.pem", "certificate.pem", "agent.toml", "network.toml", "store.db",
                "data.csv"} < set(held)  # fmt: skip
        assert net.settled() == {net.expected()}  # it went on

        gone = {"a2": list(net.rows["a2"])[2:6]}
        erase(net, "a2", gone["a2"])
        assert net.settled() == {net.expected(gone)}
        net.stop("a2")
        shutil.move(folder, tmp_path / "away")
        back = run_command("restore", archive, folder, "--digest", made.json["digest"])
        assert back.code == 0, back.err
        assert "Stop every other process of a2 first" in back.out
        assert folder.stat().st_mode & 0o077 == 0
        assert {f.name for f in folder.iterdir() if f.stat().st_mode & 0o077} == set()
        net.start("a2")
        assert net.settled() == {net.expected(gone)}
        net.append("a2", [1.0])  # the file still holds the erased rows, and is read again
        net.ask("a2", "learn")
        assert net.settled() == {net.expected(gone)}


def test_what_is_restored_is_what_was_there(asleep, tmp_path):
    (asleep / "data.key").write_text("id")
    (asleep / "certificates").mkdir()
    (asleep / "certificates" / "certificate-1-2-x.json").write_text("{}")
    made = back_up(asleep, tmp_path / "a.tar")
    assert not made.running
    assert "data.csv" not in made.files
    (tmp_path / "new").mkdir()  # an empty folder will do
    assert restore(tmp_path / "a.tar", tmp_path / "new").digest == made.digest
    for name in set(made.files) - {"store.db"}:
        assert (tmp_path / "new" / name).read_bytes() == (asleep / name).read_bytes()
    home = AgentFolder.read(tmp_path / "new")
    with open_store(home, open_identity(home)) as store:
        assert store.load(home.terms, home.me).own.counter == 7
    assert back_up(asleep, tmp_path / "again.tar").digest == made.digest
    assert not [p for p in tmp_path.iterdir() if p.name.startswith(".")]


def test_nothing_is_overwritten(asleep, tmp_path):
    archive = tmp_path / "a.tar"
    made = back_up(asleep, archive)
    before = archive.read_bytes()
    with pytest.raises(ConfigError, match="exists already"):
        back_up(asleep, archive)
    assert archive.read_bytes() == before
    with pytest.raises(ConfigError, match="not empty"):
        restore(archive, asleep)
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ConfigError, match="nothing is overwritten"):
        restore(archive, tmp_path / "file")
    with pytest.raises(ConfigError, match=f"its digest is {made.digest}"):
        restore(archive, tmp_path / "new", digest="0" * 64)
    assert not (tmp_path / "new").exists()


def _changed(files, name):
    return {**files, name: files[name] + b" "}


def _resealed(files, name, raw):
    """A changed file, with the index changed along."""
    import hashlib

    index = json.loads(files["backup.json"])
    index["files"][name] = hashlib.sha256(raw).hexdigest()
    return {**files, name: raw, "backup.json": json.dumps(index).encode()}


def _flipped(raw: bytes) -> bytes:
    """The counter of the state, changed by something without the agent's key."""
    import sqlite3
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store.db"
        path.write_bytes(raw)
        with sqlite3.connect(path) as db:
            db.execute("UPDATE state SET counter = 8")
        db.close()
        return path.read_bytes()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: _changed(f, "agent.toml"), "not those that it names"),
        (lambda f: {n: r for n, r in f.items() if n != "data.key"}, "not those that it names"),
        (lambda f: {**f, "more": b""}, "not those that it names"),
        (lambda f: {n: f[n] for n in reversed(f)}, "not a backup"),
        (lambda f: {"backup.json": b"[]"}, "not a backup"),
        (lambda f: {"x": b""}, "not a backup"),
        (lambda f: _resealed(f, "../out", b"x"), "outside the folder"),
        (lambda f: _resealed(f, "/tmp/unweave-out", b"x"), "outside the folder"),
        (lambda f: _resealed(f, "a/../../out", b"x"), "outside the folder"),
        (lambda f: _resealed(f, "./agent.toml", b"x"), "outside the folder"),
        (
            lambda f: _resealed(f, "store.db", _flipped(f["store.db"])),
            "does not hold this agent's key",
        ),
        (
            lambda f: _resealed(f, "key.pem", f["key.pem"][:-40]),
            "not an unencrypted private key",
        ),
        (
            lambda f: _resealed(f, "network.toml", f["network.toml"].replace(b"a1", b"b1")),
            "no such agent|pins|certificate",
        ),
    ],
)
def test_an_archive_that_is_not_whole_is_refused(asleep, tmp_path, change, message):
    (asleep / "data.key").write_text("id")
    archive = tmp_path / "inside" / "a.tar"
    archive.parent.mkdir()
    back_up(asleep, archive)
    rewrite(archive, change(members(archive)))
    with pytest.raises(ConfigError, match=message):
        restore(archive, tmp_path / "inside" / "new")
    assert [p.name for p in archive.parent.iterdir()] == ["a.tar"]
    assert not (tmp_path / "out").exists()
    assert not Path("/tmp/unweave-out").exists()


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE]
)
def test_links_and_special_files_are_refused(asleep, tmp_path, kind):
    archive = tmp_path / "a.tar"
    back_up(asleep, archive)
    link = tarfile.TarInfo("certificates")
    link.type, link.linkname = kind, "/etc"
    rewrite(archive, members(archive), link)
    with pytest.raises(ConfigError, match="link, a special file"):
        restore(archive, tmp_path / "new")
    double = tarfile.TarInfo("agent.toml")
    files = members_without(archive, "certificates")
    rewrite(archive, files, double)
    with pytest.raises(ConfigError, match="duplicate"):
        restore(archive, tmp_path / "new")


def members_without(archive: Path, name: str) -> dict[str, bytes]:
    with tarfile.open(archive) as tar:
        return {m.name: tar.extractfile(m).read() for m in tar if m.name != name}


def test_damage_is_told(asleep, tmp_path):
    archive = tmp_path / "a.tar"
    back_up(asleep, archive)
    raw = archive.read_bytes()
    for cut in (0, 100, 700, len(raw) // 2):
        archive.write_bytes(raw[:cut])
        with pytest.raises(ConfigError, match=r"damaged|not those that it names"):
            restore(archive, tmp_path / "new")
    with pytest.raises(ConfigError, match="no such file"):
        restore(tmp_path / "none.tar", tmp_path / "new")


def test_what_lies_elsewhere_is_not_left_out_silently(asleep, tmp_path):
    text = (asleep / "agent.toml").read_text()
    (asleep / "agent.toml").write_text(text.replace('"network.toml"', '"../../network.toml"'))
    with pytest.raises(ConfigError, match=r"outside the agent's folder.*Fix: copy it"):
        back_up(asleep, tmp_path / "a.tar")
    assert not (tmp_path / "a.tar").exists()
