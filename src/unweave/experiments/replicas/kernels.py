"""Kernels that do not depend on a model: draws, the random walk, and exact sums on the grid.

The kernels repeat `rng` and `graph.schedules` on 64-bit words; tests require equal results. Without
numba, a caller must suppress the overflow warnings of 64-bit words (`np.errstate`).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from unweave.experiments.replicas.jit import jit
from unweave.rng import C1, C2, GOLDEN, Purpose

__all__ = [
    "REFINE",
    "SUBTRACT",
    "absorb",
    "conjugate",
    "first_in_pass",
    "genesis",
    "mix",
    "seed_replicas",
    "u01",
    "walk",
]


Words = NDArray[np.uint64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

_G = np.uint64(GOLDEN)
_C1, _C2 = np.uint64(C1), np.uint64(C2)
_S30, _S27, _S31, _S11 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(11)
_ZERO, _ONE = np.uint64(0), np.uint64(1)
_ROUTE, _GENESIS, _REPLICA = (
    np.uint64(Purpose.ROUTE),
    np.uint64(Purpose.GENESIS),
    np.uint64(Purpose.REPLICA),
)

# Modes after the start of forgetting: agents only forward the token, or learn again after the
# removal.
SUBTRACT, REFINE = 1, 2


@jit
def mix(x: np.uint64) -> np.uint64:
    """`rng.mix64`."""
    x = (x ^ (x >> _S30)) * _C1
    x = (x ^ (x >> _S27)) * _C2
    return x ^ (x >> _S31)


@jit
def absorb(key: np.uint64, part: np.uint64) -> np.uint64:
    """`rng.derive` with one part."""
    return mix((key ^ mix(part)) + _G)


@jit
def u01(key: np.uint64, counter: np.uint64) -> float:
    """`rng.uniform`."""
    return (mix(key + counter * _G) >> _S11) * 2.0**-53


@jit
def seed_replicas(seed: np.uint64, seeds: Words) -> None:
    """seeds[r] = derive(seed, Purpose.REPLICA, r)."""
    key = absorb(seed, _REPLICA)
    for r in range(seeds.shape[0]):
        seeds[r] = absorb(key, np.uint64(r))


@jit
def genesis(seeds: Words, epoch: int, count: int, path: NDArray[np.int32]) -> None:
    """path[:, 0] = the first agent of each replica: `graph.first_agent`, uniform over `count`."""
    for r in range(path.shape[0]):
        # The key contains the epoch only after epoch 1, that is when replicas retrain.
        key = seeds[r] if epoch == 1 else absorb(seeds[r], np.uint64(epoch))
        path[r, 0] = int(u01(absorb(key, _GENESIS), _ZERO) * count)


@jit
def walk(
    seeds: Words,
    epoch: int,
    first_hop: int,
    indptr: Ints,
    indices: NDArray[np.int32],
    path: NDArray[np.int32],
) -> None:
    """Metropolis walks (`eq:mh_rule`) from path[:, 0]; column i is iteration first_hop + i."""
    for r in range(path.shape[0]):
        key = absorb(seeds[r], np.uint64(epoch))
        k = path[r, 0]
        for i in range(1, path.shape[1]):
            route = absorb(absorb(key, np.uint64(first_hop + i - 1)), _ROUTE)
            degree = indptr[k + 1] - indptr[k]
            if degree > 0:
                j = indices[indptr[k] + int(u01(route, _ZERO) * degree)]
                other = indptr[j + 1] - indptr[j]
                # A draw is below 1, so a neighbour of equal or lower degree is always accepted.
                if other <= degree or u01(route, _ONE) * other < degree:
                    k = j
            path[r, i] = k


@jit
def first_in_pass(path: NDArray[np.int32], count: int, to_root: bool, mask: Bools) -> None:
    """mask [R, I]: whether a visit is its agent's first in the pass.

    A pass ends when all agents were visited. The next pass begins with the next visit or, in a
    sweep (`to_root`), with the next visit to the root, where the previous pass began.
    """
    seen = np.zeros(count, dtype=np.bool_)
    for r in range(path.shape[0]):
        root, missing = path[r, 0], count
        seen[:] = False
        for i in range(path.shape[1]):
            k = path[r, i]
            if missing == 0 and (k == root or not to_root):
                seen[:] = False
                missing = count
            mask[r, i] = not seen[k]
            if not seen[k]:
                seen[k] = True
                missing -= 1


@jit
def conjugate(
    path: NDArray[np.int32],
    eta0: Ints,
    factors: Ints,
    forgotten: Bools,
    forget_from: int,
    mode: int,
    units: Ints,
    changed: Bools,
) -> None:
    """Exact learning and forgetting along given paths, on the grid (`eq:nat_para_sum`).

    factors [R or 1, K, D]. Before iteration `forget_from`, an agent adds its factor at its first
    visit. From then on, a forgotten agent subtracts its factor, and the others forward the token;
    with mode = REFINE the others learn again after all removals. Fills units [R, I, D] and
    changed [R, I].
    """
    count, dim = forgotten.shape[0], eta0.shape[0]
    included = np.zeros(count, dtype=np.bool_)
    eta = np.zeros(dim, dtype=np.int64)
    for r in range(path.shape[0]):
        own = r if factors.shape[0] > 1 else 0
        included[:] = False
        eta[:] = eta0
        pending = 0
        for i in range(path.shape[1]):
            k = path[r, i]
            if i == forget_from:
                for j in range(count):
                    if forgotten[j] and included[j]:
                        pending += 1
            learning = i < forget_from or (mode == REFINE and pending == 0 and not forgotten[k])
            changed[r, i] = False
            if learning and not included[k]:
                included[k] = True
                changed[r, i] = True
                for j in range(dim):
                    eta[j] += factors[own, k, j]
            elif i >= forget_from and forgotten[k] and included[k]:
                included[k] = False
                changed[r, i] = True
                pending -= 1
                for j in range(dim):
                    eta[j] -= factors[own, k, j]
            for j in range(dim):
                units[r, i, j] = eta[j]
