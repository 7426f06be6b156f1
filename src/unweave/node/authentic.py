"""Records keep their authors' signatures wherever they travel: each new one is checked once."""

from __future__ import annotations

from collections.abc import Iterable

from unweave.errors import WireError
from unweave.node.envelope import Verify
from unweave.protocol.messages import Gossip, Hello, Message, Pass, Share, Welcome
from unweave.protocol.records import Intent, Record, Tombstone, pae
from unweave.protocol.state import State
from unweave.protocol.terms import Terms

__all__ = ["check_records"]


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
