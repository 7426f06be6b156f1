"""Writes the history of a network, visit by visit."""

from __future__ import annotations

from collections.abc import Sequence

from unweave.history import History, Step
from unweave.protocol.events import Effect, StaysOut
from unweave.protocol.state import State
from unweave.protocol.token import Token

__all__ = ["Recorder"]


class Recorder:
    """Watches every transition; a visit is done when a token leaves an agent, or stays for another.

    `token` is the newest token that anybody has seen.
    """

    def __init__(self, history: History, names: Sequence[str]) -> None:
        self._history = history
        self._names = names
        self.token: Token | None = None
        self.visits = 0
        self.stays_out: dict[int, str] = {}  # agent → why its factor last could not be in the token

    def after(self, agent: int, before: State, after: State, effects: Sequence[Effect]) -> None:
        if after.baulked is not before.baulked:  # else nobody was refused: this is run often
            for effect in effects:
                if isinstance(effect, StaysOut):
                    self.stays_out[agent] = effect.why
        token = after.copy
        if token is None or token is before.copy:
            return
        old = self.token
        self.token = token
        was = None if old is None else old.included[agent]
        now = token.included[agent]
        if after.tombs is not before.tombs and after.tomb.ids != before.tomb.ids:
            action = "forget"
        elif was == now:
            action = "pass"
        elif now.counter and (was is None or not was.counter):
            action = "learn"
        elif was is not None and was.counter and not now.counter:
            action = "forget"
        else:
            action = "update"
        self.visits += 1
        self._history.append(
            Step(
                self.visits,
                token.stamp.epoch,
                self._names[agent],
                action,
                token.inside.bit_count(),
                token.eta,
            )
        )
