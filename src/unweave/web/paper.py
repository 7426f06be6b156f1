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
from unweave.text import count
from unweave.web.chapters import CHAPTERS, Chapter, Walked
from unweave.web.densities import curves, parameters
from unweave.web.layout import places
from unweave.web.patches import difference, merge
from unweave.web.source import Feed, NotFound
from unweave.web.timeline import Timeline
from unweave.web.view import (
    VISITS,
    AgentDetails,
    AgentView,
    Control,
    Controls,
    CurvesAnswer,
    ErasurePreview,
    ErasureView,
    ErasureWish,
    PosteriorView,
    Summary,
    TokenView,
    Verification,
    View,
)

__all__ = ["PaperSource"]

_EVERY = 0.1
_SPEED = 3.0  # hops per second
_SLOWEST, _FASTEST = 0.1, 1000.0
_LEAVER = "a10"


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
        self.chapter: Chapter = self.chapters[name]
        self.walked: Walked | None = self._known.get(name)
        self.at = -1  # the column that is shown; −1: before the first hop
        self._due = 0.0
        self.timeline = Timeline()
        self._told: dict[str, Any] = {}
        self._requested = self._removed = False
        if self.walked is not None:
            self._tell_begin()

    # -------------------------------------------------------------------------------- the view

    def view(self) -> View:
        return cast("View", self._view)

    def _whole_view(self) -> dict[str, Any]:
        walked = self.walked
        topology = graphs.by_name(self.chapter.graph, AGENTS)
        told, self._told = self._told, {}
        agents = self._agents(topology.agents)
        view: View = {
            "title": self.chapter.title,
            "kind": "paper",
            "clock": self._clock(),
            "model": walked.model.name if walked else "",
            "settings": walked.settings if walked else {},
            "privacy": "plain",
            "seen": "Neighbours see each other's factors, as in the paper.",
            "may_erase": [],
            "locked": False,
            "summary": self._summary(agents),
            "graph": {
                "names": list(topology.agents),
                "edges": [
                    (a, b) for a, near in enumerate(topology.adjacency) for b in near if a < b
                ],
                "places": places(topology),
            },
            "agents": agents,
            "token": self._token(),
            "waits": {}
            if walked
            else {
                "curves": {
                    "what": "The curves of all walks are computed",
                    "why": "The first chapter also compiles the experiments, which takes a while.",
                }
            },
            "posterior": self._posterior(),
            "series": self._series(),
            "erasures": self._erasures(),
            "timeline": {number: entry for number, entry in told.items() if entry is not None},
            "controls": self._controls(),
        }
        return cast("dict[str, Any]", view)

    def _series(self) -> dict[str, Any]:
        walked = self.walked
        if walked is None:
            return {}
        return {name: {**one, "points": list(one["points"])} for name, one in walked.series.items()}

    def _clock(self) -> float:
        """In hops."""
        return float(max(self.at + 1, 0) + (self.walked.before if self.walked else 0))

    def _agents(self, names: Sequence[str]) -> dict[str, AgentView]:
        walked = self.walked
        inside: frozenset[int] = frozenset()
        if walked is not None:
            inside = walked.included(self.at) if self.at >= 0 else walked.inside
        views: dict[str, AgentView] = {}
        for k, name in enumerate(names):
            view: AgentView = {"index": k, "state": "in", "attested": False}
            if walked is not None and (k in walked.absent or (name == _LEAVER and self._removed)):
                view["state"] = "erased"
            elif k not in inside:
                view["state"] = "pending"
                view["why"] = "The walk has not come here yet."
            elif name == _LEAVER and self._requested:
                view["why"] = "To be forgotten, when the walk comes here."
            views[name] = view
        return views

    def _summary(self, agents: dict[str, AgentView]) -> Summary:
        states = [one["state"] for one in agents.values()]
        view: Summary = {
            "state": "starting",
            "text": "The curves are computed.",
            "agents": {one: states.count(one) for one in dict.fromkeys(states)},
            "hops": int(self._clock()),
        }
        walked = self.walked
        if walked is None:
            return view
        kl = math.nan if self.at < 0 else float(walked.kl[self.at])
        shown = "" if math.isnan(kl) else f" KL to the exact posterior: {_number(kl)}."
        view["state"] = "learning"
        if self.at >= walked.last:
            view["state"], view["text"] = "done", f"The walk has ended.{shown}"
        elif self._requested and not self._removed:
            view["text"] = f"The token is forwarded until the walk comes to agent 10.{shown}"
        else:
            inside = states.count("in")
            are = "is" if inside == 1 else "are"
            view["text"] = f"The token walks; {count(inside, 'agent')} {are} in the sum.{shown}"
        return view

    def _token(self) -> TokenView:
        walked = self.walked
        if walked is None or self.at < 0:
            return {"state": "none"}
        first = max(0, self.at - VISITS + 1)
        visits = [
            (int(walked.path[i]), float(walked.before + i + 1)) for i in range(first, self.at + 1)
        ]
        return {
            "state": "moving",
            "at": int(walked.path[self.at]),
            "epoch": 1,
            "hop": walked.before + self.at + 1,
            "visits": visits,
        }

    def _now(self) -> Posterior | None:
        walked = self.walked
        if walked is None or self.at < 0 or not walked.model.inside(walked.units[self.at]):
            return None
        return walked.model.posterior(walked.units[self.at])

    def _posterior(self) -> PosteriorView:
        walked, now = self.walked, self._now()
        if walked is None or self.at < 0:
            return {"state": "none", "why": "The walk has not begun. Fix: press play."}
        if now is None:
            return {"state": "none", "why": "The sum is no posterior. Fix: let the walk go on."}
        complete = len(walked.included(self.at)) + len(walked.absent) + self._removed >= 10
        return {
            "state": "complete" if complete else "incomplete",
            "version": self._version(),
            "at": self._clock(),
            "total": len(now.marginals),
            "parameters": parameters(now, walked.model.posterior(walked.model.eta0)),
            "moments": [
                {"id": name, "label": label} for name, (label, _) in walked.moments.items()
            ],
        }

    def _version(self) -> str:
        return "prior" if self.at < 0 else f"hop {self._clock():.0f}"

    def _erasures(self) -> dict[str, ErasureView]:
        if not self._requested:
            return {}
        view: ErasureView = {
            "agent": _LEAVER,
            "scope": "everything",
            "state": "removed" if self._removed else "asked",
            "text": "Taken out of the sum. The paper has no certificates."
            if self._removed
            else "Requested; the walk goes on until it comes to agent 10.",
            "certificate": False,
        }
        return {"agent10": view}

    def _controls(self) -> Controls:
        controls: Controls = {
            "playing": self._playing,
            "speed": self._speed,
            "faults": {},
            "chapters": {name: one.title for name, one in self.chapters.items()},
            "chapter": self.name,
            "story": self._story(),
            "repeat": f"unweave paper {self.chapter.figure} --seed {self._seed}",
        }
        if self.walked is not None and self.walked.request is not None and not self._requested:
            controls["may_forget"] = [_LEAVER]
        if self.walked is not None and self.at >= self.walked.last:
            controls["finished"] = "The walk has ended. Restart it, or choose another chapter."
        return controls

    # -------------------------------------------------------------------------------- the story

    def _story(self) -> str:
        walked, lesson = self.walked, self.chapter.lesson
        if walked is None:
            return f"{lesson} The curves are computed now."
        found = walked.results
        if self.chapter.figure == "fig3":
            covered, hops = int(found["covered_at"]), self.at + 1
            goal = f"On average it takes {found['expected_cover']:.0f} hops to see everybody."
            if covered and hops >= covered:
                return (
                    f"{lesson} After {covered} hops this walk has seen all agents: the sum is the "
                    "posterior of all data, bit for bit, and the KL is exactly 0. What remains in "
                    "the mean comes from walks that have not seen everybody."
                )
            return (
                f"{lesson} Whoever the walk comes to adds its factor, once. {goal} The band holds "
                "75% of all walks."
            )
        if walked.request is None:
            return (
                f"{lesson} It ends at a median KL of {_number(found['retrain_median'])}; "
                f"subtracting ends at {_number(found['subtract_median'])}, after a few hops."
            )
        if not self._requested:
            return (
                f"{lesson} These are the last hops of learning: all ten agents are in the sum. The "
                "KL is to the posterior without agent 10."
            )
        if not self._removed:
            return (
                f"{lesson} The request was made at hop 0. The token is only forwarded; nobody "
                "learns until the walk comes to agent 10, after 9.1 hops on average."
            )
        rest = [
            f"{name}: {_number(found[key])}"
            for name, key in (
                ("subtracting", "subtract_median"),
                ("refining", "refine_median"),
                ("retraining", "retrain_median"),
                ("the best that the family can do", "floor"),
            )
            if key in found
        ]
        return f"{lesson} Agent 10 is out. Where the walks end, in the median: {'; '.join(rest)}."

    def _say(self, text: str, level: str = "info", agent: str | None = None) -> None:
        told = self.timeline.say(self._clock(), text, level, agent)  # type: ignore[arg-type]
        self._told.update(told)

    def _tell_begin(self) -> None:
        self._say(self.chapter.lesson)

    def _tell_hop(self) -> None:
        walked = self.walked
        assert walked is not None
        k, column = int(walked.path[self.at]), self.at
        name, kl = walked.topology.agents[k], float(walked.kl[self.at])
        before = walked.included(column - 1) if column else walked.inside
        now = walked.included(column)
        if k in now and k not in before:
            self._say(
                f"Hop {walked.hop(column)}: {name} is visited for the first time; "
                f"{count(len(now), 'agent')} in the sum, KL {_number(kl)}.",
                agent=name,
            )
            if len(now) + len(walked.absent) == len(walked.topology.agents):
                exact = " The sum is exact." if kl == 0.0 else ""
                self._say(f"All agents are in the sum: KL {_number(kl)}.{exact}", "good")
        if walked.request is not None and column >= walked.request and not self._requested:
            self._requested = True
            self._say(f"The erasure of {_LEAVER} was requested.", "warning", _LEAVER)
        if column == walked.removed_at() and not self._removed:
            self._removed = True
            was = _number(float(walked.kl[column - 1]))
            self._say(
                f"Hop {walked.hop(column)}: {_LEAVER} took its factor out. The KL went from {was} "
                f"to {_number(kl)}.",
                "good",
                _LEAVER,
            )
        if column == walked.settled_at() and walked.offset < 1:
            self._say(
                f"Hop {walked.hop(column)}: from here on the KL stays at {_number(kl)}. The best "
                f"that the family can do: {_number(walked.results['floor'])} in the median.",
                "good",
            )
        if column == walked.last:
            self._say(f"The walk has ended, at KL {_number(kl)}.", "good")

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
                if self.walked is None:
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
        name, chapter = self.name, self.chapter
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
        walked = self.walked
        if walked is None:
            return
        fresh = []
        for _ in range(hops):
            if self.at >= walked.last:
                self._playing = False
                break
            self.at += 1
            self._tell_hop()
            kl = float(walked.kl[self.at])
            if math.isfinite(kl):
                fresh.append((float(walked.hop(self.at)), kl))
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
        agents = self._agents(self._view["graph"]["names"])
        new: dict[str, Any] = {
            "clock": self._clock(),
            "summary": self._summary(agents),
            "agents": agents,
            "token": self._token(),
            "posterior": self._posterior(),
            "erasures": self._erasures(),
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
            if self.walked is not None and self.at >= self.walked.last:
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
        walked = self.walked
        if walked is None or walked.request is None:
            raise ConfigError("nobody is forgotten in this chapter. Fix: open one of figure 5")
        if not self._requested:
            self._walk(walked.request - self.at)

    # ------------------------------------------------------------------------------- questions

    async def curves(self, names: Sequence[str], moments: Sequence[str]) -> CurvesAnswer:
        walked, now = self.walked, self._now()
        if walked is None:
            raise ConfigError("the curves are computed now. Fix: ask again in a moment")
        found: dict[str, Posterior] = {} if now is None else {"posterior": now}
        prior = walked.model.posterior(walked.model.eta0)
        found["prior"] = prior
        for name in moments:
            if name not in walked.moments:
                raise NotFound(f"no moment {name!r}. Fix: choose one of the view's moments")
            label, units = walked.moments[name]
            if walked.model.inside(units):
                found[label] = walked.model.posterior(units)
        for name in names:
            if name not in {law.name for law in prior.marginals}:
                raise NotFound(f"no parameter {name!r}. Fix: choose one of the view's parameters")
        return {"version": self._version(), "curves": curves(found, names)}

    async def agent(self, name: str) -> AgentDetails:
        walked = self.walked
        names = self._view["graph"]["names"]
        if name not in names:
            raise NotFound(f"no agent {name!r}. Fix: choose one of the ten agents")
        k, facts = names.index(name), {"neighbours": "", "visits of the walk": "0"}
        if walked is not None:
            near = [walked.topology.agents[n] for n in walked.topology.adjacency[k]]
            facts["neighbours"] = ", ".join(near)
            facts["visits of the walk"] = str(int(np.sum(walked.path[: self.at + 1] == k)))
        return {
            "name": name,
            "facts": facts,
            "receipts": [],
            "influence_text": "The experiment keeps no factors of single agents.",
        }

    async def certificate(self, request: str) -> tuple[str, bytes]:
        raise NotFound("the paper has no certificates. Fix: use `unweave simulate --dashboard`")

    async def report(self) -> bytes:
        raise ConfigError(
            f"the page makes no report of the paper. Fix: `unweave paper {self.chapter.figure}` "
            "writes figures, data and a summary"
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


def _number(kl: float) -> str:
    if kl == 0.0:
        return "0"
    return f"{kl:.3g}" if math.isfinite(kl) else "infinite"
