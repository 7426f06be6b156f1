"""The terms of a network in one process, from a user's settings."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, get_args

from unweave.arguments import is_whole, shown
from unweave.errors import ConfigError
from unweave.graph import Topology
from unweave.manifest.errors import read_privacy
from unweave.manifest.privacy import Mode, PrivacyEntry, RoundTerms
from unweave.models import Model
from unweave.privacy.terms import PrivacyTerms
from unweave.protocol.terms import Terms

if TYPE_CHECKING:
    from unweave.privacy.mechanism import Mechanism

__all__ = ["Forgetting", "Schedule", "Solving", "privacy_of", "terms_of"]


Schedule = Literal["metropolis", "sweep"]
Forgetting = Literal["seek", "walk"]
Solving = Literal["pass", "visit"]


def privacy_of(chosen: Any, agents: int) -> PrivacyEntry:
    if isinstance(chosen, PrivacyTerms):
        return PrivacyEntry.of(chosen).resolved(agents)
    if isinstance(chosen, Mapping):
        values = {key: _listed(value) for key, value in chosen.items()}
        return read_privacy(values, agents, "privacy")
    if chosen not in get_args(Mode):
        raise ConfigError(
            f'privacy = {shown(chosen)}: unknown. Fix: choose "plain" or "masked", or give the '
            "settings of [privacy] in a dictionary"
        )
    return PrivacyEntry(mode=chosen).resolved(agents)


def _listed(value: Any) -> Any:
    """The bounds of a column may be a tuple, and whole numbers."""
    if not isinstance(value, Mapping):
        return value
    return {
        key: [float(v) if is_whole(v) else v for v in one] if isinstance(one, Sequence) else one
        for key, one in value.items()
    }


def terms_of(
    model: Model,
    graph: Topology,
    *,
    schedule: Schedule,
    forget: Forgetting,
    solve: Solving,
    seed: int,
    privacy: PrivacyEntry,
    mechanism: Mechanism | None,
) -> Terms:
    """Terms without parking: the caller requests every step. Private rounds end by themselves."""
    for setting, given, known in (
        ("schedule", schedule, get_args(Schedule)),
        ("solve", solve, get_args(Solving)),
        ("forget", forget, get_args(Forgetting)),
    ):
        if given not in known:
            choices = " or ".join(f'"{one}"' for one in known)
            raise ConfigError(f"{setting} = {given!r}: unknown. Fix: choose {choices}")
    if privacy.masked and solve == "visit":
        raise ConfigError(
            'solve = "visit" and privacy = "masked": in a private round an agent gives one value. '
            'Fix: solve = "pass"'
        )
    return Terms(
        network_id=_network_id(model, graph, schedule, seed, privacy),
        topology=graph,
        grid=model.grid,
        frozen=model.frozen_grid,
        eta0=model.eta0,
        seed=seed,
        conjugate=model.conjugate,
        settles=model.settles,
        schedule=schedule,
        forget=forget,
        attest="sweep",
        solve=solve,
        max_passes=sys.maxsize,  # the caller decides when to stop
        parks=privacy.masked,
        checked=False,
        **vars(RoundTerms.of(privacy, model, mechanism)),
    )


def _network_id(
    model: Model, graph: Topology, schedule: str, seed: int, privacy: PrivacyEntry
) -> bytes:
    """A digest of everything that the agents agree on."""
    terms = {
        "model": model.name,
        "settings": model.settings(),
        "agents": graph.agents,
        "edges": graph.edges,
        "schedule": schedule,
        "seed": seed,
    } | ({"privacy": privacy.model_dump()} if privacy.masked else {})
    return hashlib.sha256(json.dumps(terms, sort_keys=True, default=str).encode()).digest()
