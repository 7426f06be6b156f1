"""GLMs in private rounds: every round publishes one sum at a common trial (`trial`).

The sum has the plain carrier (P m, triangle of P) in front, so that a complete sum decodes to the
next natural-gradient iterate, and behind it

    loss      Σ_k E_q[L_k]/alpha
    agents    the agents with records
    unable    the agents whose sums at the trial are infinite, or beyond their share of the grid
    κ         for the bound: the least curvatures (`bound`), in rounds near the end

An agent that cannot evaluate a trial adds only its 1: the trial is rejected, and a shorter step
follows. No agent keeps anything between rounds, and no factor depends on the split of the records.

The agents' own intercepts (`agent_sd`) are functions of the trial, too: an agent fits its own under
the trial, and integrates it out (`own_intercept`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from functools import cached_property, lru_cache
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from unweave.errors import ConfigError, SolverError
from unweave.families.numerics.packed import pack, unpack
from unweave.families.point import NormalPoint
from unweave.grid import LIMIT, Grid, Ints
from unweave.models.data import Data
from unweave.models.fitted.posterior import Posterior
from unweave.models.fitted.published import publish
from unweave.models.glm.base import GLM
from unweave.models.glm.bound import distance_bound, least_curvature
from unweave.models.glm.trial import Descent, RoundSums, TrialPoint

__all__ = ["GLMRounds", "in_rounds"]

Floats = NDArray[np.float64]

_LOSS_BITS = 24  # of the loss: 5e11 nats over the whole network


def in_rounds(model: GLM, agents: int) -> GLM:
    """The model for private rounds of `agents` agents."""
    if model.covariance != "full":
        raise ConfigError(
            f'{model.name}: covariance = "{model.covariance}" has no private rounds. Fix: '
            'covariance = "full", or privacy = "plain"'
        )
    model.check_agents(agents)
    found = object.__new__(_kind(type(model)))
    settings = {f.name: getattr(model, f.name) for f in fields(model)}
    found.__dict__.update(settings, plain=model, agents=agents)
    return found


@lru_cache(maxsize=64)
def _kind(kind: type[GLM]) -> type[GLM]:
    """The kind of GLM with the sums of rounds."""
    return cast(type[GLM], type(kind.__name__, (GLMRounds, kind), {"__module__": kind.__module__}))


class _Slots(NamedTuple):
    """Places in the sum."""

    carrier: int
    loss: int
    agents: int
    unable: int
    least: int


class GLMRounds(GLM):
    """A GLM whose sums are those of private rounds. Its settings, its family and its results are
    those of `plain`, the same model without rounds."""

    plain: GLM
    agents: int
    iterates = True

    def in_rounds(self, agents: int) -> GLM:
        return in_rounds(self.plain, agents)

    def __reduce__(self) -> tuple[Any, ...]:
        return in_rounds, (self.plain, self.agents)

    def __eq__(self, other: object) -> bool:
        same = isinstance(other, GLMRounds) and self.agents == other.agents
        return same and self.plain == cast(GLMRounds, other).plain

    def __hash__(self) -> int:
        return hash((self.plain, self.agents))

    # -- the sum ----------------------------------------------------------------------------------

    @cached_property
    def slots(self) -> _Slots:
        end = self.plain.grid.dim
        return _Slots(end, end, end + 1, end + 2, end + 3)

    @cached_property
    def grid(self) -> Grid:
        plain = self.plain.grid
        triangle = slice(self.size, None) if self.bounded else slice(0, 0)
        least = tuple(f"κ {name}" for name in plain.names[triangle])
        return Grid(
            (*plain.bits, _LOSS_BITS, 0, 0, *plain.bits[triangle]),
            (*plain.names, "loss", "agents", "unable", *least),
        )

    @property
    def carrier_names(self) -> Sequence[str]:
        return self.grid.names

    @property
    def carrier_prior(self) -> Floats:
        found = np.zeros(self.grid.dim)
        found[: self.slots.carrier] = self.plain.carrier_prior
        return found

    @property
    def frozen_grid(self) -> Grid:
        """Nothing is added up for the estimate: the sum of a round holds it."""
        return Grid((0,), ("none",))

    def freeze(self, units: Ints, factor: Ints, data: Data) -> Floats | None:
        return None

    def check_agents(self, agents: int) -> None:
        self.plain.check_agents(agents)

    def decode(self, units: Ints) -> Floats:
        """The iterate; NaN if an agent's records are not in the sum."""
        eta = self.plain.decode(units[..., : self.slots.carrier])
        eta[units[..., self.slots.unable] != 0] = np.nan
        return eta

    def why_improper(self, units: Ints) -> str:
        if not units[self.slots.unable]:
            return super().why_improper(units)
        return (
            f"{self.name}: learning ended at a point that an agent does not evaluate: its loss is "
            "infinite there, or the point lies beyond the prior's mass, where sums can single out "
            "records. Fix: a larger sd of the prior, or scaled features"
        )

    def posterior(self, eta: Ints) -> Posterior:
        if eta[self.slots.unable]:
            raise SolverError(self.why_improper(eta))
        return super().posterior(eta)

    # -- a round ----------------------------------------------------------------------------------

    @cached_property
    def descent(self) -> Descent:
        h, precision = self.carrier_family.split(self.plain.grid.decode(self.plain.eta0))
        mean = NormalPoint(h, precision).mean
        start = self.start if self.own_intercept is None else None
        return Descent(mean, precision, self.convex, self.bounded, start)

    @cached_property
    def share(self) -> Ints:
        """The most that one agent may add to each component, so that no sum can wrap unseen."""
        share: Ints = (LIMIT - np.abs(self.eta0)) // self.agents
        return share

    def factor_at(self, point: bytes, data: Data) -> Ints:
        trial = TrialPoint.parse(point, self.size) if point else None
        factor = self.grid.zeros()
        if not data.n:
            return factor
        with np.errstate(all="ignore"):  # an infinite loss is an answer
            found = self._sums(trial, data)
            if found is not None:
                scaled = np.rint(found * self.grid.scale)
                if (np.abs(scaled) <= self.share).all():  # NaN fails, too
                    return scaled.astype(np.int64)
        factor[self.slots.unable] = 1
        return factor

    def _sums(self, trial: TrialPoint | None, data: Data) -> Floats | None:
        """The factor in the grid's units; None if the trial cannot be evaluated."""
        q: NormalPoint | Floats | None = self.descent.mean
        if trial is not None:
            q = self.descent.normal(trial.q)
        if q is None:
            return None
        found = np.zeros(self.grid.dim)
        found[self.slots.agents] = 1.0
        try:
            if self.own_intercept is not None:
                loss, h, precision = self.own_intercept.at(q, data)
            else:
                mean = q.mean if isinstance(q, NormalPoint) else q
                loss, g, curvature = self.curvature(q, data)
                weight = 1.0 / self.alpha
                loss, h = weight * loss, weight * (curvature @ mean - g)
                precision = weight * curvature
            if trial is not None and trial.bound and self.bounded:
                assert isinstance(q, NormalPoint)
                at: NormalPoint = q
                (least,) = data.reduce(lambda rows: (least_curvature(self, at, rows),))
                found[self.slots.least :] = pack(least * float(self.weight(data.n)))
        except SolverError:
            return None
        found[: self.slots.carrier] = self.packed(h, precision)
        found[self.slots.loss] = loss
        return found

    def read(self, total: Ints) -> RoundSums:
        """A complete sum."""
        values = self.grid.decode(total)
        loss = np.inf if total[self.slots.unable] else values[self.slots.loss]
        return RoundSums(
            values[: self.slots.carrier], float(loss), int(total[self.slots.agents]) & 0xFFFFFFFF
        )

    def advance(self, point: bytes, total: Ints, tol: float = 1e-4) -> bytes | None:
        return self.descent.advance(point, self.read(total), tol)

    def restart(self, point: bytes) -> bytes:
        return TrialPoint.parse(point, self.size).again().to_bytes() if point else b""

    # -- the certificate's estimate ---------------------------------------------------------------

    def appraise_round(self, point: bytes, total: Ints) -> dict[str, Any]:
        """From the sum at a trial q: its distance r from q is 0 at the optimum alone. However the
        trial was found, this is evidence about the q that the sum decodes to."""
        if total[self.slots.unable]:
            return {"kl_to_optimum": None, "method": "none: an agent could not evaluate its loss"}
        with np.errstate(all="ignore"):
            return self._appraised(point, total)

    def _appraised(self, point: bytes, total: Ints) -> dict[str, Any]:
        trial = TrialPoint.parse(point, self.size) if point else None
        q = None if trial is None else self.descent.normal(trial.q)
        if trial is None or q is None:
            return {"kl_to_optimum": None, "method": "none: the round was not at a distribution"}
        values = self.grid.decode(total)
        off = trial.q - values[: self.slots.carrier]
        kl = 0.5 * self.descent.length(q, off)
        if not np.isfinite(kl):
            return {"kl_to_optimum": None, "method": "none: the round was far from the optimum"}
        found = self.estimate(kl)
        found["method"] = "half the squared Fisher norm of (sum − trial)"
        found["accuracy"] = "typically within 3×; up to 10× too small for wide priors"
        if self.bounded and trial.bound:
            least = unpack(values[self.slots.least :], self.size)
            served = self.gaussian(self.decode(total))
            dh, dp = self.carrier_family.split(off)
            bound = distance_bound(q, self.descent.precision, dh, dp, least, served)
            if bound is not None:
                found["bound"] = bound.kl
                found["published"] = publish(self.posterior(total)).report(bound.sds)
        return found
