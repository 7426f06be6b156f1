"""Differences of views, as JSON merge patches (RFC 7396)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["difference"]


def difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """The merge patch from `old` to `new`: null for what is gone, an object for what has changed
    inside one. Neither holds null itself."""
    patch: dict[str, Any] = {key: None for key in old if key not in new}
    for key, value in new.items():
        before = old.get(key)
        if isinstance(value, Mapping) and isinstance(before, Mapping):
            if inner := difference(before, value):
                patch[key] = inner
        elif key not in old or before != value:
            patch[key] = value
    return patch
