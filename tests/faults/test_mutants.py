"""The fault tests can fail: every seeded bug of the protocol is caught.

Each file in `mutants/` breaks one rule. A fault run catches it (the checker or the liveness check,
in the run of the named seed, else within the first SEEDS of its profile). Where the network heals
the damage, a test that shows its price catches it (in test_rules, or in the file that the bug
names). The unbroken protocol passes all.
"""

from __future__ import annotations

import importlib.util
import re
from functools import lru_cache
from pathlib import Path
from types import ModuleType

import pytest
from tests.support.seeded import read_bug, seeded
from tests.support.tally import run_faults

from unweave.simulator.faults import PROFILES
from unweave.simulator.invariants import Violation

HERE = Path(__file__).parent
BUGS = sorted((HERE / "mutants").glob("*.toml"))
SEEDS = 60


@lru_cache
def _tests(file: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location("tests_for_mutants", HERE.parent / file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _settings(bug: dict) -> dict:
    return {"privacy": bug["caught"].get("privacy", "plain")}


def _caught_in_storm(bug: dict) -> int | None:
    """The seed whose run catches the bug."""
    profile = PROFILES[bug["caught"]["profile"]]
    first = bug["caught"]["seed"]
    for seed in [first, *(s for s in range(SEEDS) if s != first)]:
        with seeded(bug):
            try:
                run_faults(seed, profile, settle_events=6000, **_settings(bug))
            except Violation as violation:
                if re.search(bug["caught"]["match"], str(violation)):
                    return seed
    return None


@pytest.mark.parametrize("path", BUGS, ids=lambda path: path.stem)
def test_a_seeded_bug_is_caught(path: Path) -> None:
    bug = read_bug(path)
    if "profile" in bug["caught"]:
        seed = _caught_in_storm(bug)
        assert seed is not None, f"{bug['bug']}: survives {SEEDS} runs"
        run_faults(seed, PROFILES[bug["caught"]["profile"]], **_settings(bug))
    else:
        file = bug["caught"].get("file", "faults/test_rules.py")
        test = getattr(_tests(file), bug["caught"]["test"])
        test()
        with seeded(bug), pytest.raises(AssertionError):
            test()


def test_the_list_is_complete() -> None:
    """One file for each bug that the protocol's rules were made against."""
    listed = {
        "revision number reused after a restore",
        "a tombstone as a revision bound instead of ids",
        "tombstone at request time with silent drop",
        "dead outbox purged silently",
        "learn before fence",
        "gossiped stamp used as dedup mark",
        "dedup by equality",
        "wake lost (edge-triggered)",
        "wake leaves the pass bitmap full",
        "stale quiet after an epoch from an old copy",
        "audit added twice on a revisit",
        "frozen sum not reset with quiet",
        "rest after one pass though nobody re-solved",
        "missing revision ignored",
        "solve begun before rows were dropped",
        "rows back with the backup",
        "restored agent acts before sync",
        "certificate while a neighbour has not acked",
        "retrain_epoch not gossiped with the tombstone",
        "Rest silences the loss timer of a lost holder",
        "first agent departed at genesis",
        "depth-first parent left",
        "self-erased agent treated as departed",
        "ack after solve (too many epochs)",
        "ack before commit",
        "redraw without a new epoch",
        "flood forwarded once (lost at a crashed relay)",
        # Private rounds (rule 20).
        "masks are named by the epoch, not by the round",
        "the roster is not compared with the keys of the round",
        "a value is given before all have enrolled",
        "both agents of a pair add their stream",
        "an incomplete sum is attested",
        "a change of the data starts no new round",
        "the roster keeps departed agents",
        "one-time keys survive a restart",
        "a round that waits for an agent is woken for ever",
        "a fork of a round gets another value",
        "the audit uses the mask of the sum",
        "a round that waits for a value is not woken",
        "a key of an earlier incarnation counts as held",
        "a value that was given with erased rows stays",
    }
    assert listed <= {read_bug(path)["bug"] for path in BUGS}
