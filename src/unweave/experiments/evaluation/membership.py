"""Can an attacker tell a forgotten record from one that was never there? (U-LiRA)

The attacker of Hayes et al. (2024) knows the method and can repeat it on data of its own. In each
of many runs every record is, at random, left out, learned and kept, or learned and forgotten. So
for each record there are scores (the confidence that a posterior has in it) from runs where it was
forgotten and from runs where it was never there. The attacker fits a normal distribution to each,
without the run under attack, and decides by the likelihood ratio. A method that forgets exactly
leaves nothing to decide: at a rate of 1% of false alarms, 1% of the forgotten records are found.

Remaining records are attacked in the same way: forgetting others must not expose them. The tenth of
the records that a network memorises most is reported apart: an average hides them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unweave.errors import ConfigError
from unweave.experiments.evaluation.methods import Trial, proper
from unweave.experiments.evaluation.scores import confidence
from unweave.federation import Federation
from unweave.models import Shard
from unweave.models.fitted.posterior import Posterior

__all__ = ["Membership", "attack"]

Floats = NDArray[np.float64]

_OUT, _KEPT, _FORGOTTEN = 0, 1, 2
_SHARES = (0.4, 0.4, 0.2)  # of the records, in each run
_MEMORISED = 0.1
_FALSE_ALARMS = 0.01
_LEAST = 3  # scores that a normal distribution is fitted to


@dataclass(frozen=True)
class Membership:
    """The attacker's success against one method."""

    method: str
    records: str  # "forgotten" or "remaining"
    tpr: float  # true positives at 1% false alarms
    tpr_memorised: float  # the same for the tenth of the records that are memorised most
    auc: float
    decisions: int  # positives that were judged

    def row(self) -> dict[str, Any]:
        return asdict(self)


def attack(
    case: Trial, runs: int, progress: Callable[[int], None] = lambda done: None
) -> list[Membership]:
    """Attack each method on `runs` networks of random records."""
    if runs < 12:
        raise ConfigError(f"membership: {runs} runs. Fix: at least 12, better 60 or more")
    rows = np.concatenate([shard.rows for shard in case.shards])
    methods = ("exact",) if case.exact else ("subtract", "refine")
    methods = (*methods, "retrain")
    status = np.empty((runs, len(rows)), dtype=np.int8)
    scores = {name: np.full((runs, len(rows)), np.nan) for name in methods}
    for run in range(runs):
        status[run] = _draw(case, np.random.default_rng([case.seed, run]))
        for name, posterior in _posteriors(case, status[run]).items():
            if posterior is not None:
                scores[name][run] = confidence(posterior, rows)
        progress(run + 1)
    # Memorised: the records whose presence changes their own score most.
    kept = np.where(status == _KEPT, scores["retrain"], np.nan)
    out = np.where(status == _OUT, scores["retrain"], np.nan)
    with np.errstate(invalid="ignore"):
        gain = np.nan_to_num(_mean(kept) - _mean(out), nan=-np.inf)
    memorised = gain >= np.quantile(gain, 1.0 - _MEMORISED)
    return [
        _judge(name, what, scores[name], status, member, memorised)
        for name in methods
        for what, member in (("forgotten", _FORGOTTEN), ("remaining", _KEPT))
    ]


def _draw(case: Trial, rng: np.random.Generator) -> NDArray[np.int8]:
    """A status for every record. Each agent with records keeps one at least."""
    parts = []
    for shard in case.shards:
        part = rng.choice(3, shard.n, p=_SHARES).astype(np.int8)
        if shard.n and not (part == _KEPT).any():
            part[rng.integers(shard.n)] = _KEPT
        parts.append(part)
    return np.concatenate(parts)


def _posteriors(case: Trial, status: NDArray[np.int8]) -> dict[str, Posterior | None]:
    """The posteriors of one run by method; None where a subtraction left the domain."""
    shards, records, at = [], {}, 0
    for shard in case.shards:
        part = status[at : at + shard.n]
        at += shard.n
        inside = part != _OUT
        shards.append(Shard(shard.agent, shard.rows[inside].copy()))
        if (part == _FORGOTTEN).any():
            records[shard.agent] = np.flatnonzero(part[inside] == _FORGOTTEN)

    def posterior(federation: Federation) -> Posterior | None:
        return proper(case.model, federation.units)

    found = {}
    learned, _ = case.start(shards)
    learned.learn(tol=case.tol, progress=False)
    inside = not records or case.subtract(learned, records=records)
    if case.exact:
        found["exact"] = posterior(learned)
    else:
        found["subtract"] = found["refine"] = posterior(learned) if inside else None
        if inside:
            found["refine"] = posterior(learned.refine(tol=case.tol, progress=False))
    never, _ = case.start(shards)
    if records:
        never.forget(records=records, progress=False)
    found["retrain"] = posterior(never.learn(tol=case.tol, progress=False))
    return found


def _judge(
    method: str,
    what: str,
    scores: Floats,
    status: NDArray[np.int8],
    member: int,
    memorised: NDArray[np.bool_],
) -> Membership:
    ratios = np.full(scores.shape, np.nan)
    for run in range(len(scores)):
        others = np.arange(len(scores)) != run
        rest = [
            np.where((status == kind)[others], scores[others], np.nan) for kind in (member, _OUT)
        ]
        (m1, s1), (m0, s0) = [(_mean(part), _spread(part)) for part in rest]
        ratios[run] = (
            -0.5 * ((scores[run] - m1) / s1) ** 2
            - np.log(s1)
            + 0.5 * ((scores[run] - m0) / s0) ** 2
            + np.log(s0)
        )
    tpr, auc, count = _rates(ratios, status, member, np.ones(len(memorised), dtype=bool))
    worst, _, _ = _rates(ratios, status, member, memorised)
    return Membership(method, what, tpr, worst, auc, count)


def _rates(
    ratios: Floats, status: NDArray[np.int8], member: int, chosen: NDArray[np.bool_]
) -> tuple[float, float, int]:
    """True positives at 1% false alarms, the area under the curve, the number of positives."""
    ratios, status = ratios[:, chosen], status[:, chosen]
    known = np.isfinite(ratios)
    positives = ratios[known & (status == member)]
    negatives = np.sort(ratios[known & (status == _OUT)])
    if not len(positives) or not len(negatives):
        return float("nan"), float("nan"), 0
    limit = negatives[min(len(negatives) - 1, int(np.ceil((1 - _FALSE_ALARMS) * len(negatives))))]
    below = np.searchsorted(negatives, positives, "left") + np.searchsorted(
        negatives, positives, "right"
    )
    auc = float(below.mean()) / (2 * len(negatives))
    return float((positives > limit).mean()), auc, len(positives)


def _mean(values: Floats) -> Floats:
    """The mean of the scores of each record; NaN below three scores."""
    count = np.isfinite(values).sum(axis=0)
    total = np.nansum(values, axis=0)
    return np.where(count >= _LEAST, total / np.maximum(count, 1), np.nan)


def _spread(values: Floats) -> Floats:
    """One standard deviation for each record, drawn half-way to that of all records: a dozen
    scores alone give a poor one."""
    centred = values - _mean(values)
    count = np.isfinite(centred).sum(axis=0)
    variance = np.nansum(centred**2, axis=0) / np.maximum(count - 1, 1)
    pooled = np.nansum(centred**2) / max(1, int(np.maximum(count - 1, 0).sum()))
    found: Floats = np.sqrt(0.5 * (variance + pooled) + 1e-300)
    return found
