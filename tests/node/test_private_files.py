"""What unweave writes can be read by its owner alone, whatever the umask, and stays where it was
written: files that an agent writes are no links, and links of data lead out of the folder only if
the owner allows it."""

import json
import os
import tarfile
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.support.commands import run_command
from tests.support.processes import Processes, erase

from unweave.demo.network import lay_out
from unweave.demo.scenario import run_scenario
from unweave.errors import ConfigError, DataError
from unweave.manifest import load
from unweave.node.agent import open_data, open_identity
from unweave.node.config import AgentFolder
from unweave.node.data.source import DataSource
from unweave.node.log import RotatingLog, open_log
from unweave.operations.backup import back_up, restore
from unweave.operations.create import create_network
from unweave.operations.supervisor import Child


@pytest.fixture(autouse=True)
def _open_to_all():
    """Without a umask every mode is the one that was asked for."""
    before = os.umask(0)
    yield
    os.umask(before)


@contextmanager
def _standard_streams():
    """A log takes over standard output and error; they come back afterwards."""
    kept = [os.dup(number) for number in (1, 2)]
    try:
        yield
    finally:
        for number, copy in zip((1, 2), kept, strict=True):
            os.dup2(copy, number)
            os.close(copy)


def readable(folder: Path) -> set[str]:
    """What others can open below a folder, and the folder itself if they can enter it."""
    found = [folder, *folder.rglob("*")]
    return {p.name for p in found if not p.is_symlink() and p.stat().st_mode & 0o077}


# ------------------------------------------------------------------------------------------ modes

ROWS = [{"id": k, "x": k % 2} for k in range(40)]
CSV = "id,x\n" + "".join(f"{row['id']},{row['x']}\n" for row in ROWS)


def parquet(path: Path) -> None:
    import duckdb

    with duckdb.connect() as db:
        db.execute("CREATE TABLE t AS SELECT range AS id, range % 2 AS x FROM range(40)")
        db.execute(f"COPY t TO '{path}' (FORMAT parquet)")


@pytest.mark.parametrize("form", ["csv", "json", "ndjson", "parquet", "folder", "none"])
def test_init_writes_private_folders(form, tmp_path):
    source = tmp_path / f"rows.{form}"
    if form == "csv":
        source.write_text(CSV)
    elif form == "json":
        source.write_text(json.dumps(ROWS))
    elif form == "ndjson":
        source.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    elif form == "parquet":
        parquet(source)
    elif form == "folder":
        source.mkdir()
        for name in ("a1", "a2", "a3"):
            (source / f"{name}.csv").write_text(CSV)
    given = () if form == "none" else ("--data", source)
    net = tmp_path / "net"
    made = run_command("init", net, "--agents", "a1,a2,a3", "--key", "id", *given)
    assert made.code == 0, made.err
    for agent in ("a1", "a2", "a3"):
        home = net / "agents" / agent
        assert readable(home) == set()
        if form != "none":
            assert [p.stat().st_mode & 0o777 for p in home.glob("data.*")] == [0o600]
    if form != "none":
        homes = [AgentFolder.read(net / "agents" / agent) for agent in ("a1", "a2", "a3")]
        totals = [open_data(home, open_identity(home)).totals() for home in homes]
        assert sum(count for count, _ in totals) == (120 if form == "folder" else 40)


def test_a_running_agent_writes_private_files(tmp_path):
    with Processes(tmp_path / "net", agents=2) as net:
        for name in net.names:
            (net.folder(name) / "data.csv").chmod(0o600)
        net.start()
        erase(net, "a2", list(net.rows["a2"])[2:12])
        net.rest()
        written = {p.name for p in net.folder("a2").iterdir()}
        assert {"store.db", "store.db-wal", "agent.log", "agent.sock", "data.seen", "data.key",
                "certificates"} <= written  # fmt: skip
        assert list((net.folder("a2") / "certificates").iterdir())
        for name in net.names:
            assert readable(net.folder(name)) == set()


