"""Votes that an agent is gone, of all the agents whose folders are here."""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from unweave.errors import UnweaveError
from unweave.graph.topology import Topology
from unweave.node.api.client import asleep, lives
from unweave.node.config import AgentFolder
from unweave.operations.cluster import LOOK, Cluster, TimedOut, wait_until
from unweave.protocol.token import request_id
from unweave.text import quote

__all__ = ["VoteCount", "collect_votes", "told"]


_NEWS = 10.0  # seconds for a vote to get around
_LEAST = 1.0  # seconds for a voter to answer, however late it is
_MARGIN = 0.2  # a status rounds its seconds


class VoteCount(NamedTuple):
    """How it went here. Votes of other places are in the report of the erasure."""

    request: str
    asker: str  # who can say how far it is
    refused: dict[str, str]  # why


def collect_votes(
    agents: Cluster, name: str, timeout: float, tell: Callable[[str], None] = lambda _: None
) -> VoteCount:
    """Every agent here votes that `name` is gone, unless it hears it. Who has heard it a moment ago
    is asked again when that is long enough ago, as long as votes are missing and there is time."""
    agents.any()
    end = time.monotonic() + timeout
    statuses = agents.statuses(min(LOOK, timeout))
    if name in statuses:
        raise UnweaveError(
            f"{name} answers here: it is not gone. Ask it: "
            f"`unweave forget {quote(agents.root)} {quote(name)}`"
        )
    if name in agents.silent and lives(agents.silent[name]):
        tell(f"{name} may come back: {asleep(agents.silent[name])}; with enough votes it is out")
    left = {gone for status in statuses.values() for gone in status.get("departed", ())}
    voters = [voter for voter in statuses if voter not in left]
    if not voters:
        raise UnweaveError(
            f"nobody here can vote that {name} is gone: every agent that answers has left the "
            f"network itself; other operators vote with `unweave vote AGENT_DIR {quote(name)}`"
        )
    manifest = AgentFolder.read(next(iter(agents.folders.values()))).manifest
    quorum = manifest.terms().quorum
    request = _request(manifest.topology.index(name), name, [statuses[voter] for voter in voters])
    refused: dict[str, str] = {}
    began = time.monotonic()
    while True:
        asked = list(refused or voters)
        refused = _round(agents, manifest.topology, asked, name, request, end)
        if not refused or len(voters) - len(refused) >= quorum:
            break
        early = _early(agents, list(refused), name, began, manifest.timeouts.loss)
        if not early:
            break
        delay = max(early.values())
        heard = told({voter: refused[voter] for voter in early})  # the others wait for these
        when = (
            f"{heard}; votes that {name} is gone count when nothing was heard of it for "
            f"{manifest.timeouts.loss:g} s (timeouts.loss of network.toml)"
        )
        if time.monotonic() + delay > end:
            if len(refused) < len(voters):
                break
            raise TimedOut(
                f"nobody here votes that {name} is gone yet: {when}: ask again in "
                f"{math.ceil(delay)} s, or wait longer (--timeout)"
            )
        tell(f"{when}: asking again in {math.ceil(delay)} s")
        time.sleep(delay)
    if len(refused) == len(voters):
        raise UnweaveError(f"nobody here votes that {name} is gone: {told(refused)}")
    return VoteCount(request, next(voter for voter in voters if voter not in refused), refused)


def _round(
    agents: Cluster, topology: Topology, voters: list[str], name: str, request: str, end: float
) -> dict[str, str]:
    """Who refuses, and why. The neighbours of `name` are asked at the same time (each of them calls
    it first, and waits for its timeouts), then the others."""
    near = {topology.agents[k] for k in topology.adjacency[topology.index(name)]}
    answers: dict[str, str] = {}
    for group in (
        [voter for voter in voters if voter in near],
        [voter for voter in voters if voter not in near],
    ):
        if group and any(not why for why in answers.values()):
            _tell_the_others(agents, name, group, end)
        answers |= _votes(agents, group, name, request, end)
    return {voter: why for voter, why in answers.items() if why}


def _early(
    agents: Cluster, voters: list[str], name: str, began: float, loss: float
) -> dict[str, float]:
    """Who has heard `name` lately, and for how many seconds that still counts; nobody, if to wait
    is of no use: whoever has heard it since the votes began will hear it again."""
    early = {}
    for voter in voters:
        status = (agents.again(voter, "status", within=LOOK) or {}).get("status", {})
        ago = status.get("others", {}).get(name, {}).get("heard_seconds_ago")
        if ago is None or ago >= loss:
            continue
        if ago + _MARGIN < time.monotonic() - began:
            return {}
        early[voter] = loss - ago + _MARGIN
    return early


def _votes(
    agents: Cluster, voters: list[str], name: str, request: str, end: float
) -> dict[str, str]:
    if not voters:
        return {}
    with ThreadPoolExecutor(min(32, len(voters))) as voting:
        words = voting.map(lambda voter: _word(agents, voter, name, request, end), voters)
        return dict(zip(voters, words, strict=True))


def _tell_the_others(agents: Cluster, name: str, voters: list[str], end: float) -> None:
    """Who is no neighbour seconds a neighbour's vote: wait until it has heard of one."""
    for left in wait_until(min(_NEWS, end - time.monotonic())):
        answers = [agents.again(voter, "status", within=min(LOOK, left)) for voter in voters]
        known = [(answer or {}).get("status", {}) for answer in answers]
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
        known = status.get("departed_requests", {}).get(name)
        if known is not None:
            return str(known)
    return request_id(index, secrets.token_bytes(12)).hex()


def _word(agents: Cluster, voter: str, name: str, request: str, end: float) -> str:
    """Empty if it votes; otherwise why it does not."""
    try:
        within = max(_LEAST, end - time.monotonic())
        answer = agents.again(voter, "vote", within=within, agent=name, request=request)
    except UnweaveError as error:
        return str(error).removeprefix(f"{voter}: ")
    return "" if answer is not None else "it has stopped answering"
