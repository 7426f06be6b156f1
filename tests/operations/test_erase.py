"""Waiting for an erasure or an audit: errors name the missing agents, the causes and the fix."""

import threading
import time

import pytest
from tests.support.processes import Processes

from unweave.errors import UnweaveError
from unweave.graph import Topology
from unweave.node.api.client import AgentDown
from unweave.node.process import RESTART_FILE
from unweave.operations import erase
from unweave.operations.cluster import Cluster, TimedOut
from unweave.operations.diagnose import cut_apart, parts_without, stall_report
from unweave.operations.erase import audit_and_wait, erase_and_wait


class Agent:
    """Answers as it is told; a vote is noted, or refused."""

    pid = None

    def __init__(self, net, name, **status):
        self.net, self.name = net, name
        self.status = status
        self.refuses = None
        self.wait = None
        self.listens = None  # may refuse
        self.now = None  # what its status says beside, asked each time

    def ask(self, do, **request):
        if do == "status":
            now = {} if self.now is None else self.now(self.name)
            return {"status": {**self.net.status, "name": self.name, **self.status, **now}}
        if do == "vote":
            if self.wait is not None:
                self.wait.wait(20.0)
            if self.listens is not None:
                self.listens()
            if self.refuses is not None:
                raise self.refuses
            self.net.votes.setdefault(request["agent"], []).append((self.name, request["request"]))
            return {"request": request["request"]}
        if do == "erase":
            return {"request": "cafe"}
        if do == "wake":
            self.net.asked.append(self.name)
            return {"before": self.net.before}
        assert do == "erasure"
        return {"erasure": self.net.report}


class Net(Cluster):
    """A cluster without sockets: five agents, of which some answer."""

    def __init__(self, root, answering, agents=5, **more):
        made = Processes(root / "net", agents=agents, **more)
        self.root = made.root
        self.folders = {name: made.folder(name) for name in made.names}
        self.votes = {}
        self.report = {"state": "voting", "votes": 2, "quorum": 3}
        self.status = {"others": {name: {} for name in made.names}, "departed": [], "suspects": []}
        self.status |= {"parked_stamp": None, "parked": None, "attested": 0}
        self.asked = []
        self.silent = {}
        self.before = None
        self.agents = {name: Agent(self, name) for name in answering}

    def _connect(self, name):
        raise AgentDown(name)


def forgotten(net, name, **how):
    said = []
    ask = {"keys": None, "departed": False, "timeout": 0.05, "tell": said.append, **how}
    with pytest.raises(UnweaveError) as caught:
        erase_and_wait(net, name, **ask)
    return str(caught.value), said


def test_votes_are_for_one_request_and_told_by_name(tmp_path):
    net = Net(tmp_path, ["a1", "a2", "a3"])
    net.agents["a3"].refuses = UnweaveError("a3: a4 was heard 2 s ago: it has not departed")
    net.status["votes"] = {"a4": ["a1", "a2"]}
    error, said = forgotten(net, "a4", departed=True)
    assert sorted(voter for voter, _ in net.votes["a4"]) == ["a1", "a2"]
    assert len({request for _, request in net.votes["a4"]}) == 1
    assert "2 of 3 votes that a4 has departed (a1, a2)" in error
    assert "a3: a4 was heard 2 s ago" in error
    assert "No vote from a5" in error
    assert f"unweave forget {net.root} a4 --departed" in error
    assert any("a3: a4 was heard" in line for line in said)


def test_nobody_is_advised_to_remove_an_agent_that_replaces_its_process(tmp_path):
    net = Net(tmp_path, ["a1", "a2", "a3"])
    (net.folders["a4"] / RESTART_FILE).touch()
    found = stall_report(net, within=0.05)
    assert "a4 (replaces its process by itself; nothing to do)" in found
    assert "a4 --departed" not in found
    assert "a5 --departed" in found


