"""Real processes in private rounds: they learn, forget, crash, come back from old backups, and end
with the sum of plain mode, bit for bit."""

from __future__ import annotations

import json
import shutil
import time
from random import Random

import pytest
from tests.support.commands import run_command
from tests.support.processes import Processes, erase

from unweave.errors import UnweaveError
from unweave.keys import verifier
from unweave.manifest import load
from unweave.operations.backup import back_up, restore
from unweave.protocol.certificate.verify import verify

GONE = {"a2": ["a2-0", "a2-7"]}


@pytest.fixture
def net(tmp_path):
    with Processes(tmp_path / "net", agents=5, rows=15, privacy="masked") as network:
        yield network


def account(net, certificate):
    manifest = load(net.root / "network.toml")
    return verify(json.dumps(certificate).encode(), manifest.terms(), verifier(manifest.pems()))


def test_a_network_learns_forgets_and_verifies(net):
    net.start()
    assert net.settled() == {net.expected()}
    assert net.ask("a4", "posterior")["posterior"]["state"] == "complete"

    # Records, then a whole agent: each is a new round, and certified.
    found = account(net, erase(net, "a2", GONE["a2"]))
    assert net.settled() == {net.expected(GONE)}
    assert [(e.agent, e.scope, e.kind) for e in found.erasures] == [("a2", "records", "exact")]
    found = account(net, erase(net, "a3"))
    assert net.settled() == {net.expected(GONE)}
    assert {*found.included} == {"a1", "a2", "a4", "a5"}

    # New records wait for the next round and are in it.
    net.append("a1", [1.0, 1.0, 0.0])
    assert net.ask("a1", "learn") == {"changed": True}
    assert net.settled() == {net.expected(GONE)}

    # Influence: of the own agent alone.
    shown = run_command("influence", net.folder("a1"), "--json")
    assert shown.code == 0, shown
    assert shown.json["influence"].keys() == {"a1"}
    shown = run_command("influence", net.root)
    assert shown.code == 2, shown
    assert "not published" in shown.err

    # Too few agents remain: certified with an empty sum, and said so.
    erase(net, "a4")
    found = account(net, erase(net, "a5"))
    assert found.included == ()
    net.wait(
        "to withdraw the sum",
        lambda: [n for n, s in net.statuses().items() if s["private_round"]["published"]],
    )
    why = "2 of 5 agents remain, and a private sum needs 3"
    report = net.ask("a1", "posterior")["posterior"]
    assert report["state"] == "unknown"
    assert why in report["why"]
    shown = run_command("status", net.root)
    assert shown.code == 0, shown
    assert why in shown.out


def test_while_an_agent_is_down_nothing_forbidden_is_served_and_status_names_it(net):
    net.start()
    assert net.settled() == {net.expected()}
    net.kill("a4")
    net.ask("a2", "erase", keys=GONE["a2"])
    seen = []

    def others():
        """Whoever still waits for more than a4. Its key for this round died with its process."""
        found = net.statuses("a1", "a2", "a3", "a5")
        seen.extend(s["private_round"]["published"] for s in found.values() if s["erasures"])
        return [n for n, s in found.items() if s["private_round"]["not_given"] != ["a4"]]

    net.wait("to find out that a4 is missing", others)
    assert seen
    assert not any(seen)  # whoever knows of the erasure serves nothing
    report = net.ask("a2", "posterior")["posterior"]
    assert report["state"] == "unknown"
    assert "units" not in report
    assert "waits for a4, not given yet. Fix: start every agent" in report["why"]
    shown = run_command("status", net.root)
    assert shown.code == 1, shown
    waits = "no posterior is served yet: the private round waits for a4, not given yet"
    assert waits in shown.out
    assert "unweave vote AGENT_DIR a4" in shown.out
    net.start("a4")
    assert net.settled() == {net.expected(GONE)}


def test_killed_in_the_middle_of_rounds_and_set_back_to_a_backup(net, tmp_path):
    net.start()
    assert net.settled() == {net.expected()}
    back_up(net.folder("a2"), tmp_path / "old.tar")

    # Agents die while the next round runs; the round needs keys that died with them.
    gone = {"a2": ["a2-3"]}
    net.ask("a2", "erase", keys=gone["a2"])
    net.kill("a1", "a3")
    net.start("a1", "a3")
    assert net.settled() == {net.expected(gone)}

    # The backup is from before the erasure: its round and its rows do not come back.
    net.kill("a2")
    set_back(net, "a2", tmp_path / "old.tar")
    net.start("a2")
    assert net.settled() == {net.expected(gone)}

    # A power cut of all, in the middle of a round.
    net.append("a5", [1.0, 0.0])
    net.ask("a5", "learn")
    net.kill(*net.names)
    net.start()
    assert net.settled() == {net.expected(gone)}
    assert not any("mismatch" in net.log(name) for name in net.names)


def set_back(net, name, archive):
    folder = net.folder(name)
    data = (folder / "data.csv").read_bytes()
    shutil.rmtree(folder)
    restore(archive, folder)
    (folder / "data.csv").write_bytes(data)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_killed_and_set_back_at_any_time(tmp_path, seed):
    """Fifteen times: something is asked, some agents die at once or in a moment, some come back on
    a backup."""
    draw = Random(seed)
    gone: dict[str, list[str]] = {}
    with Processes(tmp_path / "net", agents=5, rows=12, privacy="masked", seed=seed) as net:
        net.start()
        assert net.settled() == {net.expected()}
        backups = {}
        asked: set[str] = set()  # a backup from before a request does not know it
        for turn in range(15):
            name = draw.choice(net.names)
            if draw.random() < 0.4:
                backups[name] = tmp_path / f"{turn}.tar"
                back_up(net.folder(name), backups[name])
            owner = draw.choice(net.names)
            key = draw.choice(list(net.rows[owner]))
            if draw.random() < 0.5 and len(gone.get(owner, ())) < 6:
                ask(net, owner, "erase", keys=[key])
                gone.setdefault(owner, []).append(key)
                asked.add(owner)
            else:
                net.append(owner, [1.0])
                ask(net, owner, "learn")
            time.sleep(draw.choice((0.0, 0.0, 0.05, 0.2, 0.5)))
            victims = draw.sample(net.names, draw.choice((1, 1, 2, 3)))
            running = [victim for victim in victims if victim in net.running()]
            net.kill(*running)
            for victim in running:
                if victim in backups and victim not in asked and draw.random() < 0.5:
                    set_back(net, victim, backups[victim])
            net.start(*running)
            if draw.random() < 0.4:
                assert net.settled() == {net.expected(gone)}, turn
                asked.clear()
        assert net.settled() == {net.expected(gone)}


def ask(net, name, what, **more):
    """Until the agent answers: it may be restarting."""
    for _ in range(100):
        try:
            return net.ask(name, what, **more)
        except UnweaveError:
            time.sleep(0.2)
    raise AssertionError(f"{name} does not answer")
