"""Agents, token, waits and summary of a live network, from what its agents tell.

Everything here is a function of two things: the short reports that agents send often (`Shorts`: of
each agent with a folder here, or None if it does not answer), and the longer statuses that they are
asked for now and then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from unweave.graph import Topology
from unweave.operations.status import (
    Overview,
    departed_agents,
    remarks,
    restarts_due,
    waiting_changes,
)
from unweave.text import count, listed, quote
from unweave.web.view import VISITS, AgentState, AgentView, Summary, TokenView, Wait

__all__ = [
    "Known",
    "agent_views",
    "as_wait",
    "holds",
    "start_words",
    "summary",
    "token_view",
    "version",
    "waits",
]

Short = Mapping[str, Any]


class _Known(NamedTuple):
    topology: Topology
    masked: bool
    folders: Mapping[str, Path]
    shorts: Mapping[str, Short | None]
    statuses: Mapping[str, Mapping[str, Any]]
    reasons: Mapping[str, str]  # agent that does not answer → why
    made_at: Callable[[Sequence[int] | None], float | None]  # stamp of a sum → when, if known
    stall: str = ""  # the agents that the network waits for
    restarting: frozenset[str] = frozenset()  # agents that replace their process now


class Known(_Known):
    """What is known of a network at one time. What follows from it is computed once: views ask for
    it for every agent."""

    def current(self) -> Known:
        """With the newest stamps in the statuses that still hold: they were not asked for again."""
        found = dict(self.statuses)
        for name, short in self.up.items():
            if "epoch" in short and holds(short, found.get(name)):
                found[name] = {**found[name], "epoch": short["epoch"], "hop": short["hop"]}
        return self._replace(statuses=found)

    @cached_property
    def up(self) -> dict[str, Short]:
        return {name: short for name, short in self.shorts.items() if short is not None}

    @cached_property
    def departed(self) -> set[str]:
        return departed_agents(dict(self.statuses))

    @cached_property
    def erased(self) -> set[str]:
        return {name for s in self.statuses.values() for name in s.get("erased", ())}

    @cached_property
    def down(self) -> list[str]:
        """Agents with a folder here that do not answer, are still needed, and do not come back by
        themselves."""
        return [
            name
            for name, short in self.shorts.items()
            if short is None and name not in self.departed | self.restarting
        ]

    @cached_property
    def parked(self) -> str | None:
        """The holder of a parked token that all agents know; one that starts does not know it yet,
        and one that has departed may never."""
        known = {
            short.get("parked")
            for name, short in self.up.items()
            if short["phase"] != "starting" and name not in self.restarting | self.departed
        }
        return known.pop() if len(known) == 1 else None

    @cached_property
    def newest(self) -> Mapping[str, Any]:
        """The status of the agent that knows the newest token."""
        known = [s for s in self.statuses.values() if "epoch" in s]
        return max(known, key=_stamp, default={})


def holds(short: Short | None, status: Mapping[str, Any] | None) -> bool:
    """Whether a status is still true, up to its stamps."""
    return short is not None and status is not None and short["facts"] == status["facts"]


def _stamp(status: Mapping[str, Any]) -> tuple[Any, ...]:
    return status["epoch"], status["hop"], status.get("parked_stamp") or []


def version(stamp: Sequence[int] | None) -> str | None:
    """A version of the posterior, for people, from the stamp of a sum."""
    return None if stamp is None else f"epoch {stamp[0]}, hop {stamp[3]}"


# ------------------------------------------------------------------------------------- agents


def agent_views(known: Known) -> dict[str, AgentView]:
    attested = _attested(known)
    missing = _round_lacks(known)
    return {
        name: _agent_view(known, index, name, name in attested, missing.get(name, ""))
        for index, name in enumerate(known.topology.agents)
    }


def _agent_view(known: Known, index: int, name: str, attested: bool, lacking: str) -> AgentView:
    short = known.shorts.get(name)
    state, why = _state(known, name, lacking)
    view: AgentView = {"index": index, "state": state, "attested": attested}
    if why:
        view["why"] = why
    if name not in known.folders:
        view["remote"] = True
    if short is not None:
        if not known.masked and short.get("revision"):
            view["revision"] = short["revision"]
        shown = version(short.get("shown"))
        if shown is not None:
            view["posterior"] = shown
            made = known.made_at(short["shown"])
            if made is not None:
                view["posterior_at"] = made
    return view


def _state(known: Known, name: str, lacking: str) -> tuple[AgentState, str]:
    if name in known.departed:
        return "departed", ""
    short = known.shorts.get(name)
    erased = name in known.erased
    if name in known.restarting and short is None:
        return "erased" if erased else "pending", _RESTARTS
    if name in known.folders and short is None:
        why = known.reasons.get(name)
        return "down", (
            _capital(_sentence(why), known)
            if why
            else f"It does not run. Fix: {start_words(known.folders, name)}."
        )
    if erased:
        return "erased", ""
    if short is None:
        return _remote(known, name, lacking)
    if short["phase"] == "solving":
        return "solving", "It computes its factor now."
    if short.get("inside") or (
        short.get("shown") is None and name in known.newest.get("included", ())
    ):
        return "in", ""
    return "pending", _why_pending(known, name, short, lacking)


_RESTARTS = "It restarts by itself, to remove erased values from its memory: nothing to do."


def start_words(folders: Mapping[str, Path], name: str) -> str:
    return f"start it with `unweave agent {quote(folders[name])}`"


def _remote(known: Known, name: str, lacking: str) -> tuple[AgentState, str]:
    told = [s["others"][name] for s in known.statuses.values() if name in s.get("others", {})]
    ask = "Fix: ask its operator whether it runs."
    if not told:
        return "pending", f"It is on another machine, and no agent here runs. {ask}"
    if any(one["suspect"] for one in told):
        return "down", f"It is on another machine, and its neighbours do not hear it. {ask}"
    if name in known.newest.get("included", ()):
        return "in", ""
    return "pending", lacking or f"It is on another machine, and not in the sum yet. {ask}"


def _why_pending(known: Known, name: str, short: Short, lacking: str) -> str:
    status = known.statuses.get(name, {})
    if _spent(status):
        return _NO_VALUE
    for key in ("notice", "stays_out", "data_problem"):
        if status.get(key):
            return _capital(_sentence(str(status[key])), known)
    if short["phase"] == "starting":
        return "It starts, and opens its store."
    if short["phase"] == "quarantine":
        return "It waits for the answers of its neighbours. Fix: start those that do not run."
    return (
        lacking
        or "The token has not brought its factor into the sum yet. Wait for the pass to end."
    )


_NO_VALUE = (
    "It has no value left to give: its privacy budget is spent. Fix: make a new network with other "
    "terms (`unweave init`)."
)


def _spent(status: Mapping[str, Any]) -> bool:
    return (status.get("privacy_budget") or {}).get("left") == 0


def _round_lacks(known: Known) -> dict[str, str]:
    """What a private round waits for, by agent."""
    told = known.newest.get("private_round") or {}
    words = {
        "not_enrolled": "The private round waits for its enrolment.",
        "not_given": "The private round waits for its masked value.",
        "not_attested": "The private round waits for its attestation.",
    }
    return {name: text for key, text in words.items() for name in told.get(key, ())}


def _attested(known: Known) -> set[str]:
    """The agents that have attested the newest parked token."""
    status = known.newest
    found = {name for name, other in status.get("others", {}).items() if other["attested"]}
    own = int(status.get("attested", 0)) > len(found)
    return found | ({str(status["name"])} if own else set())


# -------------------------------------------------------------------------------------- token


def token_view(known: Known, visits: Sequence[tuple[float, int]]) -> TokenView:
    """`visits` are (seconds, agent), in order."""
    index = {name: k for k, name in enumerate(known.topology.agents)}
    up = known.up
    last = [(agent, at) for at, agent in visits[-VISITS:]]
    stamps = [(s["epoch"], s["hop"]) for s in up.values() if s.get("epoch")]
    if not stamps:
        return {"state": "none"}
    epoch, hop = max(stamps)
    view: TokenView = {"state": "moving", "epoch": epoch, "hop": hop, "visits": last}
    solving = [name for name, s in up.items() if s["phase"] == "solving"]
    if solving:
        view["state"], view["at"] = "solving", index[solving[0]]
    elif known.parked is not None:
        view["state"], view["at"] = "parked", index[known.parked]
    elif last:
        view["at"] = last[-1][0]
    return view


# -------------------------------------------------------------------------------------- waits


def waits(known: Known) -> dict[str, Wait]:
    """Everything that waits, with its reason and what to do."""
    statuses = {name: dict(s) for name, s in known.statuses.items() if name not in known.departed}
    found: dict[str, Wait] = {}
    # Whoever reads the page need not be an operator, and changes wait in private rounds only.
    told = remarks(statuses) | {"batches": waiting_changes(statuses, numbers=False)}
    soon = {name: s for name, s in statuses.items() if name not in known.restarting}
    told["restarts"] = restarts_due(soon)  # not of those that restart now
    for kind, lines in told.items():
        for number, line in enumerate(lines if kind in _REMARKS else ()):
            found[f"{kind} {number}"] = as_wait(_REMARKS[kind], line + _PATIENCE.get(kind, ""))
    if known.restarting:
        names = sorted(known.restarting)
        text = "to remove erased values from memory: nothing to do"
        found["restarting"] = as_wait(
            "Agents restart", f"{listed(names, 5)} restart{'s' * (len(names) == 1)} now, {text}"
        ) | {"agents": names}
    down = known.down
    if down:
        shown = down[:3]
        for name in shown:
            why = known.reasons.get(name)
            text = (
                why or f"No process answers in its folder. Fix: {start_words(known.folders, name)}"
            )
            found[f"down {name}"] = as_wait(f"{name} does not answer", text) | {"agents": [name]}
        if len(down) > len(shown):
            rest = down[len(shown) :]
            text = f"No process answers for {listed(rest, 5)}. Fix: start them with `unweave up`"
            found["down more"] = as_wait(f"{len(rest)} more agents do not answer", text)
            found["down more"]["agents"] = rest
    # An agent here that no longer answers has no status, and is not down before it is asked again.
    away = [
        name
        for name in Overview(statuses, down, known.topology.agents).away()
        if name not in known.folders
    ]
    if away:
        text = (
            f"{listed(away, 5)}: on another machine, not included or not heard. Fix: ask the "
            "operators whether they run"
        )
        found["away"] = as_wait("Agents on other machines are missing", text) | {"agents": away}
    if known.stall and not down and known.parked is None:
        found["stall"] = as_wait("The token does not move", f"The network waits for {known.stall}")
    for wait in found.values():
        wait["why"] = _capital(wait["why"], known)
        if "fix" in wait:
            wait["fix"] = _capital(wait["fix"], known)
    return found


_REMARKS = {
    "notices": "An agent shows no sum any more",
    "lies": "An agent has lied",
    "out": "An agent stays out of the sum",
    "data": "An agent keeps its earlier data",
    "restarts": "Agents restart",
    "concerns": "The result says little",
    "rounds": "The private round waits",
    "batches": "Changes wait for others",
    "spent": "The privacy budget is spent",
}


# What passes by itself says so.
_PATIENCE = {
    "restarts": ": by themselves, nothing to do",
    "batches": ": nothing to do until then. Who cannot wait asks for the erasure again with "
    "`unweave forget DIR AGENT --records KEYS --now`; then the difference of two sums shows these "
    "records",
}


def as_wait(what: str, text: str) -> Wait:
    """`text` is an error: the cause, and after "Fix:" the remedy."""
    why, mark, fix = text.partition(" Fix: ")
    wait: Wait = {"what": what, "why": _sentence(why.rstrip(". "))}
    if mark:
        wait["fix"] = _sentence(fix)
    return wait


def _capital(text: str, known: Known) -> str:
    """With a capital letter, unless it begins with an agent's name, which is left as it is."""
    if any(text.startswith(name) for name in known.topology.agents):
        return text
    return text[:1].upper() + text[1:]


