"""The paper on the page: the walk is that of the experiment, and the chapters end with its
numbers."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest

from tests.support.viewing import CheckedFeed, check, played, until
from unweave import Federation
from unweave.errors import ConfigError
from unweave.experiments.paper import FIGURES
from unweave.experiments.paper.experiment import bernoulli
from unweave.graph import graphs
from unweave.models import BetaBernoulli
from unweave.web.paper.chapters import CHAPTERS
from unweave.web.paper.player import PaperSource
from unweave.web.source import NotFound

REPLICAS, SEED = 30, 2


@pytest.fixture(scope="module")
def walks():
    return {name: one.load(REPLICAS, SEED) for name, one in CHAPTERS.items() if name in SHOWN}


SHOWN = ("fig3-ring", "fig3-complete", "fig5-subtract", "fig5-refine", "fig5-retrain")


def test_the_walk_of_figure_3_is_a_federation_of_its_seed(walks):
    walked = walks["fig3-ring"]
    from unweave.experiments.replicas.paths import replica_seeds

    data = np.asarray(bernoulli(SEED, REPLICAS, 0.5).data)[0]
    network = Federation(
        BetaBernoulli(a=2, b=2),
        list(data),
        graphs.ring(10),
        "metropolis",
        seed=int(replica_seeds(SEED, 1)[0]),
    ).learn(iterations=60)
    assert [network.graph.index(step.agent) for step in network.history] == (
        walked.path[:60].tolist()
    )
    assert np.array_equal([step.units for step in network.history], walked.units[:60])
    for i, step in enumerate(network.history):
        assert len(walked.included(i)) == step.included, i


def test_figure_3_ends_with_the_figures_values(walks):
    report = FIGURES["fig3"].compute(REPLICAS, SEED, lambda done: None)
    for name in ("ring", "complete"):
        walked, rows = walks[f"fig3-{name}"], report.table.where(graph=name)
        for line, column in (("mean", "kl_mean"), ("low", "kl_low"), ("high", "kl_high")):
            values = [y for _, y in walked.series[line]["points"]]
            assert values == rows.values(column).tolist()
        assert walked.results["expected_cover"] == report.results[name]["expected_cover"]
        cover = int(walked.results["covered_at"])
        assert (walked.kl[cover - 1 :] == 0.0).all()
        assert walked.kl[cover - 2] > 0.0


@pytest.mark.slow
def test_figure_5_ends_with_the_figures_values(walks):
    report = FIGURES["fig5"].compute(REPLICAS, SEED, lambda done: None)
    far = report.results["sum"]["dissimilar"]
    for how in ("subtract", "refine", "retrain"):
        walked = walks[f"fig5-{how}"]
        assert walked.results[f"{how}_median"] == far[how]["kl_median"]
        assert walked.results["floor"] == far["floor"]
        rows = report.table.where(reduction="sum", case="dissimilar", how=how)
        medians = [y for _, y in walked.series["median"]["points"]]
        assert medians == rows.values("kl_median").tolist()
    assert walks["fig5-subtract"].results["before"] == far["before"]


def test_until_agent_10_is_reached_the_others_only_forward(walks):
    removed = walks["fig5-subtract"].removed_at()
    units = walks["fig5-subtract"].units
    changed = np.flatnonzero((units[1:] != units[:-1]).any(axis=1)) + 1
    request = walks["fig5-subtract"].request
    assert [i for i in changed.tolist() if i > request] == [removed]
    for how in ("subtract", "refine", "retrain"):
        walked = walks[f"fig5-{how}"]
        assert walked.series["median"]["points"][-1] == (300.0, walked.results[f"{how}_median"])
    found = walked.results
    assert found["refine_median"] == pytest.approx(found["retrain_median"], abs=1e-8)
    assert found["subtract_median"] > 10 * found["refine_median"]


@pytest.fixture
def source(walks, monkeypatch):
    found = PaperSource("all", replicas=REPLICAS, seed=SEED)
    found._known.update(walks)
    return found


def test_a_chapter_is_walked_to_its_end(source, walks):
    async def script(feed: CheckedFeed) -> None:
        await source.control({"do": "chapter", "value": "fig5-subtract"})
        assert feed.view["token"] == {"state": "none"}
        await source.control({"do": "step"})
        assert (feed.view["token"]["hop"], feed.view["controls"]["playing"]) == (281, False)
        assert feed.view["controls"]["may_forget"] == ["a10"]
        assert not feed.view["erasures"]
        assert [one["id"] for one in feed.view["posterior"]["moments"]] == ["retrained"]
        await source.control({"do": "forget", "agent": "a10"})
        assert feed.view["erasures"]["agent10"]["state"] == "asked"
        assert feed.view["series"]["progress"]["points"][-1][0] == 0.0
        await source.control({"do": "speed", "value": "1000"})
        await source.control({"do": "play"})
        await until(lambda: "finished" in feed.view["controls"])
        found = await source.curves(["theta"], ["before", "retrained"])
        assert [curve["label"] for curve in found["curves"]["theta"]] == [
            "posterior",
            "prior",
            "before agent 10 was forgotten",
            "retrained without agent 10",
        ]
        earlier = await source.moment("before")
        assert earlier["label"] == "before agent 10 was forgotten"
        assert earlier["parameters"][0]["mean"] != feed.view["posterior"]["parameters"][0]["mean"]
        with pytest.raises(NotFound):
            await source.moment("hop-1")
        with pytest.raises(ConfigError):
            await source.control({"do": "play"})

    feed = played(source, script)
    walked = walks["fig5-subtract"]
    assert feed.view["agents"]["a10"]["state"] == "erased"
    assert feed.view["erasures"]["agent10"]["state"] == "removed"
    points = feed.view["series"]["progress"]["points"]
    assert points == [(float(walked.hop(i)), kl) for i, kl in enumerate(walked.kl.tolist())]
    texts = [entry["text"] for entry in feed.view["timeline"].values()]
    assert any("took its factor out" in text for text in texts)
    story = feed.view["controls"]["story"]
    for how in ("subtract", "refine", "retrain"):
        assert f"{walked.results[f'{how}_median']:.3g}" in story


def test_another_chapter_begins_anew(source):
    async def script(feed: CheckedFeed) -> None:
        await source.control({"do": "chapter", "value": "fig3-ring"})
        await source.control({"do": "speed", "value": "200"})
        await until(lambda: feed.view["summary"]["hops"] > 20)
        await source.control({"do": "pause"})
        await source.control({"do": "chapter", "value": "fig3-complete"})
        await source.control({"do": "pause"})
        check(feed.view)
        assert len(feed.view["graph"]["edges"]) == 45
        assert feed.view["series"]["progress"]["points"] == []
        assert len(feed.view["series"]["mean"]["points"]) == 600
        assert set(feed.view["summary"]["agents"]) == {"pending"}
        await source.control({"do": "restart"})
        with pytest.raises(ConfigError):
            await source.control({"do": "fault", "value": "crash", "agent": "a1"})

    played(source, script)


def test_the_curves_are_computed_when_a_chapter_is_opened():
    source = PaperSource("fig3", replicas=3, seed=SEED)
    assert list(source.chapters) == ["fig3-star", "fig3-ring", "fig3-complete"]
    assert source.view()["summary"]["state"] == "starting"
    assert "begins by itself" in source.view()["posterior"]["why"]
    assert "begins by itself" in source.view()["waits"]["curves"]["why"]
    assert asyncio.run(source.curves(["theta"], [])) == {"version": "prior", "curves": {}}

    async def script(feed: CheckedFeed) -> None:
        await until(lambda: feed.view["summary"]["hops"] > 0, 120.0)
        first = source.walk.walked
        await source.control({"do": "restart", "value": "9"})
        await until(lambda: feed.view["summary"]["hops"] > 0, 120.0)
        assert feed.view["settings"]["seed"] == "9"
        assert source.walk.walked.path.tolist() != first.path.tolist()
        with pytest.raises(ConfigError):
            await source.control({"do": "restart", "value": "x"})

    feed = played(source, script)
    assert not feed.view["waits"]
    assert feed.view["model"] == "beta-bernoulli"


def test_other_figures_are_refused():
    with pytest.raises(ConfigError, match="fig4"):
        PaperSource("fig4")


def test_walks_that_cannot_be_computed_end_the_page():
    with pytest.raises(ConfigError, match="at least 1"):
        PaperSource("fig3", replicas=0)
    source = PaperSource("fig3", replicas=3, seed=SEED)
    tried = []

    def broken(replicas, seed):
        tried.append(replicas)
        raise ConfigError("no walk. Fix: none")

    source.walk.chapter = replace(source.walk.chapter, load=broken)
    with pytest.raises(ConfigError, match="no walk"):
        asyncio.run(asyncio.wait_for(source.run(SilentFeed()), 20.0))
    assert tried == [3]


class SilentFeed:
    viewers = 1

    def change(self, patch):
        pass

    def points(self, new):
        pass

    def forget(self):
        pass