def test_a_request_that_somebody_voted_for_is_joined(tmp_path):
    net = Net(tmp_path, ["a1", "a2"])
    net.agents["a2"].status["departed_requests"] = {"a4": "feed"}
    forgotten(net, "a4", departed=True)
    assert {request for _, request in net.votes["a4"]} == {"feed"}


def test_voters_do_not_wait_for_each_other(tmp_path):
    """Each calls the departed agent, and waits for its timeouts. Neighbours (on the ring a3 and a5)
    come first; the others have heard of their votes before they are asked."""
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
    forgotten(net, "a4", departed=True, timeout=1.5)
    voters = [voter for voter, _ in net.votes["a4"]]
    assert sorted(voters[:2]) == ["a3", "a5"]
    assert sorted(voters[2:]) == ["a1", "a2"]
    assert sum(1 for name, votes in asked if name == "a1" and votes == 2) >= 2


def test_a_departed_agent_is_neither_asked_nor_waited_for(tmp_path):
    net = Net(tmp_path, ["a1", "a2"])
    net.status["departed"] = ["a1", "a5"]
    net.report = {"state": "removed", "waiting_for": ["a3"], "suspects": []}
    error, _ = forgotten(net, "a4", departed=True)
    assert [voter for voter, _ in net.votes["a4"]] == ["a2"]
    assert "waiting for a3 (start it with" in error
    assert f"repeat `unweave forget {net.root} a4 --departed`" in error
    net.report = {"state": "asked", "agent": "a2"}
    error, _ = forgotten(net, "a2")
    assert "waiting for a3, a4 (start it with" in error
    assert f"repeat `unweave forget {net.root} a2`" in error
    with pytest.raises(TimedOut, match="waiting for a3, a4 "):
        audit_and_wait(net, 0.05, tell=lambda _: None)
    assert net.asked == ["a2"]


def test_nobody_is_left_to_vote(tmp_path):
    net = Net(tmp_path, ["a1"])
    net.status["departed"] = ["a1"]
    error, _ = forgotten(net, "a4", departed=True)
    assert "those that answer have departed themselves" in error
    assert not net.votes


def test_all_refuse(tmp_path):
    net = Net(tmp_path, ["a1", "a2"])
    for name, agent in net.agents.items():
        agent.refuses = UnweaveError(f"{name}: it lives")
    net.agents["a2"].refuses = AgentDown("a2: does not answer")
    error, _ = forgotten(net, "a4", departed=True)
    reasons = "a1: it lives; a2: it has stopped answering"
    assert error.startswith(f"no votes that a4 has departed: {reasons}. Fix: stop a4, or repeat")


@pytest.mark.parametrize(
    ("waiting", "said"),
    [
        (["a3"], "waiting for a3 (start it with `unweave agent {a3}`, or, if it will never run"),
        (["a2", "a3"], "waiting for a3 (start"),  # a2 runs: it is not the one to look for
        (["a2"], "waiting for a2, which runs, but has not seen the token yet"),
        (["a9"], "waiting for a9 (on another machine: ask the operator of a9)"),
        ([], "waiting for a3, a4, a5 (start it with `unweave agent {a3}`"),
    ],
)
def test_who_is_waited_for_and_what_to_do(tmp_path, waiting, said):
    net = Net(tmp_path, ["a1", "a2"])
    net.report = {"state": "removed", "waiting_for": waiting, "suspects": []}
    error, lines = forgotten(net, "a1")
    assert said.format(a3=net.folders["a3"]) in error
    assert "(cafe) stays valid" in error
    number = "1 attestation" if len(waiting) == 1 else f"{len(waiting)} attestations"
    assert any(f"removed from the token; {number} missing" in line for line in lines)


