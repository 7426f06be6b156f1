"""The beta-exponential model at atoms, for figures 4 and 5: the same walks, no local steps.

A visited agent adds its log-likelihood at 512 points of the prior. The sum is the exact posterior
of the agents visited so far, so its KL to the posterior of all agents ends with the last new one.
"""

from __future__ import annotations

from typing import cast

import numpy as np
from numpy.typing import NDArray

from unweave.experiments.paper import style
from unweave.experiments.paper.experiment import AGENTS
from unweave.experiments.paper.settings import Setting, ours
from unweave.experiments.replicas import PerReplica
from unweave.experiments.replicas.result import Curves
from unweave.models import BetaExponential, BetaExponentialAtoms
from unweave.models.base import Reduction

__all__ = ["ATOMS", "LINE", "atom_curves", "atom_setting"]

Floats = NDArray[np.float64]

ATOMS = 512
LINE = style.Line("atoms (512), exact: falls below the axis", style.PURPLE, "-", "", 1.6)


def atom_setting() -> Setting:
    return ours(
        "atoms",
        f"the log-likelihood at {ATOMS} Sobol points of the prior, rounded to 2^−24 per record; "
        f"one evaluation per agent, at its first visit of the same walk",
        "not in the paper, which asks for methods without a parametric family; KL by quadrature",
    )


def atom_curves(
    reduction: str, data: PerReplica, included: NDArray[np.bool_], agents: int
) -> Curves:
    """KL(atoms ‖ exact posterior of the first `agents`) for every replica and column, where
    `included` [R, I, K] says whose factors are in the token."""
    chosen = cast(Reduction, reduction)
    model = BetaExponentialAtoms(a=3, b=3, reduction=chosen, atoms=ATOMS)
    loss = BetaExponential(a=3, b=3, reduction=chosen)
    values = np.empty(included.shape[:2])
    for r, z in enumerate(np.asarray(data.data)):
        shards = [model.shard(z[k]) for k in range(AGENTS)]
        factors = [model.factor(shard) for shard in shards]
        total = loss.combine(np.array([loss.summary(shard) for shard in shards[:agents]]))
        exact = loss.exact(total)
        known: dict[bytes, float] = {}  # few sums of a walk differ
        for i, inside in enumerate(included[r]):
            key = inside.tobytes()
            if key not in known:
                units = model.eta0 + sum(
                    f for f, is_in in zip(factors, inside, strict=True) if is_in
                )
                posterior = model.posterior(units)
                cloud = model.cloud(posterior.eta)
                theta = cloud.theta[:, 0]
                gap = posterior.log_prob(theta) - exact.log_prob(theta)
                known[key] = max(float(cloud.weights @ gap), 0.0)  # rounding may leave −1e-14
            values[r, i] = known[key]
    return Curves(values)
