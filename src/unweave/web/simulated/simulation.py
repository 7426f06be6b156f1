"""A simulation on the page: the network of `unweave simulate`, at the pace of whoever watches.

The world runs in slices of a few milliseconds, in a thread, while the page is open and plays. After
some slices the source sends what has changed. A violated invariant stops the simulation and is
shown with the command that repeats the run.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar, cast

from unweave.errors import ConfigError, SolverError
from unweave.simulator.asked import FAULTS, AskedEvents
from unweave.simulator.invariants import Violation
from unweave.web.densities import intervals, moment_of
from unweave.web.layout import graph_view
from unweave.web.patches import difference, merge
from unweave.web.simulated.answers import (
    agent_details,
    erasure_preview,
    html_report,
    verification,
    wished_rows,
)
from unweave.web.simulated.specification import Simulated
from unweave.web.simulated.sums import SimulatedSums
from unweave.web.simulated.watch import Watch
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

__all__ = ["SimulationSource"]

_T = TypeVar("_T")

SLICE = 0.008  # seconds that the world runs in a thread before the page gets its turn
_EVERY = 0.1  # seconds between two patches
_IDLE = 0.02  # seconds of sleep when the world is ahead
_STEP = 20.0  # seconds that one step may take: in a large network it has thousands of events
_BEHIND = 0.25  # seconds of the page's clock that are caught up at most
_SLOWEST, _FASTEST = 0.01, 10_000.0
_SPEED = 0.25  # four hops per second, as far as messages take 0.05 s


class SimulationSource:
    """A `ViewSource` that runs a simulated network."""

    def __init__(self, simulated: Simulated, *, speed: float = _SPEED) -> None:
        self.simulated = simulated
        self._speed = speed
        self._playing = True
        self._lock = asyncio.Lock()  # of the world: a slice, or a control
        self._graph = graph_view(simulated.manifest.topology)
        self._published = -math.inf
        self._feed: Feed | None = None
        self._begin(simulated.seed)
        self._view = self._whole_view()

    def _begin(self, seed: int) -> None:
        self.seed = seed
        self._violation = ""
        self._was_running, self._rested = True, False
        self._rate_from = (0.0, 0)
        self._asked: list[str] = []  # what was asked for, with the time
        self.session = self.simulated.session(seed)
        self.timeline = Timeline()
        self.asked = AskedEvents(self.session, lambda text, agent: self._say(text, "good", agent))
        self.watch = Watch(self.session, self.asked, self.timeline)
        self.sums = SimulatedSums(self.simulated.model, self.asked)
        self._posterior: tuple[object, ...] = ()

    def _say(self, text: str, level: str = "info", agent: str | None = None) -> None:
        self.watch.say(text, level, agent)

    # -------------------------------------------------------------------------------- the view

    def view(self) -> View:
        return cast("View", self._view)

    def _whole_view(self) -> dict[str, Any]:
        manifest, model = self.simulated.manifest, self.simulated.model
        topology, agents = manifest.topology, self.watch.take_agents()
        view: View = {
            "title": manifest.name,
            "kind": "simulation",
            "clock": 0.0,
            "model": model.name,
            "settings": self.simulated.settings(self.seed),
            "privacy": manifest.privacy.mode,
            "seen": manifest.privacy.seen,
            "may_erase": list(topology.agents),
            "summary": self.watch.summary(),
            "graph": self._graph,
            "agents": agents,
            "token": self.watch.token_view(),
            "waits": {},
            "posterior": self.sums.view(None, attested=False),
            "series": self.sums.series(),
            "erasures": {},
            "timeline": {},
            "controls": self._controls(),
        }
        return cast("dict[str, Any]", view)

    def _controls(self) -> Controls:
        controls: Controls = {
            "playing": self._playing and not self._violation,
            "speed": self._speed,
            "faults": {name: fault.label for name, fault in FAULTS.items()},
            "of_agent": [name for name, fault in FAULTS.items() if fault.of_agent],
            "repeat": self.simulated.repeat(self.seed)
            + ("  # without what was asked for on this page" if self._asked else ""),
        }
        if self._violation:
            controls["finished"] = self._violation
        return controls

    # -------------------------------------------------------------------------------- the run

    async def run(self, feed: Feed) -> None:
        self._feed = feed
        last = time.monotonic()
        try:
            while True:
                now = time.monotonic()
                elapsed, last = min(now - last, _BEHIND), now
                ahead = True
                if self._playing and not self._violation and feed.viewers:
                    async with self._lock:
                        until = self.session.now + self._speed * elapsed
                        ahead = await asyncio.to_thread(self._slice, until)
                await self.sums.search()
                if now - self._published >= (_EVERY if feed.viewers else 1.0):
                    async with self._lock:
                        await self._publish(feed)
                await asyncio.sleep(_IDLE if ahead else 0)
        finally:
            self.sums.stop()

    def _slice(self, until: float, hops: float = math.inf) -> bool:
        """Run the world to this simulated second or number of hops, for a few milliseconds at
        most; False: the time was not enough."""
        session, watch = self.session, self.watch
        end = time.perf_counter() + SLICE
        try:
            while session.next_at <= until and watch.hops < hops:
                if not session.step():
                    break
                if time.perf_counter() >= end:
                    return False
            if watch.hops < hops and until < math.inf:
                session.pass_time(until)
        except (Violation, SolverError, AssertionError) as broken:
            self._break(broken)
        return True

    def _guarded(self, act: Callable[[], _T]) -> _T:
        """Do what somebody asks for: the transition that it causes is checked like any other."""
        self.session.interrupt()
        try:
            return act()
        except (Violation, SolverError, AssertionError) as broken:
            self._break(broken)
            raise ConfigError(
                "this violated an invariant, and the simulation has stopped. Fix: report it with "
                "the command that the page shows"
            ) from None

    def _break(self, broken: Exception) -> None:
        asked = f" After: {'; '.join(self._asked)}." if self._asked else ""
        self._violation = (
            f"An invariant was violated: {broken}. Fix: report it with the command below.{asked}"
        )
        self._say(f"Violated: {broken}", "failure")

    async def _publish(self, feed: Feed) -> None:
        """Send what has changed."""
        self._published = time.monotonic()
        points = await asyncio.to_thread(self._collect)
        patch = self._patch
        if patch:
            merge(self._view, patch)
            feed.change(patch)
        if points:
            for name, new in points.items():
                self._view["series"][name]["points"] = [
                    *self._view["series"][name]["points"],
                    *new,
                ][-2000:]
            feed.points(points)

    def _collect(self) -> dict[str, list[tuple[float, float]]]:
        """Make the patch, in a thread: only of what has changed."""
        watch, session = self.watch, self.session
        self.sums.look()
        if self._was_running and not session.running:
            self._was_running = False
            self._tell_end()
        sums, watch.sums = watch.sums, []
        points = self.sums.add(sums)
        patch: dict[str, Any] = {}
        if agents := watch.take_agents():
            patch["agents"] = {
                name: difference(self._view["agents"].get(name, {}), view)
                for name, view in agents.items()
            }
        if erasures := self._erasures():
            patch["erasures"] = erasures
        small = {
            "summary": watch.summary(self._violation),
            "waits": watch.waits(),
            "controls": self._controls(),
            "token": watch.token_view(),
        }
        self._note_rest(small["summary"]["state"] == "rest")
        told, watch.told = watch.told, {}
        if told:
            patch["timeline"] = told
        for key, value in small.items():
            if changed := difference(self._view[key], cast("dict[str, Any]", value)):
                patch[key] = changed
        if posterior := self._posterior_patch(small["summary"]["state"] == "rest"):
            patch["posterior"] = posterior
        clock = round(session.now, 3)
        if clock != self._view["clock"]:
            patch["clock"] = clock
            points |= self._rate(clock)
        self._patch = patch
        return points

    def _posterior_patch(self, attested: bool) -> dict[str, Any]:
        shown = self.watch.shown
        key = (None if shown is None else shown.token.stamp, attested, len(self.sums.moments))
        if key == self._posterior:
            return {}
        self._posterior = key
        idle = 0 if shown is None else self.watch.idle(shown.token)
        view = self.sums.view(shown, attested=attested, idle=idle)
        return difference(self._view["posterior"], cast("dict[str, Any]", view))

    def _erasures(self) -> dict[str, Any]:
        patch = {}
        for request, view in self.watch.take_erasures().items():
            before = self.watch.before.get(request)
            if before is not None:
                name = f"before-{request[:12]}"
                what = view["agent"] if view["scope"] == "everything" else view["scope"]
                of = "" if view["scope"] == "everything" else f" of {view['agent']}"
                verb = "were" if what.endswith("records") else "was"
                self.sums.remember(name, f"before {what}{of} {verb} forgotten", before)
                if view["state"] == "certified" and self.watch.shown is not None:
                    del self.watch.before[request]
                    view["change"] = self.sums.change(before, self.watch.shown.token)
            old = self._view["erasures"].get(request, {})
            if changed := difference(old, cast("dict[str, Any]", view)):
                patch[request] = changed
        return patch

    def _rate(self, clock: float) -> dict[str, list[tuple[float, float]]]:
        since, hops = self._rate_from
        if clock - since < 1.0:
            return {}
        self._rate_from = (clock, self.watch.hops)
        return {"rate": [(clock, round((self.watch.hops - hops) / (clock - since), 3))]}

    def _tell_end(self) -> None:
        if self.simulated.faults is not None:
            self._say(
                f"The faults have ended, and the network came to rest. Every invariant held in "
                f"{self.session.checker.checked:,} transitions.",
                "good",
            )
        for note in self.session.notes:
            self._say(note)

    def _note_rest(self, rests: bool) -> None:
        shown = self.watch.shown
        if rests and not self._rested and shown is not None and self.simulated.model.conjugate:
            if self.sums.kl(shown.token) == 0.0:
                stamp = shown.token.stamp
                self._say(
                    f"The sum of epoch {stamp.epoch}, hop {stamp.hop} equals, bit for bit, that of "
                    "all remaining records.",
                    "good",
                )
        self._rested = rests

    # ------------------------------------------------------------------------------- controls

    async def control(self, control: Control) -> None:
        do, value = control["do"], control.get("value", "")
        if do in ("chapter", "forget"):
            raise ConfigError(f"{do}: not in a simulation. Fix: use the buttons of this page")
        if do == "speed":
            self._speed = _number(value, _SLOWEST, _FASTEST)
        elif do in ("play", "pause"):
            self._check_alive()
            self._playing = do == "play"
        elif do == "restart":
            async with self._lock:
                await self._restart(self.seed if value == "" else int(_number(value, 0, 2**63)))
        elif do == "step":
            self._check_alive()
            self._playing = False
            await self._step()
        else:
            self._check_alive()
            async with self._lock:
                fault = partial(self._fault, value, control.get("agent"))
                await asyncio.to_thread(self._guarded, fault)
        if self._feed is not None:
            async with self._lock:
                await self._publish(self._feed)

    async def _step(self) -> None:
        """To the next hop."""
        goal, end = self.watch.hops + 1, time.monotonic() + _STEP
        while self.watch.hops < goal and not self._violation and time.monotonic() < end:
            if self.session.next_at == math.inf:
                raise ConfigError(
                    "nothing happens any more: the network is at rest. Fix: cause a fault, ask for "
                    "an erasure, or restart"
                )
            async with self._lock:
                rests = self.watch.parked and self.asked.at_rest()
                if rests:
                    raise ConfigError(
                        "the network is at rest: the token does not move. Fix: cause a fault, ask "
                        "for an erasure, or restart"
                    )
                await asyncio.to_thread(self._slice, math.inf, goal)

    def _fault(self, name: str, agent: str | None) -> None:
        k = None if agent is None else self._index(agent)
        text = self.asked.fault(name, k)
        whom = "" if agent is None else f" {agent}"
        self._asked.append(f"{name}{whom} at second {self.session.now:.2f}")
        self._say(text, "warning", agent)

    async def _restart(self, seed: int) -> None:
        self.sums.stop()
        old, self._view = self._view, {}
        await asyncio.to_thread(self._begin, seed)
        new = self._whole_view()
        # The series are emptied as a whole: points of the old run must not be added to the new one.
        patch = difference(old, new) | {"series": new["series"]}
        self._view = new
        if self._feed is not None:
            self._feed.change(patch)

    def _check_alive(self) -> None:
        if self._violation:
            raise ConfigError("the simulation has stopped. Fix: restart it")

    def _index(self, agent: str) -> int:
        names = self.simulated.manifest.topology.agents
        if agent not in names:
            raise NotFound(f"no agent {agent!r}. Fix: choose one of the network's agents")
        return names.index(agent)

    # ------------------------------------------------------------------------------- questions

    async def moment(self, moment: str) -> MomentAnswer:
        return await asyncio.to_thread(intervals, *moment_of(self.sums.moments, moment))

    async def curves(self, names: Sequence[str], moments: Sequence[str]) -> CurvesAnswer:
        return await asyncio.to_thread(self.sums.curves, self.watch.shown, names, moments)

    async def agent(self, name: str) -> AgentDetails:
        k = self._index(name)
        async with self._lock:
            return await asyncio.to_thread(agent_details, self.watch, k)

    async def certificate(self, request: str) -> tuple[str, bytes]:
        if request not in self.watch.certificates:
            raise NotFound(
                "no certificate of this request yet. Fix: wait until the erasure is certified"
            )
        agent = self._view["erasures"].get(request, {}).get("agent", "agent")
        return f"simulated-{agent}-{request[8:16]}.json", self.watch.certificates[request]

    async def report(self) -> bytes:
        async with self._lock:
            make = partial(html_report, self.simulated, self.asked, self.seed, self._asked)
            return await asyncio.to_thread(make)

    async def verify(self, certificate: bytes) -> Verification:
        return await asyncio.to_thread(verification, certificate, self.session.terms)

    async def preview(self, wish: ErasureWish) -> ErasurePreview:
        k, rows = self._index(wish["agent"]), wished_rows(wish)
        self.asked.check_erasure(k, rows)
        return erasure_preview(wish["agent"], rows, masked=self.session.terms.masked)

    async def erase(self, wish: ErasureWish) -> str:
        self._check_alive()
        k, rows = self._index(wish["agent"]), wished_rows(wish)
        async with self._lock:
            now = bool(wish.get("now"))
            ask = partial(self.asked.erase, k, rows, at_once=now)
            request = await asyncio.to_thread(self._guarded, ask)
            self._asked.append(f"erase {wish['agent']} at second {self.session.now:.2f}")
            if self._feed is not None:
                await self._publish(self._feed)
        return request.hex()


def _number(value: str, low: float, high: float) -> float:
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not low <= number <= high:
        raise ConfigError(f"value {value!r}: no number from {low:g} to {high:g}. Fix: give one")
    return number
