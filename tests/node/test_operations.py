"""What an operator is told who waits for an erasure: who is missing, why, and what to do."""

import threading

import pytest

from unweave.errors import UnweaveError
from unweave.node.client import AgentDown
from unweave.node.fleet import Fleet, TimedOut
from unweave.node.operations import audit_and_wait, erase_and_wait
from unweave.testing.processes import Processes


class Agent:
    """Answers as it is told; a vote is noted, or refused."""

    def __init__(self, net, name, **status):
        self.net, self.name = net, name
        self.status = status
        self.refuses = None
        self.wait = None
        self.now = None  # what its status says beside, asked each time

    def ask(self, do, **request):
        if do == "status":
            now = {} if self.now is None else self.now(self.name)
            return {"status": {**self.net.status, "name": self.name, **self.status, **now}}
        if do == "vote":
            if self.wait is not None:
                self.wait.wait(20.0)
            if self.refuses is not None:
                raise self.refuses
            self.net.votes.setdefault(request["agent"], []).append((self.name, request["request"]))
            return {"request": request["request"]}
        if do == "erase":
            return {"request": "cafe"}
        if do == "rouse":
            self.net.asked.append(self.name)
            return {"before": self.net.before}
        assert do == "erasure"
        return {"erasure": self.net.report}


class Net(Fleet):
    """A fleet without sockets: five agents, of which some answer."""

    def __init__(self, root, answering):
        made = Processes(root / "net", agents=5)
        self.root = made.root
        self.folders = {name: made.folder(name) for name in made.names}
        self.votes = {}
        self.report = {"state": "voting", "votes": 2, "quorum": 3}
        self.status = {"others": {name: {} for name in made.names}, "left": [], "suspects": []}
        self.status |= {"rest": None, "resting": None, "attested": 0}
        self.asked = []
        self.before = None
        self.agents = {name: Agent(self, name) for name in answering}

    def _connect(self, name):
        raise AgentDown(name)


def forgotten(net, name, **how):
    said = []
    ask = {"keys": None, "gone": False, "timeout": 0.05, "tell": said.append, **how}
    with pytest.raises(UnweaveError) as caught:
        erase_and_wait(net, name, **ask)
    return str(caught.value), said


def test_votes_are_for_one_request_and_told_by_name(tmp_path):
    net = Net(tmp_path, ["a1", "a2", "a3"])
    net.agents["a3"].refuses = UnweaveError("a3: a4 was heard 2 s ago: it is not gone")
    net.status["votes"] = {"a4": ["a1", "a2"]}
    error, said = forgotten(net, "a4", gone=True)
    assert sorted(voter for voter, _ in net.votes["a4"]) == ["a1", "a2"]
    assert len({request for _, request in net.votes["a4"]}) == 1
    assert "2 of 3 votes that a4 is gone (a1, a2)" in error
    assert "a3: a4 was heard 2 s ago" in error
    assert "Not heard of: a5" in error
    assert f"unweave forget {net.root} a4 --gone" in error
    assert any("a3: a4 was heard" in line for line in said)


def test_a_request_that_somebody_voted_for_is_joined(tmp_path):
    net = Net(tmp_path, ["a1", "a2"])
    net.agents["a2"].status["gone_requests"] = {"a4": "feed"}
    forgotten(net, "a4", gone=True)
    assert {request for _, request in net.votes["a4"]} == {"feed"}


def test_voters_do_not_wait_for_each_other(tmp_path):
    """Each calls the one who is gone, and waits for its patience. Neighbours (on the ring a3 and
    a5) come first; the others have heard of their votes before they are asked."""
    net = Net(tmp_path, ["a1", "a2", "a3", "a5"])
    for pair in (("a3", "a5"), ("a1", "a2")):
        together = threading.Barrier(2)
        for name in pair:
            net.agents[name].wait = together
    asked = []

    def status(name):
        asked.append((name, len(net.votes.get("a4", ()))))
        return {"votes": {"a4": ["a3"]}} if len(asked) > 8 else {}

    for agent in net.agents.values():
        agent.now = status
    forgotten(net, "a4", gone=True)
    voters = [voter for voter, _ in net.votes["a4"]]
    assert sorted(voters[:2]) == ["a3", "a5"]
    assert sorted(voters[2:]) == ["a1", "a2"]
    assert sum(1 for name, votes in asked if name == "a1" and votes == 2) >= 2


