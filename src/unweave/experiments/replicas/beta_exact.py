"""Beta-exponential learning with exact gradients and a fixed rho, vectorised over replicas.

A block of replicas runs one visit at a time. The inputs of the visit are copied into lanes, one per
replica, and a step is a loop over the lanes without branches, which compilers turn into vector
instructions. If a lane is not ordinary (a or b below 10, or a step leaves the domain), `solve` runs
the visit for each replica of the block.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from unweave.experiments.replicas.beta_exponential import FITS, solve
from unweave.experiments.replicas.beta_gradients import exact_from
from unweave.experiments.replicas.beta_numerics import determinant, trigamma_series
from unweave.experiments.replicas.jit import jit

__all__ = ["learn_exact"]


Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_BLOCK = 16


@jit
def _step(lanes: Floats, size: int, rho: float, cool: float) -> bool:
    """One step of `eq:non_conj_update` in all lanes; False where a lane is not ordinary.

    lanes [6, B] holds the cavity, the factor (updated) and the data (w0, w1).
    """
    x1, x2, l1, l2, w0, w1 = lanes[0], lanes[1], lanes[2], lanes[3], lanes[4], lanes[5]
    low = np.inf
    for q in range(size):
        low = min(low, min(x1[q] + l1[q], x2[q] + l2[q]))
    if not low >= 10.0:
        return False
    for q in range(size):
        a, b = x1[q] + l1[q], x2[q] + l2[q]
        ia, ib, total = 1.0 / a, 1.0 / b, 1.0 / (a + b)
        ga, gb, gs = trigamma_series(ia), trigamma_series(ib), trigamma_series(total)
        det = determinant(a, b, ia, ib, total, ga, gb, gs)
        g1, g2 = exact_from(a, b, w0[q], w1[q], det, ga, gb, gs, ia, total)
        l1[q] -= rho * (l1[q] + g1 * cool)
        l2[q] -= rho * (l2[q] + g2 * cool)
    low = np.inf
    for q in range(size):
        low = min(low, min(x1[q] + l1[q] - 1.0, x2[q] + l2[q]))
    return low > 0.0


@jit
def learn_exact(
    path: NDArray[np.int32],
    solving: NDArray[np.bool_],
    eta0: Ints,
    data: Floats,
    rho: float,
    steps: int,
    alpha: float,
    scale: Floats,
    units: Ints,
    shortened: Ints,
) -> None:
    """`beta_exponential.learn` for the estimator "exact" and a fixed rho, without forgetting."""
    unit1, unit2, cool = 1.0 / scale[0], 1.0 / scale[1], 1.0 / alpha
    count, replicas = data.shape[1], path.shape[0]
    factor = np.zeros((_BLOCK, count, 2), dtype=np.int64)
    eta = np.zeros((_BLOCK, 2), dtype=np.int64)
    lanes, start = np.empty((6, _BLOCK)), np.empty((2, _BLOCK))
    unused, work = np.empty(1), np.empty((3, 1))
    for first in range(0, replicas, _BLOCK):
        size = min(_BLOCK, replicas - first)
        for q in range(size):
            eta[q, 0], eta[q, 1] = eta0[0], eta0[1]
            shortened[first + q] = 0
            for j in range(count):
                factor[q, j, 0], factor[q, j, 1] = 0, 0
        for i in range(path.shape[1]):
            for q in range(size):
                k = path[first + q, i]
                own = first + q if data.shape[0] > 1 else 0
                f1, f2 = factor[q, k, 0], factor[q, k, 1]
                lanes[0, q], lanes[1, q] = (eta[q, 0] - f1) * unit1, (eta[q, 1] - f2) * unit2
                lanes[2, q], lanes[3, q] = f1 * unit1, f2 * unit2
                start[0, q], start[1, q] = lanes[2, q], lanes[3, q]
                lanes[4, q], lanes[5, q] = data[own, k, 0], data[own, k, 1]
            ordinary = True
            for _ in range(steps):
                ordinary = ordinary and _step(lanes, size, rho, cool)
            for q in range(size):
                r = first + q
                k = path[r, i]
                l1, l2, short = lanes[2, q], lanes[3, q], 0
                if not ordinary:
                    l1, l2, short = solve(
                        lanes[0, q],
                        lanes[1, q],
                        start[0, q],
                        start[1, q],
                        lanes[4, q],
                        lanes[5, q],
                        np.uint64(0),
                        0,
                        rho,
                        steps,
                        0.0,
                        alpha,
                        unused,
                        work,
                    )
                u1, u2 = np.rint(l1 * scale[0]), np.rint(l2 * scale[1])
                if not solving[r, i]:
                    pass
                elif shortened[r] >= 0 and short >= 0 and abs(u1) < FITS and abs(u2) < FITS:
                    shortened[r] += short
                    f1, f2 = np.int64(u1), np.int64(u2)
                    eta[q, 0] += f1 - factor[q, k, 0]
                    eta[q, 1] += f2 - factor[q, k, 1]
                    factor[q, k, 0], factor[q, k, 1] = f1, f2
                elif shortened[r] >= 0:
                    shortened[r] = -1 - i
                units[r, i, 0], units[r, i, 1] = eta[q, 0], eta[q, 1]
