"""`unweave simulate`: a fault run of a manifest, and what a broken rule looks like."""

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import tomli_w
from tests.support.commands import run_command
from tests.support.processes import Processes, erase
from tests.support.seeded import read_bug, seeded

from unweave.cli.simulate import shards_of, verdict
from unweave.manifest import load
from unweave.models import names
from unweave.models.registry import example
from unweave.simulator import run as fault_run
from unweave.simulator import run as shards
from unweave.simulator import session
from unweave.simulator.faults import PROFILES
from unweave.simulator.workload import DOWN, NOTHING_LEFT, spared

MUTANTS = Path(__file__).parents[1] / "faults" / "mutants"


@pytest.fixture
def run():
    return partial(run_command, "simulate")


@pytest.fixture
def network(tmp_path):
    def write(model='name = "beta-bernoulli"', agents="agents = 4", extra=""):
        path = tmp_path / "network.toml"
        path.write_text(
            f'name = "clinics"\nseed = 7\ngraph = "ring"\n{agents}\n{extra}\n[model]\n{model}\n'
        )
        return path

    return write


@pytest.mark.parametrize("faults", [None, *PROFILES])
def test_a_network_survives_every_profile(run, network, faults):
    chosen = () if faults is None else ("--faults", faults)
    code, out, err = run(network(), *chosen, "--seed", 3, "--hops", 40, "--json")
    assert (code, err) == (0, "")
    report = json.loads(out)
    assert report["ok"]
    assert report["equal_to_fault_free"]
    assert report["faults"] == (faults or "none")
    assert report["checked_transitions"] > 0
    if faults != "insider":  # the transitions of an agent that lies are its own
        assert report["checked_transitions"] >= report["events"]
    if faults is None:
        assert report["epochs"] == {"genesis": 1}
        assert report["messages_lost"] == report["erasures_asked"] == 0


def test_the_same_seed_is_the_same_run(run, network):
    path = network()
    first, second, other = (
        run(path, "--faults", "severe", "--seed", seed, "--json")[1] for seed in (5, 5, 6)
    )
    assert first == second
    assert first != other


def test_a_model_that_is_not_conjugate_comes_close(run, network):
    path = network('name = "beta-exponential"\na = 3.0\nb = 3.0')
    code, out, _ = run(path, "--faults", "crashes", "--seed", 2, "--hops", 60, "--json")
    report = json.loads(out)
    assert code == 0
    assert report["kl_to_fault_free"] < 1e-3


def test_the_solver_is_that_of_the_manifest(run, network):
    def report(table):
        model = f'name = "logistic-regression"\nfeatures = 2\n[solver]\n{table}'
        code, out, err = run(network(model), "--json")
        assert (code, err) == (0, "")
        return json.loads(out)

    plain = report("")
    assert report('name = "ep"')["digest"] != plain["digest"]
    assert report("relax = 1.0")["digest"] != plain["digest"]
    assert report("tol = 1e-12")["hops"] > plain["hops"] > report("tol = 1.0")["hops"]


@pytest.mark.parametrize("seed", range(6))
def test_the_profile_departed_removes_an_agent(run, network, seed):
    """Also halfway, when it was there at first."""
    model = 'name = "beta-exponential"\na = 3.0\nb = 3.0' if seed % 2 else 'name = "beta-binomial"'
    path = network(model)
    _, out, _ = run(path, "--faults", "departed", "--seed", seed, "--hops", 40, "--json")
    report = json.loads(out)
    assert report["ok"], report
    assert report["agents_departed"] == 1
    assert report["agents_left_with_records"] <= 3


# An agent that calls itself solved after a step; one that never finds back into the domain.
EASILY_PLEASED = {
    "patch": [
        {
            "function": "unweave.protocol.visit.commit",
            "old": 's.own.solved_for = b"" if wanted.fresh else digest(cavity)',
            "new": "s.own.solved_for = digest(cavity)",
        }
    ]
}
LOST = {
    "patch": [
        {
            "function": "unweave.protocol.visit.choose",
            "old": "s.own.infeasible_at == token.included\n",
            "new": "False\n",
        }
    ]
}


