"""What the commands say of agents that were forgotten, have departed, are down, or refuse."""

from contextlib import contextmanager
from pathlib import Path

import pytest

from unweave.errors import DataError
from unweave.manifest import Manifest
from unweave.node.api.client import AgentDown
from unweave.node.api.report import DEPARTED, NO_TOKEN
from unweave.operations import cluster
from unweave.operations import tables as _tables  # noqa: F401 — takes the real open_cluster first
from unweave.operations.cluster import Cluster
from unweave.operations.votes import _early


class Agent:
    """Answers from a table; an error is raised."""

    pid = None

    def __init__(self, name, answers):
        self.name, self.answers = name, answers

    def ask(self, do, **request):
        answer = self.answers[do]
        if isinstance(answer, Exception):
            raise answer
        return answer


class Net(Cluster):
    """Agents a1 … a5 without sockets; those with answers run."""

    def __init__(self, root, answers, folders=("a1", "a2", "a3", "a4", "a5")):
        self.root = root
        self.folders = {name: root / "agents" / name for name in folders}
        self.silent = {}
        self.agents = {name: Agent(name, of) for name, of in answers.items()}

    def _connect(self, name):
        raise AgentDown(name)


STATUS = {
    "phase": "idle",
    "pid": 1,
    "departed": ["a4"],
    "erased": ["a2"],
    "included": ["a1", "a3", "a5"],
    "complete": True,
}


@pytest.fixture
def run(unweave, monkeypatch):
    def run(command, answers, *words, root=Path("net"), width=200, **how):
        net = Net(root, answers, **how)

        @contextmanager
        def fleet(folder, timeout=10.0):
            yield net

        monkeypatch.setattr(cluster, "open_cluster", fleet)
        return unweave(command, "net", *words, width=width)

    return run


def test_who_is_out_has_no_influence(run):
    told = {"a1": 0.0, "a2": 0.5, "a3": 0.25, "a4": None, "a5": 2.0}
    known = {"influence": {"influence": told}, "status": {"status": STATUS}}
    answers = dict.fromkeys(("a1", "a2", "a3"), known)
    done = run("influence", answers, "--json")
    assert done.code == 0
    assert done.json == {"influence": {"a5": 2.0, "a3": 0.25, "a1": 0.0}, "no_answer": ["a5"]}
    assert list(done.json["influence"]) == ["a5", "a3", "a1"]
    text = run("influence", answers).out
    assert "no answer; last published" in text
    assert "a2" not in text
    assert "a4" not in text
    del told["a5"]  # it has published nothing
    assert run("influence", answers, "--json").json["no_answer"] == ["a5"]
    assert "no answer" in run("influence", answers).out
    told["a5"] = 2.0  # asked at one agent: the others may well run
    alone = run("influence", {"a1": known}, "--json", folders=("a1",))
    assert alone.json["no_answer"] == []


def test_a_departed_agent_is_not_down(run):
    answers = {name: {"status": {"status": STATUS}} for name in ("a1", "a2", "a3", "a5")}
    done = run("status", answers)
    assert done.code == 0
    assert "down" not in done.out
    assert any("a4" in row and " departed " in row for row in done.out.splitlines())
    del answers["a5"]
    done = run("status", answers, "--json")
    assert done.code == 1
    assert (done.json["down"], done.json["departed"]) == (["a5"], ["a4"])


def test_one_bad_shard_does_not_hide_the_others(run):
    status = {"status": {"status": STATUS}}
    answers = {
        "a1": status | {"learn": {"changed": True}},
        "a2": status | {"learn": {"changed": False}},
        "a3": status | {"learn": DataError("a3: row 7 is no number")},
        "a4": status | {"learn": {"changed": False}},
    }
    done = run("learn", answers)
    assert done.code == DataError.exit_code
    assert done.out.splitlines() == [
        "a1: new data, added at the next visit",
        "a2: was forgotten: its data are not read",
        "a3: refused: row 7 is no number",
        "a4: was declared departed by a quorum: it takes part no more",
        "a5: does not answer; it will read its data when it starts",
    ]
    done = run("learn", answers, "--json")
    assert done.code == DataError.exit_code
    assert done.json["changed"] == {"a1": True, "a2": False, "a4": False}
    assert done.json["refused"] == {"a3": "a3: row 7 is no number"}


def test_who_was_voted_out_is_not_waited_for(run, monkeypatch):
    left = {"posterior": {"state": "departed", "why": DEPARTED}}

    def once(*_):
        yield 1.0
        raise AssertionError("it looked a second time")

    monkeypatch.setattr(cluster, "wait_until", once)
    done = run("posterior", {"a4": {"posterior": left}}, "--wait", "500", folders=("a4",))
    assert done.code == 1
    assert "a4: was declared departed by a quorum: it takes part no more" in done.err
    done = run("posterior", {"a4": {"posterior": left}}, "--wait", "500", "--json")
    assert (done.code, done.json["state"]) == (1, "departed")


