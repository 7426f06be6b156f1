"""The optimum of federated learning: the q of the family that fits all data at once best."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from unweave.errors import SolverError
from unweave.models import LossModel
from unweave.rng import Stream
from unweave.solvers.natural_gradient import NaturalGradient
from unweave.solvers.steps import CONVERGED

__all__ = ["optimum"]


Floats = NDArray[np.float64]


def optimum(model: LossModel, data: Floats, rounds: int = 200) -> Floats:
    """eta that minimises the global free energy (`eq:global_fe`); data is the combined summary.

    This is the local problem of an agent that holds all data, with the prior as the cavity. It
    minimises KL(q ‖ exact posterior) over the family.
    """
    eta0 = np.broadcast_to(model.decode(model.eta0), (*data.shape[:-1], model.family.dim))
    solver = NaturalGradient(steps=rounds)
    factor, info = solver.update(model, data, eta0, np.zeros(eta0.shape), Stream(0))
    if not info.get("residual", np.inf) < 1e4 * CONVERGED:
        raise SolverError(
            f"{model.name}: the optimum was not reached in {rounds} rounds "
            f"(residual KL {info.get('residual', np.nan):.3g}). Fix: allow more rounds"
        )
    return eta0 + factor
