"""What one observer of all simulated agents sees: agents, token, erasures, sentences.

`Watch` is told of every transition and does little then: it notes which agents, erasures and sums
have changed. Views are made later, of those alone, so that an event costs the same in a network of
five and of thousands of agents.

In private rounds a masked network shows nobody's factor: the watch shows the published sums only.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from typing import Any, NamedTuple

from unweave.node.activity import news
from unweave.protocol.certificate.unchecked import unchecked_closing, unchecked_requests
from unweave.protocol.events import Certified, Effect, StaysOut
from unweave.protocol.rounds import awaited
from unweave.protocol.state import Hold, Out, Parked, Role, State
from unweave.protocol.token import NEVER, NOTHING, Token, lacking, requested_of
from unweave.report.words import certified_words
from unweave.simulator.asked import AskedEvents
from unweave.simulator.session import Session
from unweave.text import count, listed
from unweave.web.timeline import Timeline
from unweave.web.view import VISITS, AgentView, ErasureView, Summary, TokenView, Wait

__all__ = ["SeenSum", "Watch"]

_NAMED = 20  # agents of a wait

# What every agent tells when it learns it, and the page once.
_ONCE = frozenset(
    (
        "an erasure was requested",
        "an erasure was carried out",
        "certified",
        "a vote that an agent has departed",
        "an agent has departed by a quorum of votes",
        "new epoch in place of the last one",
        "new epoch: after an erasure every agent starts from zero",
        "new epoch without a departed agent",
    )
)


class SeenSum(NamedTuple):
    """A sum that can be read, and when it was made."""

    hops: int
    at: float
    token: Token


class Watch:
    """An observer of a session's world."""

    def __init__(self, session: Session, asked: AskedEvents, timeline: Timeline) -> None:
        self.session, self.asked, self.timeline = session, asked, timeline
        self.world, self.terms = session.world, session.terms
        self.hops = 0
        self.token: Token | None = None  # the newest one
        self.sums: list[SeenSum] = []  # new since they were last taken
        self.shown: SeenSum | None = None  # the newest one
        self.certificates: dict[str, bytes] = {}
        self.before: dict[str, Token] = {}  # request → the sum when it was requested
        self.told: dict[str, Any] = {}  # the patch of the timeline since it was last taken
        self.counts: Counter[str] = Counter()  # agents by state
        self._role: Role | None = None
        self._at = -1  # the agent that is responsible for it
        self._stamp = NEVER
        self._visits: deque[tuple[int, float]] = deque(maxlen=VISITS)
        self._dirty = set(range(self.terms.size))
        self._agents: dict[int, AgentView] = {}
        self._learned: dict[int, float] = {}  # agent → when it learned of the sum that it shows
        self._stays_out: dict[int, str] = {}
        self._down: set[int] = set()
        self._erasures: dict[str, ErasureView] = {}
        self._open: dict[str, None] = {}  # erasures that may change, in order
        self._known: set[tuple[object, ...]] = set()
        self._empty = [k for k, shard in enumerate(session.shards) if not shard.n]
        self.world.observers.append(self)

    # ------------------------------------------------------------------------- per transition

    def after(self, agent: int, before: State, after: State, effects: Sequence[Effect]) -> None:
        token, was = after.token, before.token
        if agent == self.session.checker.liar:
            self._dirty.add(agent)  # what it says of itself may be a lie
            return
        if token.role is not was.role:
            self._note_role(agent, token.role)
        if token.copy is not was.copy or token.published is not was.published:
            self._note_sum(agent, after)
        if (
            token.role is not was.role
            or token.pending != was.pending
            or after.own.factors is not before.own.factors
            or after.own.infeasible_at is not before.own.infeasible_at
            or (after.own.data, after.own.rows) != (before.own.data, before.own.rows)
            or after.known.tombs is not before.known.tombs
            or after.peers.synced != before.peers.synced
        ):
            self._dirty.add(agent)
        for entry in news(before, after):
            self._tell(agent, entry.what, entry.facts, entry.level)
        known, knew = after.known, before.known
        if (
            known.intents is not knew.intents
            or known.tombs is not knew.tombs
            or known.votes is not knew.votes
            or after.own.waiting is not before.own.waiting
        ):
            self._note_requests(agent, after)
        for effect in effects:
            if isinstance(effect, Certified):
                self._note_certificate(effect.certificate)
            elif isinstance(effect, StaysOut):
                self._stays_out[agent] = effect.why

    def _note_role(self, agent: int, role: Role) -> None:
        token = getattr(role, "token", None)
        if token is None or token.stamp < self._stamp:
            return
        # A visit may be over in one transition: then the token is on its way at once. A random walk
        # may stay: the same agent holds a newer token.
        stays = isinstance(role, Hold) and isinstance(self._role, Hold)
        if agent != self._at or (stays and token.stamp > self._stamp):
            self.hops += 1
            self._visits.append((agent, round(self.world.now, 4)))
        old, self.token = self.token, token
        self._stamp, self._role, self._at = token.stamp, role, agent
        if old is None:
            self._dirty.update(range(self.terms.size))
        else:
            if old.included is not token.included:
                self._dirty.update(_bits(int(old.inside) ^ int(token.inside)))
            if old.round.agents is not token.round.agents:
                self._dirty.update(_bits(int(old.round.agents) ^ int(token.round.agents)))
        if not self.terms.masked and (self.shown is None or self.shown.token.eta is not token.eta):
            self._show(token)

    def _note_sum(self, agent: int, s: State) -> None:
        """The agent shows another sum."""
        self._dirty.add(agent)
        self._learned[agent] = round(self.world.now, 2)
        token = s.token.published
        if token is not None and self.terms.masked:
            if self.shown is None or token.stamp > self.shown.token.stamp:
                self._dirty.update(range(self.terms.size))
                self._show(token)

    def _show(self, token: Token) -> None:
        self.shown = SeenSum(self.hops, self.world.now, token)
        self.sums.append(self.shown)

    def _tell(self, agent: int, what: str, facts: dict[str, Any], level: str) -> None:
        if what in _ONCE:
            key = (what, *(v for k, v in facts.items() if k not in ("scope", "votes")))
            if key in self._known:
                return
            self._known.add(key)
        told = self.timeline.tell(
            self.terms.name(agent), round(self.world.now, 2), what, facts, level
        )
        self.told.update(told)

    def say(self, text: str, level: str = "info", agent: str | None = None) -> None:
        at = round(self.world.now, 2)
        self.told.update(self.timeline.say(at, text, level, agent))  # type: ignore[arg-type]

    # ------------------------------------------------------------------------------- erasures

    def _note_requests(self, agent: int, s: State) -> None:
        for request, intent in (*s.known.intents.items(), *s.own.waiting.requests.items()):
            scope = "everything" if intent.whole else count(len(intent.rows), "record")
            self._note_request(request, intent.agent, scope)
        for k, tomb in s.known.tombs.items():
            for request in tomb.ids - tomb.compacted:
                scope = "everything" if tomb.whole or tomb.departed else "records"
                self._note_request(request, k, scope)
        for (target, _), vote in s.known.votes.items():
            self._note_request(vote.request, target, "everything")

    def _note_request(self, request: bytes, agent: int, scope: str) -> None:
        name = request.hex()
        if name in self._erasures:
            return
        if self.shown is not None:
            self.before[name] = self.shown.token
        self._open[name] = None
        self._erasures[name] = {
            "agent": self.terms.name(agent),
            "scope": scope,
            "state": "asked",
            "text": f"Requested; the token goes to {self.terms.name(agent)}.",
            "asked_at": round(self.world.now, 2),
            "certificate": False,
        }

    def _note_certificate(self, certificate: bytes) -> None:
        kinds = unchecked_closing(certificate)["erasures"]
        for request in unchecked_requests(certificate):
            name = request.hex()
            if name not in self.certificates:
                self.certificates[name] = certificate
                self._note_request(request, requested_of(request), "everything")
                self._erasures[name] |= {
                    "state": "certified",
                    "kind": kinds[name]["kind"],
                    "text": certified_words(kinds[name]["kind"]),
                    "done_at": round(self.world.now, 2),
                    "certificate": True,
                }

    def take_erasures(self) -> dict[str, ErasureView]:
        """The erasures that are not done yet, and those that were certified since the last call."""
        changed = {}
        for name in list(self._open):
            view = self._erasures[name]
            if view["state"] == "certified":
                del self._open[name]
            else:
                view |= self._progress(bytes.fromhex(name), view["agent"])
            changed[name] = view.copy()
        return changed

    def _progress(self, request: bytes, agent: str) -> Any:
        k = self.terms.topology.index(agent)
        owner, token = self.world.state(k), self.token
        if request in owner.own.waiting.requests:
            due = owner.own.waiting.due
            return {
                "state": "waiting",
                "text": f"Waits until enough changes have gathered, until second {due:.0f}.",
            }
        if token is not None and request in token.tombs.get(k, NOTHING).ids:
            missing = self.terms.beyond(token.round.agents, owner.departed)
            text = f"Taken out of the sum; {count(missing, 'agent')} must still attest."
            return {"state": "removed", "text": text}
        if k in self.asked.leaving:
            votes = self._votes(k)
            text = f"{votes} of {self.terms.quorum} votes that it has departed."
            return {"state": "voting", "text": text}
        if k in self.world.down:
            return {"state": "asked", "text": f"Waits for {agent}, which does not run."}
        return {"state": "asked", "text": f"Requested; the token goes to {agent}."}

    def _votes(self, target: int) -> int:
        states = (self.world.state(k) for k in self.terms.topology.adjacency[target])
        return max((sum(t == target for t, _ in s.known.votes) for s in states), default=0)

    # --------------------------------------------------------------------------------- agents

    def take_agents(self) -> dict[str, AgentView]:
        """The views of all agents that have changed since the last call."""
        down = self.world.down | {
            k for k in self.asked.down_until if self.world.agents[k].backlog is not None
        }
        for k in down - self._down:
            asked = k in self.asked.down_until or k in self.asked.leaving
            if self.world.agents[k].starts and not asked:
                self.say(f"{self.terms.name(k)} crashed.", "failure", self.terms.name(k))
        self._dirty |= down ^ self._down
        self._down = down
        changed: dict[str, AgentView] = {}
        for k in sorted(self._dirty):
            view, old = self._agent(k), self._agents.get(k)
            if view != old:
                self.counts[view["state"]] += 1
                if old is not None:
                    self.counts[old["state"]] -= 1
                self._agents[k] = view
                changed[self.terms.name(k)] = view
        self._dirty = set()
        return changed

    def _agent(self, k: int) -> AgentView:
        s, token = self.world.state(k), self.token
        state, why = self._state(k, s)
        attested = token is not None and k in token.round.agents
        view: AgentView = {"index": k, "state": state, "attested": attested}  # type: ignore[typeddict-item]
        if why:
            view["why"] = why
        if not self.terms.masked and s.own.current is not None:
            view["revision"] = s.own.current.revision.counter
        shows = s.token.published if self.terms.masked else s.token.copy
        if shows is not None:
            view["posterior"] = f"epoch {shows.stamp.epoch}, hop {shows.stamp.hop}"
            view["posterior_at"] = self._learned.get(k, 0.0)
        return view

    def _state(self, k: int, s: State) -> tuple[str, str]:
        token = self.token
        told = NOTHING if token is None else token.tombs.get(k, NOTHING)
        if told.departed or s.tomb.departed:
            return "departed", ""
        if not self.world.agents[k].starts:
            return "pending", "Its process has not started yet."
        if k in self._down:
            return "down", self._why_down(k)
        if told.whole or s.tomb.whole:
            return "erased", ""
        if s.token.pending is not None and isinstance(s.token.role, Hold):
            return "solving", "It computes its factor now."
        if not s.peers.synced:
            return "pending", "It has just started and asks its neighbours what was erased."
        shown = self.shown.token if self.terms.masked and self.shown else token
        if shown is not None and k in shown.inside:
            current = s.own.current
            if current is None or (current.data, current.rows) == (s.own.data, s.own.rows):
                return "in", ""
            return "pending", "Its records have changed. The token's next visit takes them in."
        if k in self._stays_out and s.own.infeasible_at is not None:
            return "pending", self._stays_out[k]
        if self.terms.masked:
            return "pending", "No private sum with its value is complete yet."
        if k in self._without_records():
            return "pending", "It has no records in this simulation, so it adds nothing."
        return "pending", "The token has not taken in its factor yet. Wait for the pass to end."

    def _without_records(self) -> set[int]:
        """Agents that began without records (the real network has forgotten them), and have
        none."""
        return {k for k in self._empty if not self.session.workers[k].whole.n}

    def _why_down(self, k: int) -> str:
        until = self.asked.down_until.get(k)
        if k in self.asked.leaving:
            return "It has stopped for good. The others vote it out."
        if self.world.agents[k].backlog is not None:
            what = "Its process was stopped"
        else:
            what = "Its process does not run"
        if until is None:
            return f"{what}. It starts again by itself."
        return f"{what}. It goes on at second {until:.1f}."

    def _why_all_down(self, down: Sequence[int]) -> str:
        """Of several agents that come back, or of several that do not."""
        if down[0] in self.asked.leaving:
            return "They have stopped for good. The others vote them out."
        until = [self.asked.down_until.get(k) for k in down]
        known = [second for second in until if second is not None]
        if len(known) < len(until):
            return "Their processes do not run. They start again by themselves."
        last = f"second {max(known):.1f}"
        when = f"at {last}" if min(known) == max(known) else f"one by one, the last one at {last}"
        return f"Their processes do not run. They go on {when}."

    # -------------------------------------------------------------------- token, waits, summary

    def token_view(self) -> TokenView:
        token = self.token
        if token is None:
            return {"state": "none"}
        solving = self.world.state(self._at).token.pending is not None
        solving = solving and self._at not in self._down
        state = "moving" if isinstance(self._role, Out) or not solving else "solving"
        if isinstance(self._role, Parked):
            state = "parked"
        return {
            "state": state,  # type: ignore[typeddict-item]
            "at": self._at,
            "epoch": token.stamp.epoch,
            "hop": token.stamp.hop,
            "visits": list(self._visits),
        }

    @property
    def parked(self) -> bool:
        return isinstance(self._role, Parked)

    def waits(self) -> dict[str, Wait]:
        """What the network waits for, and when that ends."""
        found: dict[str, Wait] = {}
        faults, now, name = self.asked.faults, self.world.now, self.terms.name
        if now < faults.apart_until:
            side = sorted(faults.apart)
            apart: Wait = {
                "what": "The network is cut in two",
                "why": f"{listed([name(k) for k in side], 5)} and the others hear nothing of each "
                "other.",
                "fix": f"It heals at second {faults.apart_until:.1f}.",
            }
            found["apart"] = _naming(apart, [name(k) for k in side])
        if now < faults.lossy_until:
            found["loss"] = {
                "what": "Messages are lost",
                "why": "The network drops some of them. The protocol repeats them.",
                "fix": f"It ends at second {faults.lossy_until:.1f}.",
            }
        needed = [k for k in sorted(self._down) if self._agents[k]["state"] == "down"]
        back = [k for k in needed if k not in self.asked.leaving]
        gone = [k for k in needed if k in self.asked.leaving]
        for down in filter(None, (back, gone)):
            shown = [name(k) for k in down[:5]]
            wait: Wait = {
                "what": f"{listed(shown) if len(down) <= 5 else count(len(down), 'agent')} "
                f"{'does' if len(down) == 1 else 'do'} not run",
                "why": self._why_down(down[0]) if len(down) == 1 else self._why_all_down(down),
            }
            key = "down gone" if "down" in found else "down"
            found[key] = _naming(wait, [name(k) for k in down])
        if self.terms.masked and self.token is not None and not self.parked:
            found |= self._round_waits()
        return found

    def _round_waits(self) -> dict[str, Wait]:
        waiting = awaited(self.world.state(self._at))
        words = ("enrol", "give their masked values", "attest")
        for agents, what in zip(waiting, words, strict=True):
            if agents:
                names = [self.terms.name(k) for k in sorted(agents)]
                wait: Wait = {
                    "what": "The private round is under way",
                    "why": f"{listed(names, 5)} must still {what}.",
                }
                return {"round": _naming(wait, names)}
        return {}

    def summary(self, violation: str = "") -> Summary:
        token = self.token
        agents = {state: number for state, number in self.counts.items() if number}
        view: Summary = {"state": "starting", "text": "", "agents": agents, "hops": self.hops}
        if token is not None:
            view["epoch"], view["attested"] = token.stamp.epoch, len(token.round.agents)
        if violation:
            view["state"], view["text"] = "failed", violation
        elif token is None:
            view["text"] = "The agents start; there is no token yet."
        elif self.parked:
            self._at_rest(view)
        elif self._at in self._down:
            view["state"] = "waiting"
            view["text"] = (
                f"The token is at {self.terms.name(self._at)}, which does not run. When its "
                "neighbours have heard nothing for a while, one of them opens a new epoch."
            )
        elif (missing := lacking(token) - self.idle(token)) > 0 and not self.terms.masked:
            view["state"] = "learning"
            view["text"] = f"The token is on its way; {count(missing, 'agent')} to go."
        else:
            view["state"] = "learning"
            view["text"] = "The token is on its way; the agents attest the sum."
        return view

    def idle(self, token: Token) -> int:
        """How many agents the token does not wait for: they have nothing to add."""
        return sum(
            k not in token.inside and not token.tombs.get(k, NOTHING).out
            for k in self._without_records()
        )

    def _at_rest(self, view: Summary) -> None:
        token = self.token
        assert token is not None
        missing = self.terms.beyond(token.round.agents, self.world.state(self._at).departed)
        at = self.terms.name(self._at)
        if missing:
            view["state"] = "waiting"
            view["text"] = f"The token is parked at {at}; {count(missing, 'agent')} must attest."
        elif self._down - self.asked.leaving:
            view["state"] = "waiting"
            view["text"] = (
                f"The token is parked at {at}, and all have attested; not all agents run."
            )
        else:
            view["state"] = "rest"
            view["text"] = f"At rest: the token is parked at {at}, and all agents have attested."


def _naming(wait: Wait, names: list[str]) -> Wait:
    """With the agents that it is about: the first ones, and how many there are beyond."""
    wait["agents"] = names[:_NAMED]
    if len(names) > _NAMED:
        wait["more"] = len(names) - _NAMED
    return wait


def _bits(number: int) -> list[int]:
    """The places of the bits of a number."""
    found = []
    while number:
        low = number & -number
        found.append(low.bit_length() - 1)
        number ^= low
    return found
