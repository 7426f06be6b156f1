"""The terms of a network: the protocol's part of its manifest."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from unweave.graph import Topology, first_agent
from unweave.grid import Grid, Ints
from unweave.persistent import Bitmap

__all__ = ["Batches", "Noise", "Terms", "Timeouts"]


@dataclass(frozen=True)
class Timeouts:
    """Waiting times in seconds. All are safe at any value; they only trade delay for traffic."""

    welcome: float = 2.0  # for all neighbours to answer Hello; then one answer is enough
    resend: float = 0.5  # between repetitions of the same message
    ack: float = 5.0  # for a neighbour to acknowledge the token, before it goes elsewhere
    alive: float = 1.0  # between heartbeats
    loss: float = 15.0  # without a heartbeat, before the token is presumed lost; doubles


@dataclass(frozen=True)
class Batches:
    """How many changes of records gather before a sum shows them (rule 21)."""

    records: int
    agents: int = 2
    period: float = 30 * 86_400.0  # seconds that a change waits at most


@dataclass(frozen=True, eq=False)
class Noise:
    """Differential privacy, as far as the protocol knows of it (rule 22)."""

    reach: Ints  # an agent's share of the noise is at most so large, per component
    statement: Mapping[str, Any]  # what a certificate states about it: JSON values


@dataclass(frozen=True, eq=False)
class Terms:
    """Everything that all agents of a network agree on.

    With `solve="visit"`, the paper's rule, a cavity-dependent agent solves at every visit. With
    `"pass"` it solves once per pass, against a complete token, so that the token can be parked.
    """

    network_id: bytes
    topology: Topology
    grid: Grid
    eta0: Ints
    seed: int = 0
    conjugate: bool = True
    settles: bool = False  # not conjugate, but a settled sum is a function of the records alone
    schedule: Literal["metropolis", "sweep"] = "sweep"
    forget: Literal["seek", "walk"] = "seek"
    attest: Literal["sweep", "walk"] = "sweep"
    solve: Literal["pass", "visit"] = "pass"
    max_passes: int = 50
    privacy: Literal["plain", "masked"] = "plain"
    min_roster: int = 3  # masked: with fewer agents in it no sum is published
    degree: int = 0  # masked: with how many others an agent shares masks; 0: with all
    first_point: bytes = b""  # masked: where learning starts
    iterates: bool = False  # masked: learning takes several rounds, each at a point of its own
    max_rounds: int = 500  # masked: after so many rounds the sum is attested, not converged
    publish: Batches | None = None  # masked: changes of records wait for others
    noise: Noise | None = None  # masked: every given value carries noise, and spends a budget
    parks: bool = True  # False: the walk never ends, for studies of the walk
    kept: int = 2  # older revisions that an agent keeps beside the current one
    compact_after: int = 32  # open erasures from which agents compact certified ones
    checked: bool = True  # False: all agents run in one memory, so none can lie (rules 17 and 18)
    timeouts: Timeouts = field(default_factory=Timeouts)
    frozen: Grid | None = None  # of the frozen vectors, if it is not the grid of eta
    keyids: tuple[str, ...] = ()  # name of each agent's pinned key; default: the agent's name

    @property
    def masked(self) -> bool:
        """Whether agents learn in private rounds (rule 20)."""
        return self.privacy == "masked"

    @property
    def freezes(self) -> bool:
        """Whether a certificate's estimate needs a vector of every agent."""
        return not self.conjugate and not self.masked

    @cached_property
    def size(self) -> int:
        return len(self.topology.agents)

    @property
    def frozen_grid(self) -> Grid:
        return self.grid if self.frozen is None else self.frozen

    @cached_property
    def everybody(self) -> Bitmap:
        return Bitmap(range(self.size))

    def beyond(self, agents: Bitmap, but: Set[int]) -> int:
        """How many agents are neither in `agents` nor in `but`."""
        return self.size - len(agents) - sum(agent not in agents for agent in but)

    @property
    def quorum(self) -> int:
        """A majority of the original manifest; it does not shrink when agents depart."""
        return self.size // 2 + 1

    @cached_property
    def genesis(self) -> int:
        """The agent that opens epoch 1, uniform under the seed."""
        return first_agent(self.size, self.seed)

    @cached_property
    def sweep_orders(self) -> dict[int, tuple[int, ...]]:
        """A cache: each agent's fixed order of neighbours."""
        return {}

    @cached_property
    def attested(self) -> list[tuple[Any, ...]]:
        """A cache: the last attestation statement, and the parts of the token that it is about.
        Agents of one process attest the same objects, so it is written once for all of them."""
        return []

    def keyid(self, agent: int) -> str:
        return self.keyids[agent] if self.keyids else self.topology.agents[agent]

    def name(self, agent: int) -> str:
        return self.topology.agents[agent]