@pytest.mark.parametrize(
    ("keys", "state", "said"),
    [
        (["p1"], "removed", "1 record of a1 was removed, but"),
        (["p1", "p2"], "removed", "2 records of a1 were removed, but"),
        (["p1", "p2"], "asked", "2 records of a1 are not removed in time"),
    ],
)
def test_records_are_not_the_agent(tmp_path, keys, state, said):
    """Who does as the advice says must not erase more than was asked for."""
    net = Net(tmp_path, ["a1", "a2"])
    net.report = {"state": state, "waiting_for": ["a3"], "suspects": []}
    error, lines = forgotten(net, "a1", keys=keys, repeat="--records 'my keys'")
    assert said in error
    assert f"repeat `unweave forget {net.root} a1 --records 'my keys'`" in error
    assert {line.split(":")[0] for line in lines} == {f"forgetting {said.split('a1')[0]}a1"}
    error, _ = forgotten(net, "a1", keys=keys)
    assert f"`unweave forget {net.root} a1 --records FILE`" in error


def test_an_audit_counts_the_attestations_of_its_own_round(tmp_path):
    net = Net(tmp_path, ["a1", "a2", "a3"])
    net.status |= {"parked_stamp": [1, 7], "parked": "a1", "attested": 5}
    net.before = [1, 7]
    said = []
    with pytest.raises(TimedOut, match="0 of 5 agents have attested; waiting for a4, a5 "):
        audit_and_wait(net, 0.05, tell=said.append)
    assert set(said) == {"auditing: 0 of 5 have attested"}
    net.status |= {"parked_stamp": [1, 8], "attested": 4}
    with pytest.raises(TimedOut, match="4 of 5 agents have attested"):
        audit_and_wait(net, 0.05, tell=said.append)
    net.status["attested"] = 5
    assert audit_and_wait(net, 0.05, tell=said.append)["attested"] == 5


def test_a_request_without_progress_names_the_agent_that_it_waits_for(tmp_path, monkeypatch):
    """All attestations are missing, and one agent is the cause."""
    net = Net(tmp_path, ["a1", "a2", "a3", "a4"])
    net.report = {"state": "removed", "waiting_for": ["a1", "a2", "a3", "a4", "a5"]}
    monkeypatch.setattr(erase, "_QUIET", 60.0)
    _, said = forgotten(net, "a1")
    assert not any("no progress" in line for line in said)
    monkeypatch.setattr(erase, "_QUIET", 0.0)
    _, said = forgotten(net, "a1")
    assert "5 attestations missing: a1, a2, a3, a4, a5; no progress for 0 s" in said[-1]
    assert "waiting for a5 (start it with `unweave agent " in said[-1]
    assert "--departed`" in said[-1]


class Stopped(Agent):
    """Takes every call, and answers none; notes how long it was waited for."""

    def __init__(self, net, name):
        super().__init__(net, name)
        self.waits = []

    def ask(self, do, *, within=None, **request):
        assert within is not None, "a wait without a limit"
        self.waits.append(within)
        time.sleep(within)
        raise AgentDown(self.name)


@pytest.mark.parametrize("ask", ["audit", "forget", "departed"])
def test_a_limit_is_kept_although_somebody_is_frozen(tmp_path, ask):
    """It answers nobody: all the waits for it together are within the limit, and one last look."""
    net = Net(tmp_path, ["a1", "a3", "a4", "a5"])
    frozen = net.agents["a2"] = Stopped(net, "a2")
    net._connect = lambda name: net.agents.setdefault(name, frozen)
    net.report = {"state": "removed", "waiting_for": ["a1", "a2"]}
    with pytest.raises(TimedOut) as caught:
        if ask == "audit":
            audit_and_wait(net, 1.0, tell=lambda _: None)
        else:
            departed = ask == "departed"
            name = "a3" if departed else "a1"
            if departed:
                del net.agents["a3"]
                net._connect = lambda n: net.agents.setdefault(n, frozen) if n == "a2" else down(n)
            how = {"keys": None, "departed": departed, "tell": lambda _: None}
            erase_and_wait(net, name, timeout=1.0, **how)
    assert sum(frozen.waits) <= 1.0 + 1.0 + 1.5
    assert "waiting for a2 (it runs, but does not answer: frozen, or very busy" in str(caught.value)