def test_logs_are_private_also_after_a_rotation(tmp_path):
    (tmp_path / "agent.log").write_text("an older line\n")
    with _standard_streams():
        log = RotatingLog(tmp_path, 100, 2)
        log.doRollover()
        log.stream.write("one line\n")
        log.close()
    assert {p.name for p in tmp_path.iterdir()} == {"agent.log", "agent.log.1"}
    assert readable(tmp_path) <= {tmp_path.name}
    assert (tmp_path / "agent.log").read_text() == "one line\n"


def test_a_restored_folder_is_private_to_its_depths(tmp_path):
    with Processes(tmp_path / "net", agents=2) as net:
        home = net.folder("a1")
        (home / "rows" / "deep").mkdir(parents=True)
        (home / "data.csv").rename(home / "rows" / "deep" / "data.csv")
        text = (home / "agent.toml").read_text()
        (home / "agent.toml").write_text(text.replace('"data.csv"', '"rows/deep/data.csv"'))
        back_up(home, tmp_path / "a1.tar", data=True)
        assert (tmp_path / "a1.tar").stat().st_mode & 0o777 == 0o600
        restore(tmp_path / "a1.tar", tmp_path / "new")
        assert (tmp_path / "new" / "rows" / "deep" / "data.csv").is_file()
        assert readable(tmp_path / "new") == set()


def test_the_demonstration_writes_private_records(tmp_path):
    scenario = run_scenario(seed=3)
    lay_out(scenario, tmp_path / "demo")
    for home in (tmp_path / "demo" / "agents").iterdir():
        assert (home / "patients.csv").read_text().count("\n") > 10
        assert readable(home) == set()


# ------------------------------------------------------------------------------------------ links


@pytest.fixture
def net(tmp_path):
    with Processes(tmp_path / "net", agents=2) as made:
        yield made


@pytest.mark.parametrize(
    "name",
    ["store.db", "ledger.db", "data.seen", "data.key", "agent.log", "agent.sock", "certificates"],
)
def test_what_an_agent_writes_is_no_link(net, tmp_path, name):
    outside = tmp_path / "outside"
    outside.mkdir() if name == "certificates" else outside.write_text("")
    before = outside.stat().st_mtime_ns
    (net.folder("a1") / name).symlink_to(outside)
    with pytest.raises(ConfigError, match=rf"{name}: a link, but the agent writes there.*remove"):
        AgentFolder.read(net.folder("a1"))
    with pytest.raises(ConfigError, match="a link"):
        Child(net.folder("a1")).start()
    with pytest.raises(ConfigError, match="a link"):
        back_up(net.folder("a1"), tmp_path / "a.tar")
    assert outside.stat().st_mtime_ns == before
    assert not (tmp_path / "a.tar").exists()


def test_the_log_does_not_follow_a_link(tmp_path):
    (tmp_path / "agent.log").symlink_to(tmp_path / "outside")
    with pytest.raises(OSError, match="symbolic links"):
        open_log(tmp_path / "agent.log")
    assert not (tmp_path / "outside").exists()


def test_a_linked_certificate_is_not_read(net, tmp_path):
    """Neither found, nor repeated, nor put into a backup."""
    (tmp_path / "certificate-1-1-x.json").write_text("{}")
    folder = net.folder("a1") / "certificates"
    folder.mkdir()
    (folder / "certificate-1-1-x.json").symlink_to(tmp_path / "certificate-1-1-x.json")
    (folder / "certificate-2-1-x.json").write_text("{}")
    made = back_up(net.folder("a1"), tmp_path / "a.tar")
    kept = [name for name in made.files if name.startswith("certificates")]
    assert kept == ["certificates/certificate-2-1-x.json"]


def test_an_agents_folder_and_its_key_may_be_links(net, tmp_path):
    """The operator names the folder, and secrets are often mounted as links; neither is written."""
    home, secrets = net.folder("a1"), tmp_path / "secrets"
    secrets.mkdir()
    (home / "key.pem").rename(secrets / "key.pem")
    (home / "key.pem").symlink_to(secrets / "key.pem")
    home.rename(tmp_path / "elsewhere")
    home.symlink_to(tmp_path / "elsewhere")
    assert open_identity(AgentFolder.read(home)).name == "a1"
    back_up(home, tmp_path / "a.tar", data=True)
    with tarfile.open(tmp_path / "a.tar") as tar:
        assert all(member.isreg() for member in tar)
    restore(tmp_path / "a.tar", tmp_path / "new")
    assert not (tmp_path / "new" / "key.pem").is_symlink()


