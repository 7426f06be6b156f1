"""`unweave check`: each problem with its place and its fix."""

import os
import re
import shutil
import socket
import threading
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from unweave.node.identity import Identity
from unweave.operations import hosts


@pytest.fixture(scope="module")
def made(unweave, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    table = folder / "visits.csv"
    table.write_text("id,x\n" + "".join(f"p{k},{k % 2}\n" for k in range(60)))
    done = unweave("init", folder / "net", "--agents", "3", "--data", table, "--key", "id")
    assert done.code == 0, done.err
    return folder / "net"


@pytest.fixture
def net(made, tmp_path) -> Path:
    return shutil.copytree(made, tmp_path / "net")


def edit(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def toml(old: str, new: str):
    return lambda home: edit(home / "agent.toml", old, new)


def setting(line: str):
    return toml("min_records = 10", f"{line}\nmin_records = 10")


def data(text: str):
    return lambda home: (home / "data.csv").write_text(text)


# What is broken in a1's folder, what is looked at, and words of the problem and of the fix.
BROKEN = {
    "no data": (lambda h: (h / "data.csv").unlink(), "data", "no file 'data.csv'", "put the file"),
    "empty": (data(""), "data", "is empty", "correct the data"),
    "few": (data("id,x\n1,1\n"), "data", "1 record, fewer than min_records", "add records"),
    "bad cell": (data("id,x\n1,1\n2,no\n"), "data", "line 3", "correct the data"),
    "short line": (data("id,x\n1,1\n2\n"), "data", "line 3: has 1 field", "complete the line"),
    "line ends": (data("id,x\r\n1,1\n"), "data", "line 2: ends in LF", "dos2unix data.csv"),
    "delimiter": (data("id;x\n1;1\n"), "data", "column 'x'", 'delimiter = ";"'),
    "decimal": (data('id,x\n1,"1,5"\n'), "data", "decimal comma", 'decimal = ","'),
    "no record's name": (data("id,x\n" + ",1\n" * 12), "data", "12 records with an empty",
                         "give every"),
    "no column": (data("id,y\n1,1\n"), "data", "column 'x'", "[data]"),
    "outside": (toml("data.csv", "../data.csv"), "data", "outside", "move the data there"),
    "kind": (lambda h: (edit(h / "agent.toml", "data.csv", "key.pem")), "data", "kind", "[data]"),
    "no key": (lambda h: (h / "key.pem").unlink(), "key", "key.pem", "copy key.pem"),
    "open key": (lambda h: (h / "key.pem").chmod(0o644), "key", "others can read", "chmod 600"),
    "foreign key": (lambda h: shutil.copy(h.parent / "a2/key.pem", h), "key", "another key",
                    "copy key.pem"),
    "foreign identity": (lambda h: [shutil.copy(h.parent / "a2" / f, h) for f in
                                    ("key.pem", "certificate.pem")], "key", "not the one", "copy"),
    "no store": (lambda h: (h / "store.db").write_text("x"), "store", "store.db", "move"),
    "unknown key": (toml("min_records", "min_record"), "settings", "unknown key",
                    "did you mean min_records?"),
    "unknown data key": (toml("key =", "kee ="), "settings", "unknown key",
                         "did you mean key?"),
    "no name": (toml('name = "a1"\n', ""), "settings", "name is missing", "add it"),
    "not toml": (toml('"a1"', "a1"), "settings", "not TOML", "correct"),
    "no manifest": (lambda h: (h / "network.toml").unlink(), "settings", "network.toml: no such",
                    "copy the network's manifest"),
    "no port": (setting('listen = "127.0.0.1"'), "address", "not an address",
                "host:port"),
    "no host": (setting('listen = "no.such.host.invalid:1"'), "address", "cannot be found",
                "correct the name"),
    "a space": (setting('listen = "no host:1"'), "address", "not an address", "host:port"),
    "metrics": (toml('"127.0.0.1:', '"'), "address", "not an address", "metrics"),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_each_problem_has_its_place_and_its_fix(unweave, net, case):
    breaking, what, problem, fix = BROKEN[case]
    breaking(net / "agents/a1")
    found = unweave("check", net, "--json")
    assert found.code == 1
    problems = [c for c in found.json["checks"] if c["problem"]]
    ours = [c for c in problems if c["what"] == what]
    assert [c["agent"] for c in ours] == ["a1"], found.out
    assert problem in ours[0]["problem"]
    assert ours[0]["fix"]
    assert fix in ours[0]["fix"]
    said = ours[0]["problem"].lower()
    assert not any(way in said for way in ("put ", "mend ", "copy ", "move ", "add ")), "told twice"
    shown = unweave("check", net / "agents/a1", width=60)
    assert shown.code == 1
    assert ours[0]["problem"] in shown.out, "not wrapped"
    assert f"  fix: {ours[0]['fix']}\n" in shown.out


def stored(home: Path, **changes) -> None:
    """A store, as if the agent had run."""
    from unweave.node.agent import open_identity
    from unweave.node.config import AgentFolder
    from unweave.node.storage.sqlite import open_store
    from unweave.protocol.machine import start
    from unweave.protocol.state import State

    folder = AgentFolder.read(home)
    with open_store(folder, open_identity(folder)) as store:
        before = State(folder.terms, folder.me)
        after, _ = start(before, 1, 0.0, lambda raw: b"")
        for name, value in changes.items():
            after.set_durable(name, value)
        store.commit(before, after)


@pytest.mark.parametrize("which", ["agents/a2/network.toml", "network.toml"])
@pytest.mark.parametrize(("old", "new"), [("beta-bernoulli", "beta"), ("seed = 0", "seed = 1")])
def test_another_manifest_is_the_only_problem(unweave, net, which, old, new):
    stored(net / "agents/a2")
    edit(net / which, old, new)
    found = unweave("check", net, "--json")
    (problem,) = [c for c in found.json["checks"] if c["problem"]]
    right = net / ("network.toml" if "a2" in which else "agents/a1/network.toml")
    assert problem["problem"] == f"{net / which} differs from {right} and 2 more"
    assert problem["fix"] == f"copy it again: cp {right} {net / which}"
    if new == "seed = 1" and "a2" in which:
        (problem,) = [c for c in unweave("check", net / "agents/a2", "--json").json["checks"]
                      if c["problem"]]  # fmt: skip
        assert problem["fix"].endswith("from another agent's folder: all agents have the same file")


def test_a_folder_that_may_only_be_read(unweave, net, monkeypatch):
    stored(net / "agents/a1")
    allowed = os.access
    monkeypatch.setattr(
        os, "access", lambda path, *a: Path(path).name != "a1" and allowed(path, *a)
    )
    found = unweave("check", net, "--json")
    (problem,) = [c for c in found.json["checks"] if c["problem"]]
    assert "may not write there" in problem["problem"]
    assert "chmod u+w" in problem["fix"]


def test_keys_that_repeat_are_told(unweave, net):
    """One person's visits may share a key: that is told, and is no mistake."""
    (net / "agents/a1/data.csv").write_text("id,x\n" + "p1,1\n" * 3 + "".join(
        f"q{k},0\n" for k in range(9)))  # fmt: skip
    found = unweave("check", net, "--json")
    assert found.code == 0
    assert "12 records, 2 with the key of another: erased together" in found.out


def test_the_folders_of_a_network(unweave, net):
    homes = net / "agents"
    (homes / "a1/agent.toml").unlink()
    shutil.rmtree(homes / "a2")
    found = unweave("check", net, "--json")
    assert found.code == 1
    told = {c["agent"]: c["problem"] or c["note"] for c in found.json["checks"] if
            c["what"] == "settings"}  # fmt: skip
    assert "agent.toml is missing" in told["a1"]
    assert told["a2"] == "no folder here"
    shutil.copytree(homes / "a3", homes / "copy")
    twice = unweave("check", net)
    assert twice.code == 2
    assert "are both the folder of 'a3'" in twice.err


def test_after_an_erasure_no_data_are_needed(unweave, net):
    """An agent that has erased itself starts without a file, so `check` does not want one."""
    home = net / "agents/a1"
    stored(home, detached=True)
    (home / "data.csv").unlink()
    assert unweave("check", net, "--json").json["ok"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nothing", "no such folder. Fix: check the path, or make a network with `unweave init"),
        ("net/network.toml", "a file, not a folder. Fix: give "),
        ("net/agents", "neither an agent's folder"),
        ("visits.csv", "a file, not a folder. Fix: give the folder"),
    ],
)
def test_a_wrong_folder(unweave, made, name, said):
    for command in ("check", "status", "up", "posterior", "influence", "learn", "forget", "audit"):
        done = unweave(command, made.parent / name)
        assert done.code == 2
        assert said in done.err, command


def test_the_network_instead_of_an_agent(unweave, made):
    done = unweave("agent", made)
    assert done.code == 2
    assert "give an agent's folder below" in done.err


def test_a_port_that_is_taken(unweave, net):
    port = int((net / "network.toml").read_text().split("127.0.0.1:")[1].split('"')[0])
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        taken.listen()
        found = unweave("check", net)
    assert "another process listens there" in found.out
    assert "fix: stop it, or choose another port" in found.out


def test_a_network_whose_sum_leaves_the_grid(unweave, tmp_path):
    """Each agent's own sum fits, but they could never all be included."""
    words = ("--agents", "4", "--model", "normal-unknown", "--privacy", "plain")
    assert unweave("init", tmp_path / "net", *words).code == 0
    homes = sorted((tmp_path / "net/agents").iterdir())
    text = "x\n" + "".join(f"{7000 + k}\n" for k in range(12))
    for home in homes:
        (home / "data.csv").write_text(text)
    found = unweave("check", tmp_path / "net", "--json")
    (problem,) = [c for c in found.json["checks"] if c["problem"]]
    assert (problem["agent"], problem["what"]) == ("network", "data")
    assert "the sum over all 4 agents here leaves the grid" in problem["problem"]
    assert "1.1 times what fits with 32 fractional bits" in problem["problem"]
    assert "--scale auto" in problem["fix"]
    data = tmp_path / "shards"
    data.mkdir()
    for home in homes:
        (data / f"{home.name}.csv").write_text(text)
    told = unweave("init", tmp_path / "two", *words, "--data", data)
    assert told.code == 2
    assert "the sum over all 4 agents leaves the grid" in told.err
    assert "Fix: a larger scale for its columns (--scale auto" in told.err
    done = unweave("init", tmp_path / "fine", *words, "--data", data, "--scale", "auto")
    assert done.code == 0, done.err
    assert unweave("check", tmp_path / "fine", "--json").json["ok"]
    (homes[0] / "data.csv").write_text("x\n" + "1\n" * 12)
    assert unweave("check", tmp_path / "net", "--json").json["ok"]


def test_an_agent_beyond_its_share_of_the_grid_is_told_before_it_starts(unweave, tmp_path):
    """Under masks nobody sees a sum that wraps: each of K agents has a K-th of the grid."""
    net = tmp_path / "net"
    assert unweave("init", net, "--agents", "4", "--model", "normal-unknown").code == 0
    for k, home in enumerate(sorted((net / "agents").iterdir())):
        value = 7000 if k == 2 else 1
        (home / "data.csv").write_text("x\n" + "".join(f"{value + j}\n" for j in range(12)))
    (problem,) = [c for c in unweave("check", net, "--json").json["checks"] if c["problem"]]
    assert (problem["agent"], problem["what"]) == ("a3", "data")
    assert "the sum over 4 agents with the data of a3 leaves the grid" in problem["problem"]
    assert "--scale auto" in problem["fix"]


def test_who_has_contributed_may_become_small(unweave, net):
    home = net / "agents/a1"
    (home / "data.csv").write_text("id,x\n1,1\n2,0\n")
    stored(home)
    found = unweave("check", net, "--json")
    (problem,) = [c for c in found.json["checks"] if c["problem"]]
    assert "2 records, fewer than min_records = 10" in problem["problem"]
    (home / "store.db").unlink()
    stored(home, counter=1)
    assert unweave("check", net, "--json").json["ok"]


def named(net: Path, hosts: str) -> None:
    """Other hosts for a2 and a3, in every copy of the manifest; a3 is not here."""
    shutil.rmtree(net / "agents/a3")
    for file in net.rglob("network.toml"):
        for name, host in zip(("a2", "a3"), hosts.split(), strict=True):
            found = re.search(rf'name = "{name}"\naddress = "([^"]*)"', file.read_text())
            edit(file, found[1], host)


def test_neighbours_that_cannot_be_found(unweave, net, monkeypatch):
    named(net, "nohost.invalid:7400 nohost.invalid:7401")
    asked, before = [], socket.getaddrinfo

    def look(host, *more, **named):
        asked.append(host)
        if host == "nohost.invalid":
            raise socket.gaierror(-2, "Name or service not known")
        return before(host, *more, **named)

    monkeypatch.setattr(socket, "getaddrinfo", look)
    found = unweave("check", net / "agents/a1", "--json")
    assert found.code == 1
    problems = [c for c in found.json["checks"] if c["problem"]]
    assert [(c["agent"], c["what"]) for c in problems] == [("a1", "neighbours")] * 2
    assert "a2 at nohost.invalid:7400: the host cannot be found (" in problems[0]["problem"]
    assert "Name or service not known" in problems[0]["problem"]
    assert "DNS or /etc/hosts" in problems[0]["fix"]
    assert asked.count("nohost.invalid") == 1
    assert "a2 at nohost.invalid:7400" in unweave("check", net / "agents/a1").out
    # For all agents here: each host once.
    edit(net / "agents/a2/agent.toml", 'name = "a2"', 'name = "a2"\nlisten = "127.0.0.1:0"')
    asked.clear()
    found = unweave("check", net, "--json")
    (problem,) = [c for c in found.json["checks"] if c["problem"]]
    assert (problem["agent"], problem["what"]) == ("a2", "neighbours")
    assert asked.count("nohost.invalid") == 1


def test_a_resolver_that_hangs(unweave, net, monkeypatch):
    named(net, "slow.example:7400 slow.example:7401")
    before, end = socket.getaddrinfo, threading.Event()

    def look(host, *more, **named):
        if host == "slow.example":
            end.wait(60.0)
        return before("127.0.0.1", *more, **named)

    monkeypatch.setattr(socket, "getaddrinfo", look)
    monkeypatch.setattr(hosts, "_LIMIT", 0.2)
    try:
        found = unweave("check", net, "--json")
    finally:
        end.set()
    problems = [c for c in found.json["checks"] if c["problem"]]
    assert {c["agent"] for c in problems} == {"a2"}
    assert all("the name server did not answer within 0.2 s" in c["problem"] for c in problems)


def test_whether_neighbours_answer_is_only_told(unweave, net):
    with socket.create_server(("127.0.0.1", 0)) as door, socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        there, nobody = (f"127.0.0.1:{one.getsockname()[1]}" for one in (door, closed))
        named(net, f"{there} {nobody}")
        found = unweave("check", net / "agents/a1", "--json")
        assert found.json["ok"], found.out
        (told,) = [c["note"] for c in found.json["checks"] if c["what"] == "neighbours"]
        assert told == "a2 answers, a3 does not answer yet"
        assert "a3 does not answer yet" in unweave("check", net / "agents/a1").out
        # Agents that run elsewhere, for whoever looks at several.
        edit(net / "agents/a2/agent.toml", 'name = "a2"', 'name = "a2"\nlisten = "127.0.0.1:0"')
        found = unweave("check", net, "--json")
        assert found.json["ok"], found.out
        told = {c["agent"]: c["note"] for c in found.json["checks"] if c["what"] == "neighbours"}
        assert told == {"a3": "does not answer yet"}


def test_a_taken_port_of_the_metrics_is_no_problem(unweave, net):
    text = (net / "agents/a1/agent.toml").read_text()
    port = int(text.split('metrics = "127.0.0.1:')[1].split('"')[0])
    with socket.create_server(("127.0.0.1", port)):
        found = unweave("check", net)
    assert found.code == 0
    assert f"no metrics: 127.0.0.1:{port}: another process listens there" in found.out
    assert "choose another port: metrics in" in found.out


def test_another_key_column_after_an_erasure(unweave, net):
    home = net / "agents/a1"
    stored(home, counter=1, dropped=frozenset([b"x" * 16]))
    assert unweave("check", home, "--json").json["ok"]
    assert (home / "data.key").read_text() == "id"
    edit(home / "agent.toml", 'key = "id"', 'key = "x"')
    (problem,) = [c for c in unweave("check", home, "--json").json["checks"] if c["problem"]]
    assert problem["what"] == "data"
    assert "its erased records are known by the column 'id'" in problem["problem"]
    assert problem["fix"] == "write key = 'id' again, and keep that column as it was"


def pinned(net: Path, change) -> None:
    """Write what the manifest pins for a1 anew, alike in all copies."""
    for file in (net / "network.toml", *net.glob("agents/*/network.toml")):
        text = file.read_text()
        pem = re.search(r'certificate = """\n(.*?)"""', text, re.DOTALL)
        file.write_text(text.replace(pem[0], change(pem[1]), 1))


def test_a_manifest_with_public_keys_alone_cannot_run(unweave, net):
    identity = Identity.load(net / "agents/a1")
    pinned(net, lambda pem: f'public_key = """\n{identity.public_pem}"""')
    done = unweave("check", net, "--json")
    (problem,) = (r for r in done.json["checks"] if r["problem"])
    assert (done.code, problem["agent"], problem["what"]) == (1, "a1", "key")
    assert 'agent "a1" has no certificate: no neighbour could open' in problem["problem"]
    assert "certificate.pem" in problem["fix"]
    done = unweave("check", net / "agents/a2", "--json")
    (problem,) = (r for r in done.json["checks"] if r["problem"])
    assert (problem["agent"], problem["what"]) == ("a2", "neighbours")
    shutil.rmtree(net / "agents/a1")  # it runs elsewhere
    (problem,) = (r for r in unweave("check", net, "--json").json["checks"] if r["problem"])
    assert (problem["agent"], problem["what"]) == ("a1", "key")


def test_a_certificate_that_tls_cannot_use(unweave, net):
    """Of the same key, but for another name: the neighbours would not open a connection."""
    identity = Identity.load(net / "agents/a1")
    other = Identity.create("x")
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a1")])
    made = (
        x509.CertificateBuilder(name, name, identity.key.public_key(), 1)
        .not_valid_before(other.certificate.not_valid_before_utc)
        .not_valid_after(other.certificate.not_valid_after_utc)
        .sign(identity.key, hashes.SHA256())
        .public_bytes(Encoding.PEM)
        .decode()
    )
    pinned(net, lambda pem: f'certificate = """\n{made}"""')
    (net / "agents/a1/certificate.pem").write_text(made)
    done = unweave("check", net, "--json")
    (problem,) = (r for r in done.json["checks"] if r["problem"])
    assert (done.code, problem["agent"], problem["what"]) == (1, "a1", "key")
    assert "has a certificate that does not hold the name" in problem["problem"]


def test_a_certificate_beside_the_pinned_one(unweave, net):
    """The same key is not enough: TLS shows the file, and the neighbours want the pinned bytes."""
    home = net / "agents/a1"
    identity = Identity.load(home)
    (home / "certificate.pem").write_text(Identity("b1", identity.key).certificate_pem)
    done = unweave("check", net, "--json")
    (problem,) = (r for r in done.json["checks"] if r["problem"])
    assert (problem["agent"], problem["what"]) == ("a1", "key")
    assert "not the one that network.toml pins" in problem["problem"]