def down(name):
    raise AgentDown(name)


def test_what_the_others_know_of_one_elsewhere(tmp_path):
    """At the limit everybody is asked: one of them suspects the one that the asker does not."""
    net = Net(tmp_path, ["a1", "a2", "a3", "a4"])
    del net.folders["a5"]
    net.agents["a4"].status |= {
        "suspects": ["a5"],
        "others": {"a5": {"heard_seconds_ago": 53.2, "neighbour": True}},
    }
    net.report = {"state": "removed", "waiting_for": ["a1", "a2", "a5"]}
    error, _ = forgotten(net, "a2")
    where = "waiting for a5 (on another machine, not heard by a4 for 53 s"
    assert f"{where}: ask the operator of a5" in error
    net.report = {"state": "asked", "agent": "a2"}
    error, _ = forgotten(net, "a2")
    assert where in error
    net.agents["a4"].status["suspects"] = ["a1"]
    error, _ = forgotten(net, "a2")
    assert "waiting for a1 (answers, but is not heard by a4)" in error


def test_who_has_come_back_meanwhile_is_not_to_be_started(tmp_path):
    net = Net(tmp_path, ["a1", "a2", "a4", "a5"])
    net._connect = lambda name: net.agents.setdefault(name, Agent(net, name))
    net.report = {"state": "removed", "waiting_for": ["a3"]}
    error, _ = forgotten(net, "a1")
    assert "waiting for a3, which runs, but has not seen the token yet." in error


def test_an_accepted_connection_is_no_answer(tmp_path):
    """A frozen agent does not count as answering, and the advice is not to start it again."""
    net = Net(tmp_path, ["a1", "a2", "a3", "a5"])
    net.agents["a4"] = Stopped(net, "a4")
    net.status["votes"] = {"a4": ["a1", "a2", "a3", "a5"]}
    error, said = forgotten(net, "a4", departed=True)
    assert len(net.votes["a4"]) == 4
    assert said[0].startswith("forgetting a4: a4 may come back: it runs, but does not answer")
    assert "has not departed" not in error
    net.agents["a4"] = Stopped(net, "a4")
    net.silent.clear()
    error, _ = forgotten(net, "a4")
    assert error.startswith("a4: it runs, but does not answer: frozen")
    assert error.endswith("the request was not sent")


def test_who_is_voted_out_does_not_audit(tmp_path):
    net = Net(tmp_path, ["a1"])
    net.status["departed"] = ["a1"]
    with pytest.raises(UnweaveError, match="a1: was declared departed by a quorum") as caught:
        audit_and_wait(net, 5.0, tell=lambda _: None)
    assert not isinstance(caught.value, TimedOut)


QUICK = {"welcome": 0.1, "resend": 0.1, "ack": 0.1, "alive": 0.1, "loss": 2.0}


class Hearing:
    """Neighbours that refuse while they have heard a4 lately, as agents do."""

    def __init__(self, net, names, ago, *, lives=False):
        self.net, self.lives = net, lives
        self.last = time.monotonic() - ago
        for name in names:
            net.agents[name].now = self.status
            net.agents[name].listens = self.vote
        self.asked = 0

    def status(self, name):
        ago = round(time.monotonic() - self.last, 1)
        return {"others": {"a4": {"heard_seconds_ago": ago}}, "votes": {"a4": ["a3"]}}

    def vote(self):
        self.asked += 1
        if self.lives:
            time.sleep(0.5)
            self.last = time.monotonic()
        ago = time.monotonic() - self.last
        if ago < QUICK["loss"]:
            raise UnweaveError(f"a4 was heard {ago:.0f} s ago: it has not departed")