LINKS = {
    "a file": lambda home, out: (home / "data.csv").symlink_to(out / "data.csv"),
    "a folder": lambda home, out: (home / "rows").symlink_to(out),
    "a link to a link": lambda home, out: (
        (home / "next").symlink_to(out / "data.csv"),
        (home / "data.csv").symlink_to("next"),
    ),
}


@pytest.mark.parametrize("kind", LINKS)
def test_linked_data_are_refused_unless_the_owner_allows_them(kind, net, tmp_path):
    home, out = net.folder("a1"), tmp_path / "outside"
    out.mkdir()
    (home / "data.csv").rename(out / "data.csv")
    LINKS[kind](home, out)
    text = (home / "agent.toml").read_text()
    if kind == "a folder":
        text = text.replace('"data.csv"', '"rows/*.csv"')
    (home / "agent.toml").write_text(text)

    def read():
        folder = AgentFolder.read(home)
        return open_data(folder, open_identity(folder)).totals()[0]

    with pytest.raises(DataError, match=r"leads out of the agent's folder.*links = true"):
        read()
    with pytest.raises(DataError, match="leads out"):
        back_up(home, tmp_path / "a.tar", data=True)
    checked = run_command("check", home)
    assert checked.code != 0
    assert "leads out" in checked.out + checked.err
    (home / "agent.toml").write_text(text + "links = true\n")
    assert read() == 20
    back_up(home, tmp_path / "a.tar", data=True)
    restore(tmp_path / "a.tar", tmp_path / "new")
    assert not any(p.is_symlink() for p in (tmp_path / "new").rglob("*"))


def test_a_link_inside_the_folder_is_a_file_like_any_other(net):
    home = net.folder("a1")
    (home / "data.csv").rename(home / "2026.csv")
    (home / "data.csv").symlink_to("2026.csv")
    folder = AgentFolder.read(home)
    assert open_data(folder, open_identity(folder)).totals()[0] == 20


def test_the_log_of_a_database_is_no_way_out(tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    (home / "clinic.db").write_bytes(b"")
    (tmp_path / "log").write_bytes(b"")
    (home / "clinic.db-wal").symlink_to(tmp_path / "log")
    source = DataSource(database="clinic.db", sql="SELECT 1")
    with pytest.raises(DataError, match=r"clinic\.db-wal is a link"):
        source.files(home, "a1")


@pytest.mark.parametrize("data", ["../rows.csv", "{outside}", "link.csv", "folder/rows.csv"])
def test_a_manifest_names_data_beside_it(data, tmp_path):
    """For a simulation. A manifest may come from somebody else."""
    home = tmp_path / "net"
    home.mkdir()
    (tmp_path / "rows.csv").write_text("x\n1\n")
    (home / "link.csv").symlink_to(tmp_path / "rows.csv")
    (home / "folder").symlink_to(tmp_path)
    named = data.format(outside=tmp_path / "rows.csv")
    (home / "network.toml").write_text(
        f'name = "n"\n[model]\nname = "beta-bernoulli"\n[[agents]]\nname = "x"\ndata = "{named}"\n'
    )
    with pytest.raises(ConfigError, match=r"out of the manifest's folder.*Fix: copy the file"):
        load(home / "network.toml").data_path("x")
    ended = run_command("simulate", home / "network.toml")
    assert ended.code == 2
    assert "out of the manifest's folder" in ended.err


def test_a_network_through_a_link(tmp_path):
    """`init` into a linked folder: the operator's choice."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    from unweave.models import BetaBernoulli

    create_network(
        tmp_path / "link", name="n", model=BetaBernoulli(), agents=["a1"],
        addresses=["127.0.0.1:7400"], data={}, graph="ring",
    )  # fmt: skip
    assert (tmp_path / "real" / "agents" / "a1" / "key.pem").is_file()