def test_a_fit_that_ends_elsewhere_is_no_success(run, tmp_path, monkeypatch):
    """Pulling in two directions: what is left without one of them is no posterior."""
    agents = ""
    for k, (mean, n) in enumerate(((3.0, 300), (0.05, 1000), (0.02, 1000))):
        values = np.random.default_rng(k).exponential(mean, n)
        (tmp_path / f"n{k}.csv").write_text("z\n" + "".join(f"{v!r}\n" for v in values.tolist()))
        agents += f'[[agents]]\nname = "n{k}"\ndata = "n{k}.csv"\n'
    path = tmp_path / "network.toml"
    model = '[model]\nname = "beta-exponential"\na = 3.0\nb = 3.0\n'
    path.write_text(f'name = "opposed"\nseed = 3\ngraph = "complete"\n{model}{agents}')
    arguments = (path, "--faults", "departed", "--json", "--seed", "9")
    assert json.loads(run(*arguments)[1])["ok"]
    with seeded(LOST):
        told = json.loads(run(*arguments)[1])["violation"]
    assert "is no posterior" in told
    monkeypatch.setattr(fault_run, "_settled", lambda world, calm: 2 * world.terms.eta0)
    told = json.loads(run(*arguments)[1])["violation"]
    assert "from that of a run without faults" in told


def test_an_agent_that_would_still_move_is_not_converged(run, network):
    path = network('name = "beta-exponential"\na = 1.2\nb = 3.0', agents="agents = 1")
    assert run(path)[0] == 0
    with seeded(EASILY_PLEASED):
        code, _, err = run(path)
    assert code == 1
    assert "I9" in err
    assert "would still move" in err


def test_a_table_for_people(run, network):
    code, out, _ = run(network(), "--faults", "lossy", "--seed", 1)
    assert code == 0
    assert "messages lost" in out
    assert "Equal, bit for bit, to a run without faults." in out
    assert "epochs: genesis" in out


def test_data_of_the_manifest(run, tmp_path, network):
    agents = "\n".join(f'[[agents]]\nname = "n{k}"\ndata = "n{k}.csv"' for k in range(3))
    for k in range(3):
        (tmp_path / f"n{k}.csv").write_text("id,x\n" + "".join(f"{i},{k % 2}\n" for i in range(4)))
    path = tmp_path / "network.toml"
    path.write_text(
        f'name = "clinics"\ngraph = "path"\n[model]\nname = "beta-bernoulli"\na = 1.0\nb = 1.0\n'
        f"{agents}\n"
    )
    code, out, err = run(path, "--json")
    assert (code, err) == (0, "")
    report = json.loads(out)
    assert report["data"] == "manifest"
    assert report["posterior"]["theta"]["mean"] == pytest.approx(5 / 14)
    (tmp_path / "n1.csv").write_text("id,y\n1,1\n")
    code, _, err = run(path)
    assert code == 2
    assert "no column 'x'" in err
    (tmp_path / "n1.csv").write_text("id,x\n1,yes\n")
    code, _, err = run(path)
    assert code == 2
    assert "not a number" in err
    (tmp_path / "n1.csv").unlink()
    code, _, err = run(path)
    assert code == 2
    assert "cannot be read" in err


def test_data_of_the_agents(run, unweave, tmp_path):
    table, net = tmp_path / "visits.csv", tmp_path / "net"
    table.write_text("id,ill\n" + "".join(f"{k},{int(k % 4 == 0)}\n" for k in range(40)))
    words = ("--agents", "3", "--data", table, "--key", "id", "--column", "x=ill", "--json")
    assert unweave("init", net, *words).code == 0
    for place in (net, net / "network.toml"):
        report = json.loads(run(place, "--json")[1])
        assert report["data"] == "agents"
        assert report["posterior"]["theta"]["mean"] == pytest.approx(12 / 44)
    assert "data from the agents' folders" in run(net)[1]
    (net / "agents/a2/data.csv").unlink()
    code, out, _ = run(net, "--json")
    assert code == 0
    assert json.loads(out)["data"].startswith("synthetic: agent 'a2': no file 'data.csv'")
    assert "data drawn at random: agent 'a2': no file 'data.csv'" in run(net)[1]


