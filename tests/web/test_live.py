"""What a live page shows of the posterior: coarse numbers, and nothing that tells more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from unweave.families.atoms.clouds import CloudMarginal
from unweave.families.atoms.parameters import Parameter
from unweave.families.marginals import (
    BetaMarginal,
    GammaMarginal,
    InverseGammaMarginal,
    Marginal,
    NormalMarginal,
    StudentTMarginal,
)
from unweave.models import BetaBernoulli, Model, NormalKnownVariance
from unweave.privacy.noisy import MixtureMarginal
from unweave.report.plots import densities
from unweave.report.quantities import coarse, matched, moments_of, quantities_of
from unweave.web.live.posterior import LivePosterior, LiveReading

MODEL = BetaBernoulli(a=1.0, b=1.0)


def sum_of(ones: int, zeros: int, model: Model = MODEL) -> list[int]:
    rows = np.array([1.0] * ones + [0.0] * zeros)
    return [int(unit) for unit in model.eta0 + model.factor(model.shard(rows, "a1"))]


def reading(
    units: Sequence[int] | None,
    digest: str = "d",
    *,
    state: str = "complete",
    ids: Sequence[str] = (),
    out: bool = False,
    **more: Any,
) -> LiveReading:
    known = {"a2": {"ids": list(ids), "out": out}} if ids or out else {}
    best = {"state": state, "digest": digest, "included": ["a1"], "missing": ["a3"]}
    best |= {"stamp": [1, 0, 0, 5, 0]}
    return LiveReading({"a1": {"erasures": {"known": known}}}, best, units, **more)


def live(units: Sequence[int], model: Model = MODEL) -> LivePosterior:
    posterior = LivePosterior(model, masked=False)
    posterior.update(reading(units), 1.0)
    return posterior


A, B = (2301, 4778), (2302, 4780)  # records of 1 and of 0: the same coarse numbers


def test_a_density_tells_no_more_than_the_coarse_numbers() -> None:
    """A fit to a density of the exact law finds the exact counts."""
    pages = [live(sum_of(*counts)) for counts in (A, B)]
    views = [one.update(reading(None), 2.0)[0]["parameters"] for one in pages]
    assert views[0] == views[1]
    curves = [one.curves(["theta"])["curves"] for one in pages]
    assert len(curves[0]["theta"]) == 2
    assert curves[0] == curves[1]
    reports = [
        quantities_of({"posterior": MODEL.posterior(np.array(sum_of(*counts)))}, live=True)
        for counts in (A, B)
    ]
    assert len(reports[0][0].curves) == 2
    assert reports[0] == reports[1]


@pytest.mark.parametrize(
    "law",
    [
        BetaMarginal("t", np.array(13.0), np.array(47.0)),
        GammaMarginal("t", np.array(9.3), np.array(0.4)),
        InverseGammaMarginal("t", np.array(12.1), np.array(3.0)),
        NormalMarginal("t", np.array(-3.21), np.array(0.07)),
        StudentTMarginal("t", np.array(40.0), np.array(1.0), np.array(2.0)),
        MixtureMarginal(
            "t", np.array([0.5, 0.5]), BetaMarginal("t", np.array([13.0, 14.0]), np.array([47.0]))
        ),
    ],
    ids=lambda law: type(law).__name__,
)
def test_a_density_has_the_numbers_beside_it(law: Marginal) -> None:
    found = coarse(moments_of(law))
    drawn = matched(law, found)
    assert drawn is not None
    assert float(drawn.mean()) == pytest.approx(found.mean)
    assert float(drawn.sd()) == pytest.approx(found.sd)
    # It lies where the exact law does.
    x = np.linspace(*drawn.interval(0.99), 50)
    assert np.abs(drawn.cdf(x) - law.cdf(x)).max() < 0.03


def test_a_density_that_the_numbers_do_not_determine_is_not_drawn() -> None:
    """The law of a user's own model may have two modes; one of small counts may have no sd."""
    nodes = np.concatenate([np.linspace(-3.1, -2.9, 50), np.linspace(2.9, 3.1, 50)])
    two = CloudMarginal("t", Parameter("t", "normal", 0.0, 5.0), nodes, np.full(100, 0.01))
    assert matched(two, coarse(moments_of(two))) is None
    heavy = StudentTMarginal("t", np.array(1.5), np.array(0.0), np.array(1.0))
    assert matched(heavy, coarse(moments_of(heavy))) is None


