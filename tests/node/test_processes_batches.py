"""Real processes in which changes of records wait for others (rule 21)."""

from __future__ import annotations

import pytest
from tests.support.commands import run_command
from tests.support.processes import Processes, erase


@pytest.fixture
def net(tmp_path):
    made = {"privacy": "masked", "publish": {"records": 4, "agents": 2, "at_most": "1d"}}
    with Processes(tmp_path / "net", agents=4, rows=15, **made) as network:
        yield network


def waiting(net, name):
    return net.statuses(name)[name]["waiting"]


def test_changes_wait_survive_a_kill_and_leave_together(net, tmp_path):
    net.start()
    first = net.expected()
    assert net.settled() == {first}
    keys = tmp_path / "keys.txt"
    keys.write_text("a2-0\na2-7\n")
    told = run_command("forget", net.root, "a2", "--records", keys)
    assert told.code == 0, told
    assert "Waiting. 2 records of a2: the request (" in told.out
    assert not list(net.root.glob("certificate-*.json"))
    assert waiting(net, "a2")["records"] == 2
    shown = run_command("status", net.root).out
    assert "a2: changes of at least 2 records wait for others" in shown

    # New data wait, too: five records of one more agent are enough. Until then nothing is shown.
    net.kill("a2")
    net.start("a2")
    assert net.settled() == {first}
    assert waiting(net, "a2")["requests"] == 1
    net.append("a1", [1.0])
    told = run_command("learn", net.folder("a1"))
    assert "a1: new data; they wait for changes of others, until " in told.out
    assert waiting(net, "a1")["records"] == 1
    net.append("a1", [1.0, 0.0])
    assert run_command("learn", net.folder("a1"), "--json").json["changed"] == {"a1": True}
    gone = {"a2": ["a2-0", "a2-7"]}
    net.wait("to publish the batch", lambda: [n for n in net.names if waiting(net, n)])
    assert net.settled() == {net.expected(gone)}

    # The data that went with the batch are known: they are no change any more.
    assert net.ask("a1", "learn") == {"changed": False}
    net.kill("a1")
    net.start("a1")
    net.settled()
    assert waiting(net, "a1") is None

    # The same command writes the certificate now.
    told = run_command("forget", net.root, "a2", "--records", keys, "--json")
    assert told.code == 0, told
    assert told.json["found"] == 2


def test_now_does_not_wait_and_a_whole_agent_never_does(net, tmp_path):
    net.start()
    net.settled()
    keys = tmp_path / "keys.txt"
    keys.write_text("a2-0\n")
    assert run_command("forget", net.root, "a2", "--records", keys, "--json").json["state"] == (
        "waiting"
    )
    erase(net, "a3")
    assert waiting(net, "a2")["requests"] == 1
    told = run_command("forget", net.root, "a2", "--records", keys, "--now", "--json")
    assert told.code == 0, told
    assert "without the changes of others" in told.json["warning"]
    assert told.json["found"] == 1
    assert net.settled() == {net.expected({"a2": ["a2-0"]})}
    refused = run_command("forget", net.root, "a2", "--now")
    assert refused.code == 2
    assert "--now: nothing waits" in refused.err
