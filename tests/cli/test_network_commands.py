"""The commands that operate a network, as text and as JSON, on DIR and on AGENT_DIR."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.support.commands import run_command as unweave
from tests.support.processes import Processes

from unweave.grid import digest
from unweave.models import BetaBernoulli
from unweave.operations.cluster import Cluster


@pytest.fixture
def table(tmp_path) -> Path:
    path = tmp_path / "visits.csv"
    rows = [f"p{k},{int(k % 3 == 0)}" for k in range(60)]
    path.write_text("\n".join(["id,ill", *rows]) + "\n")
    return path


def create(tmp_path: Path, table: Path, *more: object) -> Path:
    net = tmp_path / "net"
    words = ("--agents", "3", "--data", table, "--key", "id", "--column", "x=ill", *more)
    done = unweave("init", net, *words)
    assert done.code == 0, done.err
    return net


# ------------------------------------------------------------------------------ before it runs


def test_init_and_check(tmp_path, table):
    net = create(tmp_path, table)
    for name in ("a1", "a2", "a3"):
        home = net / "agents" / name
        assert (home / "key.pem").stat().st_mode & 0o777 == 0o600
        assert (home / "network.toml").read_bytes() == (net / "network.toml").read_bytes()
        assert "sufficient statistics" in (home / "agent.toml").read_text()
    checked = unweave("check", net, "--json")
    assert (checked.code, checked.json["ok"]) == (0, True)
    assert "20 records" in unweave("check", net / "agents/a2").out

    again = unweave("init", net)
    assert again.code == 2
    assert "already" in again.err
    other = unweave("init", tmp_path / "other", "--agents", "north,east", "--json")
    assert set(other.json["agents"]) == {"north", "east"}
    wrong = {
        ("--column", "z=ill"): "choose from x",
        ("--hosts", "h:1"): "give one for each",
        ("--model", "beta-bernouli"): "did you mean",
        ("--graph", "rong"): "graph",
        ("--data", tmp_path / "none.csv"): "no such file",
        ("--set", "a"): "write name=value",
    }
    for words, said in wrong.items():
        refused = unweave("init", tmp_path / "wrong", "--agents", "5", *words)
        assert refused.code == 2, words
        assert said in refused.err, words
        assert not (tmp_path / "wrong").exists()


def test_check_names_each_problem(tmp_path, table):
    net = create(tmp_path, table)
    homes = {name: net / "agents" / name for name in ("a1", "a2", "a3")}
    (homes["a1"] / "key.pem").chmod(0o644)
    (homes["a2"] / "data.csv").write_text("id,ill\np1,1\np2,2\n")
    manifest = homes["a3"] / "network.toml"
    manifest.write_text(manifest.read_text().replace("seed = 0", "seed = 1"))
    entry = json.loads(unweave("init", tmp_path / "x", "--agents", "1", "--json").out)
    assert entry["agents"]["a1"]["address"].startswith("127.0.0.1:")
    port = int((net / "network.toml").read_text().split("127.0.0.1:")[1].split('"')[0])
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        taken.listen()
        found = unweave("check", net, "--json")
    assert found.code == 1
    problems = {(c["agent"], c["what"]): c["problem"] for c in found.json["checks"] if c["problem"]}
    assert "others can read" in problems["a1", "key"]
    assert "another process listens there" in problems["a1", "address"]
    assert "line 3" in problems["a2", "data"]
    assert "differs" in problems["a3", "same manifest"]
    text = unweave("check", net)
    assert text.code == 1
    assert "chmod 600" in text.out


@pytest.mark.parametrize(
    "words",
    [("status",), ("posterior",), ("influence",), ("audit",), ("learn",), ("forget", "a1")],
)
def test_agents_that_are_down(tmp_path, table, words):
    net = create(tmp_path, table)
    command, *more = words
    for folder in (net, net / "agents/a1"):
        done = unweave(command, folder, *(more if folder == net else ()))
        assert done.code == 1
        assert "down" in done.out or "unweave agent" in done.err
    nothing = unweave(command, tmp_path, *more)
    assert nothing.code == 2
    assert "unweave init" in nothing.err


# ---------------------------------------------------------------------------------- while it runs


def eventually(what, limit: float = 120.0):
    end = time.monotonic() + limit
    while time.monotonic() < end:
        if found := what():
            return found
        time.sleep(0.1)
    raise AssertionError("not in time")


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def expected(net: Path, without: set[str] = frozenset()) -> str:
    """What training in memory gives, from the files of the agents."""
    model = BetaBernoulli()
    eta = model.eta0
    for home in sorted((net / "agents").iterdir()):
        lines = [line.split(",") for line in (home / "data.csv").read_text().split()[1:]]
        kept = [float(value) for key, value in lines if key not in without]
        if home.name not in without:
            eta = model.grid.add(eta, model.factor(model.shard(np.array(kept), home.name)))
    return digest(eta).hex()


def test_a_day_of_a_network(tmp_path, table):
    net = create(tmp_path, table)
    a1 = net / "agents/a1"
    command = [sys.executable, "-m", "unweave", "up", str(net)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as up:
        try:
            _day(net, a1, tmp_path)
            pids = [s["pid"] for s in unweave("status", net, "--json").json["agents"].values()]
            up.send_signal(signal.SIGTERM)
            out, err = up.communicate(timeout=60)
        finally:
            up.kill()
    assert (up.returncode, b"Traceback" in out + err) == (0, False), err
    assert not [pid for pid in pids if alive(pid)], "no process is left behind"
    assert not list(net.glob("agents/*/agent.sock"))
    assert "stopped" in (a1 / "agent.log").read_text()
    offline = unweave("status", net, "--json")
    assert offline.code == 1
    nobody = {"agents": {}, "down": ["a1", "a2", "a3"], "departed": [], "privacy": "plain"}
    assert offline.json == nobody

    # `--until parked` says what it came to, and leaves.
    done = subprocess.run(
        [*command, "--until", "parked", "--json"], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    last = json.loads(done.stdout.splitlines()[-1])
    assert len({s["commitment"] for s in last["agents"].values()}) == 1
    assert unweave("posterior", net, "--json").json["digest"] == expected(net, {"a2", "p1", "p2"})


def test_agents_do_not_outlive_their_supervisor(tmp_path, table):
    home = create(tmp_path, table) / "agents/a1"
    command = [sys.executable, "-m", "unweave", "up", str(home)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as up:
        try:
            found = eventually(lambda: unweave("status", home, "--json").json["agents"])
        finally:
            up.kill()
    eventually(lambda: not alive(found["a1"]["pid"]))
    assert "stopped" in (home / "agent.log").read_text()


def _day(net: Path, a1: Path, tmp_path: Path) -> None:
    def rested() -> Any:
        found = unweave("status", net, "--json")
        if found.code or len(found.json["agents"]) < 3:
            return None
        agents = found.json["agents"]
        good = [s for s in agents.values() if s.get("complete") and s["parked"]]
        same = len({(s["commitment"], str(s["parked_stamp"])) for s in good}) == 1
        return agents if len(good) == 3 and same else None

    agents = eventually(rested)
    columns = {"name", "address", "pid", "phase", "epoch", "hop", "revision", "included"}
    assert columns | {"commitment", "erased"} <= set(agents["a1"])
    text = unweave("status", net).out
    for name, s in agents.items():
        assert name in text
        assert str(s["pid"]) in text
        assert s["commitment"][:12] in text
    view = unweave("status", a1)
    assert "What a1 knows of the others" in view.out
    others = unweave("status", a1, "--json").json["agents"]["a1"]["others"]
    assert set(others) == {"a2", "a3"}
    assert all(other["attested"] for other in others.values())

    for folder in (net, a1):
        shown = unweave("posterior", folder, "--json").json
        assert (shown["state"], shown["digest"]) == ("complete", expected(net))
        assert "digest" in unweave("posterior", folder).out
    everybody = eventually(lambda: len(influence := unweave("influence", net, "--json").json[
        "influence"]) == 3 and influence)  # fmt: skip
    assert all(value > 0 for value in everybody.values())
    assert "KL" in unweave("influence", a1).out

    for folder in (net, a1):
        audit = unweave("audit", folder, "--json").json
        assert (len(audit["commitment"]), audit["attested"]) == (64, 3)
        assert unweave("posterior", net, "--json").json["digest"] == expected(net)
    assert "The audit holds" in unweave("audit", net).out

    # New rows travel; without any, nothing does.
    assert unweave("learn", a1, "--json").json["changed"] == {"a1": False}
    data = a1 / "data.csv"
    data.write_text(data.read_text() + "p100,1\np101,1\n")
    assert unweave("learn", net, "--json").json["changed"] == {
        "a1": True, "a2": False, "a3": False}  # fmt: skip
    assert "no change" in unweave("learn", a1).out
    assert unweave("audit", net, "--json").code == 0
    assert unweave("posterior", net, "--json").json["digest"] == expected(net)

    # A killed agent is started again.
    before = agents["a3"]["pid"]
    os.kill(before, signal.SIGKILL)
    eventually(lambda: (now := rested()) and now["a3"]["pid"] != before)

    # Single records: the keys must be there.
    owner = next(h for h in sorted((net / "agents").iterdir()) if "\np1," in
                 (h / "data.csv").read_text())  # fmt: skip
    keys = tmp_path / "keys.txt"
    keys.write_text("p1\nnobody\n")
    refused = unweave("forget", net, owner.name, "--records", keys)
    assert refused.code == 2
    assert "1 of 2 keys" in refused.err
    assert "do not hold any more, use --missing-ok" in refused.err
    for key in ("p1", "p2"):
        home = next(h for h in (net / "agents").iterdir() if f"\n{key}," in
                    (h / "data.csv").read_text())  # fmt: skip
        keys.write_text(key + "\n")
        done = unweave(
            "forget", home, "--records", keys, "--json", "--out", tmp_path / f"{key}.json"
        )
        assert done.code == 0, done.err
    # One that was deleted from the file before: a backup does not bring it back.
    keys.write_text("nobody\n")
    both = unweave("forget", owner, "--records", keys, "--missing-ok", "--json")
    assert (both.code, both.json["found"], both.json["remembered"]) == (1, 0, 1), both.err
    data = owner / "data.csv"
    data.write_text(data.read_text() + "nobody,1\n")
    assert unweave("learn", owner).code == 0
    assert unweave("audit", net, "--json").code == 0
    kept = expected(net, {"p1", "p2", "nobody"})
    assert unweave("posterior", net, "--json").json["digest"] == kept
    data.write_text(data.read_text().replace("nobody,1\n", ""))
    assert "--missing-ok needs --records" in unweave("forget", owner, "--missing-ok").err
    verified = unweave("verify", tmp_path / "p2.json", "--network", net / "network.toml", "--json")
    assert len(verified.json["erasures"]) == 2

    # A whole agent.
    done = unweave("forget", net, "a2")
    assert done.code == 0
    (certificate,) = net.glob("certificate-a2-*.json")
    assert certificate.name in done.out.replace("\n", "")
    assert unweave("verify", certificate, "--network", net / "network.toml").code == 0
    shown = unweave("posterior", net, "--json").json
    assert shown["digest"] == expected(net, {"a2", "p1", "p2"})
    assert unweave("status", net, "--json").json["agents"]["a1"]["erased"] == ["a2"]


def test_a_departed_agent_is_forgotten_by_votes(tmp_path):
    timeouts = {"welcome": 1.0, "resend": 0.5, "ack": 3.0, "alive": 1.0, "loss": 5.0}
    with Processes(tmp_path / "net", 5, timeouts=timeouts, metrics=True) as net:
        for name, more in (("a2", "auto_vote = true"), ("a1", 'log = "json"')):
            file = net.folder(name) / "agent.toml"
            file.write_text(file.read_text().replace("[data]", more + "\n\n[data]"))
        net.start()
        assert net.settled() == {net.expected()}
        _watched(net)

        time.sleep(6.0)  # at rest nobody says anything: its neighbours have to ask
        living = unweave("forget", net.root, "a4", "--departed", "--timeout", "2")
        assert living.code == 1
        assert "it has not departed" in living.err or "of 3 votes" in living.err
        net.kill("a4")
        time.sleep(6.0)  # heard until now: the votes wait as long as the timeouts says

        # Whoever waits is told who is missing.
        for words in (("audit", net.root), ("forget", net.root, "a1")):
            late = unweave(*words, "--timeout", "3")
            assert late.code == 1
            assert "waiting for a4" in late.err, late.err
        asked = unweave("forget", net.root, "a4")
        assert asked.code == 1
        assert "use --departed" in asked.err

        both = unweave("vote", net.root, "a4")
        assert both.code == 2
        alone = unweave("vote", net.folder("a4"), "a1")
        assert alone.code == 1
        own = unweave("vote", net.folder("a3"), "a3")
        assert own.code == 1
        assert "cannot vote on itself" in own.err
        first = unweave("vote", net.folder("a3"), "a4", "--json")
        assert first.code == 0, first.err
        assert first.json["quorum"] == 3

        done = unweave("forget", net.root, "a4", "--departed", "--json", "--timeout", "120")
        assert done.code == 0, done.err
        assert done.json["request"] == first.json["request"]
        network = net.root / "network.toml"
        account = unweave("verify", done.json["certificate"], "--network", network, "--json").json
        assert account["valid"]
        assert account["not_attested"] == ["a4"]
        assert {(e["agent"], e["by"]) for e in account["erasures"]} == {
            ("a1", "owner"), ("a4", "quorum")}  # fmt: skip
        net.out |= {"a1", "a4"}
        assert net.settled() == {net.expected()}

        # It comes back from the dead: nothing of it is included, and nothing breaks.
        net.children["a4"].start()
        net.ready("a4")
        net.wait("to learn that it left", lambda: [
            n for n, s in net.statuses("a4").items() if s["phase"] != "departed"])  # fmt: skip
        assert unweave("audit", net.folder("a2"), "--json").code == 0
        assert unweave("posterior", net.folder("a2"), "--json").json["digest"] == net.expected()


def _watched(net: Processes) -> None:
    """Metrics, health and logs for machines."""
    port = net.metrics[0]

    def get(path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    assert get("/healthz")[0] == 200
    assert get("/else")[0] == 404
    code, metrics = get("/metrics")
    assert code == 200
    assert 'unweave_included_agents{agent="a1"} 5.0\n' in metrics
    assert 'unweave_tokens_received_total{agent="a1"}' in metrics
    families = list(text_string_to_metric_families(metrics))
    assert all(family.name.startswith("unweave_") for family in families)
    (phase,) = (one for family in families for one in family.samples if "phase" in one.labels)
    assert phase.labels["phase"] in ("parked", "idle")
    # Nothing else is served there: no operator is known behind a port.
    for path in ("/status", "/posterior", "/openapi.json", "/stop"):
        assert get(path)[0] == 404
    with socket.create_connection(("127.0.0.1", port)) as rude:
        rude.sendall(b"POST /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"405" in rude.recv(100)
    lines = [json.loads(line) for line in net.log("a1").splitlines()]
    assert {"time", "level", "agent", "event"} <= set(lines[0])
    assert lines[0]["agent"] == "a1"


def test_a_taken_port_of_the_metrics_stops_nobody(tmp_path):
    with Processes(tmp_path / "net", 2, graph="path", metrics=True) as net:
        with socket.create_server(("127.0.0.1", net.metrics[0])):
            net.start()
            assert net.settled() == {net.expected()}
        assert "error   a1  metrics cannot be served  why=metrics: cannot listen" in net.log("a1")
        assert "metrics cannot be served" not in net.log("a2")


def test_learn_names_who_does_not_answer(tmp_path, monkeypatch):
    with Processes(tmp_path / "net", 3, graph="path") as net:
        net.start()
        assert net.settled() == {net.expected()}
        net.freeze("a3")
        net.append("a1", [1.0])
        done = unweave("learn", net.root, "--timeout", "20")
        assert done.code == 1
        assert "a1: new data, added at the next visit" in done.out
        assert "a2: no change" in done.out
        wake = f"its process is stopped: `kill -CONT {net.process('a3').pid}` wakes it"
        assert f"a3: was not asked: {wake}; then run the command again" in done.out
        told = unweave("learn", net.root, "--timeout", "20", "--json").json
        assert list(told["silent"]) == ["a3"]
        assert told["changed"] == {"a1": False, "a2": False}
        # One that answers, and reads for longer than there is time.
        net.thaw("a3")
        monkeypatch.setattr(Cluster, "statuses", lambda agents, *_: {n: {} for n in agents.agents})
        net.freeze("a3")
        late = unweave("learn", net.folder("a3"), "--timeout", "1")
        assert late.code == 1
        assert "a3: did not answer within 1 s: its process is stopped" in late.out
        assert "the request was sent, and is carried out later" in late.out
        net.thaw("a3")
    assert unweave("learn", net.root, "--timeout", "0").code == 2
