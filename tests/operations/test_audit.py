"""An audit that does not add up is told, and ends the command that asked for it."""

import urllib.request

import pytest
from tests.support.commands import run_command as unweave
from tests.support.processes import Processes

from unweave.errors import UnweaveError
from unweave.node import agent as serve
from unweave.node.activity import MISMATCH
from unweave.node.config import AgentFolder
from unweave.node.storage.sqlite import open_store
from unweave.operations.erase import audit_and_wait, audit_failure, mismatches
from unweave.protocol.state import Parked
from unweave.protocol.statements import AuditMismatch


class Net:
    """Two agents that rest; `heard` says who knows of which mismatches at the nth question."""

    def __init__(self, root, heard, phase="parked"):
        self.phase = phase
        made = Processes(root / "net", agents=2)
        self.root, self.folders = made.root, {name: made.folder(name) for name in made.names}
        self.manifest = AgentFolder.read(made.folder("a1")).manifest
        self.heard, self.asked, self.down = heard, 0, []
        self.agents = dict.fromkeys(made.names, self)
        self.name = "a1"

    def any(self):
        return self

    def ask(self, do, within=None):
        assert do == "wake"
        return {"before": [1]}

    def status(self, name):
        rest = {"departed": [], "parked_stamp": [2], "parked": "a1", "attested": 2}
        rest["phase"] = self.phase
        return {"name": name, "others": {}, **rest, "mismatches": self.heard(name, self.asked)}

    def statuses(self, within=None):
        self.asked += 1
        return {name: self.status(name) for name in self.folders}

    def again(self, name, do, within=None):
        self.asked += 1
        return {"status": self.status(name)}


def audited(net, said=None):
    return audit_and_wait(net, 0.3, tell=[].append if said is None else said.append)


def test_a_mismatch_while_the_audit_waits_is_an_error(tmp_path):
    assert audited(Net(tmp_path / "1", lambda name, asked: []))["attested"] == 2
    old = Net(tmp_path / "2", lambda name, asked: ["a2"])
    assert audited(old)["mismatches"] == ["a2"]  # it was there before
    for heard in (
        lambda name, asked: ["a2"] * (asked > 2),
        lambda name, asked: ["a2"] * (asked > 2 and name == "a2"),  # who waits has not heard of it
    ):
        net = Net(tmp_path / str(id(heard)), heard)
        with pytest.raises(UnweaveError, match=r"audit mismatch.*found at a2.*rebuilds") as caught:
            audited(net)
        assert caught.value.exit_code == 1
    with pytest.raises(UnweaveError, match=r"found at a1\).*rebuilds"):
        audited(Net(tmp_path / "5", lambda name, asked: ["a2", "a1"] if asked > 2 else ["a2"]))
    halted = Net(tmp_path / "6", lambda name, asked: ["a1", "a2"], phase="audit_failed")
    with pytest.raises(UnweaveError, match="network has stopped"):
        audited(halted)


def test_a_mismatch_that_is_not_in_time_is_still_no_timeout(tmp_path):
    net = Net(tmp_path, lambda name, asked: ["a2"] * (asked > 2 and name == "a2"))
    net.ask = lambda do, within=None: {"before": [9]}
    with pytest.raises(UnweaveError, match="audit mismatch"):
        audited(net)
    net.asked, net.heard, said = 0, lambda name, asked: ["a2"] * (asked > 2), []
    with pytest.raises(UnweaveError, match="audit mismatch"):
        audited(net, said)
    assert said == []  # at once, if who is asked has heard of it


def test_records_are_counted_once():
    assert mismatches([{"mismatches": ["a1"]}, {"mismatches": ["a1", "a2"]}, {}]) == ["a1", "a2"]
    assert mismatches([{"mismatches": ["a1", "a1"]}, {"mismatches": ["a1"]}]) == ["a1", "a1"]
    assert audit_failure("net", ["a1"], ["a1"], stopped=False) is None


def changed_by_a_holder_of_the_key(path, change) -> None:
    """Another state in the store, rightly sealed."""
    folder = AgentFolder.read(path)
    with open_store(folder, serve.open_identity(folder)) as store:
        before = store.load(folder.terms, folder.me)
        after = before.fork()
        change(after)
        store.commit(before, after)


def another_token(state):
    token = state.token.role.token._replace(eta=state.token.role.token.eta + 2**40)
    state.token.role, state.token.copy = Parked(token), token


def another_factor(state):
    current, *older = state.own.factors
    state.own.factors = (current._replace(units=current.units + 2**40), *older)


def true_sum(net):
    def wrong():
        return [n for n in net.statuses() if net.digest(n) != net.expected()]

    net.wait("the true sum", wrong)
    net.rest()


def mismatch(name, net, departed=()):
    """A mismatch that this agent has found and signed."""
    folder = AgentFolder.read(net.folder(name))
    statement = AuditMismatch.write(
        folder.me,
        serve.open_identity(folder).sign,
        network_id=folder.terms.network_id.hex(),
        agent=folder.me,
        stamp=[1, 0, 0, 1, 0],
        departed=list(departed),
    )

    def record(state):
        state.known.mismatches |= {statement}

    return record