def test_a_fit_is_waited_for(run, monkeypatch):
    row = {"name": "x", "mean": 1.0, "sd": 1.0, "low": 0.0, "high": 2.0}
    found = {"state": "complete", "missing": [], "included": ["a1"], "digest": "d", "model": "m"}
    answers = {"a1": {"posterior": {"posterior": found | {"marginals": [row], "fitting": 7}}}}
    looks = []

    def thrice(*_):
        for look in range(3):
            looks.append(look)
            yield 1.0
            if look == 1:
                answers["a1"]["posterior"]["posterior"]["fitting"] = None

    monkeypatch.setattr(cluster, "wait_until", thrice)
    done = run("posterior", answers, "--wait", "500", folders=("a1",))
    assert (done.code, looks) == (0, [0, 1, 2])
    assert "still fitting" not in done.out
    monkeypatch.setattr(cluster, "wait_until", lambda *_: iter((1.0, 0.5)))
    answers["a1"]["posterior"]["posterior"]["fitting"] = 9
    done = run("posterior", answers, "--wait", "1", folders=("a1",))
    assert "still fitting: pass 9" in done.out


def test_the_newest_whole_sum_is_shown(run):
    """By the stamp of its token, whoever has it, and in whatever order they are asked."""
    row = {"name": "x", "mean": 1.0, "sd": 1.0, "low": 0.0, "high": 2.0}
    base = {"missing": [], "included": ["a1", "a2"], "model": "m", "fitting": None}
    base |= {"marginals": [row], "state": "complete"}
    old = base | {"digest": "old" * 20, "stamp": [1, 0, 7, 90, 1], "included": ["a1", "a2", "a3"]}
    new = base | {"digest": "new" * 20, "stamp": [1, 0, 7, 101, 1]}
    part = new | {"digest": "part" * 20, "stamp": [2, 0, 7, 1, 1], "state": "incomplete"}
    for order in ((old, new, part), (part, new, old), (new, old, part)):
        answers = {f"a{k}": {"posterior": {"posterior": r}} for k, r in enumerate(order, 1)}
        for agent in answers.values():
            agent["status"] = {"status": STATUS}
        done = run("posterior", answers, "--json", folders=tuple(answers))
        assert (done.code, done.json["digest"]) == (0, new["digest"])
        assert done.json["agreed"] is False
        (holder,) = done.json["known_to"]
        text = run("posterior", answers, folders=tuple(answers)).out
        assert f"{holder}: this sum, the newest; not all agents have it yet" in text
        assert "another sum, oldoldoldold" in text
    waits = new | {"stamp": [1, 0, 7, 102, 1], "state": "unconfirmed", "digest": "next" * 16}
    answers = {"a1": {"posterior": {"posterior": new}}, "a2": {"posterior": {"posterior": waits}}}
    assert run("posterior", answers, "--json").json["digest"] == waits["digest"]
    same = {name: {"posterior": {"posterior": new}} for name in ("a1", "a2")}
    assert "not all agents" not in run("posterior", same).out


def test_addresses_are_shown_in_a_narrow_terminal_and_of_those_that_are_down(
    run, unweave, tmp_path
):
    root = tmp_path / "net"
    assert unweave("init", root, "--agents", "5").code == 0
    entries = Manifest.parse((root / "network.toml").read_bytes()).entries
    alive = {"status": {"status": STATUS | {"address": "somewhere:7400", "pid": 4711}}}
    for width in (80, 160):
        done = run("status", {"a1": alive}, root=root, width=width)
        assert "somewhere:7400" in done.out
        assert "4711" in done.out
        for entry in entries[1:]:
            assert entry.address in done.out
        assert max(map(len, done.out.splitlines())) <= width


def test_who_opens_the_first_token_is_named(run, unweave, tmp_path):
    root = tmp_path / "net"
    assert unweave("init", root, "--agents", "5").code == 0
    terms = Manifest.parse((root / "network.toml").read_bytes()).terms()
    first = terms.name(terms.genesis)
    unknown = {"posterior": {"posterior": {"state": "unknown", "why": NO_TOKEN}}}
    heard = {"neighbour": True, "heard_seconds_ago": None}
    known = {"others": dict.fromkeys(terms.topology.agents, heard)}
    runs = unknown | {"status": {"status": known}}
    others = [name for name in terms.topology.agents if name != first]
    done = run("posterior", dict.fromkeys(others, runs), "--json", root=root)
    assert (done.code, done.json["missing"]) == (1, [first])
    assert f"unweave agent {root / 'agents' / first}" in done.json["why"]
    done = run("posterior", dict.fromkeys([first, *others[1:]], runs), root=root)
    assert f"{first} opens the first one; not heard yet: {others[0]}" in done.out
    alone = run("posterior", {others[0]: runs}, root=root, folders=(others[0],))
    assert f"{first} opens the first one (on another machine" in alone.out


def test_a_voter_that_has_just_started_is_asked_again():
    """Its quarantine ends by itself."""
    fresh, idle = (
        {"status": {"status": {**STATUS, "phase": one}}} for one in ("quarantine", "idle")
    )
    net = Net(Path("net"), {"a1": fresh, "a2": idle})
    assert list(_early(net, ["a1", "a2"], "a4", began=0.0, loss=15.0)) == ["a1"]
