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
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar, cast

from unweave.errors import ConfigError, NotCertified, SolverError, UnweaveError
from unweave.manifest import Manifest
from unweave.models import Model, Shard
from unweave.protocol.certificate.verify import Account, verify
from unweave.protocol.token import NOTHING
from unweave.simulator.asked import FAULTS, AskedEvents, AskedFaults
from unweave.simulator.insider import keyed_signers
from unweave.simulator.invariants import Violation
from unweave.simulator.run import draw_shards, report_of
from unweave.simulator.session import Session
from unweave.solvers.worker import influence
from unweave.text import count, listed
from unweave.web.layout import places
from unweave.web.patches import difference, merge
from unweave.web.source import Feed, NotFound
from unweave.web.sums import SimulatedSums
from unweave.web.timeline import Timeline
from unweave.web.view import (
    AgentDetails,
    Control,
    Controls,
    CurvesAnswer,
    Entry,
    ErasurePreview,
    ErasureWish,
    Verification,
    View,
)
from unweave.web.watch import Watch

__all__ = ["Simulated", "SimulationSource"]

_T = TypeVar("_T")

SLICE = 0.008  # seconds that the world runs in a thread before the page gets its turn
_EVERY = 0.1  # seconds between two patches
_IDLE = 0.02  # seconds of sleep when the world is ahead
_STEP = 20.0  # seconds that one step may take: in a large network it has thousands of events
_BEHIND = 0.25  # seconds of the page's clock that are caught up at most
_SLOWEST, _FASTEST = 0.01, 10_000.0
_SPEED = 0.25  # four hops per second, as far as messages take 0.05 s

SIGNED = (
    "Certificates of a simulation are signed with keys of the simulation: this page verifies them, "
    "nobody else can."
)


@dataclass(frozen=True)
class Simulated:
    """What is simulated: a manifest, its model and data, and the options of `unweave simulate`."""

    manifest: Manifest
    model: Model
    shards: Sequence[Shard]
    data: str  # where the shards come from
    forgotten: dict[str, Any] | None
    faults: str | None
    seed: int
    hops: int | None
    repeat: Callable[[int], str]  # seed → the command that repeats the run

    def _drawn(self, seed: int) -> Sequence[Shard]:
        """Synthetic records depend on the seed, as those of the command that repeats the run."""
        if seed == self.seed or not self.data.startswith("synthetic"):
            return self.shards
        return draw_shards(self.model, self.manifest.topology.agents, seed)

    def session(self, seed: int) -> Session:
        solver = self.manifest.solver
        return Session(
            self.model,
            self.manifest.terms(),
            self._drawn(seed),
            self.faults,
            seed,
            self.hops,
            solver=self.manifest.build_solver(self.model),
            tol=solver.tol,
            retrain_above=solver.retrain_above,
            signed=True,
            kind=AskedFaults,
            mechanism=self.manifest.build_mechanism(),
        )


