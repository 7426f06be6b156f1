"""A running network as a source of the page, over the operator's API of the agents in a folder.

Agents are followed (`link`): they tell when something happens, and whether their status or sum is
another one. Those agents alone are asked for them, now and then; without a page rarely.
All that asks agents or computes runs in one worker thread; requests of the page have their own.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

from unweave.errors import UnweaveError
from unweave.models import Posterior
from unweave.node.api.client import asleep, lives, stands_still
from unweave.node.config import AgentFolder, agent_name, find_agents
from unweave.node.process import is_restarting
from unweave.operations.cluster import LOOK, Cluster, open_cluster
from unweave.operations.diagnose import stall_report
from unweave.operations.status import departed_agents
from unweave.report import html_of
from unweave.report.settings import network_settings, setting_words
from unweave.text import clip, count
from unweave.web.densities import curves as densities
from unweave.web.densities import intervals, moment_of
from unweave.web.layout import graph_view
from unweave.web.live.details import agent_details
from unweave.web.live.erasures import LiveErasures, check_certificate
from unweave.web.live.hops import Hops
from unweave.web.live.link import Followers
from unweave.web.live.posterior import SERIES, LivePosterior, read_posterior, read_sums
from unweave.web.live.states import (
    Known,
    agent_views,
    as_wait,
    holds,
    start_words,
    summary,
    token_view,
    waits,
)
from unweave.web.patches import difference
from unweave.web.sentences import Sentence, sentence
from unweave.web.source import Feed, NotFound
from unweave.web.timeline import Timeline
from unweave.web.view import (
    VISITS,
    AgentDetails,
    Control,
    CurvesAnswer,
    Entry,
    ErasurePreview,
    ErasureView,
    ErasureWish,
    MomentAnswer,
    Points,
    PosteriorView,
    Verification,
    View,
    Wait,
)

__all__ = ["DASHBOARD", "NetworkSource"]

T = TypeVar("T")

DASHBOARD = "dashboard"  # the page's own folder in DIR

_TICK = 0.25  # seconds between two changes of the view
_SETTLE = 1.5  # seconds for the first answers of all agents, so that their events can be ordered
_SAVE = 5.0  # seconds between two writes of the timeline
_RATE = 2.0  # seconds between two points of the hops per second
_STILL = 5.0  # seconds without a hop, after which the token does not move
_LOOK = 3.0  # seconds between two looks, at least, if something happened
_IDLE = 15.0  # if nothing happened
_UNSEEN = 60.0  # without a page
_PER_SECOND = 5.0  # agents that are asked per second
_SILENT = 5.0  # seconds without an answer after which an agent does not answer
_SHARED = 3.0  # seconds for which viewers get the same details of an agent
_RECENT = 20  # events of one agent, for its details


class _Look(NamedTuple):
    """What a look at all agents found."""

    statuses: dict[str, Mapping[str, Any]]
    reasons: dict[str, str]
    stall: str
    posterior: PosteriorView
    points: Points
    erasures: dict[str, Any]
    purged: bool


class NetworkSource:
    """The network of DIR, or of one AGENT_DIR. `moments` are earlier posteriors to compare with, of
    a demonstration alone: id → label and posterior. `troubles`: why agents do not run, if their
    supervisor knows."""

    def __init__(
        self,
        folder: Path,
        *,
        moments: Mapping[str, tuple[str, Posterior]] | None = None,
        troubles: Callable[[Sequence[str]], Mapping[str, str]] = lambda _: {},
    ) -> None:
        self._folder = folder
        homes = find_agents(folder)
        self._folders = {agent_name(home): home for home in homes}
        self._manifest = AgentFolder.read(homes[0]).manifest
        self._model = self._manifest.build_model()
        self._moments, self._troubles = dict(moments or {}), troubles
        self._masked = self._manifest.privacy.masked
        self._graph = self._manifest.topology
        network_id = self._manifest.terms().network_id.hex()
        self._timeline = Timeline(folder / DASHBOARD / "timeline.json", network_id)
        self._posterior = LivePosterior(self._model, self._masked, self._manifest.build_mechanism())
        self._erasures = LiveErasures(folder, self._manifest)
        self._worker = ThreadPoolExecutor(1, "page-agents")
        self._moves = Hops()
        self._known = Known(self._graph, self._masked, self._folders, {}, {}, {}, self._moves.when)
        self._reports: dict[str, dict[str, Any]] = {}  # of the agents' sums, at the last look
        self._sent: dict[str, Any] = {}  # the last view, as far as it changes as a whole
        self._events: list[tuple[float, str, dict[str, Any]]] = []
        self._heard: dict[str, tuple[str, int]] = {}  # of which process, up to which event
        self._recent: dict[str, deque[Entry]] = {}
        self._visits: list[tuple[float, int]] = []  # seconds, agent
        self._hops = 0  # in all
        self._counted: dict[str, tuple[str, int]] = {}  # agent → process, tokens that it has sent
        self._doubt: Callable[[str], None] = lambda _: None
        self._silent: dict[str, float] = {}  # agent that answered before → since when it does not
        self._details: dict[str, tuple[float, asyncio.Task[AgentDetails]]] = {}  # for all viewers
        self._report: asyncio.Task[bytes] | None = None  # for all viewers
        self._batched: set[str] = set()  # requests that wait for others, and are in the timeline
        self._problems: dict[str, Wait] = {}  # of this page itself
        self._happened = asyncio.Event()
        self._fresh = False

    # ------------------------------------------------------------------------------- the view

    def view(self) -> View:
        posterior: PosteriorView = {"state": "none", "why": "The agents have not been asked yet."}
        if self._moments:
            posterior["moments"] = self._moment_list()
        settings = setting_words(self._manifest.model.settings)
        settings |= network_settings(self._manifest, self._model)
        first: View = {
            "title": self._manifest.name,
            "kind": "network",
            "clock": time.time(),
            "model": self._manifest.model.name,
            "settings": settings,
            "privacy": self._manifest.privacy.mode,
            "seen": self._manifest.privacy.seen,
            "may_erase": list(self._folders),
            "summary": {
                "state": "starting",
                "text": "Asking the agents.",
                "agents": {},
                "hops": 0,
            },
            "graph": graph_view(self._graph),
            "agents": {},
            "token": {"state": "none"},
            "waits": {},
            "posterior": posterior,
            "series": SERIES,
            "erasures": {},
            "timeline": dict(self._timeline.entries),
        }
        self._sent = dict(first)
        return first

    def _moment_list(self) -> Any:
        return [{"id": key, "label": label} for key, (label, _) in self._moments.items()]

    # ------------------------------------------------------------------------------- running

    async def run(self, feed: Feed) -> None:
        followers = Followers(self._folders, self._take, lambda: feed.viewers)
        self._doubt = followers.doubt
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(followers.run())
                group.create_task(self._keep_ticking(feed))
                group.create_task(self._keep_looking(feed))
                group.create_task(self._keep_saving())
        except* UnweaveError as errors:
            raise errors.exceptions[0] from None
        finally:
            self._tell(feed)
            with suppress(UnweaveError):  # the page has said so for as long as it ran
                self._timeline.save()
            self._worker.shutdown(wait=False, cancel_futures=True)

    def _take(self, name: str, answer: dict[str, Any] | None) -> None:
        """An agent's short report, or None: it does not answer."""
        before = self._known.shorts.get(name)
        shorts = {**self._known.shorts, name: answer}
        self._fresh = True
        if answer is None:
            if before is not None:  # it may be about to answer again, see `_find_silent`
                self._silent.setdefault(name, time.time())
            else:
                self._known = self._known._replace(shorts=shorts)
            return
        self._silent.pop(name, None)
        if before is None and name in self._counted:  # else it has just started, and says so
            self._events.append((time.time(), name, {"what": "answers"}))
        if before is None or before.get("shown") != answer.get("shown"):
            self._happened.set()
        self._known = self._known._replace(shorts=shorts)
        index = self._graph.index(name)
        self._moves.take(answer["visits"])
        visits = {*self._visits, *((at, index) for at, _, _ in answer["visits"])}
        self._visits = sorted(visits)[-VISITS:]
        run, number = self._timeline.told.get(name, ("", 0))
        for event in answer["events"]:
            if run == answer["run"] and event["number"] <= number:  # an earlier page has told it
                told = sentence(name, event["what"], event["facts"], event["level"])
                self._note(name, event["at"], told)
                continue
            self._events.append((event["at"], name, event))
            self._happened.set()
            if event["what"] == "a neighbour does not answer":
                self._doubt(event["facts"]["agent"])
        self._heard[name] = (answer["run"], answer["number"])
        run, sent = self._counted.get(name, ("", 0))
        self._hops += answer["sent"] - (sent if run == answer["run"] else 0)
        self._counted[name] = (answer["run"], answer["sent"])

    def _find_silent(self) -> None:
        """Agents that have not answered for some seconds. After an erasure an agent replaces its
        process, which is no failure: the new one answers before, and says why."""
        now = time.time()
        for name, since in list(self._silent.items()):
            if now - since >= _SILENT and not is_restarting(self._folders[name]):
                del self._silent[name]
                self._events.append((since, name, {"what": "does not answer"}))
                self._known = self._known._replace(
                    shorts={**self._known.shorts, name: None},
                    reasons={**self._known.reasons, **self._frozen(name)},
                )
                self._happened.set()
                self._fresh = True

    def _frozen(self, name: str) -> dict[str, str]:
        """Why an agent whose process exists does not answer: to start it would be the wrong fix,
        and the next look, which asks it, is some seconds away."""
        pid = self._known.statuses.get(name, {}).get("pid")
        return {name: asleep(pid)} if pid is not None and lives(pid) else {}

    def _find_stopped(self) -> None:
        """Agents whose processes were stopped. At rest nobody else would notice for minutes, and
        more questions would cost the others."""
        for name, status in self._known.statuses.items():
            if self._known.shorts.get(name) is not None and stands_still(status.get("pid")):
                self._doubt(name)

    async def _keep_saving(self) -> None:
        """A disk that refuses the timeline does not end the page."""
        while True:
            await asyncio.sleep(_SAVE)
            content = self._timeline.unsaved()
            if content is not None:
                try:
                    await asyncio.to_thread(self._timeline.write, content)
                except UnweaveError as error:
                    self._problem("timeline", "The timeline is not kept", str(error))
                else:
                    self._problem("timeline")

    def _problem(self, key: str, what: str = "", text: str = "") -> None:
        """Show a problem of this page among what waits; or, without words, that it is over."""
        before = self._problems.pop(key, None)
        if what:
            self._problems[key] = as_wait(what, text)
        self._fresh = self._fresh or before != self._problems.get(key)

    async def _keep_ticking(self, feed: Feed) -> None:
        """Send what has changed."""
        await asyncio.sleep(_SETTLE)
        drawn = seen_since = time.time()
        lag = len(self._folders) / _PER_SECOND  # seconds until all agents were asked, at most
        while True:
            self._find_silent()
            self._tell(feed)
            if self._fresh:
                self._fresh = False
                self._show(feed)
            now = time.time()
            if not feed.viewers:  # then agents are asked rarely
                seen_since = now
            if now - drawn >= _RATE:
                complete = now - seen_since > lag
                feed.points({"rate": self._moves.points(now - lag if complete else 0.0)})
                drawn = now
                if feed.viewers:
                    self._find_stopped()
                self._fresh = True  # a token that stopped to move changes the summary
            await asyncio.sleep(_TICK)

    def _tell(self, feed: Feed) -> None:
        """Events become lines of the timeline, in their order."""
        events, self._events = sorted(self._events, key=lambda one: one[0]), []
        for at, agent, event in events:
            what, facts = event["what"], event.get("facts", {})
            if what == "does not answer":
                patch = self._timeline.say(at, f"{agent} does not answer", "failure", agent)
            elif what == "answers":
                patch = self._timeline.say(at, f"{agent} answers again", "good", agent)
            else:
                patch = self._timeline.tell(agent, at, what, facts, event["level"])
                self._note(agent, at, sentence(agent, what, facts, event["level"]))
            if what == "an erasure was requested":
                note = (facts["request"], facts["agent"], facts.get("scope", "everything"), at)
                self._worker.submit(self._erasures.note, *note)
            elif what == "certified":
                self._worker.submit(self._erasures.note_certified, facts.get("requests", ""), at)
            feed.change({"timeline": patch} if patch else {})
        self._timeline.told |= self._heard

    def _note(self, agent: str, at: float, told: Sentence | None) -> None:
        """For the details of the agent."""
        if told is not None and told.agent == agent:
            text = clip(told.text.replace("{who}", agent), 300) + "."
            own: Entry = {"at": at, "text": text, "level": told.level}
            self._recent.setdefault(agent, deque(maxlen=_RECENT)).append(own)

    def _current(self) -> Known:
        """What is known now, with the agents that replace their process now."""
        known = self._known.current()
        silent = [name for name in self._folders if known.shorts.get(name) is None]
        return known._replace(restarting=self._restarting((*silent, *self._silent)))

    def _restarting(self, names: Iterable[str]) -> frozenset[str]:
        return frozenset(name for name in names if is_restarting(self._folders[name]))

    def _show(self, feed: Feed) -> None:
        known = self._current()
        views = agent_views(known)
        token = token_view(known, self._visits)
        waiting = waits(known) | self._problems
        moved = time.time() - self._moves.last_at < _STILL
        out = known.departed | known.erased
        may = [name for name, view in views.items() if name not in out and not _absent(view)]
        parts: dict[str, Any] = {
            "agents": views,
            "token": token,
            "waits": waiting,
            "summary": summary(known, views, token, waiting, self._hops, moved),
            "may_erase": may,
        }
        feed.change(self._news(parts))

    def _news(self, parts: dict[str, Any]) -> dict[str, Any]:
        """What has changed in these parts of the view."""
        patch = difference({key: self._sent[key] for key in parts}, parts)
        self._sent |= parts
        return patch

    # ------------------------------------------------------------------------------- looking

    async def _keep_looking(self, feed: Feed) -> None:
        loop = asyncio.get_running_loop()
        agents: Cluster | None = None
        with ExitStack() as stack:
            while True:
                self._happened.clear()
                try:
                    if agents is None:
                        agents = await loop.run_in_executor(self._worker, self._begin, stack)
                    look = await loop.run_in_executor(self._worker, self._look, agents)
                    self._receive(feed, look)
                    self._problem("look")
                except Exception as error:  # the next look may succeed, and the rest is still true
                    self._problem("look", "The agents cannot be asked", _told(error))
                unkept = self._erasures.unkept
                self._problem("certificate", unkept and "A certificate is not in DIR yet", unkept)
                await self._until_due(feed)

    async def _until_due(self, feed: Feed) -> None:
        """The next look comes soon if something happened, and later if nothing did; and without a
        page much later, unless one is opened."""
        began = time.monotonic()
        unseen = not feed.viewers
        while True:
            await asyncio.sleep(_TICK)
            passed = time.monotonic() - began
            if feed.viewers and unseen:
                return
            unseen = not feed.viewers
            least = max(_LOOK, len(self._folders) / _PER_SECOND)
            most = _UNSEEN if unseen else _IDLE
            if passed >= max(least, most) or (
                passed >= least and self._happened.is_set() and not unseen
            ):
                return

    def _begin(self, stack: ExitStack) -> Cluster:
        self._erasures.load(list(self._folders.values()))
        return stack.enter_context(open_cluster(self._folder, LOOK))

    def _look(self, agents: Cluster) -> _Look:
        statuses = self._statuses(agents)
        reading = read_posterior(agents, self._reports, self._posterior.digest)
        down = [name for name in self._folders if name not in statuses]
        reasons = agents.frozen() | dict(self._troubles(down))
        stall = ""
        still = time.time() - self._moves.last_at > _STILL
        if statuses and still and self._known.parked is None:
            stall = self._stall(agents)
        made = self._moves.when(reading.best.get("stamp"))
        posterior, points = self._posterior.update(reading, round(time.time(), 1), made)
        fixes = {
            name: reasons.get(name) or start_words(self._folders, name)
            for name in down
            if name not in departed_agents(statuses) and not is_restarting(self._folders[name])
        }
        self._erasures.look(agents, reading, statuses, fixes)
        change = self._posterior.compare()
        if change is not None:
            self._erasures.changed(*change)
        return _Look(
            statuses,
            reasons,
            stall,
            posterior,
            points,
            dict(self._erasures.views),
            self._posterior.purged,
        )

    def _stall(self, agents: Cluster) -> str:
        """What the network waits for; nothing while an agent restarts by itself, before the report
        or after it: the report would say to start it, or to remove it."""
        if self._silent or self._restarting(self._folders):
            return ""
        found = stall_report(agents)
        return "" if self._silent or self._restarting(self._folders) else found

    def _statuses(self, agents: Cluster) -> dict[str, Mapping[str, Any]]:
        """The statuses of all agents that answer. Only those are asked that have another one since
        the last look, for their sums, too; and those that did not answer."""
        shorts, known = self._known.shorts, self._known.statuses
        same = [name for name in self._reports if holds(shorts.get(name), known.get(name))]
        asked = [name for name in self._folders if name not in same]
        sums = read_sums(agents, asked)  # first: a status with other facts is asked for again
        answers = agents.ask_each("status", LOOK, names=asked)
        found = {name: known[name] for name in same}
        found |= {name: a["status"] for name, a in answers.items() if isinstance(a, dict)}
        self._reports = {
            n: sums.get(n) or self._reports[n] for n in found if n in same or n in sums
        }
        for name in same:
            if "stamp" in self._reports[name]:
                stamp = cast("Mapping[str, Any]", shorts[name])["shown"]
                self._reports[name] = self._reports[name] | {"stamp": stamp}
        return found

    def _receive(self, feed: Feed, look: _Look) -> None:
        self._known = self._known._replace(
            statuses=look.statuses, reasons=look.reasons, stall=look.stall
        )
        posterior = cast("dict[str, Any]", look.posterior)
        if self._moments:
            posterior["moments"] = self._moment_list()
        self._tell_batches(feed, look.erasures)
        parts = {"posterior": posterior, "erasures": look.erasures}
        feed.change(self._news(parts))
        if look.purged:
            feed.forget()
        feed.points(look.points)
        self._fresh = True

    def _tell_batches(self, feed: Feed, erasures: Mapping[str, ErasureView]) -> None:
        """Requests that wait for a batch: no agent tells of them before it is complete."""
        for request, one in erasures.items():
            if one["state"] != "waiting" or request in self._batched:
                continue
            self._batched.add(request)
            text = f"The erasure of {one['scope']} of {one['agent']} was requested: it waits"
            told = any(entry["text"] == text for entry in self._timeline.entries.values())
            if "asked_at" in one or not told:  # else an earlier page has told it
                at = one.get("asked_at", round(time.time(), 1))
                patch = self._timeline.say(at, text, "warning", one["agent"])
                feed.change({"timeline": patch})

    # ------------------------------------------------------------------------------- requests

    async def curves(self, names: Sequence[str], moments: Sequence[str]) -> CurvesAnswer:
        earlier = dict(moment_of(self._moments, key) for key in moments)
        found = await self._work(self._posterior.curves, names)
        if earlier:
            more = await self._work(densities, earlier, names)
            for name, lines in more.items():
                found["curves"][name] += lines
        return found

    async def moment(self, moment: str) -> MomentAnswer:
        return await self._work(intervals, *moment_of(self._moments, moment))

    async def agent(self, name: str) -> AgentDetails:
        if name not in self._graph.agents:
            raise NotFound(
                f"{count(len(self._graph), 'agent')}, but none of this name. Fix: reload"
            )
        for other, (since, task) in list(self._details.items()):
            if task.done() and time.monotonic() - since > _SHARED:
                del self._details[other]
        if name not in self._details:
            task = asyncio.create_task(self._ask_details(name))
            self._details[name] = (time.monotonic(), task)
        # A viewer that goes away must not end the answer of the others.
        return await asyncio.shield(self._details[name][1])

    async def _ask_details(self, name: str) -> AgentDetails:
        known = self._current()
        view, recent = agent_views(known)[name], list(self._recent.get(name, ()))

        def ask() -> AgentDetails:
            if name not in self._folders:
                return agent_details(None, name, known, view, recent)
            with open_cluster(self._folders[name], LOOK) as agents:  # this agent, and no other
                found = agent_details(agents, name, known, view, recent)
                silent.extend(agents.silent)
                return found

        silent: list[str] = []
        try:
            return await asyncio.to_thread(ask)
        finally:
            self._doubt_all(silent)

    async def certificate(self, request: str) -> tuple[str, bytes]:
        return await self._work(self._erasures.certificate, request)

    async def report(self) -> bytes:
        """One at a time for all viewers: it asks agents, and takes a thread that erasures need."""
        if self._report is None or self._report.done():
            self._report = asyncio.create_task(asyncio.to_thread(html_of, self._folder))
        return await asyncio.shield(self._report)

    async def verify(self, certificate: bytes) -> Verification:
        return await asyncio.to_thread(check_certificate, certificate, self._manifest)

    async def preview(self, wish: ErasureWish) -> ErasurePreview:
        return await self._apart(lambda agents: self._erasures.preview(agents, wish))

    async def erase(self, wish: ErasureWish) -> str:
        request, before = await self._apart(lambda agents: self._erasures.ask(agents, wish))
        await self._work(self._erasures.register, request, before, wish)
        self._happened.set()
        return request

    async def control(self, control: Control) -> None:
        raise UnweaveError("controls: this is a live network. Fix: use `unweave simulate`")

    async def _work(self, do: Callable[..., T], *given: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._worker, do, *given)

    async def _apart(self, do: Callable[[Cluster], T]) -> T:
        """Ask agents in a thread of its own: it may wait, and must not delay the view."""

        def call() -> T:
            with open_cluster(self._folder) as agents:
                try:
                    return do(agents)
                finally:
                    silent.extend(agents.silent)

        silent: list[str] = []
        try:
            return await asyncio.to_thread(call)
        finally:
            self._doubt_all(silent)

    def _doubt_all(self, silent: Iterable[str]) -> None:
        """Agents that have not answered a question of a person: the page shows it soon, although at
        rest nobody else needs them."""
        for name in silent:
            if self._known.shorts.get(name) is not None:
                self._doubt(name)


def _told(error: Exception) -> str:
    """The text of an error of ours; that of another one may quote data."""
    if isinstance(error, UnweaveError):
        return str(error)
    return (
        f"An unexpected error ({type(error).__name__}). Fix: the page tries again; if this stays, "
        "start the page again"
    )


def _absent(view: Mapping[str, Any]) -> bool:
    """An agent on another machine that is heard: only its own operator may ask for its erasure."""
    return bool(view.get("remote")) and view["state"] != "down"
