"""A model's settings in short form: one number of bits if it determines those of all components."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unweave.models import Model

__all__ = ["brief_settings"]


def brief_settings(model: Model) -> dict[str, Any]:
    """`model.settings()`, with the bits of the grid as one number if it determines them.

    With one number per component, a model of two million components would have a manifest of
    several megabytes in every agent's folder.
    """
    settings = model.settings()
    bits = settings["bits"]
    if len(set(bits)) == 1 or model.uniform_bits(max(bits)) == tuple(bits):
        settings["bits"] = max(bits)
    return settings
