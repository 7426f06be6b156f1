"""Learning and forgetting of the beta-exponential model along given paths, as one kernel.

The steps are those of `solvers.natural_gradient`, on scalars; tests compare the two.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from unweave.experiments.replicas.beta_gradients import ESTIMATORS, gradient
from unweave.experiments.replicas.beta_numerics import fisher_quad, log_beta, mean
from unweave.experiments.replicas.jit import jit
from unweave.experiments.replicas.kernels import REFINE, absorb
from unweave.rng import Purpose
from unweave.solvers.steps import CONVERGED, RESOLUTION, SHORTEST, TRUSTED

__all__ = ["FITS", "learn", "solve"]


Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_SOLVE = np.uint64(Purpose.SOLVE)
_NOISY = ESTIMATORS["factor_cv"]  # estimators with this number or a higher one draw samples
FITS = 2.0**62  # bound on a factor: half the range of int64, so that sums do not overflow


@jit
def _free_energy(
    a: float, b: float, l1: float, l2: float, w0: float, w1: float, alpha: float
) -> tuple[float, float]:
    """The local free energy up to a constant, and the size of its terms."""
    mu1, mu2 = mean(a, b)
    loss = w0 * mu1 + w1 * (a + b - 1.0) / (a - 1.0)
    inner, partition = l1 * mu1 + l2 * mu2, log_beta(a, b)
    return (
        loss + alpha * (inner - partition),
        abs(loss) + alpha * (abs(inner) + abs(partition)) + 1.0,
    )


@jit
def _margin(a: float, b: float, floor: float) -> float:
    return a - floor if a - floor < b else b


@jit
def solve(
    ca: float,
    cb: float,
    l1: float,
    l2: float,
    w0: float,
    w1: float,
    key: np.uint64,
    estimator: int,
    rho: float,
    steps: int,
    c: float,
    alpha: float,
    theta: Floats,
    work: Floats,
) -> tuple[float, float, int]:
    """L steps of `eq:non_conj_update` from factor (l1, l2). The third value counts shortened steps,
    or is −1 if q has left the domain on which the required moments of the loss exist."""
    noisy = estimator >= _NOISY
    floor = 2.0 if noisy else 1.0
    cool = 1.0 / alpha
    shortened = 0
    for step in range(steps):
        a, b = ca + l1, cb + l2
        margin = _margin(a, b, floor)
        if not margin > 0.0:
            return l1, l2, -1
        call = absorb(key, np.uint64(step + 1)) if noisy else key
        g1, g2 = gradient(estimator, a, b, w0, w1, alpha * l1, alpha * l2, c, call, theta, work)
        d1, d2 = -(l1 + g1 * cool), -(l2 + g2 * cool)
        if not (abs(d1) < np.inf and abs(d2) < np.inf):
            return l1, l2, -1  # halving an infinite step would never end
        if rho > 0.0:
            t = rho
            if not _margin(a + t * d1, b + t * d2, floor) > 0.0:
                shortened += 1
                while _margin(a + t * d1, b + t * d2, floor) < 0.5 * margin:
                    t *= 0.5
        elif noisy:
            t, quad = 1.0, fisher_quad(a, b, d1, d2)
            while t * t * quad > TRUSTED or _margin(a + t * d1, b + t * d2, floor) < 0.5 * margin:
                t *= 0.5
            shortened += t < 1.0
        else:
            quad = fisher_quad(a, b, d1, d2)
            if 0.5 * quad < CONVERGED:
                break
            t = 1.0
            while not _margin(a + t * d1, b + t * d2, floor) > 0.0:
                t *= 0.5
            before, size = _free_energy(a, b, l1, l2, w0, w1, alpha)
            if alpha * quad > RESOLUTION * size:
                while True:
                    after, _ = _free_energy(
                        a + t * d1, b + t * d2, l1 + t * d1, l2 + t * d2, w0, w1, alpha
                    )
                    if after < before:
                        break
                    t *= 0.5
                    if t < SHORTEST:
                        t = 0.0
                        break
            shortened += t < 1.0
        l1 += t * d1
        l2 += t * d2
    return l1, l2, shortened


@jit
def learn(
    seeds: NDArray[np.uint64],
    epoch: int,
    first_hop: int,
    path: NDArray[np.int32],
    solving: NDArray[np.bool_],
    eta0: Ints,
    data: Floats,
    forgotten: NDArray[np.bool_],
    forget_from: int,
    mode: int,
    estimator: int,
    rho: float,
    steps: int,
    samples: int,
    c: float,
    alpha: float,
    scale: Floats,
    units: Ints,
    shortened: Ints,
) -> None:
    """G-FVL (Gong, Simeone, Kang 2021, Algorithm 1) for every replica.

    data [R or 1, K, 2] holds (w0, w1) of each agent's loss w0·log θ + w1/θ. An agent that is
    already included solves again where `solving` [R, I] is true. `forget_from` and `mode` are as in
    `kernels.conjugate`. Fills units [R, I, 2]; shortened[r] counts shortened steps, or is −1 − i if
    the solve at iteration i failed.
    """
    count = forgotten.shape[0]
    unit1, unit2 = 1.0 / scale[0], 1.0 / scale[1]  # powers of two: exact
    theta, work = np.empty(samples), np.empty((3, samples))
    factor = np.zeros((count, 2), dtype=np.int64)
    included = np.zeros(count, dtype=np.bool_)
    for r in range(path.shape[0]):
        own = r if data.shape[0] > 1 else 0
        run = absorb(seeds[r], np.uint64(epoch))
        for j in range(count):
            factor[j, 0], factor[j, 1], included[j] = 0, 0, False
        e1, e2 = eta0[0], eta0[1]
        pending = 0
        shortened[r] = 0
        for i in range(path.shape[1]):
            k = path[r, i]
            if i == forget_from:
                for j in range(count):
                    pending += forgotten[j] and included[j]
            learning = i < forget_from or (mode == REFINE and pending == 0 and not forgotten[k])
            learning = learning and (solving[r, i] or not included[k])
            f1, f2 = factor[k, 0], factor[k, 1]
            c1, c2 = e1 - f1, e2 - f2
            if learning and shortened[r] >= 0:
                key = absorb(absorb(run, np.uint64(first_hop + i)), _SOLVE)
                l1, l2, short = solve(
                    c1 * unit1,
                    c2 * unit2,
                    f1 * unit1,
                    f2 * unit2,
                    data[own, k, 0],
                    data[own, k, 1],
                    key,
                    estimator,
                    rho,
                    steps,
                    c,
                    alpha,
                    theta,
                    work,
                )
                u1, u2 = np.rint(l1 * scale[0]), np.rint(l2 * scale[1])
                if short >= 0 and abs(u1) < FITS and abs(u2) < FITS:
                    shortened[r] += short
                    f1, f2 = np.int64(u1), np.int64(u2)
                    factor[k, 0], factor[k, 1], included[k] = f1, f2, True
                    e1, e2 = c1 + f1, c2 + f2
                else:
                    shortened[r] = -1 - i
            elif i >= forget_from and forgotten[k] and included[k]:
                e1, e2 = c1, c2
                factor[k, 0], factor[k, 1], included[k] = 0, 0, False
                pending -= 1
            units[r, i, 0], units[r, i, 1] = e1, e2
