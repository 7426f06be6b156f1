"""Private rounds: the work of masking one value, the keystream, and the hops of a round."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import cache

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from benchmarks.harness import benchmark, cpu
from unweave import BetaBernoulli
from unweave.keyring import Keyring
from unweave.manifest import Manifest
from unweave.manifest.privacy import ring_degree
from unweave.models import Shard
from unweave.protocol.events import DataChanged, Effect, Send
from unweave.protocol.messages import Pass
from unweave.protocol.state import State
from unweave.simulator.world import World
from unweave.solvers import default_solver
from unweave.solvers.worker import ModelWorker

_DIM = 10_000


def _masking(agents: int, repeats: int = 7) -> float:
    """CPU milliseconds in which one of K agents masks a factor of D = 10^4."""
    degree = ring_degree(agents)
    others = {k: Keyring(degree=degree).enrol() for k in range(1, agents)}
    units = np.arange(_DIM, dtype=np.int64)
    mine = Keyring(degree=degree)

    def once() -> float:
        keys = {0: mine.enrol(), **others}
        start = time.process_time()
        assert mine.mask(0, b"round" * 8, keys, units) is not None
        return time.process_time() - start

    once()
    return 1e3 * float(np.median([once() for _ in range(repeats)]))


@benchmark(
    "masks of one agent, K = 50, D = 10^4", target=10, unit="ms", at_most=True, privacy="masked"
)
def masks_of_50() -> float:
    return _masking(50)


@benchmark(
    "masks of one agent, K = 1,000, D = 10^4", target=60, unit="ms", at_most=True, privacy="masked"
)
def masks_of_1000() -> float:
    return _masking(1000)


@benchmark("keystream of masks / the library's own rate", target=0.6, privacy="masked")
def keystream() -> float:
    """All masks of one of 20 agents over D = 10^6, with the additions, against the cipher alone."""
    size, agents = 1_000_000, 20
    units = np.zeros(size, dtype=np.int64)
    others, mine = {k: Keyring().enrol() for k in range(1, agents)}, Keyring()
    zeros = bytes(8 * size)

    def bare() -> None:
        for _ in range(2 * len(others)):
            Cipher(algorithms.AES(bytes(32)), modes.CTR(bytes(16))).encryptor().update(zeros)

    def masked() -> None:
        mine.mask(0, b"round", {0: mine.enrol(), **others}, units)

    return cpu(bare) / cpu(masked)


class _Hops:
    """Counts the tokens that are sent."""

    def __init__(self) -> None:
        self.count = 0

    def after(self, agent: int, before: State, after: State, effects: Sequence[Effect]) -> None:
        self.count += sum(isinstance(e, Send) and isinstance(e.message, Pass) for e in effects)


@cache
def _hops(privacy: str, agents: int = 20) -> tuple[float, float]:
    """Hops to the first rest and after one change, means over ten random graphs."""
    found = []
    for seed in range(10):
        manifest = Manifest.make(
            name="n",
            seed=seed,
            graph={"name": "erdos-renyi", "p": 0.3},
            agents=agents,
            model=BetaBernoulli(),
            privacy=privacy,
        )
        model, counter = manifest.build_model(), _Hops()
        rows = [Shard(name, np.ones((3, 1))) for name in manifest.topology.agents]
        workers = [ModelWorker(model, default_solver(model), shard, seed) for shard in rows]
        world = World(manifest.terms(), workers, seed=seed, observers=[counter])
        world.start()
        while world.step():
            pass
        first = counter.count
        workers[seed].replace(Shard("a", np.zeros((2, 1))))
        world.tell(seed, DataChanged(0.0))
        while world.step():
            pass
        found.append((first, counter.count - first))
    return tuple(np.mean(found, axis=0))


@benchmark("hops to the first rest, masked / plain", target=1.6, at_most=True, privacy="masked")
def first_rest() -> float:
    return _hops("masked")[0] / _hops("plain")[0]


@benchmark("hops after one change, masked / plain", target=2.0, at_most=True, privacy="masked")
def after_change() -> float:
    return _hops("masked")[1] / _hops("plain")[1]
