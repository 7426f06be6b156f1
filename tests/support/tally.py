"""A toy model for fault tests: a factor shows which rows it contains, and their version.

Row r of agent k contributes 2^(4r) to component 0, so a checker can read the row set off a factor;
component 1 holds their number and the version of the data. The cavity-dependent variant adds
component 2: a slow contraction of the cavity, so that the factors become stationary only after
several passes.
"""

from __future__ import annotations

import hashlib
import os
import random
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from unweave.errors import WireError
from unweave.graph import Topology
from unweave.graph.random_graphs import erdos_renyi
from unweave.grid import Grid, Ints
from unweave.privacy.discrete_gaussian import DiscreteGaussian, Source
from unweave.protocol.events import (
    Advance,
    Appraise,
    Effect,
    Freeze,
    Judge,
    NextPoint,
    Send,
    Solve,
    SolveResult,
)
from unweave.protocol.rounds import is_exhausted
from unweave.protocol.terms import Noise, Terms, Timeouts
from unweave.protocol.token import NOTHING
from unweave.simulator.faults import Profile, RandomFaults
from unweave.simulator.insider import InsiderWorld, keyed_signers
from unweave.simulator.invariants import (
    Checker,
    InsiderChecker,
    Violation,
    known_departed,
    parked_token,
)
from unweave.simulator.noise import SimulatedNoise
from unweave.simulator.workload import Workload, dispensable_agents, run_workload
from unweave.simulator.world import World

__all__ = [
    "ROWS",
    "Outcome",
    "Tally",
    "WireWorld",
    "contains",
    "draw_erasure",
    "expected_eta",
    "row_key",
    "run_faults",
    "tally_checker",
    "tally_signers",
    "tally_terms",
]


ROWS = 12
# Row r of any agent occupies its own bits of component 0; sums over agents stay below 2^63.
_SHIFT = 4
_VERSION = 1000
TIMEOUTS = Timeouts(welcome=2.0, resend=0.5, ack=3.0, alive=1.0, loss=10.0)


def row_key(row: int) -> bytes:
    """The commitment by which a row is named."""
    return bytes([row]) * 16


def contains(agent: int, units: Ints, rows: frozenset[bytes]) -> bool:
    """Whether a factor was computed from any of these rows."""
    return any(int(units[0]) >> (_SHIFT * row[0]) & 1 for row in rows)


def _pull(agent: int, cavity: Ints) -> int:
    return 10 * (agent + 1) + int(cavity[2]) // 16


def _number(point: bytes) -> int:
    return int.from_bytes(point, "big")


def frozen(agent: int, eta: Ints, units: Ints) -> Ints:
    """A vector that depends on the sum and on the factor, so that a stale one is detected."""
    return np.array([int(eta[2]) + agent, int(units[1]), 1], dtype=np.int64)


def stationary(agent: int, eta: Ints, units: Ints) -> bool:
    """Whether the agent's solver would keep this factor."""
    return not units[0] or abs(int(units[2]) - _pull(agent, eta - units)) <= 1


class Tally:
    """One agent's worker."""

    def __init__(self, agent: int, conjugate: bool) -> None:
        self.agent = agent
        self.conjugate = conjugate
        self.version = 0  # of the data
        self.solved = 0

    def factor(self, dropped: frozenset[bytes]) -> list[int] | None:
        """Components 0 and 1 of the factor of all rows but the dropped ones."""
        rows = [r for r in range(ROWS) if row_key(r) not in dropped]
        if not rows:
            return None
        return [sum(1 << (_SHIFT * r) for r in rows), len(rows) + _VERSION * self.version]

    def solve(self, work: Solve) -> SolveResult:
        self.solved += 1
        if work.point is not None:
            return self.solve_at(work)
        factor = self.factor(work.dropped)
        if self.conjugate:
            return SolveResult(None if factor is None else np.array(factor, dtype=np.int64))
        assert work.cavity is not None
        # Without rows the factor is zero.
        pull = 0 if factor is None else _pull(self.agent, work.cavity)
        units = np.array([*(factor or (0, 0)), pull], dtype=np.int64)
        current = work.current
        if (
            current is not None
            and np.array_equal(current[:2], units[:2])
            and abs(int(current[2]) - pull) <= 1
        ):
            return SolveResult(None, keep=True)
        return SolveResult(units)

    def solve_at(self, work: Solve) -> SolveResult:
        """The factor at the point of a private round."""
        factor = self.factor(work.dropped)
        if self.conjugate:
            return SolveResult(None if factor is None else np.array(factor, dtype=np.int64))
        assert work.point is not None
        pull = 0 if factor is None else 10 * (self.agent + 1) + _number(work.point) // 16
        return SolveResult(np.array([*(factor or (0, 0)), pull], dtype=np.int64))

    def advance(self, work: Advance) -> NextPoint:
        """The next point is the last sum's third component, until it stands still."""
        if work.eta is None:
            return NextPoint(work.point)
        value = int(work.eta[2]) % 2**64
        still = abs(value - _number(work.point)) <= 1
        return NextPoint(None if still else value.to_bytes(8, "big"))

    def judge(self, work: Judge) -> bool:
        """Every fourth removal, by its digest, asks for retraining."""
        if work.after is None:
            return hashlib.sha256(repr(work.key).encode()).digest()[0] % 4 != 0
        return hashlib.sha256(work.after.tobytes()).digest()[0] % 4 != 0

    def freeze(self, work: Freeze) -> Ints:
        return frozen(self.agent, work.eta, work.factor)

    def appraise(self, work: Appraise) -> dict[str, Any]:
        if work.frozen is None:
            return {"point": _number(work.point)}
        return {"agents": int(work.frozen[2])}


