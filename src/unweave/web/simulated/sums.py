"""The sums of a simulation, for the page: the posterior, its moments, and series over the hops.

A simulation knows all records, so it knows the optimum: the sum that a network without faults would
come to rest at. Of a conjugate model that is the sum of all factors; of another model a second
simulation finds it, in a thread.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise

import numpy as np

from unweave.errors import UnweaveError
from unweave.grid import Ints
from unweave.models import ConjugateModel, Model, Posterior
from unweave.protocol.events import Effect
from unweave.protocol.state import State
from unweave.protocol.token import Token, lacking
from unweave.report.quantities import changes, live_moments
from unweave.simulator.asked import AskedEvents
from unweave.simulator.invariants import Violation
from unweave.simulator.run import without_faults
from unweave.web.densities import MOST, curves, moment_of, parameters
from unweave.web.simulated.watch import SeenSum
from unweave.web.source import NotFound
from unweave.web.view import CurvesAnswer, Moment, Points, PosteriorView, Series

__all__ = ["SimulatedSums"]

_MOMENTS = 12
_FIRST = 5  # hops until the first moment; each of the next ones doubles them
_EVALUATED = 40  # sums per call: of more, the last ones
_UNRATED = 400  # sums that wait for the optimum
_SECOND_RUN = 200  # agents up to which a second simulation looks for the optimum


class _Stopped(Exception):
    """The second simulation is not needed any more."""


class _UntilStopped:
    """An observer that ends a simulation in another thread."""

    stopped = False

    def after(self, agent: int, before: State, after: State, effects: Sequence[Effect]) -> None:
        if self.stopped:
            raise _Stopped


class SimulatedSums:
    """The readable sums of one simulated network."""

    def __init__(self, model: Model, asked: AskedEvents) -> None:
        self.model, self.asked = model, asked
        self.masked = asked.session.terms.masked
        self.optimum: Ints | None = None
        self.mechanism = asked.session.mechanism
        self.moments: dict[str, tuple[str, Posterior]] = {}
        self._worker = ThreadPoolExecutor(1, "page-optimum")
        self._until_stopped = _UntilStopped()
        self._parts: dict[int, Ints] = {}
        self._prior = model.posterior(model.eta0)
        self._last: SeenSum | None = None
        self._unrated: list[SeenSum] = []  # seen before the optimum was known
        self._mark = _FIRST
        self._looking: asyncio.Task[None] | None = None
        self._first = True

    # --------------------------------------------------------------------------- the optimum

    def look(self) -> None:
        """Find the optimum of a conjugate model again if records have changed."""
        altered = set(range(self.asked.session.terms.size)) if self._first else self.asked.altered
        model = self.model
        if not isinstance(model, ConjugateModel) or not altered:
            return
        total: Ints = model.eta0 if self.optimum is None else self.optimum
        for k in altered:
            shard = self.asked.remaining(k)
            part = model.factor(shard) if shard.n else model.grid.zeros()
            total = total + part - self._parts.get(k, model.grid.zeros())
            self._parts[k] = part
        self.optimum, self._first = total, False
        self.asked.altered = set()

    async def search(self) -> None:
        """The same for other models, by a second simulation."""
        session = self.asked.session
        due = self._first or self.asked.altered
        if self.model.conjugate or not due or self._looking is not None or self.masked:
            return
        if session.terms.size > _SECOND_RUN:
            return
        self._first, self.asked.altered = False, set()
        shards = [self.asked.remaining(k) for k in range(session.terms.size)]

        async def look() -> None:
            try:
                work = partial(without_faults, session, shards, [self._until_stopped])
                self.optimum = await asyncio.get_running_loop().run_in_executor(self._worker, work)
            except (UnweaveError, Violation, _Stopped):
                self.optimum = None  # no comparison is shown
            self._looking = None

        self.optimum = None
        self._looking = asyncio.create_task(look())

    def stop(self) -> None:
        """End the second simulation, too: nobody needs its result, and its thread takes time."""
        self._until_stopped.stopped = True
        if self._looking is not None:
            self._looking.cancel()
        self._worker.shutdown(wait=False, cancel_futures=True)

    def read(self, token: Token) -> Posterior | None:
        """The posterior of a sum; None: it is none, because factors are missing. A noisy sum is
        read with its noise."""
        if self.mechanism is not None:
            shares = len(token.inside)
            return self.mechanism.posterior(token.eta, shares) if shares else self._prior
        return self.model.posterior(token.eta) if self.model.inside(token.eta) else None

    def kl(self, token: Token) -> float | None:
        """KL to the optimum; None if it is not known, or the sum is no posterior. A simulation
        knows the noise of a sum, and takes it out before."""
        if self.optimum is None or (self.mechanism is not None and not token.inside):
            return None
        units = token.eta
        if self.mechanism is not None:
            units = units - self.asked.session.noise_of(token)
        if np.array_equal(units, self.optimum):
            return 0.0
        if not self.model.inside(units):
            return None
        goal = self.model.decode(self.optimum)
        return _finite(self.model.family.kl(self.model.decode(units), goal))

    # ----------------------------------------------------------------------------- the series

    def series(self) -> dict[str, Series]:
        exact = "the sum of all remaining records"
        whose = exact if self.model.conjugate else "the optimum that a second simulation found"
        published = " of the published sums" if self.masked else ""
        published += " without their noise" if self.mechanism is not None else ""
        return {
            "progress": {
                "title": f"KL{published} to {whose}, which only a simulation knows",
                "x": "hop",
                "unit": "nats",
                "log": True,
                "empty": "No sum yet." if self.model.conjugate else "The optimum is not known yet.",
                "points": [],
            },
            "residual": {
                "title": "How far each change moved the posterior (KL)",
                "x": "hop",
                "unit": "nats",
                "log": True,
                "empty": "No point yet: one is drawn when the sum changes.",
                "points": [],
            },
            "rate": {
                "title": "Hops per simulated second",
                "x": "time",
                "empty": "No point yet: one is drawn every simulated second.",
                "points": [],
            },
        }

    def add(self, sums: Sequence[SeenSum]) -> Points:
        """New points of the series, and moments."""
        progress: list[tuple[float, float]] = []
        residual: list[tuple[float, float]] = []
        chain = [*([self._last] if self._last else []), *sums][-_EVALUATED:]
        for old, new in pairwise(chain):
            if np.array_equal(old.token.eta, new.token.eta) or self.mechanism is not None:
                continue  # of two noisy sums the difference is mostly noise
            inside = self.model.inside(old.token.eta) and self.model.inside(new.token.eta)
            moved = _finite(self.model.moved(new.token.eta, old.token.eta)) if inside else None
            if moved is not None:
                residual.append((float(new.hops), moved))
        new_sums = chain if self._last is None else chain[1:]
        self._unrated = [*self._unrated, *new_sums][-_UNRATED:]
        if self.optimum is not None:
            rated = [(float(one.hops), self.kl(one.token)) for one in self._unrated]
            progress, self._unrated = [(hops, kl) for hops, kl in rated if kl is not None], []
        for one in new_sums:
            if one.hops >= self._mark:
                while self._mark <= one.hops:
                    self._mark *= 2
                self.remember(f"hop-{one.hops}", f"hop {one.hops}", one.token)
        if sums:
            self._last = sums[-1]
        return {
            name: points
            for name, points in (("progress", progress), ("residual", residual))
            if points
        }

    # ---------------------------------------------------------------------------- the posterior

    def remember(self, name: str, label: str, token: Token) -> None:
        """Keep a moment; the oldest one of the walk gives way."""
        posterior = None if name in self.moments else self.read(token)
        if posterior is None:
            return
        while any(label == other for other, _ in self.moments.values()):
            label += " again"
        self.moments[name] = (label, posterior)
        if len(self.moments) > _MOMENTS:
            marks = [one for one in self.moments if one.startswith("hop-")]
            del self.moments[(marks or list(self.moments))[0]]

    def view(self, shown: SeenSum | None, *, attested: bool, idle: int = 0) -> PosteriorView:
        """`idle`: the agents outside of the sum that have nothing to add."""
        if shown is None:
            waits = "No private sum is complete yet." if self.masked else "There is no token yet."
            return {"state": "none", "why": f"{waits} Fix: let the simulation run."}
        token = shown.token
        version = f"epoch {token.stamp.epoch}, hop {token.stamp.hop}"
        posterior = self.read(token)
        if posterior is None:
            why = (
                "The sum is no proper posterior yet: factors are missing. Wait for the pass to end."
            )
            return {"state": "none", "why": why, "version": version, "at": round(shown.at, 2)}
        view: PosteriorView = {
            "state": "complete" if attested else "unconfirmed",
            "version": version,
            "at": round(shown.at, 2),
            "total": len(posterior.marginals),
            "parameters": parameters(posterior, self._prior),
            "moments": [Moment(id=name, label=label) for name, (label, _) in self.moments.items()],
        }
        if (missing := lacking(token) - idle) > 0:
            view["state"] = "incomplete"
            are = "is" if missing == 1 else "are"
            view["why"] = f"{missing} of {len(token.included)} agents {are} not in the sum yet."
        elif not attested:
            view["why"] = "Not all agents have attested this sum yet."
        return view

    def curves(
        self, shown: SeenSum | None, names: Sequence[str], moments: Sequence[str]
    ) -> CurvesAnswer:
        """The densities of the posterior, of the prior and of these moments."""
        found: dict[str, Posterior] = {}
        version = "prior"
        now = None if shown is None else self.read(shown.token)
        if shown is not None and now is not None:
            stamp = shown.token.stamp
            version = f"epoch {stamp.epoch}, hop {stamp.hop}"
            found["posterior"] = now
        found["prior"] = self._prior
        for name in moments:
            label, posterior = moment_of(self.moments, name)
            found[label] = posterior
        known = {law.name for law in self._prior.marginals[:MOST]}
        for name in names:
            if name not in known:
                raise NotFound(f"no parameter {name!r}. Fix: choose one of the view's parameters")
        return {"version": version, "curves": curves(found, names)}

    def change(self, before: Token, after: Token) -> list[tuple[str, float, float]]:
        """The change of mean and sd of the first parameters, in the digits of a report."""
        old, new = self.read(before), self.read(after)
        if old is None or new is None:
            return []
        return [(name, *one) for name, one in changes(live_moments(old), live_moments(new)).items()]


def _finite(value: object) -> float | None:
    number = float(value)  # type: ignore[arg-type]
    return max(number, 0.0) if math.isfinite(number) else None
