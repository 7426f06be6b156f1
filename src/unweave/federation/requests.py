"""Erasure requests: the agents and records that a user chooses, and what became of a request."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from unweave.arguments import is_whole, shown
from unweave.errors import ConfigError, DataError
from unweave.federation.walk import Walk
from unweave.graph import Topology
from unweave.protocol.events import EraseRequested
from unweave.protocol.token import NOTHING, Token, request_id
from unweave.rng import Purpose, derive
from unweave.solvers.worker import record_key

__all__ = [
    "EXAMPLES",
    "Requests",
    "agent_index",
    "attested",
    "chosen_agents",
    "chosen_records",
    "erased",
    "retrained",
]


Asked = Mapping[int, frozenset[bytes]]  # agent → ids of its erasure requests


def erased(token: Token | None, asked: Asked) -> bool:
    """Whether the token carries the tombstone of every request, and so none of the erased data."""
    return token is not None and all(
        ids <= token.tombs.get(k, NOTHING).ids for k, ids in asked.items()
    )


def retrained(token: Token, asked: Asked) -> bool:
    """Whether one of the requests made all agents start from zero."""
    return bool(frozenset().union(*asked.values()) & token.retrain_epoch)


def attested(walk: Walk) -> Token | None:
    """The parked token that all agents have attested, or None before."""
    holder = walk.world.parked
    token = None if holder is None else walk.world.state(holder).token.held
    complete = token is not None and len(token.round.agents) == walk.terms.size
    return token if complete else None


EXAMPLES = 'forget("a1"), forget(["a1", "a2"]) or forget(records={"a1": [0, 3]})'


def agent_index(graph: Topology, agent: Any) -> int:
    """The index of an agent that is given by its name."""
    if is_whole(agent):
        known = 0 <= agent < len(graph)
        meant = f"write {graph.agents[agent]!r}" if known else "write an agent's name"
        raise ConfigError(f"agent {int(agent)}: agents have names, not numbers. Fix: {meant}")
    return graph.index(agent)


def chosen_agents(graph: Topology, agents: Any) -> tuple[str, ...]:
    """The names of whole agents, each once."""
    if isinstance(agents, str) or is_whole(agents):
        agents = [agents]
    if isinstance(agents, Mapping):
        raise ConfigError(
            "forget: a mapping names records, not agents. Fix: write forget(records={agent: rows})"
        )
    if not isinstance(agents, Iterable):
        raise ConfigError(f"forget: agents = {shown(agents)}: no agents. Fix: write {EXAMPLES}")
    return tuple(dict.fromkeys(graph.agents[agent_index(graph, agent)] for agent in agents))


def chosen_records(walk: Walk, records: Any) -> dict[str, frozenset[bytes]]:
    """The keys of single records by agent, checked against its data."""
    if records is None:
        return {}
    if not isinstance(records, Mapping):
        raise ConfigError(
            f"forget: records = {shown(records)}: no owner. Fix: write records={{agent: rows}}"
        )
    return {name: _rows(walk, name, rows) for name, rows in records.items()}


def _rows(walk: Walk, name: Any, chosen: Any) -> frozenset[bytes]:
    """The keys of the records that a mask or row numbers choose."""
    worker = walk.workers[agent_index(walk.terms.topology, name)]
    rows = worker.whole.chosen(chosen)
    if not rows.size:
        raise DataError(f"forget: agent {name!r}: no record is chosen. Fix: choose at least one")
    return frozenset(record_key(int(row), worker.version) for row in rows)


class Requests:
    """Sends erasure requests to agents, each with its own id."""

    def __init__(self, walk: Walk) -> None:
        self._walk = walk
        self.count = 0

    def ask(self, k: int, rows: frozenset[bytes] | None) -> bytes:
        """Request the erasure of these records of agent k, or (None) of all; return the id."""
        self.count += 1
        seed = self._walk.terms.seed
        draws = [derive(seed, Purpose.NONCE, 1 << 32, self.count, i) for i in (0, 1)]
        request = request_id(k, b"".join(draw.to_bytes(8, "big") for draw in draws))
        event = EraseRequested(request, rows is None, rows or frozenset(), 0.0)
        self._walk.tell(k, event)
        return request
