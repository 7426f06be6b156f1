"""The agreed center and scale of every real column of a new network (`unweave init --scale`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from unweave.errors import ConfigError
from unweave.models.base import REGISTRY, Model
from unweave.models.grouped import Grouped
from unweave.models.scaling import Scaled, digits, proposed, proposed_noise
from unweave.operations.shares import Columns, data_ranges, shard_rows
from unweave.text import count

__all__ = ["Proposal", "chosen_scales", "known_noise", "without_units"]

Proposal = Literal["auto", "masked"]

_Rows = Callable[[], Iterator[NDArray[np.float64]]]

# Settings in the data's units: without the right scale the grid may be unable to hold them.
_IN_UNITS = ("mean", "sd", "b", "psi", "noise")


def without_units(model: str, settings: dict[str, Any]) -> dict[str, Any]:
    """The settings that determine a model's columns; the others need a known scale."""
    if model == Grouped.name and isinstance(each := settings.get("each"), Mapping):
        return {**settings, "each": without_units(str(each.get("name")), dict(each))}
    if model not in REGISTRY or not issubclass(REGISTRY[model], Scaled):
        return settings
    return {key: value for key, value in settings.items() if key not in _IN_UNITS}


def known_noise(model: Model) -> str | None:
    """The noise that the model takes as known, which the user has to confirm."""
    model = model.model if isinstance(model, Grouped) else model
    if not isinstance(model, Scaled) or not hasattr(model, "noise"):
        return None
    target, other = getattr(model, "target", "x"), "linear-regression-unknown-noise"
    noise = model.scale_of(target) if model.noise is None else model.noise
    what = "scale of Student's t" if hasattr(model, "df") else "standard deviation"
    return (
        f"noise = {digits(noise)}: the known {what} of {target!r}"
        + (" around its prediction" if hasattr(model, "target") else "")
        + ", an assumption to confirm. Set it with `unweave init --set noise=…`, or learn it with "
        + (other if hasattr(model, "target") else "normal-unknown")
    )


def chosen_scales(
    columns: Columns,
    stated: Mapping[str, Any],
    scale: Mapping[str, float],
    center: Mapping[str, float],
    ranges: Mapping[str, tuple[float, float]],
    *,
    proposal: Proposal | None,
    data: Path | None,
    agents: Sequence[str],
    split: str = "iid",
    seed: int = 0,
    with_noise: bool = False,
) -> tuple[dict[str, Any], list[str]]:
    """The `stated` settings with `scale`, `center` and `noise`, stated or proposed; and lines on
    the source of the proposals. They follow from declared `ranges`, else from the data: from their
    extremes ("auto"), or from private rounds of all agents ("masked"). A stated value is never
    replaced. `with_noise`: the network promises differential privacy."""
    model, beside = _scaled(columns.model), None
    if isinstance(columns.model, Grouped):
        each = stated.get("each", model.name)
        beside, stated = dict(stated), {"name": each} if isinstance(each, str) else dict(each)
    if ranges and proposal is None:
        raise ConfigError(
            "--range needs --scale auto or masked. Fix: add it, or give --scale COLUMN=NUMBER"
        )
    for name in ranges:
        if name not in model.columns:
            raise ConfigError(
                f"--range {name}: {model.name} has no column {name!r}. Fix: choose from "
                f"{', '.join(model.columns)}"
            )
    scales = {**(model.scale or {}), **scale}
    centers = {**(model.center or {}), **center}
    told: list[str] = []
    if proposal is not None:
        known = {**dict.fromkeys(scales), **dict.fromkeys(ranges)}
        texts = {column.name for column in model.schema if column.codes}  # 0 and 1 as they are
        open_names = [
            n for n in model.columns if n not in known and n not in texts and model.scalable(n)
        ]
        found, source, seen = _looked_up(columns, open_names, proposal, data, agents, split, seed)
        for name in open_names:
            if name not in found:
                why = "unknown" if data is None else "unknown: it has no numbers in --data"
                raise ConfigError(
                    f"--scale {proposal}: the range of column {name!r} is {why}. Fix: give "
                    f"--range {name}=LOW:HIGH, --scale {name}=NUMBER, or "
                    + ("--data" if data is None else "other data")
                )
        declared = dict.fromkeys(ranges, "the range that --range declares")
        sources = declared | dict.fromkeys(open_names, source)
        known_ranges = {**ranges, **found}
        told = _propose(model, scales, centers, known_ranges, sources) + seen
        if with_noise and found:
            told.append(
                f"{', '.join(found)}: epsilon does not cover these constants, which follow from "
                "the records without noise. Fix: --range or --scale COLUMN=NUMBER, from what is "
                "known without looking at records."
            )
        target = getattr(model, "target", "x")
        if hasattr(model, "noise") and target in known_ranges:
            stated = {"noise": proposed_noise(*known_ranges[target]), **stated}
    chosen = {**stated, "scale": scales, "center": centers}
    return (chosen if beside is None else {**beside, "each": chosen}), told