class SimulationSource:
    """A `ViewSource` that runs a simulated network."""

    def __init__(self, simulated: Simulated, *, speed: float = _SPEED) -> None:
        self.simulated = simulated
        self._speed = speed
        self._playing = True
        self._lock = asyncio.Lock()  # of the world: a slice, or a control
        self._graph = places(simulated.manifest.topology)
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
            "settings": self._settings(),
            "privacy": manifest.privacy.mode,
            "seen": _SEEN[manifest.privacy.mode],
            "may_erase": list(topology.agents),
            "locked": False,
            "summary": self.watch.summary(),
            "graph": {
                "names": list(topology.agents),
                "edges": [
                    (a, b) for a, near in enumerate(topology.adjacency) for b in near if a < b
                ],
                "places": self._graph,
            },
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

    def _settings(self) -> dict[str, str]:
        from unweave.report.settings import network_settings

        simulated = self.simulated
        return {
            **network_settings(simulated.manifest, simulated.model),
            "data": _DATA.get(simulated.data, simulated.data),
            "faults": simulated.faults or "none, but those that are asked for",
            "seed": str(self.seed),
            "certificates": SIGNED,
        }

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
        view = self.sums.view(shown, attested=attested)
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

    async def curves(self, names: Sequence[str], moments: Sequence[str]) -> CurvesAnswer:
        return await asyncio.to_thread(self.sums.curves, self.watch.shown, names, moments)

    async def agent(self, name: str) -> AgentDetails:
        k = self._index(name)
        async with self._lock:
            return await asyncio.to_thread(self._details, k)

    def _details(self, k: int) -> AgentDetails:
        world, terms = self.session.world, self.session.terms
        s = world.state(k)
        near = [terms.name(n) for n in s.neighbours]
        facts = {
            "neighbours": listed(near, 12, "none"),
            "records": f"{self.asked.remaining(k).n} of {self.session.workers[k].whole.given} "
            "remain",
            "process": "runs" if k not in world.down else "does not run",
            "starts": str(world.agents[k].starts),
            "epoch, hop that it has heard of": f"{s.token.fence.epoch}, {s.token.fence.hop}",
            "erasures that it knows": str(sum(len(t.ids) for t in s.known.tombs.values())),
            "neighbours that do not answer": listed(
                [terms.name(n) for n in sorted(s.peers.suspects)], 12, "none"
            ),
        }
        if s.own.current is not None and not terms.masked:
            facts["revision of its factor"] = str(s.own.current.revision.counter)
        details: AgentDetails = {
            "name": terms.name(k),
            "facts": facts,
            "receipts": [] if terms.masked else self._receipts(k),
            "influence_text": "In private rounds nobody sees a single factor, so no influence is "
            "shown.",
        }
        token = self.watch.token
        if not terms.masked:
            factor = None if token is None else s.own.factor(token.included[k])
            details["influence_text"] = "Its factor is not in the sum now."
            if token is not None and factor is not None and self.simulated.model.inside(token.eta):
                found = influence(self.simulated.model, token.eta, factor.units)
                details["influence_text"] = "KL of the posterior to the one without this agent."
                if math.isfinite(found):
                    details["influence"] = found
                else:
                    details["influence_text"] = "Without this agent there is no proper posterior."
        return details

    def _receipts(self, k: int) -> list[Entry]:
        found: list[Entry] = []
        for receipt in self.session.world.state(k).own.receipts[:20]:
            epoch, hop = receipt.body["stamp"][0], receipt.body["stamp"][3]
            was, now = receipt.body["before"][0], receipt.body["after"][0]
            what = f"revision {now} of its factor" if now else "nothing of it"
            instead = f" instead of revision {was}" if was else ""
            text = f"Epoch {epoch}, hop {hop}: the token left with {what}{instead}."
            found.append({"at": 0.0, "text": text, "level": "info"})
        return found

    async def certificate(self, request: str) -> tuple[str, bytes]:
        if request not in self.watch.certificates:
            raise NotFound(
                "no certificate of this request yet. Fix: wait until the erasure is certified"
            )
        agent = self._view["erasures"].get(request, {}).get("agent", "agent")
        return f"simulated-{agent}-{request[8:16]}.json", self.watch.certificates[request]

    async def report(self) -> bytes:
        async with self._lock:
            return await asyncio.to_thread(self._report)

    def _report(self) -> bytes:
        from unweave.report.page import page
        from unweave.report.simulation import simulation_report
        from unweave.text import dated

        if not self.asked.at_rest() or self.session.running:
            raise ConfigError(
                "the run has not ended, so it has no result to report. Fix: let it run until the "
                "network is at rest"
            )
        shards = [self.asked.remaining(k) for k in range(self.session.terms.size)]
        values = {
            "ok": True,
            "network": self.simulated.manifest.name,
            "data": self.simulated.data,
            "forgotten": self.simulated.forgotten,
            **report_of(self.session, shards).report(),
            "repeat": "" if self._asked else self.simulated.repeat(self.seed),
        }
        if self._asked:
            asked = (
                f"No command repeats the run: asked for on its page were {'; '.join(self._asked)}."
            )
            values["notes"] = [asked, *values["notes"]]
        return page(simulation_report(values, dated(time.time())))

    async def verify(self, certificate: bytes) -> Verification:
        return await asyncio.to_thread(self._verify, certificate)

    def _verify(self, certificate: bytes) -> Verification:
        terms = self.session.terms
        signers = keyed_signers(terms)
        try:
            account = verify(
                certificate, terms, lambda k, payload, signed: signers[k](payload) == signed
            )
        except (NotCertified, UnweaveError) as error:
            return {
                "valid": False,
                "text": f"The certificate is not one of this simulation: {error}",
                "erasures": [],
                "proves": [],
                "does_not_prove": [],
            }
        return _verification(account)

    async def preview(self, wish: ErasureWish) -> ErasurePreview:
        k, rows = self._index(wish["agent"]), _rows(wish)
        what = "everything" if rows is None else count(len(rows), "record")
        name, masked = wish["agent"], self.session.terms.masked
        _check_wish(wish)
        if self.session.world.state(k).known.tombs.get(k, NOTHING).out:
            raise ConfigError(f"{name} was forgotten before. Fix: choose another agent")
        shown = (
            "Whoever keeps the sum before and after sees the difference of the two."
            if masked
            else "Neighbours see the factor that is taken out: the difference of two tokens."
        )
        return {
            "what": f"Forget {what} of {name}, in this simulation.",
            "steps": [
                f"{name} signs a request, which cannot be taken back.",
                "A new private round is learned without the data."
                if masked
                else f"The token goes to {name} and leaves without its data.",
                "All remaining agents attest the new sum; a certificate proves it.",
            ],
            "shown": [shown, SIGNED],
            "irreversible": "In this run the data never come back. A restart brings them back.",
        }

    async def erase(self, wish: ErasureWish) -> str:
        self._check_alive()
        _check_wish(wish)
        k, rows = self._index(wish["agent"]), _rows(wish)
        async with self._lock:
            now = bool(wish.get("now"))
            ask = partial(self.asked.erase, k, rows, at_once=now)
            request = await asyncio.to_thread(self._guarded, ask)
            self._asked.append(f"erase {wish['agent']} at second {self.session.now:.2f}")
            if self._feed is not None:
                await self._publish(self._feed)
        return request.hex()