def test_requests_without_effect_are_explained(run, network):
    path, seen, excused = network(), set(), None
    for faults, seed in [
        (f, s) for f in ("calm", "crashes", "severe", "departed") for s in range(5)
    ]:
        report = json.loads(run(path, "--faults", faults, "--seed", seed, "--json")[1])
        idle = report["erasures_without_effect"]
        assert report["erasures_asked"] == report["erasures_certified"] + sum(idle.values())
        assert idle.get(NOTHING_LEFT, 0) <= report["erasures_asked"] // 3
        seen |= set(idle)
        excused = (faults, seed, report) if NOTHING_LEFT in idle else excused
    assert {DOWN, NOTHING_LEFT} <= seen
    faults, seed, report = excused
    out = " ".join(run(path, "--faults", faults, "--seed", seed)[1].split())
    assert f"{report['erasures_asked']} erasures requested" in out
    assert f": {NOTHING_LEFT}" in out


@pytest.mark.parametrize("agents", [1, 2, 3, 5, 12])
def test_a_majority_keeps_records_and_the_hops_are_reached(run, network, agents):
    path = network(agents=f"agents = {agents}")
    for faults in ("lossy", "severe") if agents > 5 else PROFILES:
        for seed in range(2 if agents < 5 else 1):
            code, out, err = run(path, "--faults", faults, "--seed", seed, "--json")
            assert (code, err) == (0, ""), (faults, seed)
            report = json.loads(out)
            assert report["agents_left_with_records"] >= spared(agents), (faults, seed)
            assert report["records_left"] >= 50 * spared(agents)
            assert report["hops_with_faults"] >= report["hops_asked"] == 20 * agents
            assert 0 < report["erasures_asked"] <= 8 * agents
            assert report["equal_to_fault_free"] is True
            assert report["notes"] == [] or agents <= 2 or faults == "insider"


def test_so_few_agents_are_spared_what_nobody_survives(run, network):
    path = network(agents="agents = 1")
    code, out, _ = run(path, "--faults", "severe", "--seed", 4)
    assert code == 0
    assert "1 agent, " in out
    assert "One agent alone: its disk is never lost" in out
    for size in (1, 2):
        path = network(agents=f"agents = {size}")
        code, out, _ = run(path, "--faults", "departed", "--seed", 1, "--json")
        assert code == 0
        note = f"No agent of {size} is lost for good: the rest would be no quorum."
        assert json.loads(out)["notes"] == [note]


def test_faults_that_end_early_are_reported(run, network, monkeypatch):
    monkeypatch.setattr(session, "_EVENTS_PER_HOP", 3)
    monkeypatch.setattr(session, "_EVENTS_PER_HOP_AND_AGENT", 0)
    path = network()
    report = json.loads(run(path, "--faults", "lossy", "--hops", 60, "--json")[1])
    assert report["hops_with_faults"] < report["hops_asked"] == 60
    (note,) = report["notes"]
    reached = report["hops_with_faults"]
    assert note == f"The faults ended early, after {reached} of 60 hops: 180 events are the most."
    assert note in run(path, "--faults", "lossy", "--hops", 60)[1]


def test_without_records_nothing_is_compared(run, network, monkeypatch):
    """The prior's variance of sigma2 is infinite, which JSON cannot say."""
    draw = shards.draw_shards

    def none(*arguments):
        return [shard.drop(np.arange(shard.n)) for shard in draw(*arguments)]

    monkeypatch.setattr(shards, "draw_shards", none)
    path = network('name = "linear-regression-unknown-noise"\nfeatures = ["x"]', "agents = 2")
    code, out, err = run(path, "--faults", "calm", "--hops", 3, "--json")
    assert (code, err) == (0, "")
    report = json.loads(out)
    sigma2 = report["posterior"]["sigma2"]
    assert (sigma2["mean"], sigma2["sd"]) == (1.0, None)
    assert sigma2 == report["prior"]["sigma2"]  # with its 95% interval
    assert 0 < sigma2["low"] < sigma2["mean"] < sigma2["high"]
    assert report["records_left"] == report["agents_left_with_records"] == 0
    assert report["equal_to_fault_free"] is report["kl_to_fault_free"] is None
    out = run(path, "--faults", "calm", "--hops", 3)[1]
    assert "No records remain to compare" in out
    assert "Equal, bit for bit" not in out
    assert "inf" not in out
    assert "–" in out


