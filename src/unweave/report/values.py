"""The form of values that a file of a run must have."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["Text", "Values", "Whole"]

Text = Annotated[str, Field(max_length=10_000)]
Whole = Annotated[int, Field(ge=0)]


class Values(BaseModel):
    """Values of a run, with exactly these types; other keys are ignored."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)