def test_votes_wait_until_nothing_was_heard_for_long_enough(tmp_path):
    net = Net(tmp_path, ["a1", "a2", "a3", "a5"], timeouts=QUICK)
    heard = Hearing(net, net.agents, 0.5)
    _, said = forgotten(net, "a4", departed=True, timeout=3.0)
    assert sorted(voter for voter, _ in net.votes["a4"]) == ["a1", "a2", "a3", "a5"]
    assert len({request for _, request in net.votes["a4"]}) == 1
    assert heard.asked == 8
    assert "for 2 s (timeouts.loss of network.toml): asking again in " in said[0]
    assert "a1, a2, a3, a5: a4 was heard" in said[0] or "a3, a5, a1, a2: a4 was heard" in said[0]


def test_votes_that_are_too_early_say_when_to_ask_again(tmp_path):
    net = Net(tmp_path, ["a1", "a2", "a3", "a5"], timeouts=QUICK)
    Hearing(net, net.agents, 0.0)
    error, _ = forgotten(net, "a4", departed=True, timeout=0.2)
    assert "timeouts.loss of network.toml). Fix: run the command again in " in error
    assert not net.votes


def test_a_voter_that_dies_meanwhile_is_not_waited_for(tmp_path):
    net = Net(tmp_path, ["a1", "a2", "a3", "a5"], timeouts=QUICK)
    heard = Hearing(net, net.agents, 0.5)
    dies = net.agents["a5"]

    def asked():
        dies.refuses = AgentDown("a5")

    dies.listens = asked
    error, _ = forgotten(net, "a4", departed=True, timeout=3.0)
    assert sorted(voter for voter, _ in net.votes["a4"]) == ["a1", "a2", "a3"]
    assert heard.asked == 6
    assert "a5: it has stopped answering" in error


def test_who_lives_elsewhere_is_not_waited_for(tmp_path):
    net = Net(tmp_path, ["a1", "a2", "a3", "a5"], timeouts=QUICK)
    heard = Hearing(net, net.agents, 0.5, lives=True)
    error, said = forgotten(net, "a4", departed=True, timeout=60.0)
    assert error.startswith("no votes that a4 has departed: ")
    assert heard.asked == 4
    assert not said


def test_a_majority_does_not_wait_for_the_last_vote(tmp_path):
    net = Net(tmp_path, ["a1", "a2", "a3", "a5"], timeouts=QUICK)
    heard = Hearing(net, ["a5"], 0.0)
    for name in ("a1", "a2", "a3"):
        net.agents[name].status["votes"] = {"a4": ["a3"]}
    forgotten(net, "a4", departed=True)
    assert heard.asked == 1


def test_the_dead_cut_the_others_apart(tmp_path):
    net = Net(tmp_path, ["a1", "a3", "a4", "a6", "a7"], agents=7)
    net.status["votes"] = {"a2": ["a1", "a3"]}
    error, said = forgotten(net, "a2", departed=True)
    assert "without a2, a5 the remaining agents are not connected" in error
    assert "(a1, a6, a7 | a3, a4), so votes and the token cannot reach all of them" in error
    assert f"start one of a2, a5 again (`unweave agent {net.folders['a2']}`)" in error
    assert "make a new network" in error
    assert sum("not connected" in line for line in said) == 1
    net.agents["a5"] = Agent(net, "a5")
    error, said = forgotten(net, "a2", departed=True)
    assert "not connected" not in error


def test_parts_of_a_graph():
    path = Topology(5, [(0, 1), (1, 2), (2, 3), (3, 4)])
    assert parts_without(path, set()) == [["a1", "a2", "a3", "a4", "a5"]]
    assert parts_without(path, {"a1", "a5"}) == [["a2", "a3", "a4"]]
    assert parts_without(path, {"a2", "a4"}) == [["a1"], ["a3"], ["a5"]]
    assert "start a2, a4 again (`unweave agent AGENT_DIR`)" in cut_apart(
        path, set(), {"a2", "a4"}, {}
    )
    assert "start a2 again" in cut_apart(path, {"a4", "a5"}, {"a2"}, {})
    assert cut_apart(path, {"a3"}, set(), {}).endswith("(`unweave init`)")
