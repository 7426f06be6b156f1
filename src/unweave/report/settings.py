"""Settings of models and networks in words."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from typing import Any

from unweave.manifest import Manifest
from unweave.models import Model
from unweave.models.base import REGISTRY
from unweave.text import clip, count

__all__ = ["model_words", "network_settings", "registered_words", "setting_words"]

_LABELS = {
    "a": "prior: first parameter (a)",
    "b": "prior: second parameter (b)",
    "alpha": "weight of the data (alpha)",
    "reduction": "records are (reduction)",
    "bits": "sums are rounded to (bits)",
    "features": "explained by (features)",
    "target": "explained quantity (target)",
    "intercept": "with an intercept",
    "sd": "prior standard deviation (sd)",
    "mean": "prior mean (mean)",
    "noise": "known noise (noise)",
    "center": "centers of columns (center)",
    "scale": "units of columns (scale)",
}
_VALUES = {("reduction", "sum"): "added", ("reduction", "mean"): "averaged"}
_LONGEST = 300  # characters of a value


def registered_words(name: str, otherwise: type | None = None) -> str:
    """The words for the model of this name; of a model of one's own, those of its class."""
    cls = REGISTRY.get(name, otherwise)
    return "" if cls is None else model_words(cls)


def model_words(cls: type) -> str:
    """The first sentence of the model's description, which states its likelihood and prior."""
    text = inspect.cleandoc(cls.__doc__ or "").split("\n\n")[0]
    return clip(re.sub(r"\s+", " ", text).replace("`", ""), _LONGEST)


def setting_words(settings: Mapping[str, Any]) -> dict[str, str]:
    return {
        _LABELS.get(key, key): clip(_VALUES.get((key, str(value)), _words(value)), _LONGEST)
        for key, value in settings.items()
        if value is not None
    }


def _words(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {_words(one)}" for key, one in value.items())
    if isinstance(value, list | tuple):
        if len(value) > 1 and len(set(map(str, value))) == 1:
            return f"{_words(value[0])} each"
        return ", ".join(map(_words, value))
    return str(value)


def network_settings(manifest: Manifest, model: Model) -> dict[str, str]:
    """How the network works, for people."""
    edges = len(manifest.topology.edges)
    found = {
        "graph": f"{count(len(manifest.topology), 'agent')}, {count(edges, 'connection')}",
        "way of the token": manifest.schedule,
        "majority for votes": f"{len(manifest.topology) // 2 + 1} agents",
    }
    if manifest.privacy.masked:
        found["fewest agents in a published sum"] = str(manifest.privacy.min_roster)
    if manifest.privacy.epsilon is not None:
        found["differential privacy"] = _words(
            {"epsilon": manifest.privacy.epsilon, "delta": manifest.privacy.delta}
        )
    if manifest.publish is not None:
        found["changes wait for others"] = (
            f"{count(manifest.publish.records, 'record')} of "
            f"{count(manifest.publish.agents, 'agent')}, at most {manifest.publish.at_most}"
        )
    if not model.conjugate:
        found["solver"] = manifest.solver.name or "default"
        found["tolerance"] = f"{manifest.solver.tol:g}"
        found["most passes"] = str(manifest.max_passes)
    if manifest.small_shards != "refuse":
        found["small shards"] = manifest.small_shards
    return found
