"""Erasure requests: what a user asks for, how agents are told, and what came of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from unweave.arguments import is_whole, shown
from unweave.draws import Purpose, derive
from unweave.errors import ConfigError, DataError
from unweave.federation.walk import Walk
from unweave.graph import Topology
from unweave.protocol.events import EraseRequested
from unweave.protocol.ids import request_id
from unweave.simulate.worker import record_key

__all__ = ["Requests", "agent_index", "chosen_agents", "chosen_records"]

_EXAMPLES = 'forget("a1"), forget(["a1", "a2"]) or forget(records={"a1": [0, 3]})'


def agent_index(graph: Topology, agent: Any) -> int:
    """The index of an agent that is given by its name."""
    if is_whole(agent):
        known = 0 <= agent < len(graph)
        meant = f": write {graph.agents[agent]!r}" if known else ""
        raise ConfigError(
            f"agent {int(agent)}: agents are known by their names, not by numbers{meant}"
        )
    return graph.index(agent)


def chosen_agents(graph: Topology, agents: Any) -> tuple[str, ...]:
    """The names of whole agents, each once."""
    if isinstance(agents, str) or is_whole(agents):
        agents = [agents]
    if isinstance(agents, Mapping):
        raise ConfigError(
            "forget: a mapping names records, not agents: write forget(records={agent: rows})"
        )
    if not isinstance(agents, Iterable):
        raise ConfigError(f"forget: agents = {shown(agents)}: write {_EXAMPLES}")
    return tuple(dict.fromkeys(graph.agents[agent_index(graph, agent)] for agent in agents))


def chosen_records(walk: Walk, records: Any) -> dict[str, frozenset[bytes]]:
    """The keys of single records by agent, checked against its data."""
    if records is None:
        return {}
    if not isinstance(records, Mapping):
        raise ConfigError(
            f"forget: records = {shown(records)}: say whose they are, records={{agent: rows}}"
        )
    return {name: _rows(walk, name, rows) for name, rows in records.items()}


def _rows(walk: Walk, name: Any, chosen: Any) -> frozenset[bytes]:
    """Row numbers of a mask or of indices."""
    worker = walk.workers[agent_index(walk.terms.topology, name)]
    if worker.whole.n == worker.whole.drop(chosen).n:  # raises if the choice makes no sense
        raise DataError(f"agent {name!r}: no record is chosen; nothing would be forgotten")
    array = np.asarray(list(chosen) if isinstance(chosen, set | frozenset) else chosen)
    rows = np.flatnonzero(array) if array.dtype == bool else np.atleast_1d(array)
    return frozenset(record_key(int(row), worker.version) for row in rows)


class Requests:
    """Asks agents to erase, each request under an id of its own."""

    def __init__(self, walk: Walk) -> None:
        self._walk = walk
        self._count = 0

    def ask(self, k: int, rows: frozenset[bytes] | None) -> bytes:
        """Tell agent k to erase these records, or (None) everything; the id of the request."""
        self._count += 1
        seed = self._walk.terms.seed
        words = [derive(seed, Purpose.NONCE, 1 << 32, self._count, i) for i in (0, 1)]
        request = request_id(k, b"".join(word.to_bytes(8, "big") for word in words))
        event = EraseRequested(request, rows is None, rows or frozenset(), 0.0)
        self._walk.tell(k, event)
        return request