def changed(net, name, change):
    """Change what a stopped agent has stored, and start it again."""
    net.stop(name)
    changed_by_a_holder_of_the_key(net.folder(name), change)
    net.start(name)
    net.ready(name)


def test_an_earlier_mismatch_is_told(tmp_path):
    with Processes(tmp_path / "net", agents=3, metrics=True) as net:
        net.start()
        net.rest()
        changed(net, "a2", mismatch("a2", net))
        net.wait(
            "the mismatch",
            lambda: [n for n, s in net.statuses().items() if s.get("mismatches") != ["a2"]],
        )
        again = unweave("audit", net.root)
        assert again.code == 0
        assert "The audit holds" in again.out
        assert "found a mismatch (at a2)" in " ".join(again.out.split())
        shown = unweave("audit", net.root, "--json").json
        assert shown["mismatches"] == ["a2"]
        assert {s["commitment"] for s in net.statuses().values()} == {shown["commitment"]}
        assert net.settled() == {net.expected()}
        assert all(f"{MISMATCH} " in net.log(agent) for agent in ("a1", "a3"))
        with urllib.request.urlopen(f"http://127.0.0.1:{net.metrics[0]}/metrics") as page:
            assert 'unweave_mismatches{agent="a1"} 1.0\n' in page.read().decode()


def test_an_agent_does_not_send_what_its_disk_has_made_wrong(tmp_path):
    """Also if it was written under the agent's own key: a wrong token or factor would be a proof
    against the agent. It starts from nothing, and the sum is right again without a mismatch."""
    with Processes(tmp_path / "net", agents=3) as net:
        net.start()
        net.rest()
        holder = net.statuses()["a1"]["parked"]
        changed(net, holder, another_token)
        assert unweave("audit", net.root).code == 0
        true_sum(net)
        assert "does not follow from the one" in net.log(holder)
        changed(net, "a2", another_factor)
        net.wait("a new factor", lambda: "the stored factor is not what" not in net.log("a2"))
        true_sum(net)
        assert "the stored factor is not what" not in net.log("a1")
        before = net.statuses("a2")["a2"]["revision"]
        net.stop("a2")
        net.start("a2")
        net.rest()
        assert net.statuses("a2")["a2"]["revision"] == before  # once, and no more
        assert net.log("a2").count("the stored factor is not what these data give") == 1
        assert not any(s["mismatches"] or s["lies"] for s in net.statuses().values())


def test_a_network_that_has_stopped_serves_no_posterior_and_goes_on_after_an_expulsion(tmp_path):
    """Two agents found a mismatch. One agent alone cannot stop the network, however often it says
    so; a majority that votes another agent out starts it again."""
    with Processes(tmp_path / "net", agents=4, metrics=True) as net:
        net.start()
        net.rest()
        changed(net, "a2", mismatch("a2", net))
        true_sum(net)
        changed(net, "a3", mismatch("a3", net))
        net.wait(
            "to stop",
            lambda: [n for n, s in net.statuses().items() if s["phase"] != "audit_failed"],
        )
        told = unweave("forget", net.root, "a1", "--timeout", "20")
        assert told.code == 1
        assert "stays valid, but waits: two audits did not add up" in " ".join(told.err.split())
        shown = unweave("posterior", net.root, "--json")
        assert (shown.code, shown.json["state"]) == (1, "audit_failed")
        assert not {"digest", "units", "marginals"} & shown.json.keys()
        for words in (("posterior", net.root), ("posterior", net.root, "--wait", "60")):
            told = unweave(*words)
            assert told.code == 1
            assert "two audits did not add up" in told.err
            assert "unweave vote AGENT_DIR NAME --lying" in " ".join(told.err.split())
        assert "two audits did not add up" in unweave("status", net.root).out
        for status in net.statuses().values():
            assert (status["commitment"], status["complete"], status["included"]) == (
                None,
                False,
                [],
            )
        with urllib.request.urlopen(f"http://127.0.0.1:{net.metrics[0]}/metrics") as page:
            text = page.read().decode()
        assert 'unweave_complete{agent="a1"} 0.0\n' in text
        assert 'unweave_included_agents{agent="a1"} 0.0\n' in text
        asked = unweave("audit", net.root)
        assert asked.code == 1
        assert "the network has stopped" in " ".join(asked.err.split())
        # To start again lifts nothing.
        net.stop(*net.names)
        stopped = unweave("posterior", net.root, "--json")
        assert (stopped.code, stopped.json["state"]) == (1, "audit_failed")
        net.start()
        net.wait(
            "to stop again",
            lambda: [
                n
                for n, s in net.statuses().items()
                if s["phase"] != "audit_failed" or not s["confirmed"]
            ],
        )
        for voter in ("a1", "a2", "a3"):
            assert unweave("vote", net.folder(voter), "a4", "--lying").code == 0
        done = unweave("forget", net.root, "a1", "--timeout", "60")
        assert done.code == 0, done.err
        statuses = net.statuses("a1", "a2", "a3")
        assert {s["phase"] for s in statuses.values()} <= {"idle", "parked"}
        assert {tuple(s["included"]) for s in statuses.values()} == {("a2", "a3")}
