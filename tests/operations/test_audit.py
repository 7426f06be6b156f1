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


class Net:
    """Two agents that rest; `heard` says who knows of which mismatches at the nth question."""

    def __init__(self, root, heard):
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
    with pytest.raises(UnweaveError, match=r"found at a1\).*has stopped"):
        audited(Net(tmp_path / "5", lambda name, asked: ["a2", "a1"] if asked > 2 else ["a2"]))
    stopped = Net(tmp_path / "6", lambda name, asked: ["a2", "a2"])
    with pytest.raises(UnweaveError, match="network has stopped"):
        audited(stopped)


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
    assert audit_failure("net", ["a1"], ["a1"]) is None


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
        return [n for n, s in net.statuses().items() if s.get("digest") != net.expected()]

    net.wait("the true sum", wrong)
    net.rest()


def test_an_audit_that_does_not_add_up_ends_with_an_error(tmp_path):
    with Processes(tmp_path / "net", agents=3, metrics=True) as net:
        net.start()
        net.rest()
        holder = net.statuses()["a1"]["parked"]
        net.stop(holder)
        changed_by_a_holder_of_the_key(net.folder(holder), another_token)
        net.start(holder)
        net.ready(holder)
        found = unweave("audit", net.root)
        assert found.code == 1
        assert "audit mismatch" in found.err
        true_sum(net)
        (name,) = net.statuses()["a1"]["mismatches"]
        assert f"found at {name})" in " ".join(found.err.split())
        again = unweave("audit", net.root)
        assert again.code == 0
        assert "The audit holds" in again.out
        assert f"found a mismatch (at {name})" in " ".join(again.out.split())
        shown = unweave("audit", net.root, "--json").json
        assert (shown["mismatches"], shown["digest"]) == ([name], net.expected())
        assert all(f"{MISMATCH} " in net.log(agent) for agent in net.names)
        with urllib.request.urlopen(f"http://127.0.0.1:{net.metrics[0]}/metrics") as page:
            assert 'unweave_mismatches{agent="a1"} 1.0\n' in page.read().decode()


def test_a_factor_that_is_not_that_of_the_data_is_learned_anew(tmp_path):
    """Also if it was written under the agent's own key. What is taken out of the token with the
    wrong one shows in the audit, and the network rebuilds itself from what was learned anew."""
    with Processes(tmp_path / "net", agents=3) as net:
        net.start()
        net.rest()
        net.stop("a2")
        changed_by_a_holder_of_the_key(net.folder("a2"), another_factor)
        net.start("a2")
        net.wait(
            "a mismatch", lambda: [n for n, s in net.statuses().items() if not s.get("mismatches")]
        )
        true_sum(net)
        assert "the stored factor is not what these data give" in net.log("a2")
        assert "the stored factor is not what" not in net.log("a1")
        before = net.statuses("a2")["a2"]["revision"]
        net.stop("a2")
        net.start("a2")
        net.rest()
        assert net.statuses("a2")["a2"]["revision"] == before  # once, and no more
        assert net.log("a2").count("the stored factor is not what these data give") == 1


def test_after_an_audit_failure_there_is_no_posterior(tmp_path):
    """Two audits that did not add up. What the text advises then works: a new network, from data
    without what was forgotten."""
    with Processes(tmp_path / "net", agents=3, metrics=True) as net:
        net.start()
        net.rest()
        for _ in range(2):
            holder = net.statuses()["a1"]["parked"]
            net.stop(holder)
            changed_by_a_holder_of_the_key(net.folder(holder), another_token)
            net.start(holder)
            net.ready(holder)
            assert unweave("audit", net.root).code == 1
            if net.statuses()["a1"]["phase"] != "audit_failed":
                true_sum(net)
        net.wait(
            "to stop",
            lambda: [n for n, s in net.statuses().items() if s["phase"] != "audit_failed"],
        )
        shown = unweave("posterior", net.root, "--json")
        assert (shown.code, shown.json["state"]) == (1, "audit_failed")
        assert not {"digest", "units", "marginals"} & shown.json.keys()
        for words in (("posterior", net.root), ("posterior", net.root, "--wait", "60")):
            told = unweave(*words)
            assert told.code == 1
            assert "two audits did not add up" in told.err
            assert "unweave audit" in told.err
            assert "unweave init" in told.err
        assert "two audits did not add up" in unweave("status", net.root).out
        for status in net.statuses().values():
            assert (status["digest"], status["complete"], status["included"]) == (None, False, [])
        with urllib.request.urlopen(f"http://127.0.0.1:{net.metrics[0]}/metrics") as page:
            text = page.read().decode()
        assert 'unweave_complete{agent="a1"} 0.0\n' in text
        assert 'unweave_included_agents{agent="a1"} 0.0\n' in text
        asked = unweave("audit", net.root)
        assert asked.code == 1
        assert "Fix: check every agent's log" in " ".join(asked.err.split())
        # To start again, or to lose one store, lifts nothing.
        net.stop(*net.names)
        stopped = unweave("posterior", net.root, "--json")
        assert (stopped.code, stopped.json["state"]) == (1, "audit_failed")
        net.lose("a2")
        net.start()
        net.wait(
            "to stop",
            lambda: [n for n in net.names if net.statuses(n)[n]["phase"] != "audit_failed"],
        )
        net.stop(*net.names)
        expected = net.expected()
    with Processes(tmp_path / "again", agents=3) as again:
        for name in again.names:
            again.rows[name] = dict(net.rows[name])
            again.append(name, [])
        again.start()
        assert again.settled() == {expected}
