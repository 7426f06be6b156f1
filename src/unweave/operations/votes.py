"""Votes that an agent has departed, cast by all agents whose folders are in DIR.

An agent votes only if it has not heard the departed agent for `timeouts.loss` seconds. Voters that
heard it more recently are asked again after that time, while votes are missing.
"""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from unweave.errors import UnweaveError
from unweave.graph.topology import Topology
from unweave.operations.cluster import LOOK, Cluster, TimedOut, wait_until
from unweave.operations.status import departed_agents
from unweave.protocol.token import request_id
from unweave.text import quote

__all__ = ["VoteCount", "collect_votes", "describe_refusals"]


_NEWS = 10.0  # seconds: timeout for a vote to reach the other agents by gossip
_LEAST = 1.0  # seconds that each voter has to answer, also at the end of the timeout
_MARGIN = 0.2  # seconds: a status rounds its times
_QUARANTINE = 2.0  # seconds until a voter that has just started is asked again


class VoteCount(NamedTuple):
    """The votes of the agents of DIR. The report of the erasure counts all votes."""

    request: str
    asker: str  # an agent that voted, and reports the erasure's progress
    refused: dict[str, str]  # agent that did not vote → why


def collect_votes(
    agents: Cluster, name: str, timeout: float, tell: Callable[[str], None] = lambda _: None
) -> VoteCount:
    """Ask every agent of DIR to vote that `name` has departed, until a quorum has voted, waiting
    helps no more, or the timeout is reached."""
    agents.any()
    end = time.monotonic() + timeout
    statuses = agents.statuses(min(LOOK, timeout))
    if name in statuses:
        raise UnweaveError(
            f"{name} answers, so it has not departed. Fix: ask {name} itself with "
            f"`unweave forget {quote(agents.root)} {quote(name)}`"
        )
    if why := agents.frozen().get(name):
        tell(f"{name} may come back: {why}; a quorum of votes removes it")
    departed = departed_agents(statuses)
    voters = [voter for voter in statuses if voter not in departed]
    if not voters:
        raise UnweaveError(
            f"no agent of {agents.root} can vote on {name}: those that answer have departed "
            f"themselves. Fix: other operators vote with `unweave vote AGENT_DIR {quote(name)}`"
        )
    manifest = agents.manifest
    quorum = manifest.terms().quorum
    request = _request(manifest.topology.index(name), name, [statuses[voter] for voter in voters])
    refused: dict[str, str] = {}
    told = ""
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
        heard = describe_refusals({voter: refused[voter] for voter in early})
        when = (
            f"{heard}; an agent votes after it has not heard {name} for "
            f"{manifest.timeouts.loss:g} s (timeouts.loss of network.toml)"
        )
        if time.monotonic() + delay > end:
            if len(refused) < len(voters):
                break
            raise TimedOut(
                f"no votes yet that {name} has departed: {when}. Fix: run the command again in "
                f"{math.ceil(delay)} s, or raise --timeout"
            )
        if when != told:
            tell(f"{when}: asking again in {math.ceil(delay)} s")
        told = when
        time.sleep(delay)
    if len(refused) == len(voters):
        raise UnweaveError(
            f"no votes that {name} has departed: {describe_refusals(refused)}. Fix: stop {name}, "
            "or repeat the command when its neighbours no longer hear it"
        )
    return VoteCount(request, next(voter for voter in voters if voter not in refused), refused)


def _round(
    agents: Cluster, topology: Topology, voters: list[str], name: str, request: str, end: float
) -> dict[str, str]:
    """Ask `voters` once; return those that do not vote, and why. The neighbours of `name` are asked
    first and in parallel, because each of them calls `name` and waits for a timeout. The others
    vote only after they know of a neighbour's vote."""
    near = {topology.agents[k] for k in topology.adjacency[topology.index(name)]}
    answers: dict[str, str] = {}
    for group in (
        [voter for voter in voters if voter in near],
        [voter for voter in voters if voter not in near],
    ):
        if group and any(not why for why in answers.values()):
            _await_votes(agents, name, group, end)
        answers |= _votes(agents, group, name, request, end)
    return {voter: why for voter, why in answers.items() if why}


def _early(
    agents: Cluster, voters: list[str], name: str, began: float, loss: float
) -> dict[str, float]:
    """The voters that heard `name` less than `loss` seconds ago, or have just started, with the
    seconds until they vote; empty if a voter heard `name` after the votes began: it will hear it
    again, so waiting does not help."""
    early = {}
    for voter in voters:
        status = (agents.again(voter, "status", within=LOOK) or {}).get("status", {})
        if status.get("phase") == "quarantine":
            early[voter] = _QUARANTINE
            continue
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
        reasons = voting.map(lambda voter: _vote(agents, voter, name, request, end), voters)
        return dict(zip(voters, reasons, strict=True))


def _await_votes(agents: Cluster, name: str, voters: list[str], end: float) -> None:
    """Wait until each of `voters` knows a vote on `name`."""
    for remaining in wait_until(min(_NEWS, end - time.monotonic())):
        answers = [agents.again(voter, "status", within=min(LOOK, remaining)) for voter in voters]
        known = [(answer or {}).get("status", {}) for answer in answers]
        if all(status.get("votes", {}).get(name) for status in known):
            return


def describe_refusals(refused: dict[str, str]) -> str:
    """The agents that did not vote, grouped by reason."""
    reasons: dict[str, list[str]] = {}
    for voter, why in refused.items():
        reasons.setdefault(why, []).append(voter)
    return "; ".join(f"{', '.join(voters)}: {why}" for why, voters in reasons.items())


def _request(index: int, name: str, statuses: list[dict[str, Any]]) -> str:
    """The id of a request that has votes already, or a new id: all votes must name the same one."""
    for status in statuses:
        known = status.get("departed_requests", {}).get(name)
        if known is not None:
            return str(known)
    return request_id(index, secrets.token_bytes(12)).hex()


def _vote(agents: Cluster, voter: str, name: str, request: str, end: float) -> str:
    """Ask one voter; return why it does not vote, or "" if it votes."""
    try:
        within = max(_LEAST, end - time.monotonic())
        answer = agents.again(voter, "vote", within=within, agent=name, request=request)
    except UnweaveError as error:
        return str(error).removeprefix(f"{voter}: ")
    return "" if answer is not None else "it has stopped answering"