def test_the_page_says_which_density_is_not_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    page = live(sum_of(*A))
    assert "why" not in page.update(reading(None), 2.0)[0]
    monkeypatch.setattr("unweave.web.live.posterior.matched", lambda law, found: None)
    view, _ = page.update(reading(None), 2.0)
    assert view["why"].startswith("No density of theta: ")
    assert page.curves(["theta"])["curves"] == {"theta": []}


def test_a_narrow_law_far_from_zero_is_drawn() -> None:
    """101325 ± 0.012: six digits of x would be one number."""
    middle = {"x": 101300.0}
    model = NormalKnownVariance(0.12, 101300.0, 100.0, center=middle, scale={"x": 100.0})
    factor = model.factor(model.shard(np.full(100, 101325.123), "a1"))
    units = model.eta0 + factor
    (found,) = quantities_of({"posterior": model.posterior(units)}, live=True)
    assert all(len(set(curve.x)) == len(curve.x) for curve in found.curves)
    assert "path" in str(densities(found))
    page = live([int(unit) for unit in units], model)
    for drawn in page.curves([found.name])["curves"][found.name]:
        assert len(set(drawn["x"])) == len(drawn["x"])


def test_a_departure_by_votes_is_an_erasure() -> None:
    """Its tombstone has no request: only the agent is out."""
    page = live(sum_of(30, 50))
    _, points = page.update(reading(sum_of(31, 50), "d2"), 2.0)
    assert points["progress"]
    _, points = page.update(reading(sum_of(20, 30), "d3", out=True), 3.0)
    assert points == {}
    assert page.purged
    removed, change = page.compare() or ((), [])
    assert removed == {"a2"}
    assert change
    page.update(reading(sum_of(20, 30), "d3", out=True), 4.0)
    assert not page.purged


def test_an_agent_that_was_down_makes_no_second_erasure() -> None:
    page = live(sum_of(30, 50))
    page.update(reading(sum_of(20, 30), "d2", ids=["r1"]), 2.0)
    page.compare()
    page.update(reading(None, "d2"), 3.0)  # the agent that knows of it does not answer
    page.update(reading(None, "d2", ids=["r1"]), 4.0)
    assert not page.purged


def test_numbers_from_before_an_erasure_are_coarse_and_end() -> None:
    page = live(sum_of(*A))
    shown = page.update(reading(None), 2.0)[0]["parameters"][0]
    page.update(reading(sum_of(300, 776), "d2", state="incomplete", ids=["r1"]), 3.0)
    assert page.compare() is None
    (kept,) = page._before.values()
    assert (kept.mean, kept.sd) == (shown["mean"], shown["sd"])
    page.update(reading(None, "d2", state="incomplete", ids=["r1"]), 500.0)
    assert page._before
    page.update(reading(None, "d2", state="incomplete", ids=["r1"]), 700.0)
    assert not page._before
    assert page.compare() is None


def test_a_sum_that_changes_between_two_questions_leaves_the_last_one() -> None:
    page = live(sum_of(*A))
    last, _ = page.update(reading(None), 2.0)
    passing = reading(None, passing=True)._replace(best={"state": "unknown", "why": "changed"})
    assert page.update(passing, 3.0)[0] == last
    erased = passing._replace(reports=reading(None, ids=["r1"]).reports)
    assert page.update(erased, 4.0)[0]["state"] == "none"