def _check_wish(wish: ErasureWish) -> None:
    if wish.get("departed"):
        raise ConfigError('departed: use the fault "Depart for good". Fix: leave it out')


_SEEN = {
    "plain": "Neighbours see each other's factors: sums over the records of one agent.",
    "masked": "Nobody sees a single factor: only the sum of all agents can be read.",
}
_DATA = {
    "agents": "from the agents' folders",
    "manifest": "the files that the manifest names",
}


def _rows(wish: ErasureWish) -> list[int] | None:
    keys = wish.get("keys")
    if keys is None:
        return None
    if not all(key.isascii() and key.isdigit() and len(key) < 19 for key in keys):
        raise ConfigError(
            "keys: the records of a simulation are named by row numbers. Fix: give 0, 1, 2 …"
        )
    return sorted({int(key) for key in keys})


def _number(value: str, low: float, high: float) -> float:
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not low <= number <= high:
        raise ConfigError(f"value {value!r}: no number from {low:g} to {high:g}. Fix: give one")
    return number


def _verification(account: Account) -> Verification:
    return {
        "valid": True,
        "text": "The certificate is valid in this simulation. "
        f"Attested by {listed(account.attested, 12)}.",
        "erasures": [
            {"agent": one.agent, "scope": one.scope, "kind": one.kind, "request": one.request}
            for one in account.erasures
        ],
        "proves": [
            "Every remaining agent of the simulation has attested a sum without the erased data.",
        ],
        "does_not_prove": [SIGNED, "Anything about a real network: these agents are simulated."],
    }
