"""Many fault runs: `python -m tests.support.swarm --seeds 10000`.

Each seed is one fault run on a small network; the seed chooses the profile unless one is given. A
seed that fails is printed with the command that repeats it.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from tests.support.tally import Outcome, WireWorld, run_faults
from unweave.simulator.faults import PROFILES
from unweave.simulator.insider import InsiderWorld
from unweave.simulator.invariants import Violation, known_departed, parked_token

__all__ = ["main", "run_seed", "swarm"]


_EVERY = 8  # every eighth run of a profile sends its messages as bytes


def run_seed(seed: int, profile: str | None = None, privacy: str = "plain") -> Outcome:
    """The fault run of this seed; raises `Violation`."""
    names = list(PROFILES)
    name = names[seed % len(names)] if profile is None else profile
    wire = seed // len(names) % _EVERY == 0
    return run_faults(seed, PROFILES[name], wire=wire, privacy=privacy)


def counts(outcome: Outcome) -> Counter[str]:
    """The number of faults and events of a run, by kind."""
    checker, faults = outcome.checker, outcome.faults
    found = Counter(outcome.workload.counts)
    found["runs"] = 1
    found["events"] = outcome.world.events
    found["transitions checked"] = checker.checked
    found["messages lost"] = faults.lost
    found["crashes"] = faults.crashes
    found["restarts"] = checker.starts - len(outcome.world.agents)
    found["epochs"] = len(checker.opened)
    found["rebuilds"] = sum("no longer kept" in w or "forbids" in w for w in checker.opened)
    found["retrainings"] = sum("start from zero" in why for why in checker.opened)
    found["losses"] = sum("no heartbeat" in why for why in checker.opened)
    found["detours"] = sum("does not answer" in why for why in checker.opened)
    found["certificates"] = len(checker.certificates)
    found["erasures certified"] = len(checker.certified)
    found["erasures compacted"] = len(checker.compacted)
    found["agents departed"] = len(outcome.world.state(outcome.world.parked or 0).departed)
    found["as bytes"] = isinstance(outcome.world, WireWorld)
    if isinstance(outcome.world, InsiderWorld):
        found["lies"] = outcome.world.lies.told.total()
        found["lies that no agent reads"] = outcome.world.refused.total()
        found["liars voted out"] = outcome.world.liar in known_departed(outcome.world)
    found["mixed versions"] = any(outcome.workload.versions)
    if outcome.world.terms.masked:
        found["values given"] = len(checker.private.given)
        found["rounds completed"] = len(checker.private.rounds)
        found["networks without a sum at the end"] = not parked_token(outcome.world).inside
    if outcome.world.noise is not None:
        noise = outcome.world.noise
        found["values paid for"] = sum(noise.charged.values())
        found["values that a ledger had forgotten"] = noise.missing
        found["values charged because no agent knew"] = noise.unsure
        found["budgets spent"] = sum(
            noise.release(k, 0).left == 0 for k in range(len(noise.ledgers))
        )
    return found


def swarm(
    seeds: Iterable[int], profile: str | None = None, privacy: str = "plain"
) -> Iterator[tuple[int, Counter[str] | Violation]]:
    """Each seed with its counts, or with the violation."""
    for seed in seeds:
        try:
            yield seed, counts(run_seed(seed, profile, privacy))
        except Violation as violation:
            yield seed, violation


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; 1 if a seed failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.swarm", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many")
    parser.add_argument("--start", type=int, default=0, help="the first")
    parser.add_argument("--profile", choices=list(PROFILES), help="default: by seed, all in turn")
    parser.add_argument("--privacy", choices=["plain", "masked", "noisy"], default="plain")
    options = parser.parse_args(arguments)
    total: Counter[str] = Counter()
    failed: list[int] = []
    began = time.monotonic()
    seeds = range(options.start, options.start + options.seeds)
    for seed, found in swarm(seeds, options.profile, options.privacy):
        if isinstance(found, Violation):
            failed.append(seed)
            which = f" --profile {options.profile}" if options.profile else ""
            which += f" --privacy {options.privacy}" if options.privacy != "plain" else ""
            sys.stdout.write(f"seed {seed} fails: {found}\n")
            sys.stdout.write(f"  python -m tests.support.swarm --start {seed} --seeds 1{which}\n")
        else:
            total += found
        done = seed + 1 - options.start
        if done % 500 == 0 and done < options.seeds:
            seconds = time.monotonic() - began
            sys.stdout.write(f"{done} runs, {seconds:.0f} s, {len(failed)} failed\n")
            sys.stdout.flush()
    for name, number in sorted(total.items()):
        sys.stdout.write(f"{number:>12,}  {name}\n")
    sys.stdout.write(f"{options.seeds} seeds in {time.monotonic() - began:.0f} s, ")
    sys.stdout.write(f"{len(failed)} failed{': ' if failed else ''}{failed or ''}\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
