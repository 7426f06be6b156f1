"""A thousand fault runs: every invariant after every event, liveness after the faults."""

from __future__ import annotations

import dataclasses
from collections import Counter
from itertools import pairwise

import pytest
from tests.support.swarm import counts, main, run_seed, swarm
from tests.support.tally import run_faults

from unweave.simulator.faults import PROFILES, RandomFaults, profile
from unweave.simulator.invariants import Violation

CHUNKS = 14
PER_CHUNK = 81  # 1,134 runs; nine profiles in turn, so each chunk has nine of each


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_fault_runs(chunk: int) -> None:
    total: Counter[str] = Counter()
    for seed, found in swarm(range(chunk * PER_CHUNK, (chunk + 1) * PER_CHUNK)):
        assert not isinstance(found, Violation), f"seed {seed}: {found}"
        assert found["events"] >= 200
        total += found
    # Runs without faults prove nothing.
    for what in (
        "agents departed",
        "as bytes",
        "certificates",
        "crashes",
        "detours",
        "erasures certified",
        "erasures compacted",
        "frozen",
        "liars voted out",
        "lies",
        "losses",
        "lost disks",
        "messages lost",
        "mixed versions",
        "partitions",
        "power cuts",
        "rebuilds",
        "restarts",
        "restores",
        "retrainings",
        "votes",
    ):
        assert total[what] > 0, f"no {what} in {total['runs']} runs"


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(16))
def test_more_fault_runs(chunk: int) -> None:
    for seed, found in swarm(range(10_000 + 1000 * chunk, 11_000 + 1000 * chunk)):
        assert not isinstance(found, Violation), f"seed {seed}: {found}"


@pytest.mark.parametrize("chunk", range(8))
def test_fault_runs_in_private_rounds(chunk: int) -> None:
    """At least 100,000 events in all chunks."""
    total: Counter[str] = Counter()
    for seed, found in swarm(range(chunk * 32, (chunk + 1) * 32), privacy="masked"):
        assert not isinstance(found, Violation), f"seed {seed}: {found}"
        total += found
    assert total["events"] >= 12_500
    for what in (
        "agents departed",
        "certificates",
        "crashes",
        "erasures certified",
        "messages lost",
        "restarts",
        "rounds completed",
        "values given",
    ):
        assert total[what] > 0, f"no {what} in {total['runs']} runs"
    assert total["lost disks"] + total["restores"] > 0


@pytest.mark.parametrize("chunk", range(3))
def test_fault_runs_with_noise(chunk: int) -> None:
    """Every agent has a budget of a few values; the checker knows the noise (P3) and counts what
    was paid for (P7), also over lost and restored disks."""
    total: Counter[str] = Counter()
    for seed, found in swarm(range(chunk * 32, (chunk + 1) * 32), privacy="noisy"):
        assert not isinstance(found, Violation), f"seed {seed}: {found}"
        total += found
    for what in ("budgets spent", "certificates", "crashes", "restarts", "rounds completed"):
        assert total[what] > 0, f"no {what} in {total['runs']} runs"
    assert total["networks without a sum at the end"] < total["runs"]


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(8))
@pytest.mark.parametrize("privacy", ["masked", "noisy"])
def test_more_fault_runs_in_private_rounds(privacy: str, chunk: int) -> None:
    """At least a million events in all chunks."""
    events = 0
    seeds = range(10_000 + 300 * chunk, 10_300 + 300 * chunk)
    for seed, found in swarm(seeds, privacy=privacy):
        assert not isinstance(found, Violation), f"seed {seed}: {found}"
        events += found["events"]
    assert events >= 125_000


def test_a_seed_repeats_exactly() -> None:
    first, second = run_seed(15), run_seed(15)
    assert counts(first) == counts(second)
    assert first.checker.certificates == second.checker.certificates
    for a, b in zip(first.world.agents, second.world.agents, strict=True):
        assert (a.disk.token.last, a.disk.token.fence, a.starts) == (
            b.disk.token.last,
            b.disk.token.fence,
            b.starts,
        )


def test_a_failing_seed_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(seed: int, profile: str | None = None, privacy: str = "plain") -> None:
        raise Violation("I1 at a1: the sum")

    monkeypatch.setattr("tests.support.swarm.run_seed", broken)
    assert main(["--start", "7", "--seeds", "1", "--profile", "calm"]) == 1
    printed = capsys.readouterr().out
    assert "seed 7 fails: I1 at a1: the sum" in printed
    assert "python -m tests.support.swarm --start 7 --seeds 1 --profile calm" in printed


def test_a_swarm_says_what_it_did(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "8"]) == 0
    assert "0 failed" in capsys.readouterr().out


def test_every_kind_of_fault_is_there() -> None:
    """Each fault can be switched on alone, happens, and is survived."""
    calm = dataclasses.replace(PROFILES["calm"], erase=0.01, data=0.0)
    alone = {
        "drop": 0.2,
        "duplicate": 0.5,
        "crash": 0.02,
        "partition": 0.02,
        "slow": 0.5,
        "skew": 0.5,
        "power_cut": 0.01,
        "noise": 0.2,
    }
    for name, value in alone.items():
        outcome = run_faults(3, dataclasses.replace(calm, **{name: value}))
        found = counts(outcome)
        happened = {
            "drop": found["messages lost"],
            "crash": found["crashes"],
            "partition": found["partitions"],
            "power_cut": found["power cuts"],
        }
        assert happened.get(name, 1) > 0, name


def test_the_profile_partitions_cuts_and_heals_links() -> None:
    faults = RandomFaults(PROFILES["calm"], 4, seed=1)
    faults.cut(frozenset({0, 1}), until=10.0, one_way=False)
    assert not faults.flights(0, 2, 5.0)
    assert not faults.flights(2, 0, 5.0)
    assert faults.flights(0, 1, 5.0)
    assert faults.flights(0, 2, 10.0)
    faults.cut(frozenset({0, 1}), until=20.0, one_way=True)
    assert not faults.flights(0, 2, 15.0)
    assert faults.flights(2, 0, 15.0)


def test_messages_overtake_and_repeat() -> None:
    faults = RandomFaults(PROFILES["lossy"], 3, seed=1)
    flights = [faults.flights(0, 1, 0.0) for _ in range(300)]
    sizes = Counter(len(f) for f in flights)
    assert sizes.keys() == {0, 1, 2}
    arrivals = [f[0] for f in flights if f]
    assert any(a > b for a, b in pairwise(arrivals))


def test_processes_die_at_every_kind_of_point() -> None:
    faults = RandomFaults(dataclasses.replace(PROFILES["calm"], crash=0.5), 3, seed=1)
    fates = [faults.fate(0, [None] * 4) for _ in range(400)]  # type: ignore[list-item]
    assert any(not fate.commit for fate in fates)
    assert {fate.effects for fate in fates if fate.commit} == {None, 0, 1, 2, 3, 4}


def test_an_unknown_profile_is_named() -> None:
    from unweave.errors import ConfigError

    with pytest.raises(ConfigError, match=r"no fault profile 'fog'\. Fix: choose one of calm"):
        profile("fog")