def test_who_has_left_is_neither_asked_nor_waited_for(tmp_path):
    net = Net(tmp_path, ["a1", "a2"])
    net.status["left"] = ["a1", "a5"]
    net.report = {"state": "removed", "waiting_for": ["a3"], "suspects": []}
    error, _ = forgotten(net, "a4", gone=True)
    assert [voter for voter, _ in net.votes["a4"]] == ["a2"]
    assert "waiting for a3 (start it with" in error
    assert f"ask again with `unweave forget {net.root} a4 --gone`" in error
    net.report = {"state": "asked", "agent": "a2"}
    error, _ = forgotten(net, "a2")
    assert "waiting for a3, a4 (start it with" in error
    assert f"ask again with `unweave forget {net.root} a2`" in error
    with pytest.raises(TimedOut, match="waiting for a3, a4 "):
        audit_and_wait(net, 0.05, tell=lambda _: None)
    assert net.asked == ["a2"]


def test_nobody_is_left_to_vote(tmp_path):
    net = Net(tmp_path, ["a1"])
    net.status["left"] = ["a1"]
    error, _ = forgotten(net, "a4", gone=True)
    assert "has left the network itself" in error
    assert not net.votes


def test_all_refuse(tmp_path):
    net = Net(tmp_path, ["a1", "a2"])
    for name, agent in net.agents.items():
        agent.refuses = UnweaveError(f"{name}: it lives")
    net.agents["a2"].refuses = AgentDown("a2: does not answer")
    error, _ = forgotten(net, "a4", gone=True)
    assert error == (
        "nobody here votes that a4 is gone: a1: it lives; a2: it has stopped answering"
    )


@pytest.mark.parametrize(
    ("waiting", "said"),
    [
        (["a3"], "waiting for a3 (start it with `unweave agent {a3}`, or, if it is gone"),
        (["a2", "a3"], "waiting for a3 (start"),  # a2 runs: it is not the one to look for
        (["a2"], "waiting for a2, which runs, but has not seen the token yet"),
        (["a9"], "waiting for a9 (elsewhere: ask the operator of a9)"),
        ([], "waiting for the token."),
    ],
)
def test_who_is_waited_for_and_what_to_do(tmp_path, waiting, said):
    net = Net(tmp_path, ["a1", "a2"])
    net.report = {"state": "removed", "waiting_for": waiting, "suspects": []}
    error, lines = forgotten(net, "a1")
    assert said.format(a3=net.folders["a3"]) in error
    assert "(cafe) stands" in error
    assert any(f"{len(waiting)} attestations to come" in line for line in lines)


@pytest.mark.parametrize(
    ("keys", "state", "said"),
    [
        (["p1"], "removed", "1 record of a1 was taken out, but"),
        (["p1", "p2"], "removed", "2 records of a1 were taken out, but"),
        (["p1", "p2"], "asked", "2 records of a1 are not out in time"),
    ],
)
def test_records_are_not_the_agent(tmp_path, keys, state, said):
    """Who does as the advice says must not erase more than was asked for."""
    net = Net(tmp_path, ["a1", "a2"])
    net.report = {"state": state, "waiting_for": ["a3"], "suspects": []}
    error, lines = forgotten(net, "a1", keys=keys, repeat="--records 'my keys'")
    assert said in error
    assert f"ask again with `unweave forget {net.root} a1 --records 'my keys'`" in error
    assert {line.split(":")[0] for line in lines} == {f"forgetting {said.split('a1')[0]}a1"}
    error, _ = forgotten(net, "a1", keys=keys)
    assert f"`unweave forget {net.root} a1 --records FILE`" in error


def test_an_audit_counts_the_attestations_of_the_rest_it_waits_for(tmp_path):
    net = Net(tmp_path, ["a1", "a2", "a3"])
    net.status |= {"rest": [1, 7], "resting": "a1", "attested": 5}
    net.before = [1, 7]
    said = []
    with pytest.raises(TimedOut, match="0 of 5 agents have attested; waiting for a4, a5 "):
        audit_and_wait(net, 0.05, tell=said.append)
    assert set(said) == {"auditing: 0 of 5 have attested"}
    net.status |= {"rest": [1, 8], "attested": 4}
    with pytest.raises(TimedOut, match="4 of 5 agents have attested"):
        audit_and_wait(net, 0.05, tell=said.append)
    net.status["attested"] = 5
    assert audit_and_wait(net, 0.05, tell=said.append)["attested"] == 5


def test_who_is_voted_out_does_not_audit(tmp_path):
    net = Net(tmp_path, ["a1"])
    net.status["left"] = ["a1"]
    with pytest.raises(UnweaveError, match="a1: was declared gone by a quorum") as caught:
        audit_and_wait(net, 5.0, tell=lambda _: None)
    assert not isinstance(caught.value, TimedOut)
