"""The terms of a network in memory: what its agents would agree on in a manifest."""

from __future__ import annotations

import hashlib
import json
from typing import Literal

from unweave.errors import ConfigError
from unweave.graph import Topology
from unweave.models import Model
from unweave.protocol.terms import Terms

__all__ = ["Forgetting", "Schedule", "terms_of"]

Schedule = Literal["metropolis", "sweep"]
Forgetting = Literal["seek", "walk"]


def terms_of(
    model: Model, graph: Topology, schedule: Schedule, forget: Forgetting, seed: int
) -> Terms:
    """Terms under which every visit solves and nothing rests: somebody asks for every step."""
    if schedule not in ("metropolis", "sweep"):
        raise ConfigError(f'schedule = {schedule!r}: choose "metropolis" or "sweep"')
    if forget not in ("seek", "walk"):
        raise ConfigError(f'forget = {forget!r}: choose "seek" or "walk"')
    return Terms(
        run=_run_id(model, graph, schedule, seed),
        topology=graph,
        grid=model.grid,
        eta0=model.eta0,
        seed=seed,
        conjugate=model.conjugate,
        schedule=schedule,
        forget=forget,
        attest="sweep",
        solve="visit",
        rest=False,
    )


def _run_id(model: Model, graph: Topology, schedule: str, seed: int) -> bytes:
    """Names this network: a digest of everything its agents agree on."""
    what = {
        "model": model.name,
        "settings": model.settings(),
        "agents": graph.agents,
        "edges": graph.edges,
        "schedule": schedule,
        "seed": seed,
    }
    return hashlib.sha256(json.dumps(what, sort_keys=True, default=str).encode()).digest()
