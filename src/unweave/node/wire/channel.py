"""Messages to and from the bytes that a transport carries.

`SecureChannel` encodes and signs what is sent. It accepts what is received only if the sender
signed it and every new statement inside holds (`protocol.admission`). The processor time of opening
a message is charged to its sender (`Transport.charge`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from unweave.errors import UnweaveError, WireError
from unweave.keys import verifier
from unweave.node.config import AgentFolder
from unweave.node.identity import Identity
from unweave.node.log import Log
from unweave.node.wire.codec import decode, encode
from unweave.node.wire.envelope import open_message, sign_message
from unweave.protocol.admission import KnownSignatures, check_message
from unweave.protocol.events import Received
from unweave.protocol.messages import Message, Pass
from unweave.protocol.ports import Transport
from unweave.protocol.state import State

__all__ = ["SecureChannel"]


_LARGE = 1 << 20  # bytes of a message that is not handled on the event loop


class SecureChannel:
    """Signs and encodes messages; opens and checks the ones that arrive."""

    def __init__(
        self, folder: AgentFolder, identity: Identity, transport: Transport, log: Log
    ) -> None:
        self._me = folder.me
        self._terms = folder.terms
        self._sign = identity.sign
        self._verify = verifier(folder.manifest.pems())
        self._transport = transport
        self._log = log
        self._counts = log.counts
        self._known = KnownSignatures(self._verify, max(1 << 14, 4 * folder.terms.size))

    async def send(self, to: int, message: Message, state: State | None) -> list[Received]:
        """One attempt; returns the answers. The protocol repeats what must arrive."""
        if isinstance(message, Pass):
            self._counts["tokens sent"] += 1
        try:
            size = message.token.eta.nbytes if isinstance(message, Pass) else 0
            replies = await self._transport.send(to, await _aside(size, self.signed, message))
        except UnweaveError as error:
            self._counts["messages lost"] += 1
            self._log.debug("not delivered", to=self._terms.name(to), why=str(error))
            return []
        answers = []
        for reply in replies:
            try:
                answer, _ = self._open(to, [reply], state)
            except WireError as error:
                self._counts["messages refused"] += 1
                sender = self._terms.name(to)
                self._log.warning("refused", sender=sender, reason="answer", why=str(error))
                continue
            answers.append(Received(to, answer, time.monotonic()))
        return answers

    async def receive(
        self, sender: int, parcel: list[bytes], state: State | None
    ) -> tuple[Received, float]:
        """The message of a neighbour and the processor time that it was charged, or a `WireError`.
        The bytes are removed from `parcel`: those of a large message are freed before its payload
        is decoded."""
        message, seconds = await _aside(len(parcel[0]), self._open, sender, parcel, state)
        self._counts["messages received"] += 1
        if isinstance(message, Pass):
            self._counts["tokens received"] += 1
        return Received(sender, message, time.monotonic()), seconds

    def signed(self, message: Message) -> bytes:
        return sign_message(encode(message, self._terms), self._me, self._sign)

    def _open(self, sender: int, parcel: list[bytes], state: State | None) -> tuple[Message, float]:
        """The message, if signature, sender, network and every new statement hold; or WireError.
        Its sender is charged either way."""
        began = time.thread_time()
        try:
            message = self._checked(sender, parcel, state)
        finally:
            self._transport.charge(sender, seconds := time.thread_time() - began)
        return message, seconds

    def _checked(self, sender: int, parcel: list[bytes], state: State | None) -> Message:
        signer, payload = open_message(parcel.pop(), self._terms, self._verify)
        if signer != sender:
            name = self._terms.name
            raise WireError(f"a message signed by {name(signer)} came from {name(sender)}")
        message = decode(payload, self._terms)
        check_message(message, state, self._terms, self._known)
        return message


async def _aside(size: int, do: Callable[..., Any], *args: Any) -> Any:
    """Sign or open a large message on a thread, so that the event loop goes on."""
    if size < _LARGE:
        return do(*args)
    return await asyncio.get_running_loop().run_in_executor(None, do, *args)
