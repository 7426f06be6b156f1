"""`unweave plan`: the numbers, the table, and what bad input gets."""

import json
from functools import partial

import pytest
from tests.support.commands import run_command

from unweave.graph import graphs
from unweave.graph.cover import cover_exact
from unweave.graph.times import first_visit


@pytest.fixture
def run():
    return partial(run_command, "plan")


def plan_json(run, *arguments):
    code, out, err = run(*arguments, "--json")
    assert (code, err) == (0, "")
    return json.loads(out)


def test_the_complete_graph_of_the_paper(run):
    report = plan_json(run, "--graph", "complete", "--agents", 10)
    walk = report["schedules"]["metropolis"]
    assert walk["learn_iterations"] == pytest.approx(26.46, abs=0.005)
    assert walk["forget_iterations"] == pytest.approx(9.1)
    assert walk["retrain_iterations"] == pytest.approx(22.743, abs=0.001)
    assert walk["method"] == {"learn": "exact", "forget": "exact", "retrain": "exact"}
    sweep = report["schedules"]["sweep"]
    assert [sweep[f"{t}_iterations"] for t in ("learn", "forget", "retrain")] == [10, 5.5, 9]
    assert report["schedules"]["seek"]["retrain_iterations"] is None
    assert report["schedules"]["seek"]["learn_iterations"] is None
    assert report["schedules"]["seek"]["forget_iterations"] == pytest.approx(1.9)
    assert report["agent"] == "a10"
    assert report["paper"]["cover"] == pytest.approx(25.46, abs=0.005)
    assert report["paper"]["cover_approximation"] == pytest.approx(19.775, abs=0.001)
    assert report["paper"]["unlearn"] == pytest.approx(9.1)
    assert report["paper"]["retrain"] == pytest.approx(21.743, abs=0.001)


def test_the_hub_of_a_star_is_the_first_agent(run):
    hub = plan_json(run, "--graph", "star", "--agents", 8, "--agent", "a1")
    leaf = plan_json(run, "--graph", "star", "--agents", 8)
    assert hub["schedules"]["seek"]["forget_iterations"] == pytest.approx(1 + 7 / 8)
    assert leaf["agent"] == "a8"
    assert leaf["schedules"]["metropolis"]["forget_iterations"] == pytest.approx(
        first_visit(graphs.star(8), 7)
    )
    assert "paper" not in hub
    assert leaf["schedules"]["sweep"]["retrain_iterations"] == pytest.approx(13 - 13 / 7)
    assert hub["schedules"]["sweep"]["retrain_iterations"] is None
    assert "not connected" in hub["schedules"]["sweep"]["note"]


def test_an_edge_list_of_ones_own(run, tmp_path):
    file = tmp_path / "ours.csv"
    file.write_text("north,east\neast,south\nsouth,north\nsouth,west\n")
    report = plan_json(run, "--edges", file, "--agent", "north")
    t = graphs.from_edges(file)
    walk = report["schedules"]["metropolis"]
    assert walk["learn_iterations"] == pytest.approx(cover_exact(t))
    assert walk["forget_iterations"] == pytest.approx(first_visit(t, "north"))
    assert report["agents"] == 4
    assert plan_json(run, "--edges", file, "--agents", 4)["agent"] == "west"


def test_what_is_simulated_says_so(run):
    report = plan_json(run, "--graph", "grid", "--agents", 25, "--replicas", 200, "--seed", 3)
    walk = report["schedules"]["metropolis"]
    low, high = walk["ci95"]["learn"]
    assert low < walk["learn_iterations"] < high
    simulated = "monte-carlo"
    assert walk["method"] == {"learn": simulated, "forget": "exact", "retrain": simulated}
    assert walk["replicas"] == {"learn": 200, "forget": None, "retrain": 200}
    sweep = report["schedules"]["sweep"]
    assert set(sweep["method"].values()) == {simulated}
    assert set(sweep["replicas"].values()) == {200}
    other = plan_json(run, "--graph", "grid", "--agents", 25, "--replicas", 200, "--seed", 4)
    assert other["schedules"]["sweep"]["forget_iterations"] != sweep["forget_iterations"]


def test_random_graphs_take_their_settings(run):
    sparse = plan_json(run, "--graph", "erdos-renyi", "--agents", 12, "--p", 0.4, "--seed", 1)
    assert sparse["edges"] == len(graphs.erdos_renyi(12, 0.4, 1).edges)
    small = plan_json(run, "-g", "watts-strogatz", "-k", 12, "--near", 2, "--p", 0)
    assert small["edges"] == 12
    grown = plan_json(run, "-g", "barabasi-albert", "-k", 12, "--joins", 1)
    assert grown["edges"] == 11


def test_a_note_that_two_schedules_share_is_said_once(run):
    code, out, _ = run("--graph", "star", "--agents", 6, "--agent", "a1")
    assert code == 0
    assert " ".join(out.split()).count("without a1 the others are not connected") == 1


def test_people_get_a_table(run):
    code, out, _ = run("--graph", "complete", "--agents", 10)
    assert code == 0
    for text in (
        "metropolis",
        "sweep",
        "seek",
        "26.46",
        "9.10",
        "19.78",
        "25.46",
        "21.74",
        "5.50",
        "22.74",
    ):
        assert text in out


def test_help_has_examples(run):
    code, out, _ = run("--help")
    assert code == 0
    assert "unweave plan --graph complete --agents 10" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--graph", "ring"], "--agents K"),
        (["--graph", "ring", "--agents", "0"], "agents = 0. Fix: at least one"),
        (["--graph", "rign", "--agents", "5"], "did you mean 'ring'"),
        (["--graph", "ring", "--agents", "5", "--agent", "a55"], "Fix: did you mean a5?"),
        (["--graph", "ring", "--agents", "5", "--p", "0.5"], "no setting p"),
        (["--graph", "erdos-renyi", "--agents", "50", "--p", "0.001"], "would do"),
        (["--graph", "ring", "--agents", "5", "--replicas", "1"], "at least 2"),
        (["--edges", "nowhere.csv"], "nowhere.csv: cannot read"),
        (["--edges", "pieces.csv"], "{a, b}, {c, d}"),
        (["--edges", "pair.csv", "--agents", "3"], "pair.csv has 2 agents"),
        (["--edges", "pair.csv", "--graph", "ring"], "two graphs"),
        (["--graph", "ring", "--agents", "many"], "integer"),
    ],
)
def test_bad_input_is_one_line_and_code_2(run, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pieces.csv").write_text("a,b\nc,d\n")
    (tmp_path / "pair.csv").write_text("a,b\n")
    code, out, err = run(*arguments)
    assert code == 2
    assert out == ""
    assert message in " ".join(err.split())
    assert "Traceback" not in err


def test_private_rounds_count_their_laps(run):
    report = plan_json(run, "--graph", "complete", "--agents", 10, "--privacy", "masked")
    assert report["privacy"] == "masked"
    sweep = report["schedules"]["sweep"]
    assert sweep["learn_iterations"] == 10 + 9 + 9
    assert sweep["retrain_iterations"] == 9 + 8 + 8
    assert 19 <= sweep["forget_iterations"] <= 20
    assert "paper" not in report
    code, out, _ = run("--graph", "ring", "--agents", 6, "--privacy", "masked")
    assert code == 0
    assert "masked: expected iterations" in out
    code, _, err = run("--graph", "ring", "--agents", 3, "--privacy", "masked")
    assert code == 2
    assert "at least 4 agents" in err
    assert run("--agents", 5, "--privacy", "dark")[0] == 2
