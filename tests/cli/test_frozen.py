"""A process that is stopped takes calls and answers none: it is named, and keeps nobody waiting."""

import pytest
from tests.support.processes import Processes

from unweave.node.api.client import Operator, asleep, lives
from unweave.operations import cluster


def rest_at_an_end(net: Processes) -> str:
    """The token rests at a1 or a3: somebody rouses it until it does."""
    for _ in range(20):
        assert net.settled() == {net.expected()}
        holder = net.statuses("a1")["a1"]["parked"]
        if holder != "a2":
            return holder
        net.append("a1", [1.0])
        net.ask("a1", "learn")
    raise AssertionError("it always rests in the middle")


def test_a_frozen_agent(unweave, tmp_path, monkeypatch):
    monkeypatch.setattr(cluster, "LOOK", 1.0)
    with Processes(tmp_path / "net", 3, graph="path") as net:
        net.start()
        holder = rest_at_an_end(net)
        old = net.expected()
        net.freeze("a2")
        pid = net.process("a2").pid
        wake = f"`kill -CONT {pid}`"
        net.append(holder, [1.0, 1.0, 0.0])
        assert unweave("learn", net.folder(holder)).code == 0

        # The newest sum is the holder's alone; the other end has the old one.
        def shown():
            digest = unweave("posterior", net.root, "--json").json.get("digest")
            return [] if digest == net.expected() else [digest]

        net.wait("to show the newest", shown)
        report = unweave("posterior", net.root, "--json").json
        assert (report["agreed"], report["known_to"]) == (False, [holder])
        assert len(report["stamp"]) == 5  # of the token: the order does not tell which is newer
        text = unweave("posterior", net.root).out
        assert f"{holder}: this sum, the newest" in text
        assert old[:12] in text
        assert wake in text
        assert unweave("posterior", net.root, "--wait", "1").code == 0

        status = unweave("status", net.root)
        assert status.code == 1
        assert f"a2 did not answer in time: its process is stopped: {wake}" in status.out

        # Whoever waits is told who is frozen, and not to start it.
        for words in (("audit", net.root), ("forget", net.root, holder)):
            late = unweave(*words, "--timeout", "2")
            assert late.code == 1
            assert f"waiting for a2 (its process is stopped: {wake} wakes it; or" in late.err
            assert "unweave agent" not in late.err
        asked = unweave("forget", net.root, "a2", "--timeout", "2")
        assert asked.code == 1
        assert f"a2: its process is stopped: {wake} wakes it; the request was not" in asked.err

        # Nobody says that it answers.
        gone = unweave("forget", net.root, "a2", "--departed", "--timeout", "2")
        assert gone.code == 1
        assert "has not departed" not in gone.err
        assert f"a2 may come back: its process is stopped: {wake}" in gone.err
        net.thaw("a2")
        net.out.add(holder)
        net.wait("to wake", lambda: [] if unweave("status", net.root).code == 0 else ["a2"])


def test_the_process_behind_a_control_socket(tmp_path):
    with Processes(tmp_path / "net", 1) as net:
        net.start()
        with Operator(net.folder("a1")) as agent:
            assert agent.pid == net.process("a1").pid
            assert lives(agent.pid)
            assert "very busy" in asleep(agent.pid)
            net.freeze("a1")
            net.wait("to stop", lambda: [] if "stopped" in asleep(agent.pid) else ["a1"])
            net.kill("a1")
            assert not lives(agent.pid)
    assert lives(None)


@pytest.mark.parametrize("pid", [None, 1])
def test_what_to_do_is_always_said(pid):
    assert "agent.log" in asleep(pid)