def _sentence(text: str) -> str:
    """With a full stop."""
    text = text.strip()
    return text + ("" if text.endswith((".", "!", "?")) else ".")


# ------------------------------------------------------------------------------------ summary


def summary(
    known: Known,
    views: Mapping[str, AgentView],
    token: TokenView,
    waiting: Mapping[str, Wait],
    hops: int,
    moved: bool,
) -> Summary:
    """`moved`: the token has moved in the last seconds."""
    numbers: dict[str, int] = dict(Counter(str(view["state"]) for view in views.values()))
    state, text = _summary(known, views, token, waiting, moved)
    found: Summary = {"state": state, "text": text, "agents": numbers, "hops": hops}
    if known.up:
        found["inside"] = len(_inside(known, views))
    if "epoch" in token:
        found["epoch"] = token["epoch"]
    attested = sum(view["attested"] for view in views.values())
    if attested:
        found["attested"] = attested
    return found


def _inside(known: Known, views: Mapping[str, AgentView]) -> list[str]:
    """The agents in the sum. One that computes its factor may have an earlier one in it."""
    return [
        name
        for name, view in views.items()
        if view["state"] == "in"
        or (view["state"] == "solving" and (known.shorts.get(name) or {}).get("inside"))
    ]


def _summary(
    known: Known,
    views: Mapping[str, AgentView],
    token: TokenView,
    waiting: Mapping[str, Wait],
    moved: bool,
) -> tuple[Any, str]:
    up = known.up
    if not up:
        return "down", "No agent answers. Start them with `unweave up`."
    if any(short["phase"] == "audit_failed" for short in up.values()):
        return "failed", "The audit failed: the network has stopped and serves no posterior."
    needed = [view for name, view in views.items() if name not in known.departed | known.erased]
    inside = len(_inside(known, views))
    members = f"{inside} of {count(len(needed), 'agent')}"
    down = sum(view["state"] == "down" for view in views.values())
    silent = f"{count(down, 'agent')} {'does' if down == 1 else 'do'} not answer"
    if token["state"] == "none":
        return "starting", "The agents start; no token has been seen yet."
    if token["state"] == "parked":
        attested = sum(v["attested"] for v in views.values() if v["state"] != "departed")
        everybody = len(views) - len(known.departed)
        if inside == len(needed) and attested >= everybody:
            batch = any(kind.startswith("batches ") for kind in waiting)
            return "rest", (
                f"At rest: the sum holds {count(inside, 'agent')}, and every agent has attested it."
                + (" Changes wait for others." if batch else "")
            )
        if not inside and any(map(_spent, known.statuses.values())):
            return "waiting", (
                "No posterior is served any more: the privacy budget is spent, and no value is "
                "left to give."
            )
        if down:
            return "waiting", f"The token is parked; {silent}."
        return "waiting", f"The token is parked; the sum holds {members}, {attested} attested it."
    if down and not moved:
        return "waiting", f"The token does not move; {silent}."
    if waiting and not moved:
        return "waiting", "The token does not move; see what the network waits for."
    return "learning", f"Learning: the sum holds {members}."
