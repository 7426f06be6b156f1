"""One turn of one agent: the clock, the pen, and the effects gathered so far."""

from __future__ import annotations

from unweave.protocol.events import Effect, Send
from unweave.protocol.messages import Message
from unweave.protocol.records import Sign

__all__ = ["Turn", "unsigned"]


def unsigned(payload: bytes) -> bytes:
    """The null signer, for simulations in which nobody lies."""
    return b""


class Turn:
    """What a rule may use beside the state: the time and the agent's signature are arguments."""

    __slots__ = ("effects", "now", "sign")

    def __init__(self, now: float, sign: Sign) -> None:
        self.now = now
        self.sign = sign
        self.effects: list[Effect] = []

    def do(self, effect: Effect) -> None:
        self.effects.append(effect)

    def send(self, to: int, message: Message) -> None:
        self.effects.append(Send(to, message))
