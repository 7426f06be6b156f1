"""The protocol core in one memory: hops per second, what signing adds, and how it grows with K."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.harness import benchmark
from unweave.graph import Topology, graphs
from unweave.grid import Grid
from unweave.keys import check_signature
from unweave.node.identity import Identity
from unweave.node.wire.codec import decode, encode
from unweave.node.wire.envelope import open_message, sign_message
from unweave.protocol.events import Effect, Send, Solve, SolveResult
from unweave.protocol.messages import Pass
from unweave.protocol.ports import Worker
from unweave.protocol.statements import pae
from unweave.protocol.terms import Terms
from unweave.simulator.world import World
from unweave.testing.store import CountingWorker

HOPS = 4_000


class _Ones(CountingWorker):
    """A worker whose time is not measured."""

    def solve(self, work: Solve) -> SolveResult:
        return SolveResult(np.ones(2, dtype=np.int64))


def _terms(topology: Topology, **settings: Any) -> Terms:
    chosen: dict[str, Any] = {"schedule": "metropolis", "parks": False}
    return Terms(
        network_id=bytes(32),
        topology=topology,
        grid=Grid((0, 0)),
        eta0=np.ones(2, dtype=np.int64),
        **chosen | settings,
    )


class _Signed(World):
    """Tokens travel as sealed bytes: encoded and signed by the sender, verified by the receiver."""

    def __init__(self, terms: Terms, workers: Sequence[Worker]) -> None:
        super().__init__(terms, workers)
        self.identities = [Identity.create(name) for name in terms.topology.agents]
        self.keys = [identity.key.public_key() for identity in self.identities]

    def _perform(self, k: int, effect: Effect) -> None:
        if isinstance(effect, Send) and isinstance(effect.message, Pass):
            sealed = sign_message(encode(effect.message, self.terms), k, self.identities[k].sign)
            _, payload = open_message(sealed, self.terms, self._check)
            effect = effect._replace(message=decode(payload, self.terms))
        super()._perform(k, effect)

    def _check(self, agent: int, payload: bytes, signature: bytes) -> bool:
        return check_signature(self.keys[agent], payload, signature)


class _Bare(_Signed):
    """The same hop with one signature made and checked, and nothing sealed: the floor. They are
    made between the hops, as there, because a signature alone in a loop has warmer caches."""

    payload = pae("bare", bytes(400))

    def _perform(self, k: int, effect: Effect) -> None:
        if isinstance(effect, Send) and isinstance(effect.message, Pass):
            signature = self.identities[k].sign(self.payload)
            self._check(k, self.payload, signature)
        World._perform(self, k, effect)


def _walking(topology: Topology, kind: type[World] = World, *, checked: bool = True) -> World:
    """`checked`: agents check the steps of others (rule 18), as between processes; `Federation`,
    whose agents share one memory, does not."""
    terms = _terms(topology, checked=checked)
    world = kind(terms, [_Ones(k) for k in range(len(topology))])
    world.start()
    return world


def _hop(world: World) -> int:
    return max(world.state(k).token.last.hop for k in range(len(world.agents)))


def _seconds_per_hop(world: World, hops: int = HOPS) -> float:
    for _ in range(hops // 2):
        world.step()
    before = _hop(world)
    began = time.process_time()
    for _ in range(2 * hops):
        world.step()
    return (time.process_time() - began) / (_hop(world) - before)


@benchmark(
    "World: fault-free conjugate hops per second in one memory, K=10, D=2",
    target=20_000,
    unit="hops/s",
)
def hops_per_second() -> float:
    topology = graphs.complete(10)
    return 1.0 / min(_seconds_per_hop(_walking(topology, checked=False)) for _ in range(5))


@benchmark("World: hop with checked steps against a hop without", target=3, unit="×", at_most=True)
def checked_hop() -> float:
    topology = graphs.complete(10)
    ratios = [
        _seconds_per_hop(_walking(topology)) / _seconds_per_hop(_walking(topology, checked=False))
        for _ in range(5)
    ]
    return float(np.median(ratios))


@benchmark(
    "World: signed hop against sign + verify + unsigned hop", target=1.5, unit="×", at_most=True
)
def signed_hop() -> float:
    topology = graphs.complete(10)
    return float(
        np.median(
            [
                _seconds_per_hop(_walking(topology, _Signed), 1_000)
                / _seconds_per_hop(_walking(topology, _Bare), 1_000)
                for _ in range(7)
            ]
        )
    )


@benchmark(
    "World: time per hop at K=10,000 against K=1,000 (ring; linear would be 10)",
    target=2,
    unit="×",
    at_most=True,
)
def growth() -> float:
    def seconds(size: int) -> float:
        walking = (_walking(graphs.ring(size), checked=False) for _ in range(3))
        return min(_seconds_per_hop(world, 1_000) for world in walking)

    return seconds(10_000) / seconds(1_000)


@benchmark("World: memory per agent at K=10,000 (ring)", target=64, unit="kB", at_most=True)
def memory() -> float:
    topology = graphs.ring(10_000)
    tracemalloc.start()
    world = _walking(topology)
    for _ in range(4_000):
        world.step()
    used = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return used / 10_000 / 1e3


def _at_rest(size: int) -> float:
    """Bytes per agent when everybody has learned and attested."""
    terms = _terms(graphs.ring(size), schedule="sweep", parks=True)
    tracemalloc.start()
    world = World(terms, [_Ones(k) for k in range(size)])
    world.start()
    while world.parked is None:
        world.step()
    used = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return used / size


@benchmark(
    "World: memory per agent at rest, K=1,000 against K=250 (ring; 4 would be quadratic in all)",
    target=1.3,
    unit="×",
    at_most=True,
)
def memory_at_rest() -> float:
    return _at_rest(1_000) / _at_rest(250)
