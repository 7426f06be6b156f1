"""A proved bound on the distance from the optimum, for losses with |f'''| ≤ f'' (`self_concordant`:
logistic, Poisson and negative binomial regression).

q = Normal(m, CCᵀ) minimises F(m, C) = E[Σ_n f_n] + ½E‖theta − m_0‖²_{P_0} − Σ log C_ii, which is
convex in (m, C). In the norm ‖(u, V)‖²_M = uᵀMu + tr VᵀMV its Hessian is at least

    M = P_0 + Σ_n κ_n x_n x_nᵀ,    κ_n = λ_min E[f_n''(a + sz) (1, z)(1, z)ᵀ],  t_n ~ Normal(a, s²).

Within the radius R of q in the norm of P = (CCᵀ)⁻¹, every predictor's mean and sd move by at most
ρ = R s, and f''(t') ≥ f''(t) e^{−|t' − t|}, so that κ_n loses at most the factor e^{−ρ(1 + |z|)}.
With |z| ≤ (1 + z²)/2 that is again a normal expectation. R is the same for everybody and P is known
from the token: one round of sums Σ κ_n x_n x_nᵀ is enough, and the bound is computed from them.

With ε = ‖∇F‖ in the dual norm of M: if 2ε in M is within R in P, the optimum q* is within ε, and

    KL(q ‖ q*) ≤ ½ x² (1 + 1/(1 − x)),   x = ε/(σ − ε) < 1,   σ = σ_min(M^½ C).

Every mean m_i, and every entry of the root C in row i, is then within ε/σ standard deviations i of
the optimum's. If no published number is so near to an edge, the posterior publishes what the
optimum publishes, and so does everybody else who comes as near to it, by whatever way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unweave.families.point import NormalPoint
from unweave.models.glm.quadrature import expectations

if TYPE_CHECKING:
    from unweave.models.glm.base import GLM

__all__ = ["Distance", "distance_bound", "least_curvature"]

Floats = NDArray[np.float64]

RADIUS = 0.1  # larger: the bound reaches farther, but is less tight
_ROUNDING = 1.001  # the sums of the agents are rounded to the grid


def least_curvature(model: GLM, q: NormalPoint, rows: Floats) -> Floats:
    """Σ κ_n x_n x_nᵀ over these records, without 1/alpha."""
    x, y, offset = model.outcomes(rows)
    a, s = x @ q.mean + offset, np.sqrt(q.spread(x))
    rho = RADIUS * s
    # e^{−ρ(3 + z²)/2} φ(z) is a normal density in u = z √(1 + ρ), times a constant.
    shrink = 1.0 / np.sqrt(1.0 + rho)
    inner = np.maximum(s * shrink, 1e-150)

    def moments(t: Floats, y: Floats, a: Floats, inner: Floats) -> tuple[Floats, Floats, Floats]:
        u, second = (t - a) / inner, model.pointwise(t, y)[2]
        return second, second * u, second * u * u

    zero, one, two = expectations(moments, a, inner * inner, model.width, y, a, inner)
    one, two = one * shrink, two * shrink * shrink
    least = 0.5 * (zero + two) - np.sqrt(np.square(0.5 * (zero - two)) + one * one)
    kappa = np.maximum(least, 0.0) * np.exp(-1.5 * rho) * shrink
    found: Floats = (x.T * kappa) @ x
    return found


class Distance(NamedTuple):
    """Bounds on the distance of q from the optimum."""

    kl: float  # KL(q ‖ optimum)
    sds: float  # of every mean and every entry of the root, in standard deviations


def distance_bound(
    q: NormalPoint,
    prior_precision: Floats,
    dh: Floats,
    dp: Floats,
    curvature: Floats,
    served: NormalPoint | None = None,
) -> Distance | None:
    """The bounds; None: q is too far away for them. (dh, dp) is Σ_k r_k, the
    distance of the factors from their fixed point, and `curvature` the sum of all agents'.

    They are for q, or for `served`: with its distance δ from q in M, the optimum is within ε + δ of
    it, and the bounds follow with its own root in place of C."""
    m = prior_precision + curvature
    root = np.linalg.cholesky(q.cov)
    try:
        factor = np.linalg.cholesky(m)
    except np.linalg.LinAlgError:
        return None
    slope = np.column_stack([dh - dp @ q.mean, -np.tril(dp @ root)])
    epsilon = float(np.linalg.norm(np.linalg.solve(factor, slope)))
    # σ_min(M^½ C)² is the smallest eigenvalue of CᵀMC, and of M in the metric of P.
    least = float(np.sqrt(max(np.linalg.eigvalsh(root.T @ m @ root)[0], 0.0)))
    if not 2.0 * epsilon <= RADIUS * least:
        return None
    if served is not None:
        after = np.linalg.cholesky(served.cov)
        moved = np.column_stack([served.mean - q.mean, after - root])
        epsilon += float(np.linalg.norm(factor.T @ moved))
        least = float(np.sqrt(max(np.linalg.eigvalsh(after.T @ m @ after)[0], 0.0)))
        if not 2.0 * epsilon < least:
            return None
    x = epsilon / (least - epsilon)
    kl = 0.5 * x * x * (1.0 + 1.0 / (1.0 - x))
    return Distance(_ROUNDING * kl, _ROUNDING * epsilon / least)
