"""A toy model for fault tests: a factor shows which rows it was computed from.

Row r of agent k contributes 2^r to component 0 and 1 to component 1, so a checker can read the row set
off a factor. The cavity-dependent variant adds component 2: a slow contraction of the cavity, so that
agents must be visited in several passes before nobody moves.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from unweave.graph import Topology
from unweave.graph.random_graphs import erdos_renyi
from unweave.grid import Grid, Ints
from unweave.protocol.events import Appraise, Freeze, Judge, Solution, Solve
from unweave.protocol.terms import Patience, Terms
from unweave.simulate.checks import Checker
from unweave.simulate.faults import Profile, Storm, ride_out
from unweave.simulate.world import World

__all__ = ["ROWS", "Tally", "contains", "row_key", "run_storm", "tally_terms"]

ROWS = 12
# Row r of any agent occupies its own bits of component 0; sums over agents stay below 2^63.
_SHIFT = 4


def row_key(row: int) -> bytes:
    """The commitment by which a row is named."""
    return bytes([row]) * 16


def contains(agent: int, units: Ints, rows: frozenset[bytes]) -> bool:
    """Whether a factor was computed from any of these rows."""
    return any(int(units[0]) >> (_SHIFT * row[0]) & 1 for row in rows)


class Tally:
    """One agent's worker."""

    def __init__(self, agent: int, conjugate: bool) -> None:
        self.agent = agent
        self.conjugate = conjugate

    def solve(self, work: Solve) -> Solution:
        rows = [r for r in range(ROWS) if row_key(r) not in work.dropped]
        if not rows:
            return Solution(None)
        mask, count = sum(1 << (_SHIFT * r) for r in rows), len(rows)
        if self.conjugate:
            return Solution(np.array([mask, count], dtype=np.int64))
        assert work.cavity is not None
        pull = 10 * (self.agent + 1) + int(work.cavity[2]) // 16
        units = np.array([mask, count, pull], dtype=np.int64)
        current = work.current
        if (
            current is not None
            and np.array_equal(current[:2], units[:2])
            and abs(int(current[2]) - pull) <= 1
        ):
            return Solution(None, keep=True)
        return Solution(units)

    def judge(self, work: Judge) -> bool:
        """Every fourth removal, by its digest, asks for retraining."""
        return hashlib.sha256(work.after.tobytes()).digest()[0] % 4 != 0

    def freeze(self, work: Freeze) -> Ints:
        return np.array([0, 0, 1], dtype=np.int64)

    def appraise(self, work: Appraise) -> dict[str, Any]:
        return {"agents": int(work.frozen[2])}


def tally_terms(topology: Topology, seed: int, *, conjugate: bool = True, **settings: Any) -> Terms:
    dim = 2 if conjugate else 3
    return Terms(
        run=hashlib.sha256(b"tally").digest(),
        topology=topology,
        grid=Grid((0,) * dim),
        eta0=np.full(dim, 1, dtype=np.int64),
        seed=seed,
        conjugate=conjugate,
        **settings,
    )


def run_storm(
    seed: int,
    profile: Profile,
    *,
    events: int = 220,
    size: int | None = None,
    agents: Sequence[str] | None = None,
    **settings: Any,
) -> Checker:
    """One seeded fault run on a small random network; raises `Violation` if a rule is broken."""
    import random

    rng = random.Random(seed)
    size = size or rng.randrange(3, 7)
    topology = erdos_renyi(size, 0.6, seed=seed)
    chosen: dict[str, Any] = {
        "conjugate": rng.random() < 0.5,
        "schedule": rng.choice(["sweep", "metropolis"]),
        "forget": rng.choice(["seek", "walk"]),
        "attest": rng.choice(["sweep", "sweep", "walk"]),
        "kept": rng.choice([1, 2, 3]),
        "max_passes": 8,
        "patience": Patience(welcome=2.0, resend=0.5, ack=3.0, alive=1.0, loss=10.0),
    } | settings
    terms = tally_terms(topology, seed, **chosen)
    storm = Storm(profile, size, seed)
    checker = Checker(terms, contains)
    workers = [Tally(k, terms.conjugate) for k in range(size)]
    world = World(terms, workers, seed=seed, weather=storm, observers=[checker])
    ride_out(world, storm, checker, events=events, rows=ROWS)
    return checker
