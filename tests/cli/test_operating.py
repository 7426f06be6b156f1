"""What the commands say of agents that were forgotten, are gone, down, or refuse."""

from contextlib import contextmanager
from pathlib import Path

import pytest

from unweave.errors import DataError
from unweave.node import fleet as fleets
from unweave.node.client import AgentDown
from unweave.node.fleet import Fleet


class Agent:
    """Answers from a table; an error is raised."""

    def __init__(self, name, answers):
        self.name, self.answers = name, answers

    def ask(self, do, **request):
        answer = self.answers[do]
        if isinstance(answer, Exception):
            raise answer
        return answer


class Net(Fleet):
    """Agents a1 … a5 without sockets; those with answers run."""

    def __init__(self, root, answers, folders=("a1", "a2", "a3", "a4", "a5")):
        self.root = root
        self.folders = {name: root / "agents" / name for name in folders}
        self.silent = set()
        self.agents = {name: Agent(name, of) for name, of in answers.items()}

    def _connect(self, name):
        raise AgentDown(name)


STATUS = {
    "phase": "idle",
    "pid": 1,
    "left": ["a4"],
    "erased": ["a2"],
    "included": ["a1", "a3", "a5"],
    "complete": True,
}


@pytest.fixture
def run(unweave, monkeypatch):
    def run(command, answers, *words, **how):
        net = Net(Path("net"), answers, **how)

        @contextmanager
        def fleet(folder, timeout=10.0):
            yield net

        monkeypatch.setattr(fleets, "fleet", fleet)
        return unweave(command, "net", *words)

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


def test_who_is_gone_is_not_down(run):
    answers = {name: {"status": {"status": STATUS}} for name in ("a1", "a2", "a3", "a5")}
    done = run("status", answers)
    assert done.code == 0
    assert "down" not in done.out
    assert any("a4" in row and " gone " in row for row in done.out.splitlines())
    del answers["a5"]
    done = run("status", answers, "--json")
    assert done.code == 1
    assert (done.json["down"], done.json["gone"]) == (["a5"], ["a4"])


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
        "a1: new data, on their way",
        "a2: was forgotten, and stays out: its data are not looked at",
        "a3: refused: row 7 is no number",
        "a4: was declared gone by a quorum: it takes part no more",
        "a5: does not answer; it will look at its data when it starts",
    ]
    done = run("learn", answers, "--json")
    assert done.code == DataError.exit_code
    assert done.json["changed"] == {"a1": True, "a2": False, "a4": False}
    assert done.json["refused"] == {"a3": "a3: row 7 is no number"}
