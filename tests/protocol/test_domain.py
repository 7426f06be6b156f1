"""A model whose posterior exists only on a part of the grid: what is left of the sum after somebody
is gone may lie outside, and the network must find its way back."""

import numpy as np
import pytest
from scipy.optimize import minimize

from unweave.manifest import Manifest
from unweave.protocol.certificate.unchecked import unchecked_closing
from unweave.protocol.events import EraseRequested, Solve, VoteCast
from unweave.protocol.token import request_id
from unweave.simulator.faults import RandomFaults
from unweave.simulator.invariants import Checker, check_liveness
from unweave.simulator.session import NO_FAULTS
from unweave.simulator.world import World
from unweave.solvers import default_solver
from unweave.solvers.worker import ModelWorker

REQUEST = b"r" * 12
EDGE = np.array([1.0, 0.0])  # the search stays where the loss has an expectation


class Network:
    """Agents on a complete graph; `means` and `sizes` of their exponential records."""

    def __init__(self, *shards, a=3.0, seed=0):
        size = len(shards)
        rng = np.random.default_rng(seed)
        settings = {"name": "beta-exponential", "a": a, "b": 3.0}
        manifest = Manifest.make(name="n", seed=3, agents=size, graph="complete", model=settings)
        self.model, self.terms = manifest.build_model(), manifest.terms()
        self.shards = [
            self.model.shard({"z": rng.exponential(mean, n)}, name)
            for name, (mean, n) in zip(self.terms.topology.agents, shards, strict=True)
        ]
        self.tolerance = 1e-4 / size**2
        solver = default_solver(self.model)
        self.workers = [
            ModelWorker(self.model, solver, shard, self.terms.seed, tolerance=self.tolerance)
            for shard in self.shards
        ]
        self.checker = Checker(self.terms)
        calm = RandomFaults(NO_FAULTS, size, 1)
        self.world = World(self.terms, self.workers, faults=calm, observers=[self.checker])
        self.world.start()
        self.rest()

    def rest(self):
        end = self.world.now + 600.0
        self.world.run(lambda: self.world.now > end, 400_000)
        assert self.world.parked is not None
        return self.token

    @property
    def token(self):
        return self.world.state(self.world.parked).token.held

    @property
    def eta(self):
        return self.model.grid.decode(self.token.eta)

    def tell(self, k, event):
        self.world.tell(k, event)

    def without(self, k):
        """What is left of the sum when its factor is taken out."""
        return self.eta - self.model.grid.decode(self.world.state(k).own.current.units)

    def optimum(self, *gone):
        """The best q of the pooled records, by a search that knows no gradient of ours."""
        data = sum(self.model.summary(s) for k, s in enumerate(self.shards) if k not in gone)
        prior = self.model.grid.decode(self.model.eta0)

        def bound(x):
            eta = np.exp(x) + EDGE
            return float(self.model.expected_loss(eta, data) + self.model.family.kl(eta, prior))

        starts = (np.maximum(self.eta, 1.5), np.array([100.0, 3.0]), np.array([30.0, 30.0]))
        options = {"xatol": 1e-10, "fatol": 1e-12, "maxiter": 20_000}
        found = [
            minimize(bound, np.log(start - EDGE), method="Nelder-Mead", options=options)
            for start in starts
        ]
        return np.exp(min(found, key=lambda one: one.fun).x) + EDGE

    def settled(self, *gone):
        """Proper, where the records want it, and nobody would move."""
        assert self.model.family.margin(self.eta) > 0.0
        assert self.token.round.converged
        away = float(self.model.family.kl(self.eta, self.optimum(*gone)))
        assert away < 1e-3, away
        for k, worker in enumerate(self.workers):
            state = self.world.state(k)
            if k in gone or state.own.current is None:
                continue
            units = state.own.current.units
            cavity = self.token.eta - units
            assert worker.solve(Solve(("x",), 1, 1, cavity, units, state.own.dropped)).keep
        check_liveness(self.world, self.checker)
        return True


# Pulling in two directions: without one of them the others' factors have no proper sum.
OPPOSED = [
    ((0.9, 300), (0.05, 300), (0.9, 300)),
    ((3.0, 300), (0.05, 1000), (0.02, 1000)),
]


@pytest.mark.parametrize("shards", OPPOSED)
def test_a_departed_agent_leaves_a_sum_that_is_no_posterior(shards):
    network = Network(*shards)
    assert network.settled()
    assert network.model.family.margin(network.without(0)) < 0.0
    network.world.crash(0)
    network.world.run(lambda: network.world.now > 700.0, 400_000)
    for voter in range(1, len(shards)):
        clock = network.world.clock(voter)
        network.tell(voter, VoteCast(0, request_id(0, REQUEST), clock))
    network.rest()
    assert network.settled(0)
    closing = unchecked_closing(network.checker.certificates[-1])
    assert [entry["kind"] for entry in closing["erasures"].values()] == ["refined"]
    assert closing["converged"]
    assert closing["estimate"]["kl_to_optimum"] < 1e-3


@pytest.mark.parametrize("shards", OPPOSED)
@pytest.mark.parametrize("lost", [(0,), (0, 1), (1, 2)])
def test_lost_disks_leave_a_sum_that_is_no_posterior(shards, lost):
    """Everybody is alive, and whoever lost its disk has its records."""
    network = Network(*shards)
    for k in lost:
        network.world.crash(k)
        network.world.wipe(k)
        network.world.start_agent(k)
    network.rest()
    assert network.settled()


@pytest.mark.parametrize(
    "shards", [((0.8, 100), (0.05, 300)), ((0.97, 2000), (0.05, 9000)), ((0.9, 200),)]
)
def test_one_who_is_left_alone_still_goes_on_until_it_is_done(shards):
    """Its cavity is the prior and never changes, and a solver makes a few steps at a time."""
    network = Network(*shards)
    assert network.settled()
    if len(shards) > 1:
        ask = EraseRequested(request_id(1, REQUEST), True, frozenset(), network.world.clock(1))
        network.tell(1, ask)
        network.rest()
        assert network.settled(1)
        assert unchecked_closing(network.checker.certificates[-1])["converged"]
