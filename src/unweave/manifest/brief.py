"""A model's settings in short form: one number if all components have the same bits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unweave.models import Model

__all__ = ["brief_settings"]


def brief_settings(model: Model) -> dict[str, Any]:
    """`model.settings()`, with the bits of the grid as one number if they are all the same.

    With one number per component, a model of two million components would have a manifest of
    several megabytes in every agent's folder.
    """
    settings = model.settings()
    if len(set(bits := settings["bits"])) == 1:
        settings["bits"] = bits[0]
    return settings
