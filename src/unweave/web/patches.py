"""JSON merge patches (RFC 7396): made by `difference`, applied by `merge`, joined by `compose`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["Patch", "compose", "difference", "merge"]

Patch = dict[str, Any]


def difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> Patch:
    """The merge patch from `old` to `new`: null for what is gone, an object for what has changed
    inside one. Neither holds null itself."""
    patch: Patch = {key: None for key in old if key not in new}
    for key, value in new.items():
        before = old.get(key)
        if isinstance(value, Mapping) and isinstance(before, Mapping):
            if inner := difference(before, value):
                patch[key] = inner
        elif key not in old or before != value:
            patch[key] = value
    return patch


def merge(target: Any, patch: Mapping[str, Any]) -> dict[str, Any]:
    """`target` with a merge patch applied, in place. It shares no object with `patch`."""
    merged: dict[str, Any] = target if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, Mapping):
            merged[key] = merge(merged.get(key), value)
        else:
            merged[key] = value
    return merged


def compose(first: Mapping[str, Any], second: Mapping[str, Any]) -> Patch | None:
    """The patch that does what `first` and then `second` do; None if no single patch does: one
    cannot replace a whole object by another one."""
    both = dict(first)
    for key, value in second.items():
        if isinstance(value, Mapping) and key in first:
            before = first[key]
            inner = compose(before, value) if isinstance(before, Mapping) else None
            if inner is None:
                return None
            both[key] = inner
        else:
            both[key] = value
    return both