def tally_terms(topology: Topology, seed: int, *, conjugate: bool = True, **settings: Any) -> Terms:
    dim = 2 if conjugate else 3
    return Terms(
        network_id=hashlib.sha256(b"tally").digest(),
        topology=topology,
        grid=Grid((0,) * dim),
        eta0=np.full(dim, 1, dtype=np.int64),
        seed=seed,
        conjugate=conjugate,
        **settings,
    )


tally_signers = keyed_signers


def tally_checker(terms: Terms, liar: int | None = None) -> Checker:
    """A checker that can look into tally factors and signatures."""
    kind = Checker if liar is None else partial(InsiderChecker, liar=liar)
    return kind(terms, contains, frozen=frozen, stationary=stationary, signers=tally_signers(terms))


def draw_erasure(rng: random.Random, agent: int) -> tuple[bool, frozenset[bytes]]:
    """One row, or sometimes the whole agent."""
    whole = rng.random() < 0.15
    return whole, frozenset() if whole else frozenset({row_key(rng.randrange(ROWS))})


class WireWorld(World):
    """A world in which every message is encoded and decoded."""

    def _perform(self, k: int, effect: Effect) -> None:
        from unweave.node.wire.codec import decode, encode

        if isinstance(effect, Send):
            try:
                effect = Send(effect.to, decode(encode(effect.message, self.terms), self.terms))
            except WireError:
                if k != getattr(self, "liar", None):
                    raise
                return  # only a liar writes what no agent can read
        super()._perform(k, effect)


class WireInsiderWorld(InsiderWorld, WireWorld):
    """An insider's world in which every message is encoded and decoded."""


def expected_eta(world: World, checker: Checker) -> list[int]:
    """Components 0 and 1 of the final sum: eta_0, and for every agent that has not departed and was
    not erased, the newest version of all rows that were not erased."""
    total = [int(v) for v in world.terms.eta0[:2]]
    absent = known_departed(world)
    exhausted = is_exhausted(parked_token(world).masked.spare)  # newer data are not learned
    for k, agent in enumerate(world.agents):
        tomb = world.state(k).known.tombs.get(k, NOTHING)
        if k in absent or tomb.whole:
            continue
        erased = frozenset(row for r in tomb.ids for row in checker.erased[r][1])
        worker = agent.worker
        assert isinstance(worker, Tally)
        factor = worker.factor(erased)
        included = parked_token(world).included[k]
        if exhausted and included.counter:
            factor = [int(v) for v in checker.factors[k, included].units]
            assert not contains(k, np.array(factor), erased)
        if factor is not None:
            total = [a + b for a, b in zip(total, factor, strict=True)]
    token = parked_token(world)
    if world.terms.masked and not token.inside:
        return [int(v) for v in world.terms.eta0[:2]]  # too few agents or a spent budget: no sum
    if world.noise is not None:
        for k in token.inside:
            given = checker.factors[k, token.included[k]].given
            assert given is not None
            noise = world.noise.drawn[given.key]
            total = [a + int(b) for a, b in zip(total, noise[:2], strict=True)]
    return total


class TallyShares:
    """Noise for tally factors: small numbers, and a budget for so many values of an agent."""

    rho = 1.0
    _sampler = DiscreteGaussian(900)

    def __init__(self, releases: int) -> None:
        self.budget = float(releases)

    def draw(self, source: Source = os.urandom) -> Ints:
        return self._sampler.draw(2, source)

    @property
    def noise(self) -> Noise:
        """As the terms state it."""
        statement = {
            "mechanism": "tally",
            "neighbours": "none",
            "epsilon": 1.0,
            "delta": 1e-6,
            "colluders": 0,
            "sensitivity": 1.0,
            "share_variances": [900],
            "honest_shares": 2,
            "rho": self.rho,
            "releases": int(self.budget),
        }
        return Noise(np.array([30 * 16, 30 * 16], dtype=np.int64), statement)


