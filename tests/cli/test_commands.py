"""What every command owes its user: commands to copy, a fix for every wrong word, bounded waits."""

import contextlib
import hashlib
import inspect
import os
import resource
import shutil
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import typer

from unweave.cli import app, common
from unweave.errors import ConfigError
from unweave.node.api.client import Operator
from unweave.operations import cluster
from unweave.operations import erase as operations
from unweave.protocol.certificate.verify import Erased
from unweave.protocol.token import request_id


@pytest.fixture(scope="module")
def net(unweave, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("commands") / "net"
    assert unweave("init", folder, "--agents", "3").code == 0
    return folder


def test_examples_fit_a_terminal():
    for name, command in typer.main.get_command(app).commands.items():
        help_text = inspect.cleandoc(command.help or "")
        examples = [line.strip() for line in help_text.splitlines() if line.startswith("    ")]
        assert examples, name
        assert all(line.startswith(f"unweave {name}") for line in examples), name
        assert max(map(len, examples)) <= 76, name
        assert all(getattr(p, "help", None) for p in command.params if name != "paper"), name


def test_a_pipe_has_no_width():
    ask = "from unweave.cli.common import console; print(console.width)"
    unset = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    for env, width in ((unset, "160"), ({**unset, "COLUMNS": "99"}, "99")):
        done = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, env=env)
        assert done.stdout.split() == [width], done.stderr
    assert common.quote("a b") == "'a b'"


WRONG = {
    ("forget", "{net}"): "no agent given. Fix: unweave forget {net} AGENT, with one of a1, a2, a3",
    ("forget", "{net}", "b1"): "did you mean a1",
    ("frget", "{net}"): "Did you mean 'forget', 'agent'? Fix: see",
    ("forget", "{net}", "b1", "--departed"): "did you mean a1",
    ("forget", "{net}", "a1", "--records", "{net}/none"): "give a file with one key per line",
    (
        "forget",
        "{net}",
        "a1",
        "--records",
        "{net}/network.toml",
        "--departed",
    ): "leave --records out",
    ("forget", "{net}", "a1", "--out", "{net}/none/c.json"): "create it, or name another",
    ("forget", "{net}", "a1", "--out", "{net}"): "a folder. Fix: name a file",
    ("forget", "{net}", "a1", "--timeout", "0"): "above 0",
    ("forget", "{net}", "a1", "--timeout", "nan"): "above 0",
    ("audit", "{net}", "--timeout", "-1"): "above 0",
    ("posterior", "{net}", "--wait", "-1"): "--wait -1",
    ("up", "{net}", "--until", "never"): "choose forever, ready or parked",
    ("up", "{net}", "--timeout", "0"): "above 0",
    ("vote", "{net}", "a1"): "name the folder of your agent",
    ("vote", "{net}/agents/a1", "a2", "--request", "zz"): "give the 32 hexadecimal digits",
    ("agent", "{net}/agents/a1", "--log-level", "loud"): "choose debug",
    (
        "verify",
        "{net}/c.json",
        "--network",
        "{net}/none",
    ): "Fix: give --network {net}/network.toml",
    ("verify", "{net}/c.json", "--network", "{net}"): "give a certificate's file",
    ("verify", "{net}", "--network", "{net}"): "give a certificate's file",
    ("verify", "{net}/network.toml", "--network", "{net}"): "not a certificate",
    (
        "verify",
        "{net}/c.json",
        "-n",
        "{net}",
        "--records",
        "{net}/k",
    ): "only one of --records and --agent",
    (
        "verify",
        "{net}/c.json",
        "-n",
        "{net}",
        "--agent",
        "{net}/agents/a1",
    ): "only one of --records and --agent",
    ("simulate", "{net}/none.toml"): "cannot be read",
    ("demo", "--out", "{net}/network.toml"): "choose another",
    ("demo", "--out", "{net}/new", "--seed", "-1"): "from 0 to",
    ("demo", "--out", "{net}/new", "--seed", str(2**63)): "from 0 to",
    ("demo", "--out", "{net}"): "not the demonstration's. Fix: choose another folder",
}


@pytest.mark.parametrize("words", WRONG, ids=" ".join)
def test_wrong_words_are_answered_with_a_fix(unweave, net, words):
    done = unweave(*(word.format(net=net) for word in words))
    assert done.code == 2, done.err
    assert WRONG[words].format(net=net) in done.err
    assert done.err.count("\n") == 1, "one line"
    assert (net / "agents/a1/key.pem").exists()


