"""An agent of a `Wire` that has a valid key and signs what the test wants."""

from __future__ import annotations

from typing import Any

from tests.support.wire import Wire
from unweave.persistent import NOBODY, Stack
from unweave.protocol.events import Received
from unweave.protocol.gossip import current_gossip
from unweave.protocol.messages import Gossip, Message, Pass
from unweave.protocol.statements import AuditMismatch, Opening
from unweave.protocol.steps import TokenStep, write_header
from unweave.protocol.token import NO_ROUND, Stamp, Token

__all__ = ["Liar"]


class Liar:
    """Agent `me`. Its honest core runs in the wire as before."""

    def __init__(self, wire: Wire, me: int) -> None:
        self.wire = wire
        self.me = me

    def sign(self, payload: bytes) -> bytes:
        return self.wire.signers[self.me](payload)

    def say(self, to: int, message: Message) -> None:
        self.wire.tell(to, Received(self.me, message, self.wire.now))

    def gossip(self, **parts: Any) -> Gossip:
        return current_gossip(self.wire.disks[self.me])._replace(**parts)

    def given(self) -> Pass:
        """The next token that is sent to the liar; it is not delivered yet."""
        self.wire.settle(until=lambda: bool(self.wire.find(Pass, to=self.me)))
        message = self.wire.find(Pass, to=self.me)[0].message
        assert isinstance(message, Pass)
        return message

    def handed_on(self) -> tuple[int, Pass]:
        """The token that the honest core sends on: taken from the wire, with its receiver."""
        self.wire.settle(until=lambda: bool(self.wire.find(Pass, sender=self.me)))
        flight = self.wire.find(Pass, sender=self.me)[0]
        self.wire.drop(Pass, sender=self.me)
        assert isinstance(flight.message, Pass)
        return flight.to, flight.message

    def opening(self, count: int | None = None, epoch: int | None = None) -> Opening:
        """The next opening that the liar may sign, or another."""
        s = self.wire.disks[self.me]
        known = s.known.openings.get(self.me)
        next_count = 1 + (0 if known is None else known.count)
        return Opening.write(
            self.me,
            self.sign,
            network_id=self.wire.terms.network_id.hex(),
            agent=self.me,
            count=next_count if count is None else count,
            epoch=s.token.fence.epoch + 1 if epoch is None else epoch,
            incarnation=77,
        )

    def opened(self, opening: Opening) -> Gossip:
        known = self.wire.disks[self.me].known.openings
        return self.gossip(openings={**known, self.me: opening})

    def signed(self, token: Token, step: TokenStep, gossip: Gossip | None = None) -> Pass:
        header = write_header(self.wire.terms.network_id, self.me, self.sign, token, step)
        return Pass(token, gossip, header, step)

    def reopened(self, given: Pass, **changes: Any) -> Pass:
        """A token that the liar was given once, in a new epoch of its own, with these changes."""
        opening = self.opening()
        token = given.token._replace(
            stamp=Stamp(*opening.epoch, 1, 7),
            seen=NOBODY,
            stack=Stack(),
            busy=True,
            round=NO_ROUND,
            **changes,
        )
        step = TokenStep(given.header, token.included[self.me])
        return self.signed(token, step, self.opened(opening))

    def mismatch(self, number: int) -> AuditMismatch:
        s = self.wire.disks[self.me]
        return AuditMismatch.write(
            self.me,
            self.sign,
            network_id=self.wire.terms.network_id.hex(),
            stamp=[1, 1, 1, number, 1],
            agent=self.me,
            departed=sorted(s.departed),
        )
