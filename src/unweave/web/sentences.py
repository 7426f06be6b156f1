"""The events of an agent's log, as sentences for people who do not read logs.

An event either belongs to one agent ("a1 added its factor") or to the network ("a3 has departed"),
of which every agent tells when it learns it. Sentences name agents and requests, never values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

from unweave.text import listed

__all__ = ["OPENED", "Level", "Sentence", "names", "reason", "sentence"]

Level = Literal["info", "good", "warning", "failure"]
Facts = Mapping[str, Any]


class Sentence(NamedTuple):
    """`text` is complete for an event of the network. For an event of agents, `{who}` stands for
    their names, and `many` is the text for several of them. Sentences with the same `key` are about
    the same thing, and are folded. `alone`: if it happens again to one of several agents, the
    others have no part in it."""

    text: str
    level: Level
    key: str
    many: str = ""
    agent: str | None = None
    alone: bool = False


def sentence(agent: str, what: str, facts: Facts, level: str = "info") -> Sentence | None:
    """The sentence for one event that `agent` tells; None: it is of no interest here."""
    if what in _SILENT:
        return None
    if what == OPENED:
        first = not reason(facts)
        return (
            Sentence(f"{agent} opened the first epoch", "info", what, agent=agent)
            if first
            else None
        )
    if what in _NETWORK:
        make, grade, key, about = _NETWORK[what]
        named = _Facts(facts)
        subject = getattr(named, about) if about else None
        kind = "epoch" if what.startswith("new epoch") else what
        return Sentence(make(named), grade, f"{kind} {key(named)}", agent=subject or None)
    if what in _OWN:
        one, many, grade = _OWN[what]
        return Sentence("{who} " + one, grade, what, "{who} " + many, agent, what in _ALONE)
    why = facts.get("why") or facts.get("error")
    if what in _WITH_REASON:
        one, grade = _WITH_REASON[what]
        text = f"{agent} {one}" + (f": {why}" if why else "")
        return Sentence(text, grade, f"{what} {agent} {why}", agent=agent)
    grade = _GRADES.get(level, "info")
    text = f"{agent}: {what}" + (f" ({why})" if why else "")
    return Sentence(text, grade, f"{what} {agent}", agent=agent)


class _Facts:
    """Facts by name; a missing one is an empty text."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts

    def __getattr__(self, name: str) -> str:
        return str(self._facts.get(name, ""))


Text = Callable[[_Facts], str]


def _scope(f: _Facts) -> str:
    return (
        f"everything of {f.agent}" if f.scope in ("everything", "") else f"{f.scope} of {f.agent}"
    )


def _round_waits(f: _Facts) -> str:
    if f.not_enrolled:
        return f"The private round waits for {f.not_enrolled}, not enrolled yet"
    return f"The private round waits for {f.not_given}, without their values yet"


# what → text, level, what tells two of them apart, and which fact is its agent
_NETWORK: dict[str, tuple[Text, Level, Text, str | None]] = {
    "new epoch in place of the last one": (
        lambda f: f"{f.by} opened epoch {f.epoch}: a new token replaces the last one",
        "info",
        lambda f: f.epoch,
        "by",
    ),
    "new epoch: after an erasure every agent starts from zero": (
        lambda f: f"{f.by} opened epoch {f.epoch}: after an erasure every agent starts from zero",
        "info",
        lambda f: f.epoch,
        "by",
    ),
    "new epoch without a departed agent": (
        lambda f: f"{f.by} opened epoch {f.epoch}, without a departed agent",
        "info",
        lambda f: f.epoch,
        "by",
    ),
    "an erasure was requested": (
        lambda f: f"The erasure of {_scope(f)} was requested",
        "warning",
        lambda f: f.request,
        "agent",
    ),
    "an erasure was carried out": (
        lambda f: (
            f"{_scope(f)[:1].upper()}{_scope(f)[1:]} was taken out of the sum"
            if not f.scope.endswith("records")
            else f"{_scope(f)} were taken out of the sum"
        ),
        "good",
        lambda f: f.request,
        "agent",
    ),
    "certified": (
        lambda f: (
            f"Certified: all remaining agents have attested the sum without the erased data "
            f"of {f.agents}"
        ),
        "good",
        lambda f: f"{f.requests} {f.agents}",
        None,
    ),
    "a vote that an agent has departed": (
        lambda f: f"{f.by} voted that {f.agent} has departed ({f.needed} votes are needed)",
        "warning",
        lambda f: f"{f.agent} {f.by}",
        "agent",
    ),
    "an agent has departed by a quorum of votes": (
        lambda f: f"{f.agent} has departed, by a quorum of votes",
        "failure",
        lambda f: f.agent,
        "agent",
    ),
    "the token is parked": (
        lambda f: f"The token is parked at {f.at}: {f.attested} agents have attested the sum",
        "good",
        lambda f: f"{f.at} {f.attested}",
        "at",
    ),
    "audit mismatch: the factors do not add up to the token": (
        lambda f: f"An audit did not add up at {f.found_at}: the sum is not that of all factors",
        "failure",
        lambda f: f.found_at,
        "found_at",
    ),
    "audit failed: two audit mismatches stop the network": (
        lambda f: "The audit failed twice: the network has stopped and serves no posterior",
        "failure",
        lambda f: "",
        None,
    ),
    "the private sum is complete and attested": (
        lambda f: f"The private sum of {f.agents} agents is complete and attested",
        "good",
        lambda f: f.agents,
        None,
    ),
    "the private sum holds erased data: it is served no more": (
        lambda f: "The last private sum holds erased data: it is not shown any more",
        "info",
        lambda f: "",
        None,
    ),
    "the private round waits": (_round_waits, "warning", _round_waits, None),
    "a neighbour does not answer": (
        lambda f: f"{f.agent} does not answer its neighbours",
        "failure",
        lambda f: f.agent,
        "agent",
    ),
    "a neighbour answers again": (
        lambda f: f"{f.agent} answers its neighbours again",
        "good",
        lambda f: f.agent,
        "agent",
    ),
    "an agent has signed a lie": (
        lambda f: f"An agent has signed a wrong step: {f.why}",
        "failure",
        lambda f: f.why,
        None,
    ),
}

