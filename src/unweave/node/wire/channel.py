"""Messages to and from the bytes that a transport carries.

`SecureChannel` encodes and signs what is sent. It accepts what is received only if the sender
signed it and every new statement inside holds: signed statements (`check_statements`), the
certificate of a parked token (`check_parked`), and attestations (`check_attestations`). Statements
keep their authors' signatures wherever they travel; each new one is checked once.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
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
from unweave.protocol.messages import Gossip, Hello, Message, Pass, Share, Welcome
from unweave.protocol.ports import Transport
from unweave.protocol.state import Knowledge, State
from unweave.protocol.statements import Intent, SignedStatement, Tombstone, Vote, pae
from unweave.protocol.terms import Terms

__all__ = ["SecureChannel", "check_attestations", "check_parked", "check_statements"]


_LARGE = 1 << 20  # bytes of a message that is not handled on the event loop


class SecureChannel:
    """Signs and encodes messages; opens and checks the ones that arrive."""

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
        self._attested: dict[tuple[int, bytes], bytes] = {}  # see `check_attestations`

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
                answer = self._open(to, [reply], state)
            except WireError as error:
                self._counts["messages refused"] += 1
                sender = self._terms.name(to)
                self._log.warning("refused", sender=sender, reason="answer", why=str(error))
                continue
            answers.append(Received(to, answer, time.monotonic()))
        return answers

    async def receive(self, sender: int, parcel: list[bytes], state: State | None) -> Received:
        """The message of a neighbour, or a `WireError`. The bytes are removed from `parcel`: those
        of a large message are freed before its payload is decoded."""
        message = await _aside(len(parcel[0]), self._open, sender, parcel, state)
        self._counts["messages received"] += 1
        if isinstance(message, Pass):
            self._counts["tokens received"] += 1
        return Received(sender, message, time.monotonic())

    def signed(self, message: Message) -> bytes:
        return sign_message(encode(message, self._terms), self._me, self._sign)

    def _open(self, sender: int, parcel: list[bytes], state: State | None) -> Message:
        """The message, if signature, sender, network and every new statement hold; or WireError."""
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
    """Sign or open a large message on a thread, so that the event loop goes on."""
    if size < _LARGE:
        return do(*args)
    return await asyncio.get_running_loop().run_in_executor(None, do, *args)


def check_statements(message: Message, state: State | None, terms: Terms, check: Verify) -> None:
    """Every statement in `message` that `state` does not hold must be signed by its author; so must
    the headers of the token and of the proofs."""
    if not isinstance(message, Hello | Welcome | Share | Pass):
        return
    statements = list(_headers(message)) if isinstance(message, Pass) else []
    if message.gossip is not None:
        statements += _news(message.gossip, state)
    for statement in statements:
        author = terms.name(statement.author)
        if statement.body.get("network_id") != terms.network_id.hex():
            raise WireError(f"a statement of {author} belongs to another network")
        if isinstance(statement, Tombstone | Intent) and statement.agent != statement.author:
            raise WireError(
                f"{author} asks to erase {terms.name(statement.agent)}: only the owner may erase"
            )
        if not check(statement.author, pae(statement.kind, statement.raw), statement.signature):
            raise WireError(f"a statement with a signature that is not {author}'s")
        _check_provable(statement, terms, check)


def _check_provable(statement: SignedStatement, terms: Terms, check: Verify) -> None:
    """Statements that become part of certificates are checked as `unweave verify` checks them: a
    bad one would make every later certificate invalid."""
    try:
        if isinstance(statement, Tombstone):
            envelope = record_envelope(TombstoneEnvelope, terms, statement)
            EnvelopeReader(terms, check).tombstone(envelope, "tombstone")
        elif isinstance(statement, Vote):
            vote = record_envelope(VoteEnvelope, terms, statement)
            EnvelopeReader(terms, check).vote(vote, "vote")
    except (NotCertified, NotACertificate) as error:
        raise WireError(f"a statement that no certificate can hold: {error}") from None


def check_parked(message: Message, state: State | None, terms: Terms, check: Verify) -> None:
    """The certificate of a parked token must hold, and be about that token: because of it the agent
    that requested an erasure deletes its evidence."""
    if not isinstance(message, Hello | Welcome | Share | Pass) or message.gossip is None:
        return
    parked = message.gossip.parked
    if parked is None or not parked.certificate:
        return
    known = None if state is None else state.token.parked
    if known is not None and (
        known.certificate == parked.certificate or known.stamp > parked.stamp
    ):
        return
    try:
        account = verify(parked.certificate, terms, check)
    except (NotCertified, NotACertificate) as error:
        raise WireError(f"a parked token with an invalid certificate: {error}") from None
    proved = {bytes.fromhex(erased.request) for erased in account.erasures}
    claimed = {request for tomb in parked.tombs.values() for request in tomb.open}
    departed = {terms.name(agent) for agent, tomb in parked.tombs.items() if tomb.departed}
    included = {terms.name(k) for k, revision in enumerate(parked.included) if revision.counter}
    attested = {terms.name(k) for k in parked.attested}
    if (
        account.stamp != tuple(parked.stamp)
        or not claimed <= proved
        or departed != {*account.not_attested}
        or included != {*account.included}
        or attested != {*account.attested}
        or terms.name(parked.holder) != account.closed_by
    ):
        raise WireError("a parked token with the certificate of another one")


def check_attestations(
    message: Message, known: dict[tuple[int, bytes], bytes], terms: Terms, check: Verify
) -> None:
    """A false signature in an attestation round would make an invalid certificate. `known` caches
    the signatures that hold, so that each is checked once per round."""
    if not isinstance(message, Pass):
        return
    current = message.token.round
    if not current.agents:
        return
    if set(current.signatures) != set(current.agents):
        raise WireError("the attestations are not those of the agents of the round")
    signed = pae(PAYLOAD_TYPE, current.statement)
    content = hashlib.sha256(signed).digest()
    for agent, signature in current.signatures.items():
        if known.get((agent, content)) == signature:
            continue
        if not check(agent, signed, signature):
            raise WireError(f"an attestation that {terms.name(agent)} did not sign")
        if len(known) > 4 * terms.size:
            known.clear()
        known[agent, content] = signature


def _headers(message: Pass) -> Iterator[SignedStatement]:
    if message.header is not None:
        yield message.header
    if message.step is not None and message.step.before is not None:
        yield message.step.before


def _news(gossip: Gossip, state: State | None) -> Iterable[SignedStatement]:
    """The statements that `state` does not hold, byte for byte."""
    known = Knowledge() if state is None else state.known
    compacted, erasures, news = gossip.compacted, gossip.erasures, gossip.news
    pairs: list[tuple[Mapping[Any, SignedStatement], Mapping[Any, SignedStatement]]] = []
    if compacted is not None:
        pairs.append((compacted, known.compacted))
    if erasures is not None:
        pairs.append((erasures.tombstones, known.tombstones))
        pairs.append((erasures.votes, known.votes))
    if news is not None:
        pairs.append((news.intents, known.intents))
        pairs.append((news.influences, known.influences))
        yield from news.mismatches - known.mismatches
        for liar, proof in news.proofs.items():
            if liar not in known.proofs:
                yield from _headers(proof)
    if gossip.openings is not None:
        pairs.append((gossip.openings, known.openings))
    for theirs, mine in pairs:
        yield from (one for key, one in theirs.items() if mine.get(key) != one)
