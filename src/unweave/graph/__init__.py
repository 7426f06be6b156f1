"""Graphs of agents, the schedules that route a token over them, and the schedules' times."""

from __future__ import annotations

from unweave.graph import builders as graphs
from unweave.graph.parts import Disconnected
from unweave.graph.reading import as_topology, match
from unweave.graph.schedules import (
    SCHEDULES,
    SweepStep,
    first_agent,
    metropolis_next,
    route_key,
    seek_next,
    sweep_next,
    sweep_order,
    sweep_walk,
)
from unweave.graph.topology import Topology

__all__ = [
    "SCHEDULES",
    "Disconnected",
    "SweepStep",
    "Topology",
    "as_topology",
    "first_agent",
    "graphs",
    "match",
    "metropolis_next",
    "route_key",
    "seek_next",
    "sweep_next",
    "sweep_order",
    "sweep_walk",
]