# what → the text for one agent, for several, and the level
_OWN: dict[str, tuple[str, str, Level]] = {
    "started": ("started", "started", "info"),
    "joined": ("joined the network", "joined the network", "info"),
    "stopped": ("stopped", "stopped", "warning"),
    "added the factor": ("added its factor", "added their factors", "info"),
    "replaced the factor: records were erased": (
        "replaced its factor: records were erased",
        "replaced their factors: records were erased",
        "good",
    ),
    "replaced the factor: the data have changed": (
        "replaced its factor: its data have changed",
        "replaced their factors: their data have changed",
        "info",
    ),
    "replaced the factor: the other factors have changed": (
        "fitted its factor again: the other factors have changed",
        "fitted their factors again: the other factors have changed",
        "info",
    ),
    "enrolled for a private round": (
        "enrolled for a private round",
        "enrolled for a private round",
        "info",
    ),
    "gave its value to a private round": (
        "gave its masked value",
        "gave their masked values",
        "info",
    ),
    "the data have changed": ("sees new data", "see new data", "info"),
    "the data have changed since this agent last ran": ("sees new data", "see new data", "info"),
    "deleted what the worker kept of the data": (
        "deleted what it kept of the erased data",
        "deleted what they kept of the erased data",
        "good",
    ),
    "restarts, to remove erased values from its memory": (
        "restarts, to remove erased values from its memory",
        "restart, to remove erased values from their memory",
        "info",
    ),
    "the process stood still; it starts again": (
        "stood still, and starts again",
        "stood still, and start again",
        "warning",
    ),
}

# What happens to the process of one agent, and not to all of them in turn.
_ALONE = frozenset(
    (
        "started",
        "joined",
        "stopped",
        "restarts, to remove erased values from its memory",
        "the process stood still; it starts again",
    )
)

# what → the text before the reason, and the level
_WITH_REASON: dict[str, tuple[str, Level]] = {
    "stays out": ("stays out of the sum", "warning"),
    "the data cannot be used; the current factor stays": (
        "cannot use its data, and keeps its earlier factor",
        "failure",
    ),
    "the own records alone decide little": ("has records that decide little", "warning"),
    "cannot solve": ("cannot compute its factor", "failure"),
    "the disk refuses": ("cannot write to its disk", "failure"),
    "the certificate cannot be kept": ("cannot store a certificate", "failure"),
    "cannot use a one-time key": ("cannot use a one-time key", "failure"),
    "refused": ("refused a message", "warning"),
    "erasure requested again": ("requested an erasure again", "warning"),
    "the vote was not cast": ("did not vote", "warning"),
}

OPENED = "new epoch"  # told by the agent that opens one, with the reason and without the number
_REASONS = {"the token included what a tombstone forbids": "the last token held erased data"}


def reason(facts: Facts) -> str:
    """Why an agent has opened an epoch; empty for the first one."""
    why = str(facts.get("why", ""))
    return "" if why == "genesis" else _REASONS.get(why, why)


_GRADES: dict[str, Level] = {"error": "failure", "warning": "warning"}

_SILENT = frozenset(
    (
        "certificate kept",
        "metrics are served",
        "this process replaces one that may have held erased values",
    )
)


def names(agents: list[str], number: int) -> str:
    """The first names, and how many there are."""
    return listed(agents) if number == len(agents) else f"{', '.join(agents)}, … ({number} in all)"
