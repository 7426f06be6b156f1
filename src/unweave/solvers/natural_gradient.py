"""Natural-gradient steps on the local free energy (`eq:non_conj_update`); eta = cavity + eta_k:

    eta_k ← eta_k − rho (eta_k + (1/alpha) ∇_mu E_q[L_k])

With rho=None every step starts at rho = 1 and is halved until the local free energy decreases
(`eq:loc_fe_min`) or, with a noisy gradient, until it moves q little (in KL) and the margin to the
domain's boundary at most halves. The paper uses a fixed rho. A step that would leave the domain is
shortened and counted in `info`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from unweave.arguments import number, whole_number
from unweave.errors import ConfigError, DataError, GridOverflow, SolverError
from unweave.grid import Ints
from unweave.models import Data, LossModel, Model
from unweave.rng import Rng
from unweave.solvers.base import Context, Solution, Solver
from unweave.solvers.estimators import Estimator, Point, choose, named
from unweave.solvers.steps import Move, cautious, descend, fixed

__all__ = ["DIVERGED", "NaturalGradient", "outside"]


Floats = NDArray[np.float64]

DIVERGED = "steps diverged and left the grid. Fix: a smaller rho or a gradient with less noise"


@dataclass(frozen=True)
class NaturalGradient(Solver):
    """L = `steps` natural-gradient steps from the agent's current factor.

    `estimator` names the gradient (None: the first that the model offers), `samples` is S and
    `c` is the constant of "reinforce". rho=None turns step control on; a number is a fixed step.
    """

    estimator: str | None = None
    rho: float | None = None
    steps: int = 5
    samples: int = 30
    c: float = 0.0
    _cache: WeakKeyDictionary[Data, tuple[Model, Floats]] = field(
        default_factory=WeakKeyDictionary, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        if self.estimator is not None:
            named(self.estimator)
        if self.rho is not None and not 0.0 < number(self.rho, "rho") <= 1.0:
            raise ConfigError(f"rho = {self.rho}. Fix: a number above 0 and at most 1, or None")
        if whole_number(self.steps, "steps") < 1:
            raise ConfigError(f"steps = {self.steps}. Fix: at least one local step per visit")
        number(self.c, "c")
        if self.estimator == "reinforce" and self.rho is None:
            raise ConfigError(
                "estimator 'reinforce' has too much noise for step control. Fix: give rho (the "
                "paper uses 0.005), or choose 'factor_cv'"
            )
        if whole_number(self.samples, "samples") < 2:
            raise ConfigError(f"samples = {self.samples}. Fix: at least 2 for a gradient")

    def check(self, model: Model) -> None:
        found = _with_loss(model)
        choose(self.estimator, found)
        if found.settles or found.carrier_names != found.family.component_names:
            raise ConfigError(
                f"{model.name}: its factors are no natural parameters. Fix: use its own solver, "
                f"{found.solver_name!r}"
            )

    def solve(
        self, model: Model, data: Data, cavity: Ints, current: Ints | None, context: Context
    ) -> Solution:
        model = _with_loss(model)
        start = model.grid.zeros() if current is None else current
        if data.n:
            try:
                final, info = self.update(
                    model,
                    self._summary(model, data),
                    model.grid.decode(cavity),
                    model.grid.decode(start),
                    context.stream,
                )
            except SolverError as error:
                raise SolverError(f"agent {data.agent!r}: {error}") from None
            factor = self._rounded(model, data, final)
        else:
            factor, info = model.grid.zeros(), {}
        return Solution(factor, info)

    def update(
        self, model: LossModel, data: Floats, cavity: Floats, factor: Floats, rng: Rng
    ) -> tuple[Floats, dict[str, Any]]:
        """The factor after L steps, before rounding; cavity and factor are [..., D]."""
        estimator = choose(self.estimator, model)
        moments = 2 if estimator.noisy else 1
        controlled = self.rho is None and not estimator.noisy
        shortened, rho, residual = 0, 1.0, np.inf
        for _ in range(self.steps):
            eta = cavity + factor
            margin = model.margin(eta, moments)
            if not np.all(margin > 0.0):
                raise SolverError(outside(model, estimator, eta, margin))
            at = Point(model, eta, factor, data, rng, self.samples, self.c)
            move = Move(at, -(factor + estimator.gradient(at) / model.alpha), moments)
            if not np.isfinite(move.step).all():
                raise SolverError(DIVERGED)  # halving a step that is not finite would never end
            if self.rho is not None:
                t, wanted = fixed(move, self.rho)
            elif estimator.noisy:
                t, wanted = cautious(move)
            else:
                t, wanted = descend(move)
                residual = float(np.max(0.5 * move.length))
                if not t.any():
                    break
            shortened += int(np.count_nonzero(t < wanted))
            rho = float(np.min(t))
            factor = factor + t[..., None] * move.step
        info: dict[str, Any] = {"estimator": estimator.name, "rho": rho, "shortened": shortened}
        if controlled:
            info["residual"] = residual
        return factor, info

    def _rounded(self, model: LossModel, data: Data, final: Floats) -> Ints:
        try:
            return model.grid.encode(final)
        except (DataError, GridOverflow):
            raise SolverError(f"agent {data.agent!r}: {DIVERGED}") from None

    def _summary(self, model: LossModel, data: Data) -> Floats:
        cached = self._cache.get(data)
        if cached is None or cached[0] is not model:
            cached = (model, model.summary(data))
            self._cache[data] = cached
        return cached[1]


def _with_loss(model: Model) -> LossModel:
    if not isinstance(model, LossModel):
        raise ConfigError(f"{model.name} is conjugate. Fix: use solver=Exact()")
    return model


def outside(model: LossModel, estimator: Estimator, eta: Floats, margin: Floats) -> str:
    """The error text for an eta outside the domain: cause and fix, for the worst eta of a batch."""
    worst = int(np.argmin(np.where(np.isnan(margin), -np.inf, margin)))
    values = eta.reshape(-1, eta.shape[-1])[worst]
    shown = ", ".join(
        f"{name} = {value:.6g}"
        for name, value in zip(model.family.component_names[:6], values[:6], strict=False)
    )
    if estimator.noisy:
        fix = "a stronger prior, or a gradient without noise ('exact' or 'quadrature')"
    else:
        fix = "a stronger prior"
    return (
        f"{model.name} with estimator {estimator.name!r} needs "
        f"{model.needs(2 if estimator.noisy else 1)}, but {shown}. Fix: {fix}"
    )
