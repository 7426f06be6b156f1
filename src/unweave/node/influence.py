"""How much the token that rests owes to this agent: one number, which agents publish."""

from __future__ import annotations

import math
import time

from unweave.models import Model
from unweave.protocol.events import Figured
from unweave.protocol.state import State
from unweave.simulate.worker import influence

__all__ = ["figure"]


def figure(model: Model, s: State) -> Figured | None:
    """This agent's influence; None if the token that rests is not known here, or is without it."""
    rest, copy = s.rest, s.copy
    if rest is None or copy is None or copy.included != rest.included:
        return None
    held = s.factor(rest.included[s.me])
    if held is None:
        return None
    value = influence(model, copy.eta, held.units)
    return Figured(value if math.isfinite(value) else None, time.monotonic())
