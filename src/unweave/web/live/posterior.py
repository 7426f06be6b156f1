"""The posterior of a live network, in coarse numbers, and how it changes.

Only the current sum is held here, never an earlier one: eta before minus eta after is the factor of
what was erased. The page gets means and intervals to the second digit of the standard deviation,
and densities that are made from these numbers alone, so that two of them tell the change of mean
and standard deviation to two digits, and nothing else. A point of a series is not drawn if an
erasure lies between the two sums.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from unweave.errors import UnweaveError
from unweave.families.marginals import Marginal, finite
from unweave.grid import Ints
from unweave.models import Model, Posterior
from unweave.node.api.report import NO_TOKEN
from unweave.operations.cluster import LOOK, Cluster
from unweave.operations.diagnose import why_no_token
from unweave.operations.reading import WHOLE, newest
from unweave.privacy.mechanism import Mechanism
from unweave.report.facts import Moments
from unweave.report.quantities import changes, coarse, live_moments, matched, moments_of
from unweave.text import listed
from unweave.web.densities import MOST, draw
from unweave.web.live.states import version
from unweave.web.source import NotFound
from unweave.web.view import Curve, CurvesAnswer, ParameterView, Points, PosteriorView, Series

__all__ = ["KEPT", "SERIES", "LivePosterior", "LiveReading", "read_posterior", "read_sums"]

_STATES: dict[str, Literal["incomplete", "unconfirmed"]] = {
    "incomplete": "incomplete",
    "unconfirmed": "unconfirmed",
}
KEPT = 600.0  # seconds that the numbers before an erasure wait for those after it
_LARGEST = 2000  # parameters for which the change is computed as a KL

SERIES: dict[str, Series] = {
    "progress": {
        "title": "Change of the posterior (KL to the one before)",
        "x": "time",
        "log": True,
        "empty": "No point yet: one is drawn for every change of the sum since this page was "
        "started, except by an erasure.",
        "points": [],
    },
    "residual": {
        "title": "Largest change of a mean, in standard deviations",
        "x": "time",
        "log": True,
        "empty": "No point yet: as above.",
        "points": [],
    },
    "rate": {
        "title": "Hops of the token",
        "x": "time",
        "unit": "per second",
        "empty": "No point yet: one is drawn when the token has moved for some seconds.",
        "points": [],
    },
}


class LiveReading(NamedTuple):
    """What the agents say about the posterior at one time."""

    reports: Mapping[str, Mapping[str, Any]]  # by agent, with the erasures that it knows
    best: Mapping[str, Any]
    units: Sequence[int] | None  # None: the same sum as before, or none
    passing: bool = False  # there is a newer sum, which was not read

    @property
    def removals(self) -> frozenset[str]:
        """What some sum was rid of: requests, and names of agents as a whole. An agent that was
        voted out has a name here, and no request."""
        whole = {
            name
            for report in self.reports.values()
            for name, tomb in report.get("erasures", {}).get("known", {}).items()
            if tomb["out"]
        }
        return frozenset(whole | self.requests.keys())

    @property
    def requests(self) -> dict[str, str]:
        """Erasures that some sum has carried out: request → agent."""
        return {
            request: name
            for report in self.reports.values()
            for name, tomb in report.get("erasures", {}).get("known", {}).items()
            for request in tomb["ids"]
        }

    @property
    def asked(self) -> dict[str, str]:
        """Erasures that were requested, and are in no sum: request → agent."""
        done = self.requests
        return {
            request: name
            for report in self.reports.values()
            for request, name in report.get("asked", {}).items()
            if request not in done
        }


def read_sums(agents: Cluster, names: Collection[str]) -> dict[str, dict[str, Any]]:
    """What these agents tell of their sums, in short."""
    asked = {"marginals": False, "units": False, "erasures": True}
    answers = agents.ask_each("posterior", LOOK, names=names, **asked)
    return {n: a["posterior"] for n, a in answers.items() if isinstance(a, dict)}


def read_posterior(
    agents: Cluster, reports: Mapping[str, Mapping[str, Any]], known: str
) -> LiveReading:
    """Ask an agent for the newest of the reported sums, unless its digest is `known`."""
    if not reports:
        return LiveReading({}, {"state": "unknown", "why": "no agent answers"}, None)
    if all(report.get("why") == NO_TOKEN for report in reports.values()):
        return LiveReading(reports, {"state": "unknown"} | why_no_token(agents), None)
    best = newest(reports)
    digest = best.get("digest")
    units = None
    if digest is not None and digest != known and "why" not in best:
        holder = next(name for name, one in reports.items() if one.get("digest") == digest)
        answer = agents.again(holder, "posterior", everything=True, marginals=False)
        report = {} if answer is None else answer["posterior"]
        if report.get("digest") == digest:
            units = [int(unit) for unit in report["units"]]
        else:
            best = {"state": "unknown", "why": "the sum has just changed"}
            return LiveReading(reports, best, None, passing=True)
    return LiveReading(reports, best, units)


class LivePosterior:
    """The current posterior, and the changes since the last look at it."""

    def __init__(self, model: Model, masked: bool, mechanism: Mechanism | None = None) -> None:
        """`mechanism`: the noise in every sum, which the posterior must know of."""
        self._model, self._masked, self._mechanism = model, masked, mechanism
        self._prior = model.posterior(model.eta0)
        self._now: Posterior | None = None
        self.digest = ""
        self.version = ""
        self._removals: frozenset[str] | None = None  # all that are known
        self.purged = False  # an erasure was carried out since the last look but one
        self._whole = False
        self._shown: PosteriorView | None = None
        # While an erasure is under way: what the page showed before, and what is removed.
        self._before: dict[str, Moments] = {}
        self._between: frozenset[str] = frozenset()
        self._since = 0.0

    def update(
        self, reading: LiveReading, at: float, made: float | None = None
    ) -> tuple[PosteriorView, Points]:
        """The view after a look at the agents, and new points of the series. `made`: when the sum
        was made; if no agent has told, its points are dated with the look: what changed before."""
        points: Points = {}
        best = reading.best
        removals = reading.removals
        new_ones = frozenset() if self._removals is None else removals - self._removals
        self._removals = removals | (self._removals or frozenset())
        self.purged = purged = bool(new_ones)
        if purged and self._whole and not self._before and not self._masked:
            self._before, self._since = self._figures(), at
        if self._before and at - self._since > KEPT:
            self._before = {}
        self._between = self._between | new_ones if self._before else frozenset()
        if reading.passing and self._shown is not None and not purged:
            return self._shown, points
        self._whole = best["state"] in WHOLE and best.get("fitting") is None
        if best.get("digest") is None or "why" in best:
            self._forget()
            return {"state": "none", "why": _why(best)}, points
        if reading.units is not None:
            try:
                new = self._read(np.array(reading.units, dtype=np.int64), len(best["included"]))
            except UnweaveError as error:
                self._forget()
                return {"state": "none", "why": str(error)}, points
            old, self._now = self._now, new
            self.digest = str(best["digest"])
            if old is not None and not purged:
                points = self._change(old, new, at if made is None else made)
        self.version = version(best["stamp"]) or ""
        self._shown = self._view(best, made)
        return self._shown, points

    def _read(self, units: Ints, shares: int) -> Posterior:
        if self._mechanism is None:
            return self._model.posterior(units)
        return self._mechanism.posterior(units, shares)

    def _forget(self) -> None:
        self._now, self._shown, self._whole = None, None, False
        self.digest = self.version = ""

    def _change(self, old: Posterior, new: Posterior, at: float) -> Points:
        found: Points = {}
        laws = new.marginals[:MOST]
        if len(new.units) <= _LARGEST:
            kl = finite(new.kl(old))
            if kl is not None and kl > 0.0:
                found["progress"] = [(at, _digits(kl))]
        moves = [
            abs(float(law.mean()) - float(was.mean())) / float(law.sd())
            for law, was in zip(laws, old.marginals, strict=False)
        ]
        most = max((move for move in moves if math.isfinite(move)), default=0.0)
        if most > 0.0:
            found["residual"] = [(at, _digits(most))]
        return found

    def _view(self, best: Mapping[str, Any], made: float | None) -> PosteriorView:
        assert self._now is not None
        laws = self._now.marginals
        shown = [coarse(moments_of(law)) for law in laws[:MOST]]
        view: PosteriorView = {
            "state": _STATES.get(best["state"], "complete"),
            "version": self.version,
            "total": len(laws),
            "parameters": [
                _parameter(found, prior)
                for found, prior in zip(shown, self._prior.marginals, strict=False)
            ],
        }
        if made is not None:
            view["at"] = made
        if why := " ".join(filter(None, (_remark(best), _undrawn(laws, shown)))):
            view["why"] = why
        return view

    # ------------------------------------------------------------------------------- erasures

    def compare(self) -> tuple[frozenset[str], list[tuple[str, float, float]]] | None:
        """What was removed since the last call, and the change of mean and sd by that: the
        difference of the numbers that the page showed before and shows now. None while it is under
        way, and where there was nothing. The numbers before are then forgotten."""
        if not self._before or not self._whole:
            return None
        before, self._before = self._before, {}
        removed, self._between = self._between, frozenset()
        found = changes(before, self._figures())
        return removed, [(name, *one) for name, one in found.items()]

    def _figures(self) -> dict[str, Moments]:
        return {} if self._now is None else live_moments(self._now)

    # --------------------------------------------------------------------------------- curves

    def curves(self, names: Sequence[str]) -> CurvesAnswer:
        """Densities with the coarse numbers of the posterior, beside those of the prior; none of a
        quantity whose density these numbers do not determine."""
        if self._now is None:
            raise NotFound("curves: there is no posterior now. Fix: wait until it is complete")
        now = {law.name: law for law in self._now.marginals}
        prior = {law.name: law for law in self._prior.marginals}
        unknown = [name for name in names if name not in now]
        if unknown:
            raise NotFound("curves: no such parameter. Fix: choose from the list of the page")
        return {
            "version": self.version,
            "curves": {name: _curves(now[name], prior[name]) for name in names},
        }


def _parameter(now: Moments, prior: Marginal) -> ParameterView:
    view: ParameterView = {"name": prior.name}
    before = moments_of(prior)
    for key in ("mean", "sd", "low", "high"):
        if (value := getattr(now, key)) is not None:
            view[key] = value
        if (value := getattr(before, key)) is not None:
            view[f"prior_{key}"] = _digits(value, 5)  # type: ignore[literal-required]
    return view


def _curves(law: Marginal, prior: Marginal) -> list[Curve]:
    shown = matched(law, coarse(moments_of(law)))
    return [] if shown is None else draw({"posterior": shown, "prior": prior})


def _undrawn(laws: Sequence[Marginal], shown: Sequence[Moments]) -> str:
    """The quantities whose density is not drawn, and why."""
    names = [law.name for law, one in zip(laws, shown, strict=False) if matched(law, one) is None]
    if not names:
        return ""
    return (
        f"No density of {listed(names, 5)}: a live network draws densities from the mean and the "
        "standard deviation, which do not determine this one."
    )


def _digits(value: float, number: int = 2) -> float:
    return float(f"{value:.{number}g}")


def _why(best: Mapping[str, Any]) -> str:
    why = str(best.get("why") or "")
    if not why:
        absent = ", ".join(best.get("missing", ())) or "the first token"
        why = f"the network waits for {absent}"
    return why[:1].upper() + why[1:] + ("" if why.endswith(".") else ".")


def _remark(best: Mapping[str, Any]) -> str:
    """What keeps this posterior from being final."""
    told = []
    if best["state"] == "incomplete":
        told.append(f"Not in the sum yet: {', '.join(best['missing'])}.")
    elif best["state"] not in WHOLE or best["state"] == "unconfirmed":
        told.append("A neighbour has not confirmed yet that nothing was erased meanwhile.")
    if best.get("fitting") is not None:
        told.append(f"Pass {best['fitting']}: the agents still fit, and the numbers change.")
    if pending := best.get("erasure_pending"):
        told.append(f"An erasure is under way: the sum still has data of {', '.join(pending)}.")
    return " ".join(told)
