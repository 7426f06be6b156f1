"""Records keep their authors' signatures wherever they travel: each new one is checked once."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from unweave.errors import NotACertificate, NotCertified, WireError
from unweave.node.envelope import Verify
from unweave.protocol.certificate import PAYLOAD_TYPE, record_envelope
from unweave.protocol.evidence import read_tombstone, read_vote
from unweave.protocol.ids import members
from unweave.protocol.messages import Gossip, Hello, Message, Pass, Share, Welcome
from unweave.protocol.records import Intent, Record, Tombstone, Vote, pae
from unweave.protocol.state import State
from unweave.protocol.strict import Node
from unweave.protocol.terms import Terms

__all__ = ["check_attestations", "check_records"]


def check_records(message: Message, state: State | None, terms: Terms, verify: Verify) -> None:
    """Every record in `message` that is news to `state` must be its author's own word."""
    if not isinstance(message, Hello | Welcome | Share | Pass) or message.gossip is None:
        return
    for record in _news(message.gossip, state):
        if record.body.get("run") != terms.run.hex():
            raise WireError(f"a record of another network, by {terms.name(record.author)}")
        if isinstance(record, Tombstone | Intent) and record.agent != record.author:
            raise WireError(
                f"{terms.name(record.author)} speaks for {terms.name(record.agent)}: only the "
                "owner may erase"
            )
        if not verify(record.author, pae(record.kind, record.raw), record.signature):
            raise WireError(f"a record with a signature that is not {terms.name(record.author)}'s")
        _check_provable(record, terms, verify)


def _check_provable(record: Record, terms: Terms, verify: Verify) -> None:
    """What ends up in certificates is held to the same rules here as by those who verify them, or
    one bad record would spoil every later certificate."""
    try:
        if isinstance(record, Tombstone):
            read_tombstone(Node(record_envelope(terms, record), "tombstone"), terms, verify)
        elif isinstance(record, Vote):
            read_vote(Node(record_envelope(terms, record), "vote"), terms, verify)
    except (NotCertified, NotACertificate) as error:
        raise WireError(f"a record that could never be proved: {error}") from None


def check_attestations(
    message: Message, known: dict[tuple[int, bytes], bytes], terms: Terms, verify: Verify
) -> None:
    """A false signature in the quiet group would make a certificate that nobody believes. `known`
    remembers the signatures that hold, so that each is checked once per cover."""
    if not isinstance(message, Pass):
        return
    quiet = message.token.quiet
    if not quiet.agents:
        return
    if set(quiet.signatures) != set(members(quiet.agents)):
        raise WireError("the attestations are not those of the agents that are said to attest")
    signed = pae(PAYLOAD_TYPE, quiet.statement)
    name = hashlib.sha256(signed).digest()
    for agent, signature in quiet.signatures.items():
        if known.get((agent, name)) == signature:
            continue
        if not verify(agent, signed, signature):
            raise WireError(f"an attestation that {terms.name(agent)} did not sign")
        if len(known) > 4 * terms.size:
            known.clear()
        known[agent, name] = signature


def _news(gossip: Gossip, state: State | None) -> Iterable[Record]:
    known = state
    for request, tombstone in gossip.tombstones.items():
        if known is None or known.tombstones.get(request) != tombstone:
            yield tombstone
    for request, intent in gossip.intents.items():
        if known is None or known.intents.get(request) != intent:
            yield intent
    for key, vote in gossip.votes.items():
        if known is None or known.votes.get(key) != vote:
            yield vote
    for agent, figure in gossip.figures.items():
        if known is None or known.figures.get(agent) != figure:
            yield figure
    for halt in gossip.halts:
        if known is None or halt not in known.halts:
            yield halt
