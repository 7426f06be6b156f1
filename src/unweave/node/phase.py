"""What an agent is doing, in one word."""

from __future__ import annotations

from unweave.protocol.state import Hold, Out, Parked, State

__all__ = ["phase"]


def phase(s: State | None) -> str:
    """For status, health and logs."""
    if s is None:
        return "starting"
    if s.halted:
        return "halted"
    if s.tomb.left:
        return "left"
    if not s.synced:
        return "quarantine"
    if isinstance(s.role, Hold):
        return "solving" if s.pending else "holding"
    if isinstance(s.role, Out):
        return "sending"
    if isinstance(s.role, Parked):
        return "resting"
    return "idle"