def test_one_is_not_said_as_many():
    report = {
        "notes": [],
        "erasures_asked": 1,
        "erasures_certified": 1,
        "erasures_without_effect": {},
        "records_left": 1,
        "noise": None,
        "equal_to_fault_free": True,
    }
    assert verdict(report)[0] == "The one requested erasure is certified."
    report |= {"erasures_certified": 0, "erasures_without_effect": {DOWN: 1}}
    assert verdict(report)[0].startswith("1 erasure requested, 0 certified")
    report |= {"erasures_asked": 2, "erasures_certified": 1}
    assert verdict(report)[0].startswith("2 erasures requested, 1 certified")


def test_a_broken_rule_is_named_with_the_command_that_repeats_it(run, network):
    path = network()
    arguments = (path, "--faults", "lossy", "--seed", "4", "--hops", "60")
    assert run(*arguments)[0] == 0
    with seeded(read_bug(MUTANTS / "dedup-by-equality.toml")):
        code, out, err = run(*arguments)
        assert (code, out) == (1, "")
        assert "violated: I" in err
        assert f"unweave simulate {path} --seed 4 --faults lossy --hops 60" in err
        code, out, _ = run(*arguments, "--json")
        assert code == 1
        assert json.loads(out)["violation"].startswith("I")


def test_bad_input(run, network, tmp_path):
    code, _, err = run(network(), "--faults", "fog")
    assert code == 2
    assert "no fault profile 'fog'" in err
    code, _, err = run(network(), "--hops", "0")
    assert code == 2
    assert "at least one" in err
    code, _, err = run(tmp_path / "nothing.toml")
    assert code == 2
    assert "cannot be read" in err


@pytest.mark.parametrize("name", sorted(names()))
def test_every_model_has_synthetic_data(name, tmp_path):
    path = tmp_path / "network.toml"
    table = {"name": name, **example(name).settings()}
    head = {"name": "n", "graph": "ring", "agents": 3}
    path.write_text(tomli_w.dumps({**head, "model": table}))
    manifest = load(path)
    model = manifest.build_model()
    found, data, _ = shards_of(manifest, model, seed=1)
    assert data == "synthetic: the manifest names no data"
    assert [s.n for s in found] == [100, 100, 100]
    assert not np.array_equal(found[0].rows, found[1].rows)


def test_what_the_network_has_forgotten_is_not_learned_from(run, unweave, tmp_path):
    """From the agents while they run, from their stores when they do not."""
    with Processes(tmp_path / "net", 3) as net:
        before = unweave("simulate", net.root, "--json").json
        assert before["forgotten"] == {"agents": [], "records": 0}
        assert before["digest"] == net.expected()
        net.start()
        net.rest()
        (key, *_) = net.rows["a1"]
        erase(net, "a1", [key])
        erase(net, "a3")
        net.rest()
        assert net.out == {"a3"}
        for stop in ((), ("a2",), tuple(net.names)):
            net.stop(*stop) if stop else None
            report = unweave("simulate", net.root, "--json").json
            assert report["forgotten"] == {"agents": ["a3"], "records": 1}
            assert report["digest"] == net.expected({"a1": [key]})
            text = unweave("simulate", net.root).out
            assert "without the forgotten data (a3, 1 record)" in text


@pytest.mark.parametrize("faults", ["calm", "severe", "insider"])
def test_private_rounds_run_with_faults(run, tmp_path, faults):
    path = tmp_path / "network.toml"
    path.write_text(
        'name = "n"\ngraph = "ring"\nagents = 6\nprivacy = "masked"\n'
        '[model]\nname = "beta-bernoulli"\n'
    )
    code, out, _ = run(path, "--faults", faults, "--seed", 2, "--hops", 60, "--json")
    report = json.loads(out)
    assert (code, report["privacy"]) == (0, "masked")
    assert report["equal_to_fault_free"]
    assert report["erasures_certified"] > 0


def test_too_few_agents_publish_no_sum(run, tmp_path):
    path = tmp_path / "network.toml"
    path.write_text(
        'name = "n"\ngraph = "ring"\nagents = 6\n[model]\nname = "beta-bernoulli"\n'
        '[privacy]\nmode = "masked"\nmin_roster = 6\n'
    )
    code, out, _ = run(path, "--faults", "calm", "--seed", 1, "--json")
    report = json.loads(out)
    assert (code, report["records_left"], report["equal_to_fault_free"]) == (0, 0, None)
    assert "fewer than min_roster = 6: no sum is published" in report["notes"][-1]
    assert report["erasures_certified"] > 0
