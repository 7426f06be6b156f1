"""The paper on the page: chapters of figures 3 and 5, walked hop by hop with an explanation.

The curves of a chapter are computed in a thread when it is opened; the walk starts when they are
there. Speed is in hops per second.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence
from typing import Any, NoReturn, cast

import numpy as np

from unweave.errors import ConfigError
from unweave.experiments.paper.experiment import AGENTS
from unweave.graph import graphs
from unweave.models import Posterior
from unweave.web.densities import curves, intervals, moment_of
from unweave.web.layout import graph_view
from unweave.web.paper.chapters import CHAPTERS, Walked
from unweave.web.paper.story import hop_sentences, story
from unweave.web.paper.walk import LEAVER, PaperWalk
from unweave.web.patches import difference, merge
from unweave.web.sentences import Level
from unweave.web.source import Feed, NotFound
from unweave.web.timeline import Timeline
from unweave.web.view import (
    AgentDetails,
    Control,
    Controls,
    CurvesAnswer,
    ErasurePreview,
    ErasureWish,
    MomentAnswer,
    Verification,
    View,
)

__all__ = ["PaperSource"]

_EVERY = 0.1
_SPEED = 3.0  # hops per second
_SLOWEST, _FASTEST = 0.1, 1000.0


class PaperSource:
    """A `ViewSource` of the paper's walks. `figure`: fig3, fig5 or all."""

    def __init__(self, figure: str = "all", *, replicas: int | None = None, seed: int = 0) -> None:
        self.chapters = {
            name: one for name, one in CHAPTERS.items() if figure in ("all", one.figure)
        }
        if not self.chapters:
            raise ConfigError(f"{figure}: the page shows fig3 and fig5. Fix: choose one of them")
        if replicas is not None and replicas < 1:
            raise ConfigError(f"--replicas {replicas}: no walk. Fix: give at least 1")
        self._replicas, self._seed = replicas, seed
        self._failure: Exception | None = None  # of a load
        self._playing, self._speed = True, _SPEED
        self._feed: Feed | None = None
        self._known: dict[str, Walked] = {}
        self._loading: asyncio.Task[None] | None = None
        self._open(next(iter(self.chapters)))
        self._view = self._whole_view()

    def _open(self, name: str) -> None:
        self.name = name
        self.walk = PaperWalk(self.chapters[name], self._known.get(name))
        self._due = 0.0
        self.timeline = Timeline()
        self._told: dict[str, Any] = {}
        if self.walk.walked is not None:
            self._say(self.walk.chapter.lesson)

    def _say(self, text: str, level: Level = "info", agent: str | None = None) -> None:
        self._told.update(self.timeline.say(self.walk.clock, text, level, agent))

    # -------------------------------------------------------------------------------- the view

    def view(self) -> View:
        return cast("View", self._view)

    def _whole_view(self) -> dict[str, Any]:
        walk, walked = self.walk, self.walk.walked
        topology = graphs.by_name(walk.chapter.graph, AGENTS)
        told, self._told = self._told, {}
        agents = walk.agents(topology.agents)
        view: View = {
            "title": walk.chapter.title,
            "kind": "paper",
            "clock": walk.clock,
            "model": walked.model.name if walked else "",
            "settings": walked.settings if walked else {},
            "privacy": "plain",
            "seen": "Neighbours see each other's factors, as in the paper.",
            "may_erase": [],
            "summary": walk.summary(agents),
            "graph": graph_view(topology),
            "agents": agents,
            "token": walk.token_view(),
            "waits": {}
            if walked
            else {
                "curves": {
                    "what": "The curves of all walks are computed",
                    "why": "The first chapter also compiles the experiments, which takes a while: "
                    "nothing to do, the walk begins by itself.",
                }
            },
            "posterior": walk.posterior_view(),
            "series": self._series(),
            "erasures": walk.erasures(),
            "timeline": {number: entry for number, entry in told.items() if entry is not None},
            "controls": self._controls(),
        }
        return cast("dict[str, Any]", view)

    def _series(self) -> dict[str, Any]:
        walked = self.walk.walked
        if walked is None:
            return {}
        return {name: {**one, "points": list(one["points"])} for name, one in walked.series.items()}

    def _controls(self) -> Controls:
        walk = self.walk
        controls: Controls = {
            "playing": self._playing,
            "speed": self._speed,
            "faults": {},
            "chapters": {name: one.title for name, one in self.chapters.items()},
            "chapter": self.name,
            "story": story(walk),
            "repeat": f"unweave paper {walk.chapter.figure} --seed {self._seed}",
        }
        if walk.walked is not None and walk.walked.request is not None and not walk.requested:
            controls["may_forget"] = [LEAVER]
        if walk.ended:
            controls["finished"] = "The walk has ended. Restart it, or choose another chapter."
        return controls

    # -------------------------------------------------------------------------------- the run

    async def run(self, feed: Feed) -> None:
        self._feed = feed
        last, published = time.monotonic(), -math.inf
        try:
            while True:
                now = time.monotonic()
                elapsed, last = min(now - last, 0.25), now
                if self._failure is not None:
                    raise self._failure
                if self.walk.walked is None:
                    self._load()
                elif self._playing and feed.viewers:
                    self._due += self._speed * elapsed
                    hops, self._due = int(self._due), self._due % 1.0
                    self._walk(hops)
                if now - published >= _EVERY:
                    published = now
                    self._publish()
                await asyncio.sleep(0.02)
        finally:
            if self._loading is not None:
                self._loading.cancel()

    def _load(self) -> None:
        if self._loading is not None:
            return
        name, chapter = self.name, self.walk.chapter
        replicas = chapter.replicas if self._replicas is None else self._replicas

        async def load() -> None:
            try:
                self._known[name] = await asyncio.to_thread(chapter.load, replicas, self._seed)
            except Exception as error:  # another attempt would fail, too: the run ends with it
                self._failure = error
                return
            finally:
                self._loading = None
            if self.name == name:
                self._open(name)
                self._show_all()

        self._loading = asyncio.create_task(load())

    def _walk(self, hops: int) -> None:
        walk, walked = self.walk, self.walk.walked
        if walked is None:
            return
        fresh = []
        for _ in range(hops):
            if walk.ended:
                self._playing = False
                break
            walk.at += 1
            for told in hop_sentences(walk):
                self._say(*told)
            kl = float(walked.kl[walk.at])
            if math.isfinite(kl):
                fresh.append((float(walked.hop(walk.at)), kl))
        if fresh and self._feed is not None:
            self._publish()
            shown = self._view["series"]["progress"]
            shown["points"] = [*shown["points"], *fresh]  # the feed has the old list
            self._feed.points({"progress": fresh})

    def _publish(self) -> None:
        """Send what has changed: a view of ten agents is small."""
        feed = self._feed
        if feed is None or not self._view:
            return
        walk = self.walk
        agents = walk.agents(self._view["graph"]["names"])
        new: dict[str, Any] = {
            "clock": walk.clock,
            "summary": walk.summary(agents),
            "agents": agents,
            "token": walk.token_view(),
            "posterior": walk.posterior_view(),
            "erasures": walk.erasures(),
            "controls": self._controls(),
        }
        patch = difference({key: self._view[key] for key in new}, new)
        if self._told:
            patch["timeline"], self._told = self._told, {}
        if patch:
            merge(self._view, patch)
            feed.change(patch)

    def _show_all(self) -> None:
        """Send the whole view again: another chapter, or the same from its beginning."""
        old, self._view = self._view, self._whole_view()
        if self._feed is not None:
            gone = {name: None for name in old["series"] if name not in self._view["series"]}
            patch = difference(old, self._view) | {"series": {**gone, **self._view["series"]}}
            self._feed.change(patch)

    # ------------------------------------------------------------------------------- controls

    async def control(self, control: Control) -> None:
        do, value = control["do"], control.get("value", "")
        if do == "speed":
            self._speed = _speed(value)
        elif do == "pause":
            self._playing = False
        elif do == "play":
            if self.walk.ended:
                raise ConfigError("the walk has ended. Fix: restart it, or open another chapter")
            self._playing = True
        elif do == "step":
            self._playing = False
            self._walk(1)
        elif do in ("chapter", "restart"):
            name = value if do == "chapter" else self.name
            if do == "restart" and value:
                self._reseed(value)
            if name not in self.chapters:
                raise NotFound(f"no chapter {name!r}. Fix: choose {', '.join(self.chapters)}")
            self._open(name)
            self._playing = True
            self._show_all()
        elif do == "forget":
            self._to_request()
        else:
            raise ConfigError("the paper has no faults. Fix: use `unweave simulate --dashboard`")
        self._publish()

    def _reseed(self, value: str) -> None:
        """Other data and other walks, which are computed again."""
        if not (value.isascii() and value.isdigit() and len(value) < 16):
            raise ConfigError(f"seed {value!r}: no whole number. Fix: give one")
        if self._loading is not None:
            raise ConfigError("curves are computed now. Fix: wait until they are there")
        self._seed, self._known = int(value), {}

    def _to_request(self) -> None:
        """Walk to the hop at which agent 10 is to be forgotten."""
        walk, walked = self.walk, self.walk.walked
        if walked is None or walked.request is None:
            raise ConfigError("nobody is forgotten in this chapter. Fix: open one of figure 5")
        if not walk.requested:
            self._walk(walked.request - walk.at)

    # ------------------------------------------------------------------------------- questions

    async def curves(self, names: Sequence[str], moments: Sequence[str]) -> CurvesAnswer:
        walked, now = self.walk.walked, self.walk.now
        if walked is None:  # a page asked before it knew that another chapter was opened
            return {"version": self.walk.version, "curves": {}}
        found: dict[str, Posterior] = {} if now is None else {"posterior": now}
        prior = walked.model.posterior(walked.model.eta0)
        found["prior"] = prior
        for name in moments:
            label, units = moment_of(walked.moments, name)
            if walked.model.inside(units):
                found[label] = walked.model.posterior(units)
        for name in names:
            if name not in {law.name for law in prior.marginals}:
                raise NotFound(f"no parameter {name!r}. Fix: choose one of the view's parameters")
        return {"version": self.walk.version, "curves": curves(found, names)}

    async def moment(self, moment: str) -> MomentAnswer:
        walked = self.walk.walked
        label, units = moment_of({} if walked is None else walked.moments, moment)
        assert walked is not None
        if not walked.model.inside(units):
            raise NotFound(f"{label}: the sum was no posterior. Fix: choose another moment")
        return intervals(label, walked.model.posterior(units))

    async def agent(self, name: str) -> AgentDetails:
        walked = self.walk.walked
        names = self._view["graph"]["names"]
        if name not in names:
            raise NotFound(f"no agent {name!r}. Fix: choose one of the ten agents")
        k, facts = names.index(name), {"neighbours": "", "visits of the walk": "0"}
        if walked is not None:
            near = [walked.topology.agents[n] for n in walked.topology.adjacency[k]]
            facts["neighbours"] = ", ".join(near)
            facts["visits of the walk"] = str(int(np.sum(walked.path[: self.walk.at + 1] == k)))
        return {
            "name": name,
            "facts": facts,
            "receipts": [],
            "influence_text": "The experiment keeps no factors of single agents.",
        }

    async def certificate(self, request: str) -> tuple[str, bytes]:
        raise NotFound("the paper has no certificates. Fix: use `unweave simulate --dashboard`")

    async def report(self) -> bytes:
        command = f"unweave paper {self.walk.chapter.figure}"
        raise ConfigError(
            f"the page makes no report of the paper. Fix: `{command}` writes figures, data and a "
            "summary"
        )

    async def verify(self, certificate: bytes) -> Verification:
        self._refuse()

    async def preview(self, wish: ErasureWish) -> ErasurePreview:
        self._refuse()

    async def erase(self, wish: ErasureWish) -> str:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise ConfigError("not in the paper's walks. Fix: use `unweave simulate --dashboard`")


def _speed(value: str) -> float:
    try:
        speed = float(value)
    except ValueError:
        speed = math.nan
    if not _SLOWEST <= speed <= _FASTEST:
        raise ConfigError(
            f"speed {value!r}: no number from {_SLOWEST:g} to {_FASTEST:g}. Fix: give one"
        )
    return speed
