"""Votes that an agent is gone, of all the agents whose folders are here."""

from __future__ import annotations

import secrets
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from unweave.errors import UnweaveError
from unweave.node.client import AgentDown
from unweave.node.config import AgentFolder
from unweave.node.fleet import Fleet
from unweave.protocol.ids import request_id

__all__ = ["Ballot", "hold_ballot", "told"]


class Ballot(NamedTuple):
    """How it went here. Votes of other places are in the report of the erasure."""

    request: str
    asker: str  # who can say how far it is
    refused: dict[str, str]  # why


def hold_ballot(agents: Fleet, name: str) -> Ballot:
    """Every agent here votes that `name` is gone, unless it hears it. All at the same time: each of
    them calls `name` first, and waits for its patience."""
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
    request = _request(agents, name, [statuses[voter] for voter in voters])
    with ThreadPoolExecutor(min(32, len(voters))) as voting:
        words = voting.map(lambda voter: _word(agents, voter, name, request), voters)
        answers = dict(zip(voters, words, strict=True))
    refused = {voter: why for voter, why in answers.items() if why}
    if len(refused) == len(voters):
        raise UnweaveError(f"nobody here votes that {name} is gone: {told(refused)}")
    return Ballot(request, next(voter for voter in voters if voter not in refused), refused)


def told(refused: dict[str, str]) -> str:
    """Who refused, and why; those with the same reason together."""
    reasons: dict[str, list[str]] = {}
    for voter, why in refused.items():
        reasons.setdefault(why, []).append(voter)
    return "; ".join(f"{', '.join(voters)}: {why}" for why, voters in reasons.items())


def _request(agents: Fleet, name: str, statuses: list[dict[str, Any]]) -> str:
    """The request that somebody has voted for already, or a new one: votes must be for the same."""
    for status in statuses:
        known = status.get("gone_requests", {}).get(name)
        if known is not None:
            return str(known)
    folder = AgentFolder.read(next(iter(agents.folders.values())))
    index = folder.manifest.topology.index(name)
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
