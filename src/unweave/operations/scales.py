"""The agreed center and scale of every real column of a new network (`unweave init --scale`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from unweave.errors import ConfigError
from unweave.models.base import REGISTRY
from unweave.models.scaling import Scaled, proposed
from unweave.operations.shares import Columns, data_ranges

__all__ = ["chosen_scales", "without_units"]

# Settings in the data's units: without the right scale the grid may be unable to hold them.
_IN_UNITS = ("mean", "sd", "b", "psi", "noise")


def without_units(model: str, settings: dict[str, Any]) -> dict[str, Any]:
    """The settings that determine a model's columns; the others need a known scale."""
    if model not in REGISTRY or not issubclass(REGISTRY[model], Scaled):
        return settings
    return {key: value for key, value in settings.items() if key not in _IN_UNITS}


def chosen_scales(
    columns: Columns,
    scale: Mapping[str, float],
    center: Mapping[str, float],
    ranges: Mapping[str, tuple[float, float]],
    *,
    auto: bool,
    data: Path | None,
    agents: Sequence[str],
) -> tuple[dict[str, dict[str, float]], list[str]]:
    """The settings `scale` and `center`, stated or (with `auto`) proposed from declared `ranges` or
    from the data; and a line on the source of each proposal. A stated value is never replaced."""
    model = columns.model
    if not isinstance(model, Scaled):
        raise ConfigError(
            f"--scale: {model.name} has no real columns, so it has no scale. Fix: leave it out"
        )
    if ranges and not auto:
        raise ConfigError("--range needs --scale auto. Fix: add it, or give --scale COLUMN=NUMBER")
    for name in ranges:
        if name not in model.columns:
            raise ConfigError(
                f"--range {name}: {model.name} has no column {name!r}. Fix: choose from "
                f"{', '.join(model.columns)}"
            )
    scales = {**(model.scale or {}), **scale}
    centers = {**(model.center or {}), **center}
    told: list[str] = []
    if auto:
        told = _propose(columns, model, scales, centers, dict(ranges), data, agents)
    return {"scale": scales, "center": centers}, told


def _propose(
    columns: Columns,
    model: Scaled,
    scale: dict[str, float],
    center: dict[str, float],
    ranges: dict[str, tuple[float, float]],
    data: Path | None,
    agents: Sequence[str],
) -> list[str]:
    """Fill in the values that are not stated; return a line on the source of each."""
    source = dict.fromkeys(ranges, "the range that --range declares")
    open_names = [name for name in model.columns if name not in scale and name not in ranges]
    if open_names and data is not None:
        seen = data_ranges(data, agents, columns)
        ranges |= {name: seen[name] for name in open_names if name in seen}
        coarse = "the order of magnitude of its range in --data, which becomes public"
        source |= dict.fromkeys(open_names, coarse)
    for name in open_names:
        if name not in ranges:
            raise ConfigError(
                f"--scale auto: the range of column {name!r} is unknown. Fix: give "
                f"--range {name}=LOW:HIGH, --scale {name}=NUMBER, or --data"
            )
    middles, widths = proposed(model, ranges)
    told = []
    for name in ranges:
        if name in scale:
            continue
        scale[name] = widths[name]
        zero = center.setdefault(name, middles.get(name, 0.0))
        about = f", center {zero:g}" if zero else ""
        told.append(f"{name}: scale {widths[name]:g}{about}, from {source[name]}.")
    return told