def _scaled(model: Model) -> Scaled:
    """The model whose columns have scales: that of each group, or the model itself."""
    found = model.model if isinstance(model, Grouped) else model
    if isinstance(found, Scaled):
        return found
    if all(column.whole for column in found.schema):
        raise ConfigError(
            f"--scale: {found.name} has no real columns, so it has no scale. Fix: leave it out"
        )
    raise ConfigError(
        f"--scale: {found.name} has no scales of columns: records are used in their own units, and "
        f"so are its priors. Fix: leave it out, and set the priors (`unweave models {found.name}`)"
    )


def _looked_up(
    columns: Columns,
    names: Sequence[str],
    proposal: Proposal,
    data: Path | None,
    agents: Sequence[str],
    split: str,
    seed: int,
) -> tuple[dict[str, tuple[float, float]], str, list[str]]:
    """The ranges of these columns in the data, what they are, and a line on what stays visible."""
    if not names or data is None:
        return {}, "", []
    if proposal == "auto":
        extremes = data_ranges(data, agents, columns)
        source = "its range in --data; the constants become public"
        return {name: extremes[name] for name in names if name in extremes}, source, []
    from unweave.operations.coarse import coarse_ranges

    model = _scaled(columns.model)
    with shard_rows(data, agents, columns, split, seed) as shards:
        at = [columns.model.columns.index(name) for name in names]
        chosen = {agent: _of_columns(rows, at) for agent, rows in shards.items()}
        found = coarse_ranges(chosen, names, [model.movable(n) for n in names], seed)
    seen = (
        f"{count(found.rounds, 'private round')} of {len(agents)} agents showed how many of all "
        f"{found.records:,} records are in each power of ten, and in sixteenths of the range from "
        "the 1st to the 99th percentile; no agent's own counts or range."
    )
    return found.ranges, "private rounds of coarse counts", [seen]


def _of_columns(rows: _Rows, columns: list[int]) -> _Rows:
    def chosen() -> Iterator[NDArray[np.float64]]:
        return (batch[:, columns] for batch in rows())

    return chosen


def _propose(
    model: Scaled,
    scale: dict[str, float],
    center: dict[str, float],
    ranges: Mapping[str, tuple[float, float]],
    sources: Mapping[str, str],
) -> list[str]:
    """Fill in the values that are not stated; return a line on the source of each."""
    middles, widths = proposed(model, ranges)
    told = []
    for name, width in widths.items():
        if name in scale and name in center:
            continue
        scale.setdefault(name, width)
        zero = center.setdefault(name, middles.get(name, 0.0))
        about = f", center {digits(zero)}" if model.movable(name) else ""
        told.append(f"{name}: scale {digits(scale[name])}{about}, from {sources[name]}.")
    return told
