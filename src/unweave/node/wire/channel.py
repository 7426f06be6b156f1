"""Records keep their authors' signatures wherever they travel: each new one is checked once."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from unweave.errors import NotACertificate, NotCertified, UnweaveError, WireError
from unweave.keys import verifier
from unweave.node.config import AgentFolder
from unweave.node.identity import Identity
from unweave.node.log import Log
from unweave.node.wire.codec import decode, encode
from unweave.node.wire.envelope import Verify, open_message, sign_message
from unweave.protocol.certificate.format import PAYLOAD_TYPE, TombstoneEnvelope, VoteEnvelope
from unweave.protocol.certificate.read import EnvelopeReader
from unweave.protocol.certificate.verify import verify
from unweave.protocol.certificate.write import record_envelope
from unweave.protocol.events import Received
from unweave.protocol.messages import Gossip, Hello, Message, ParkNotice, Pass, Share, Welcome
from unweave.protocol.ports import Transport
from unweave.protocol.state import State
from unweave.protocol.statements import Intent, SignedStatement, Tombstone, Vote, pae
from unweave.protocol.terms import Terms

__all__ = ["SecureChannel", "check_attestations", "check_parked", "check_statements"]


def check_statements(message: Message, state: State | None, terms: Terms, check: Verify) -> None:
    """Every record in `message` that is news to `state` must be its author's own word."""
    if not isinstance(message, Hello | Welcome | Share | Pass) or message.gossip is None:
        return
    for record in _news(message.gossip, state):
        if record.body.get("network_id") != terms.network_id.hex():
            raise WireError(f"a record of another network, by {terms.name(record.author)}")
        if isinstance(record, Tombstone | Intent) and record.agent != record.author:
            raise WireError(
                f"{terms.name(record.author)} speaks for {terms.name(record.agent)}: only the "
                "owner may erase"
            )
        if not check(record.author, pae(record.kind, record.raw), record.signature):
            raise WireError(f"a record with a signature that is not {terms.name(record.author)}'s")
        _check_provable(record, terms, check)


def _check_provable(record: SignedStatement, terms: Terms, check: Verify) -> None:
    """What ends up in certificates is held to the same rules here as by those who verify them, or
    one bad record would spoil every later certificate."""
    try:
        if isinstance(record, Tombstone):
            envelope = record_envelope(TombstoneEnvelope, terms, record)
            EnvelopeReader(terms, check).tombstone(envelope, "tombstone")
        elif isinstance(record, Vote):
            vote = record_envelope(VoteEnvelope, terms, record)
            EnvelopeReader(terms, check).vote(vote, "vote")
    except (NotCertified, NotACertificate) as error:
        raise WireError(f"a record that could never be proved: {error}") from None


def check_parked(message: Message, state: State | None, terms: Terms, check: Verify) -> None:
    """A certificate that arrives with a rest must hold, and be about that rest: by it the agent
    that asked for an erasure lets its evidence go."""
    rest = _rest_of(message)
    if rest is None or not rest.certificate:
        return
    known = None if state is None else state.token.parked
    if known is not None and (known.certificate == rest.certificate or known.stamp > rest.stamp):
        return
    try:
        account = verify(rest.certificate, terms, check)
    except (NotCertified, NotACertificate) as error:
        raise WireError(f"a rest with a certificate that does not hold: {error}") from None
    proved = {bytes.fromhex(erased.request) for erased in account.erasures}
    said = {request for tomb in rest.tombs.values() for request in tomb.open}
    left = {terms.name(agent) for agent, tomb in rest.tombs.items() if tomb.departed}
    held = {terms.name(k) for k, revision in enumerate(rest.included) if revision.counter}
    attested = {terms.name(k) for k in rest.attested}
    if (
        account.stamp != tuple(rest.stamp)
        or not said <= proved
        or left != {*account.not_attested}
        or held != {*account.included}
        or attested != {*account.attested}
        or terms.name(rest.holder) != account.closed_by
    ):
        raise WireError("a rest with a certificate that is about something else")


def _rest_of(message: Message) -> ParkNotice | None:
    if not isinstance(message, Hello | Welcome | Share | Pass) or message.gossip is None:
        return None
    return message.gossip.parked


def check_attestations(
    message: Message, known: dict[tuple[int, bytes], bytes], terms: Terms, check: Verify
) -> None:
    """A false signature in the quiet group would make a certificate that nobody believes. `known`
    remembers the signatures that hold, so that each is checked once per cover."""
    if not isinstance(message, Pass):
        return
    quiet = message.token.round
    if not quiet.agents:
        return
    if set(quiet.signatures) != set(quiet.agents):
        raise WireError("the attestations are not those of the agents that are said to attest")
    signed = pae(PAYLOAD_TYPE, quiet.statement)
    name = hashlib.sha256(signed).digest()
    for agent, signature in quiet.signatures.items():
        if known.get((agent, name)) == signature:
            continue
        if not check(agent, signed, signature):
            raise WireError(f"an attestation that {terms.name(agent)} did not sign")
        if len(known) > 4 * terms.size:
            known.clear()
        known[agent, name] = signature


def _news(gossip: Gossip, known: State | None) -> Iterable[SignedStatement]:
    """The records that `known` does not have, byte for byte."""
    chapters, erasures, news = gossip.compacted, gossip.erasures, gossip.news
    said: list[tuple[Mapping[Any, SignedStatement], Mapping[Any, SignedStatement]]] = []
    if chapters is not None:
        said.append((chapters, {} if known is None else known.known.compacted))
    if erasures is not None:
        said.append((erasures.tombstones, {} if known is None else known.known.tombstones))
        said.append((erasures.votes, {} if known is None else known.known.votes))
    if news is not None:
        said.append((news.intents, {} if known is None else known.known.intents))
        said.append((news.influences, {} if known is None else known.known.influences))
        yield from (
            halt for halt in news.mismatches if known is None or halt not in known.known.mismatches
        )
    for records, mine in said:
        yield from (record for key, record in records.items() if mine.get(key) != record)


# ------------------------------------------------------------------------------
# Messages on their way: signed and encoded, or opened and checked before they count.

_LARGE = 1 << 20  # bytes of a message that is not handled on the event loop


class SecureChannel:
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
            replies = await self._transport.send(to, await _aside(size, self.signed, message))
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

    def signed(self, message: Message) -> bytes:
        return sign_message(encode(message, self._terms), self._me, self._sign)

    def _open(self, sender: int, parcel: list[bytes], state: State | None) -> Message:
        """Signature, sender, network and every signed record inside: checked before it counts."""
        signer, payload = open_message(parcel.pop(), self._terms, self._verify)
        if signer != sender:
            name = self._terms.name
            raise WireError(f"a message signed by {name(signer)} came from {name(sender)}")
        message = decode(payload, self._terms)
        check_statements(message, state, self._terms, self._verify)
        check_parked(message, state, self._terms, self._verify)
        check_attestations(message, self._attested, self._terms, self._verify)
        return message


async def _aside(size: int, do: Callable[..., Any], *args: Any) -> Any:
    """Sealing and opening a large token takes a while: the loop goes on meanwhile."""
    if size < _LARGE:
        return do(*args)
    return await asyncio.get_running_loop().run_in_executor(None, do, *args)