def masked_settings(rng: random.Random) -> dict[str, Any]:
    """Settings of private rounds. Fault runs erase most agents: small rosters are usual."""
    return {
        "min_roster": rng.choice([1, 1, 2, 3]),
        "degree": rng.choice([0, 0, 2]),
        "max_rounds": 30,
    }


@dataclass
class Outcome:
    """A fault run that broke no invariant."""

    world: World
    faults: RandomFaults
    checker: Checker
    workload: Workload


def run_faults(
    seed: int,
    profile: Profile,
    *,
    events: int = 260,
    size: int | None = None,
    wire: bool = False,
    settle_events: int = 60_000,
    **settings: Any,
) -> Outcome:
    """One fault run on a small random network; raises `Violation` if an invariant is broken."""
    rng = random.Random(seed)
    size = size or rng.randrange(3, 7) + bool(profile.lies)  # a liar and a quorum of others
    topology = erdos_renyi(size, 0.6, seed=seed)
    chosen: dict[str, Any] = {
        "conjugate": rng.random() < 0.5,
        "schedule": rng.choice(["sweep", "metropolis"]),
        "forget": rng.choice(["seek", "walk"]),
        "attest": rng.choice(["sweep", "sweep", "walk"]),
        "kept": rng.choice([1, 2, 3]),
        "compact_after": rng.choice([1, 2, 256]),
        "max_passes": 8,
        "timeouts": TIMEOUTS,
    } | settings
    shares = None
    if chosen.get("privacy") == "noisy":
        shares = TallyShares(rng.choice([2, 4, 10, 1000]))
        chosen |= {"privacy": "masked", "conjugate": True, "noise": shares.noise}
    if chosen.get("privacy") == "masked":
        chosen = masked_settings(rng) | chosen
        chosen["iterates"] = not chosen["conjugate"]
    terms = tally_terms(topology, seed, **chosen)
    faults = RandomFaults(profile, size, seed)
    workers = [Tally(k, terms.conjugate) for k in range(size)]
    kind: Any = WireWorld if wire else World
    liar = rng.choice(dispensable_agents(topology)) if profile.lies else None
    checker = tally_checker(terms, liar)
    if isinstance(checker, InsiderChecker):
        kind = partial(
            WireInsiderWorld if wire else InsiderWorld, liar=checker.liar, made=checker.made
        )
    world = kind(
        terms,
        workers,
        seed=seed,
        faults=faults,
        signers=tally_signers(terms),
        observers=[checker],
        noise=None if shares is None else SimulatedNoise(shares, size, seed),
    )

    checker.private.clock = lambda: world.now
    if world.noise is not None:
        checker.private.noise = world.noise.drawn
        checker.private.paid = lambda k: world.noise.ledgers[k].given

    def new_data(k: int, version: int) -> None:
        workers[k].version = version

    workload = run_workload(
        world,
        faults,
        checker,
        draw_erasure,
        new_data,
        events=events,
        settle_events=settle_events,
    )
    check_sum(world, checker)
    if profile.harmless:
        check_one_epoch(checker)
    return Outcome(world, faults, checker, workload)


def check_one_epoch(checker: Checker) -> None:
    """Delays, duplicates, slow solvers, skewed clocks and erasures must not cost an epoch."""
    expected = (
        "genesis",
        "an erasure asked all agents to start from zero",
        "the next private round",
        "this round has a value with erased data",
        "the data have changed",
        "enough changes have gathered",
        "the roster is not that of this round",
        "the one-time key of this agent is gone",  # the data changed while it was used
    )
    surplus = [why for why in checker.opened if why not in expected]
    if surplus or checker.opened.count("genesis") != 1:
        raise Violation(f"liveness: epochs were opened without need: {checker.opened}")


def check_sum(world: World, checker: Checker) -> None:
    """The parked token holds exactly the expected sum."""
    token = parked_token(world)
    found, expected = [int(v) for v in token.eta[:2]], expected_eta(world, checker)
    if found != expected:
        raise Violation(f"liveness: the network learned {found}, not {expected}")
    if world.terms.masked and token.inside:
        for k in world.terms.everybody - known_departed(world):
            shown = world.state(k).token.published
            if shown is None or [int(v) for v in shown.eta[:2]] != expected:
                raise Violation(f"liveness: agent {k} does not hold the published sum")
