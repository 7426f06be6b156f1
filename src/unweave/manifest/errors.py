"""Turns a pydantic error in a manifest into an error text: key, cause, fix."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any

from pydantic import BaseModel, ValidationError

from unweave.errors import ConfigError
from unweave.manifest.entries import (
    AgentEntry,
    GraphEntry,
    ModelEntry,
    SolverEntry,
    TimeoutsEntry,
)
from unweave.manifest.privacy import PrivacyEntry, PublishEntry
from unweave.text import clip

__all__ = ["explain", "read_privacy"]


_TABLES: dict[str, type[BaseModel]] = {
    "agents": AgentEntry,
    "graph": GraphEntry,
    "model": ModelEntry,
    "privacy": PrivacyEntry,
    "publish": PublishEntry,
    "solver": SolverEntry,
    "timeouts": TimeoutsEntry,
}


def read_privacy(values: dict[str, Any], agents: int, place: str) -> PrivacyEntry:
    """The table `[privacy]` for so many agents; errors name `place`."""
    try:
        return PrivacyEntry.model_validate(values).resolved(agents)
    except ValidationError as error:
        raise ConfigError(f"{place}: {explain(error, values, PrivacyEntry)}") from None


def explain(error: ValidationError, values: dict[str, Any], top: type[BaseModel]) -> str:
    """The error text of one problem: key, cause, fix."""
    problems = error.errors(include_url=False)
    # A union reports one problem per alternative: the deepest place is the likely intention, and of
    # equally deep ones the table whose own check has failed.
    first = max(problems, key=lambda p: (len(p["loc"]), p["type"] == "value_error"))
    # Pydantic names the alternatives of a union as if they were keys; the text omits them.
    known = set(top.model_fields).union(*(table.model_fields for table in _TABLES.values()))
    *path, last = first["loc"] or ("",)
    place = [part for part in path if isinstance(part, int) or part in known]
    if last in known or isinstance(last, int) or first["type"] == "extra_forbidden":
        place.append(last)
    shown = _place(place, values)
    if first["type"] == "extra_forbidden":
        table = _table_of(place, top)
        near = get_close_matches(clip(place[-1], 80), table, n=1)
        hint = f"did you mean {near[0]}?" if near else f"known keys are {', '.join(table)}"
        return f"{shown}: unknown key. Fix: {hint}"
    if first["type"] == "missing":
        return f"{shown} is missing. Fix: add it"
    if first["type"] == "value_error":
        return (f"{shown}: " if place else "") + str(first["ctx"]["error"])
    if place and place[0] in _EXPECTED and not (place[0] == "agents" and len(place) > 1):
        return f"{place[0]} cannot be read. Fix: give {_EXPECTED[str(place[0])]}"
    given = first["input"]
    value = f" (it is {clip(repr(given), 80)})" if isinstance(given, str | int | float) else ""
    if first["type"] == "string_pattern_mismatch" and place[-1] == "address":
        return f'{shown}: no address{value}. Fix: give "host:port"'
    if first["type"] == "string_pattern_mismatch" and place[-1] == "at_most":
        return f'{shown}: no period{value}. Fix: a number with s, m, h or d, for example "30d"'
    if first["type"] == "string_pattern_mismatch" and place[-1] == "keyid":
        return f"{shown}: no key id{value}. Fix: give the 64 hex digits of a SHA-256"
    if first["type"] == "string_pattern_mismatch":
        return f"{shown}: not a name{value}. Fix: use no slash, quote or control character"
    return f"{shown}: {first['msg'][0].lower()}{first['msg'][1:]}{value}. Fix: correct the value"


_EXPECTED = {
    "agents": "a number of agents (simulation), or one [[agents]] table for each",
    "edges": 'pairs of agents, for example [["a1", "a2"], ["a2", "a3"]]',
}


def _place(place: list[Any], values: dict[str, Any]) -> str:
    """The place for the error text: agent "east": address instead of `agents[1].address`."""
    if len(place) > 1 and place[0] == "agents" and isinstance(place[1], int):
        entry = values["agents"][place[1]]
        name = entry.get("name") if isinstance(entry, dict) else getattr(entry, "name", None)
        key = ".".join(map(str, place[2:]))
        agent = (
            f'agent "{clip(name, 80)}"' if isinstance(name, str) else f"agent number {place[1] + 1}"
        )
        return f"{agent}: {key}" if key else agent
    return ".".join(f"[{p}]" if isinstance(p, int) else clip(p, 80) for p in place)


def _table_of(place: list[Any], top: type[BaseModel]) -> list[str]:
    table = _TABLES.get(str(place[0]), top) if len(place) > 1 else top
    return list(table.model_fields)
