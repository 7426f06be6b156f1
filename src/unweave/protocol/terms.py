"""The terms of a network: what its manifest fixes, as far as the protocol is concerned."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from unweave.graph import Topology, first_agent
from unweave.grid import Grid, Ints
from unweave.persistent import Bitmap

__all__ = ["Terms", "Timeouts"]


@dataclass(frozen=True)
class Timeouts:
    """Waiting times in seconds. All are safe at any value; they only trade delay for traffic."""

    welcome: float = 2.0  # for all neighbours to answer Hello, before starting with those who did
    resend: float = 0.5  # between repetitions of the same message
    ack: float = 5.0  # for a neighbour to take the token, before going elsewhere
    alive: float = 1.0  # between signs of life
    loss: float = 15.0  # without signs of life, before the token is presumed lost; doubles


@dataclass(frozen=True, eq=False)
class Terms:
    """Everything that all agents of a network agree on.

    `solve="visit"` is the paper's rule (a cavity-dependent agent solves whenever it is scheduled);
    `"pass"` solves once per pass, against a complete token, and lets the token come to rest.
    """

    network_id: bytes
    topology: Topology
    grid: Grid
    eta0: Ints
    seed: int = 0
    conjugate: bool = True
    schedule: Literal["metropolis", "sweep"] = "sweep"
    forget: Literal["seek", "walk"] = "seek"
    attest: Literal["sweep", "walk"] = "sweep"
    solve: Literal["pass", "visit"] = "pass"
    max_passes: int = 50
    parks: bool = True  # False: the walk goes on for ever, for studies of the walk itself
    kept: int = 2  # older revisions an agent keeps beside the current one
    compact_after: int = 32  # open erasures at which agents put away what is certified
    timeouts: Timeouts = field(default_factory=Timeouts)
    keyids: tuple[str, ...] = ()  # name of each agent's pinned key; default: the agent's name

    @cached_property
    def size(self) -> int:
        return len(self.topology.agents)

    @cached_property
    def everybody(self) -> Bitmap:
        return Bitmap(range(self.size))

    def beyond(self, agents: Bitmap, but: Set[int]) -> int:
        """How many agents are neither in `agents` nor in `but`."""
        return self.size - len(agents) - sum(agent not in agents for agent in but)

    @property
    def quorum(self) -> int:
        """A majority of the original manifest; it does not shrink when agents leave."""
        return self.size // 2 + 1

    @cached_property
    def genesis(self) -> int:
        """The agent that opens epoch 1, uniform under the seed."""
        return first_agent(self.size, self.seed)

    @cached_property
    def sweep_orders(self) -> dict[int, tuple[int, ...]]:
        """Each agent's fixed order of neighbours, filled when it is first needed."""
        return {}

    @cached_property
    def attested(self) -> list[tuple[Any, ...]]:
        """The statement that was last written for a cover, after the parts of the token it is
        about. Agents of one process attest the same objects: it is written once for all of them."""
        return []

    def keyid(self, agent: int) -> str:
        return self.keyids[agent] if self.keyids else self.topology.agents[agent]

    def name(self, agent: int) -> str:
        return self.topology.agents[agent]