def test_nobody_runs(unweave, net):
    a1 = net / "agents/a1"
    for command in ("posterior", "influence", "learn", "audit"):
        assert f"start all with `unweave up {net}`" in unweave(command, net).err
        assert f"Fix: run `unweave agent {a1}`" in unweave(command, a1).err
    assert f"  unweave up {net}\n" in unweave("status", net, width=40).out
    assert f"  unweave agent {a1}\n" in unweave("status", a1, width=40).out
    waited = unweave("posterior", net, "--wait", "0.3")
    assert waited.code == 1
    assert "unweave up" in waited.err


def whole(request):
    return Erased(request, "a1", "agent", "exact", "owner", None)


def test_two_erasures_of_one_agent_are_two_files(unweave, net, monkeypatch):
    erasures = iter([whole(request_id(0, bytes([k] * 12)).hex()) for k in (1, 2)])
    monkeypatch.setattr(operations, "erase_and_wait", lambda *a, **k: (b"{}", next(erasures)))
    for _ in range(2):
        done = unweave("forget", net, "a1", width=40)
        assert done.code == 0, done.err
    files = sorted(net.glob("certificate-a1-*.json"))
    assert len(files) == 2
    assert done.out.endswith(f"  unweave verify {files[1]} --network {net / 'network.toml'}\n")
    for file in files:
        file.unlink()


@contextlib.contextmanager
def full_disk():
    """Files that are written here end after a byte."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_does_not_hide_that_it_is_forgotten(unweave, net, monkeypatch, tmp_path):
    raw, erased = b'{"some": "certificate"}', whole(request_id(0, bytes(12)).hex())
    monkeypatch.setattr(operations, "erase_and_wait", lambda *a, **k: (raw, erased))
    target = tmp_path / "c.json"
    target.write_text("an older one")
    copy = (
        net / f"agents/a1/certificates/certificate-1-2-{hashlib.sha256(raw).hexdigest()[:8]}.json"
    )
    keys = tmp_path / "keys"
    keys.write_text("p1\np2\n")
    ways = (
        ((), "a1 is forgotten", ""),
        (("--records", keys), "2 records of a1 are forgotten", keys),
    )
    for words, said, again in ways:
        with full_disk():
            done = unweave("forget", net, "a1", *words, "--out", target, "--json")
        assert done.code == 1
        why = done.json["error"]["message"]
        assert why.startswith(f"{target}: cannot be written (File too large), but {said} and cert")
        assert "in certificates/ of their folders" in why
        if again:
            assert f"`unweave forget {net} a1 --records {again} --out FILE`" in why
    assert target.read_text() == "an older one"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["c.json", "keys"]
    copy.parent.mkdir()
    copy.write_bytes(raw)
    with full_disk():
        assert f"keeps its own copy: {copy}." in unweave("forget", net, "a1").err
    assert not list(net.glob("certificate-*")) + list(net.glob(".certificate-*"))
    shutil.rmtree(copy.parent)
    done = unweave("forget", net, "a1", "--out", target)
    assert (done.code, target.read_bytes()) == (0, raw)
    link = tmp_path / "link.json"
    link.symlink_to(target)
    target.write_text("")
    assert unweave("forget", net, "a1", "--out", link).code == 0
    assert (link.is_symlink(), target.read_bytes()) == (True, raw)
    assert target.stat().st_mode & 0o777 == 0o600  # the owner shows it to whom it may concern


def test_a_pipe_is_not_replaced_by_a_file(unweave, net, monkeypatch, tmp_path):
    monkeypatch.setattr(operations, "erase_and_wait", lambda *a, **k: (b"{}", whole("0" * 32)))
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    assert unweave("forget", net, "a1", "--out", pipe).code == 0
    reader.join(30.0)
    assert (read, pipe.is_fifo()) == ([b"{}"], True)


SPEAK = """
import sys
from unweave.cli import main
from unweave.protocol.certificate import verify
from unweave.protocol.certificate.verify import Account, Erased
names = tuple(f"a{k}" for k in range(1, 4))
erased = tuple(Erased(f"{k:032x}", "a1", "records", "exact", "owner", 1) for k in range(3))
good = Account("m", "e", (1, 0, 0, 9, 0), erased, names, (), names, "a1", True, None)
verify.verify = lambda raw, terms, signed: good
sys.argv = ["unweave", *sys.argv[1:]]
main()
"""


@pytest.mark.parametrize("how", [(), ("--json",)], ids=["people", "machines"])
def test_a_reader_that_goes_does_not_change_the_verdict(net, tmp_path, how):
    """`unweave verify … | head`: the exit code is the certificate's."""
    good, none = tmp_path / "good.json", tmp_path / "none.json"
    good.write_text("{}")
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    for files, code in (((good,), 0), ((good, none), 2)):
        words = ["verify", *map(str, files), "--network", str(net), *how]
        with subprocess.Popen([sys.executable, "-c", SPEAK, *words], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, env=buffered) as said:  # fmt: skip
            said.stdout.close()
            error = said.stderr.read()
            assert said.wait(60.0) == code, error
        assert b"Traceback" not in error
        assert b"BrokenPipe" not in error


