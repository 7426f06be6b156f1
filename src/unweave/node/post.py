"""Messages on their way: signed and encoded, or opened and checked before they count."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from unweave.errors import UnweaveError, WireError
from unweave.node.authentic import check_attestations, check_records, check_rest
from unweave.node.codec import decode, encode
from unweave.node.config import AgentFolder
from unweave.node.envelope import seal, unseal
from unweave.node.identity import Identity, verifier
from unweave.node.log import Log
from unweave.protocol.events import Received
from unweave.protocol.messages import Message, Pass
from unweave.protocol.state import State

__all__ = ["Deliver", "Post", "Transport"]

_LARGE = 1 << 20  # bytes of a message that is not handled on the event loop

Deliver = Callable[[int, bytes], Awaitable[list[bytes]]]


class Transport(Protocol):
    """Carries sealed messages between neighbours; both ends know who the other one is."""

    async def start(self, deliver: Deliver) -> None: ...
    async def send(self, to: int, data: bytes) -> list[bytes]: ...
    async def stop(self) -> None: ...
    @property
    def refusals(self) -> Counter[tuple[str, str]]: ...  # by (neighbour or "unknown", reason)


class Post:
    """Between messages and the bytes that a transport carries."""

    def __init__(
        self,
        folder: AgentFolder,
        identity: Identity,
        transport: Transport,
        log: Log,
        counts: Counter[str],
    ) -> None:
        self._me = folder.me
        self._terms = folder.terms
        self._sign = identity.sign
        self._verify = verifier(folder.manifest.pems())
        self._transport = transport
        self._log = log
        self._counts = counts
        self._attested: dict[tuple[int, bytes], bytes] = {}  # signatures that hold

    async def send(self, to: int, message: Message, state: State | None) -> list[Received]:
        """One attempt, and the answers to it. What matters is repeated by the protocol."""
        if isinstance(message, Pass):
            self._counts["tokens sent"] += 1
        try:
            size = message.token.eta.nbytes if isinstance(message, Pass) else 0
            replies = await self._transport.send(to, await _aside(size, self.seal, message))
        except UnweaveError as error:
            self._counts["messages lost"] += 1
            self._log.debug("not delivered", to=self._terms.name(to), why=str(error))
            return []
        answers = []
        for reply in replies:
            try:
                answer = self._open(to, [reply], state)
            except WireError as error:
                self._counts["messages refused"] += 1
                self._log.warning("refused", sender=self._terms.name(to), why=str(error))
                continue
            answers.append(Received(to, answer, time.monotonic()))
        return answers

    async def receive(self, sender: int, parcel: list[bytes], state: State | None) -> Received:
        """What a neighbour sent, or a `WireError`. The bytes are taken out of the parcel: whoever
        waits for a large message does not hold on to them."""
        message = await _aside(len(parcel[0]), self._open, sender, parcel, state)
        self._counts["messages received"] += 1
        if isinstance(message, Pass):
            self._counts["tokens received"] += 1
        return Received(sender, message, time.monotonic())

    def seal(self, message: Message) -> bytes:
        return seal(encode(message, self._terms), self._me, self._sign)

    def _open(self, sender: int, parcel: list[bytes], state: State | None) -> Message:
        """Signature, sender, network and every signed record inside: checked before it counts."""
        signer, payload = unseal(parcel.pop(), self._terms, self._verify)
        if signer != sender:
            name = self._terms.name
            raise WireError(f"a message signed by {name(signer)} came from {name(sender)}")
        message = decode(payload, self._terms)
        check_records(message, state, self._terms, self._verify)
        check_rest(message, state, self._terms, self._verify)
        check_attestations(message, self._attested, self._terms, self._verify)
        return message


async def _aside(size: int, do: Callable[..., Any], *args: Any) -> Any:
    """Sealing and opening a large token takes a while: the loop goes on meanwhile."""
    if size < _LARGE:
        return do(*args)
    return await asyncio.get_running_loop().run_in_executor(None, do, *args)
