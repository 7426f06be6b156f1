"""`unweave init --epsilon`, `check` and `simulate` of networks with differential privacy."""

import tomllib

import numpy as np
import pytest

from unweave.cli.posterior import _show
from unweave.node.api.report import NO_MORE

PROMISE = ("--epsilon", "1", "--delta", "1e-6")


def numbers(folder, n=400, far=0):
    rows = np.random.default_rng(0).normal(1.0, 1.0, n)
    rows[:far] = 1e3
    path = folder / "x.csv"
    path.write_text("id,x\n" + "".join(f"{k},{v}\n" for k, v in enumerate(rows)))
    return path


def test_init_writes_the_promise_and_check_shows_costs_widths_and_clipped_records(
    unweave, tmp_path
):
    data, net = numbers(tmp_path, far=8), tmp_path / "net"
    words = ("-k", "5", "-m", "normal-known-variance", "--data", data, "--key", "id")
    more = ("--releases", "3", "--colluders", "1", "--bounds", "x=-4:6")
    done = unweave("init", net, *words, *PROMISE, *more)
    assert done.code == 0, done.err
    assert "every published sum carries noise" in done.out
    assert "every round takes one of 3 values of each agent" in done.out
    assert "erasing refunds nothing" in done.out
    table = tomllib.loads((net / "network.toml").read_text())["privacy"]
    assert table == {
        "mode": "masked",
        "min_roster": 3,
        "degree": 0,
        "epsilon": 1.0,
        "delta": 1e-6,
        "releases": 3,
        "colluders": 1,
        "bounds": {"x": [-4.0, 6.0]},
    }
    checked = unweave("check", net, "--json")
    assert checked.code == 0, checked
    (noise,) = [r for r in checked.json["checks"] if r["what"] == "noise"]
    assert "mean ± " in noise["note"] or "theta ± " in noise["note"]
    assert "(without noise ± " in noise["note"]
    notes = [r["note"] for r in checked.json["checks"] if r["what"] == "data"]
    clipped = [int(n.split(", ")[1].split()[0]) for n in notes if "outside of the declared" in n]
    assert sum(clipped) == 8


@pytest.mark.parametrize("source", ["auto", "masked"])
def test_constants_that_follow_from_the_records_are_not_covered_and_init_says_so(
    unweave, tmp_path, source
):
    words = ("-k", "5", "-m", "normal-known-variance", "--data", numbers(tmp_path))
    words = (*words, *PROMISE, "--bounds", "x=-4:6", "--scale", source)
    said = "x: epsilon does not cover these constants"
    done = unweave("init", tmp_path / "derived", *words)
    assert (done.code, said in done.out) == (0, True), done.out
    told = unweave("init", tmp_path / "json", *words, "--json").json["scales"]
    assert any(line.startswith(said) for line in told)
    # Nothing of the records is in constants that were known before.
    done = unweave("init", tmp_path / "known", *words, "--range", "x=-4:6")
    assert (done.code, said in done.out) == (0, False), done.out


def test_where_the_noise_leaves_nothing_check_says_so(unweave, tmp_path):
    data, net = numbers(tmp_path, n=40), tmp_path / "net"
    words = ("-k", "5", "-m", "normal-known-variance", "--data", data)
    wide = ("--epsilon", "0.1", "--delta", "1e-6", "--bounds", "x=-100:100")
    assert unweave("init", net, *words, *wide).code == 0
    checked = unweave("check", net)
    assert checked.code == 0, checked
    assert "the noise leaves nearly nothing of the data" in checked.out


REFUSED = {
    "another model": (("-m", "gamma-poisson", *PROMISE), "gamma-poisson: no differential privacy"),
    "no delta": (("--epsilon", "1"), "epsilon has no delta"),
    "no epsilon": (("--delta", "1e-6"), "delta has no epsilon"),
    "plain": ((*PROMISE, "--privacy", "plain"), "epsilon needs masked rounds"),
    "few agents": ((*PROMISE, "-k", "3"), "epsilon needs masked rounds"),
    "no bounds": (("-m", "normal-known-variance", *PROMISE), "needs bounds of x"),
    "a wrong bound": ((*PROMISE, "--bounds", "x=5:1"), "--bounds x=5:1: not a range"),
    "no norm": (("-m", "linear-regression", "--set", "features=u", *PROMISE), "needs a norm"),
    "a large delta": (("--epsilon", "1", "--delta", "0.5"), "delta = 0.5"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_promise_that_cannot_be_kept_is_refused_before_anything_is_written(
    unweave, tmp_path, what
):
    words, text = REFUSED[what]
    done = unweave("init", tmp_path / "net", *words)
    assert done.code == 2, done
    assert text in done.err
    assert "Fix: " in done.err
    assert not (tmp_path / "net").exists()


# With seed 0, severe faults lose disks whose values no neighbour vouches for: see the next test.
@pytest.mark.parametrize("faults", [(), ("--faults", "calm"), ("--faults", "severe", "--seed", 2)])
def test_simulate_with_noise(unweave, tmp_path, faults):
    net = tmp_path / "net"
    assert unweave("init", net, "-k", "5", *PROMISE, "--releases", "200").code == 0
    done = unweave("simulate", net, "--json", *faults)
    assert done.code == 0, done
    assert done.json["noise"]["releases"] == 200
    assert done.json["equal_to_fault_free"]
    again = unweave("simulate", net, *faults)
    assert "Without its noise equal, bit for bit, to a run without faults" in again.out


@pytest.mark.parametrize(("releases", "seed"), [(1, 1), (200, 0)])
def test_simulate_says_when_a_budget_is_spent(unweave, tmp_path, releases, seed):
    net = tmp_path / "net"
    assert unweave("init", net, "-k", "5", *PROMISE, "--releases", releases).code == 0
    done = unweave("simulate", net, "--faults", "severe", "--seed", seed)
    assert done.code == 0, done
    assert "A privacy budget is spent" in done.out


def test_no_wait_is_offered_for_a_posterior_that_never_comes(capsys):
    """The budget is spent, or too few agents remain."""
    for why, waits in ((f"a budget is spent: {NO_MORE}. Fix: make another", False), ("why", True)):
        _show(None, {"state": "unknown", "why": why})
        assert ("--wait" in capsys.readouterr().out) == waits


@pytest.mark.parametrize("seed", range(3))
def test_changes_that_wait_thirty_days_leave_at_their_date_in_a_simulation(unweave, tmp_path, seed):
    data, net = tmp_path / "x.csv", tmp_path / "net"
    bits = np.random.default_rng(1).integers(0, 2, 200)
    data.write_text("id,x\n" + "".join(f"p{k},{v}\n" for k, v in enumerate(bits)))
    done = unweave("init", net, "-k", "5", "--data", data, "--key", "id", *PROMISE, "--publish", 3)
    assert done.code == 0, done.err
    done = unweave("simulate", net, "--faults", "severe", "--seed", seed)
    assert done.code == 0, done.out + done.err
    assert "Every invariant held" in done.out
