"""Votes that an agent is gone, of all the agents whose folders are here."""

from __future__ import annotations

import secrets
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from unweave.errors import UnweaveError
from unweave.node.client import AgentDown
from unweave.node.config import AgentFolder
from unweave.node.fleet import Fleet, patiently
from unweave.protocol.ids import request_id

__all__ = ["Ballot", "hold_ballot", "told"]

_NEWS = 10.0  # seconds for a vote to get around


class Ballot(NamedTuple):
    """How it went here. Votes of other places are in the report of the erasure."""

    request: str
    asker: str  # who can say how far it is
    refused: dict[str, str]  # why


def hold_ballot(agents: Fleet, name: str) -> Ballot:
    """Every agent here votes that `name` is gone, unless it hears it: its neighbours, all at the
    same time (each of them calls `name` first, and waits for its patience), then the others."""
    agents.any()
    if name in agents.agents:
        raise UnweaveError(
            f"{name} answers here: it is not gone. Ask it: `unweave forget {agents.root} {name}`"
        )
    statuses = agents.statuses()
    left = {gone for status in statuses.values() for gone in status.get("left", ())}
    voters = [voter for voter in statuses if voter not in left]
    if not voters:
        raise UnweaveError(
            f"nobody here can vote that {name} is gone: every agent that answers has left the "
            f"network itself; other operators vote with `unweave vote AGENT_DIR {name}`"
        )
    topology = AgentFolder.read(next(iter(agents.folders.values()))).manifest.topology
    near = {topology.agents[k] for k in topology.adjacency[topology.index(name)]}
    request = _request(topology.index(name), name, [statuses[voter] for voter in voters])
    answers: dict[str, str] = {}
    for group in (
        [voter for voter in voters if voter in near],
        [voter for voter in voters if voter not in near],
    ):
        if group and any(not why for why in answers.values()):
            _tell_the_others(agents, name, group)
        answers |= _votes(agents, group, name, request)
    refused = {voter: why for voter, why in answers.items() if why}
    if len(refused) == len(voters):
        raise UnweaveError(f"nobody here votes that {name} is gone: {told(refused)}")
    return Ballot(request, next(voter for voter in voters if voter not in refused), refused)


def _votes(agents: Fleet, voters: list[str], name: str, request: str) -> dict[str, str]:
    if not voters:
        return {}
    with ThreadPoolExecutor(min(32, len(voters))) as voting:
        words = voting.map(lambda voter: _word(agents, voter, name, request), voters)
        return dict(zip(voters, words, strict=True))


def _tell_the_others(agents: Fleet, name: str, voters: list[str]) -> None:
    """Who is no neighbour seconds a neighbour's vote: wait until it has heard of one."""
    for _ in patiently(_NEWS):
        known = [(agents.again(voter, "status") or {}).get("status", {}) for voter in voters]
        if all(status.get("votes", {}).get(name) for status in known):
            return


def told(refused: dict[str, str]) -> str:
    """Who refused, and why; those with the same reason together."""
    reasons: dict[str, list[str]] = {}
    for voter, why in refused.items():
        reasons.setdefault(why, []).append(voter)
    return "; ".join(f"{', '.join(voters)}: {why}" for why, voters in reasons.items())


def _request(index: int, name: str, statuses: list[dict[str, Any]]) -> str:
    """The request that somebody has voted for already, or a new one: votes must be for the same."""
    for status in statuses:
        known = status.get("gone_requests", {}).get(name)
        if known is not None:
            return str(known)
    return request_id(index, secrets.token_bytes(12)).hex()


def _word(agents: Fleet, voter: str, name: str, request: str) -> str:
    """Empty if it votes; otherwise why it does not."""
    try:
        agents.agents[voter].ask("vote", agent=name, request=request)
    except AgentDown:
        return "it has stopped answering"
    except UnweaveError as error:
        return str(error).removeprefix(f"{voter}: ")
    return ""