def test_no_traceback_for_a_refusing_system(unweave, net, monkeypatch):
    def refuses(*_):
        raise PermissionError(13, "Permission denied", "/some/where")

    monkeypatch.setattr(Path, "read_bytes", refuses)
    done = unweave("verify", net / "c.json", "--network", net)
    assert done.code == 2
    monkeypatch.setattr(cluster, "find_agents", refuses)
    done = unweave("status", net)
    assert done.code == 1
    assert done.err.startswith("unweave: /some/where: Permission denied. Fix: check the path")
    assert done.err.count("\n") == 1


def test_another_users_agent(net, monkeypatch):
    door = net / "agents/a1/agent.sock"
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as server:
        server.bind(os.path.relpath(door))
        monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != door)
        asked = pytest.raises(ConfigError, match="Fix: run the command as ")
        with asked, cluster.open_cluster(net):
            pass
    door.unlink()


def test_frozen_agents_share_one_wait(net):
    """Sockets that take a call and never answer: three of them are asked at the same time."""
    together = threading.Barrier(3, timeout=30.0)

    class Frozen:
        pid = None

        def ask(self, do, **more):
            together.wait()  # breaks unless all three are asked at once
            raise cluster.AgentDown("frozen")

    with cluster.open_cluster(net) as agents:
        agents.agents = {name: Frozen() for name in agents.folders}
        assert agents.statuses() == {}
        assert agents.down == ["a1", "a2", "a3"]
        assert set(agents.silent) == {"a1", "a2", "a3"}


def test_a_frozen_agent_is_not_called_down_without_a_word(unweave, net):
    """A door that opens, and nobody behind it: the limit is the one that was asked for."""
    door = net / "agents/a2/agent.sock"
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as server:
        server.bind(os.path.relpath(door))
        server.listen()
        began = time.monotonic()
        done = unweave("forget", net, "a2", "--timeout", "0.2")
        assert done.code == 1
        assert time.monotonic() - began < 9.0, "not the limit of a socket"
        with pytest.MonkeyPatch.context() as quick:
            quick.setattr(cluster, "Operator", lambda folder, limit, **how: Operator(folder, 0.2))
            shown = unweave("status", net)
    door.unlink()
    assert shown.code == 1
    assert f"a2 did not answer in time: its process {os.getpid()} runs, but does" in shown.out


def test_several_certificates(unweave, net, monkeypatch, tmp_path):
    """Each is looked at, and the worst decides."""
    from unweave.errors import NotCertified
    from unweave.protocol.certificate import verify
    from unweave.protocol.certificate.verify import Account, Erased

    whole = Erased("ab", "a1", "agent", "refined", "owner", None)
    part = Erased("cd", "a2", "records", "refined", "owner", 1)
    estimate = {"kl_to_optimum": 1.4321e-07, "method": "half the squared Fisher norm"}
    names = ("a1", "a2", "a3")
    good = Account("m", "e", (1, 0, 0, 9, 0), (whole, part), names, (), names, "a1", True, estimate)

    def check(raw, terms, signed):
        if raw == b"bad":
            raise NotCertified("altered")
        return good

    files = [tmp_path / name for name in ("one.json", "two.json", "bad.json", "none.json")]
    for file in files[:3]:
        file.write_text(file.stem)
    words = ("--network", net / "network.toml")
    with monkeypatch.context() as patched:
        patched.setattr(verify, "verify", check)
        both = unweave("verify", *files[:2], *words)
        assert both.code == 0, both.err
        assert both.out.count("The certificate is valid.") == 2
        assert (
            'Estimated KL to the retrained optimum: 1.4e-07 ("half the squared Fisher norm").'
            in (both.out)
        )
        for count, code in ((2, 0), (3, 1), (4, 2)):
            done = unweave("verify", *files[:count], *words, "--json")
            assert done.code == code
            assert [r["valid"] for r in done.json] == [True, True, False, False][:count]
            assert [r["certificate"] for r in done.json] == [str(f) for f in files[:count]]
        assert [e["rows"] for e in done.json[0]["erasures"]] == [None, 1]
        told = unweave("verify", *files, *words).err
        assert f"{files[2]}: altered\n" in told
        assert f"{files[3]}: cannot be read" in told
        assert unweave("verify", files[0], *words, "--json").json["valid"] is True
    for text, said in (
        ("", "the file is empty"),
        ("id,x\n1,2\n", "the file is not JSON (from line 1 on)"),
        ("\0\xff", "the file is not JSON"),
    ):
        files[0].write_text(text)
        done = unweave("verify", files[0], *words)
        assert done.code == 2
        assert f"{files[0]}: not a certificate: {said}" in done.err
