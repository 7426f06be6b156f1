"""`unweave init --scale`: the agreed center and scale of every real column."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unweave.cli.shares import Columns
    from unweave.models import Model
    from unweave.models.scaling import Scaled

__all__ = ["chosen_scales", "without_units"]

# Settings in the data's units: without the right scale the grid may be unable to hold them.
_IN_UNITS = ("mean", "sd", "b", "psi", "noise")


def without_units(model: str, settings: dict[str, Any]) -> dict[str, Any]:
    """The settings that determine a model's columns; the others need a known scale."""
    from unweave.models.base import REGISTRY
    from unweave.models.scaling import Scaled

    if model not in REGISTRY or not issubclass(REGISTRY[model], Scaled):
        return settings
    return {key: value for key, value in settings.items() if key not in _IN_UNITS}


def chosen_scales(
    columns: Columns,
    scales: Sequence[str],
    centers: Sequence[str],
    declared: Sequence[str],
    data: Path | None,
    agents: Sequence[str],
) -> tuple[dict[str, dict[str, float]], list[str]]:
    """The settings `scale` and `center`, stated or proposed, and a line on the source of each
    proposal. A stated value is never replaced."""
    from unweave.cli.common import pair
    from unweave.errors import ConfigError
    from unweave.models.scaling import Scaled

    model = columns.model
    auto = "auto" in scales
    if not (scales or centers or declared):
        return {}, []
    if not isinstance(model, Scaled):
        raise ConfigError(
            f"--scale: {model.name} has no real columns, so it has no scale. Fix: leave it out"
        )
    if declared and not auto:
        raise ConfigError("--range needs --scale auto. Fix: add it, or give --scale COLUMN=NUMBER")
    own = (_number(*pair(item, "--scale"), "--scale") for item in scales if item != "auto")
    scale = {**(model.scale or {}), **dict(own)}
    middle = (_number(*pair(item, "--center"), "--center") for item in centers)
    center = {**(model.center or {}), **dict(middle)}
    told: list[str] = []
    if auto:
        told = _propose(columns, model, scale, center, declared, data, agents)
    return {"scale": scale, "center": center}, told


def _propose(
    columns: Columns,
    model: Scaled,
    scale: dict[str, float],
    center: dict[str, float],
    declared: Sequence[str],
    data: Path | None,
    agents: Sequence[str],
) -> list[str]:
    """Fill in the values that are not stated; return a line on the source of each."""
    from unweave.cli.shares import data_ranges
    from unweave.errors import ConfigError
    from unweave.models.scaling import proposed

    ranges = dict(_range(item, model) for item in declared)
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


def _range(item: str, model: Model) -> tuple[str, tuple[float, float]]:
    from unweave.cli.common import pair
    from unweave.errors import ConfigError

    name, text = pair(item, "--range")
    if name not in model.columns:
        raise ConfigError(
            f"--range {item}: {model.name} has no column {name!r}. Fix: choose from "
            f"{', '.join(model.columns)}"
        )
    low, _, high = text.partition(":")
    ends = _number(name, low, "--range")[1], _number(name, high, "--range")[1]
    if not ends[0] < ends[1]:
        raise ConfigError(f"--range {item}: not a range. Fix: write COLUMN=LOW:HIGH, LOW < HIGH")
    return name, ends


def _number(name: str, text: str, option: str) -> tuple[str, float]:
    import math

    from unweave.errors import ConfigError

    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ConfigError(f"{option} {name}={text}: not a number. Fix: give a finite number")
    return name, value
