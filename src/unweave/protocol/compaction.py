"""Which agents keep a certificate, and when its evidence is compacted.

A certificate is part of the park notice until the token is parked again. An agent that asked for
one of its erasures keeps it for good (`KeepCertificate`). When the evidence of open erasures is
long, every agent compacts its own proved erasures: one `CompactedErasures` statement replaces their
signed evidence at all agents. Until then every new certificate proves them again.
"""

from __future__ import annotations

from unweave.protocol.events import CertificateKept, KeepCertificate
from unweave.protocol.state import State, Turn
from unweave.protocol.statements import CompactedErasure, CompactedErasures, Tombstone
from unweave.protocol.token import NOTHING, Tomb, entomb

__all__ = ["compact", "keep_certificate", "on_kept"]


_LONG = 1 << 18  # bytes


def keep_certificate(s: State, turn: Turn) -> None:
    """Keep the park notice's certificate if it proves a request of this agent that no kept
    certificate proves."""
    parked = s.token.parked
    if parked is None or not parked.certificate:
        return
    asked = parked.tombs.get(s.me, NOTHING).open & s.known.tombstones.keys()
    asked |= {r for target, r in _voted(s) if parked.tombs.get(target, NOTHING).departed}
    if not asked <= s.known.proved:
        turn.do(KeepCertificate(parked.certificate))
    compact_own(s, turn)


def on_kept(s: State, turn: Turn, event: CertificateKept) -> None:
    """A request is proved once its certificate is on the disk."""
    asked = s.tomb.open | {request for _, request in _voted(s)}
    if not event.requests & asked <= s.known.proved:
        s.known.proved |= event.requests & asked
        compact_own(s, turn)


def _voted(s: State) -> list[tuple[int, bytes]]:
    return [(target, vote.request) for (target, me), vote in s.known.votes.items() if me == s.me]


def compact_own(s: State, turn: Turn) -> None:
    """Compact the agent's proved erasures if the evidence is long. The new statement replaces the
    agent's earlier short ones, so that there are never many short ones."""
    own = s.known.proved & s.known.tombstones.keys() & s.tomb.open
    if not own or s.tomb.departed or not is_long(s):
        return
    short = {
        name: compacted
        for name, compacted in s.known.compacted.items()
        if compacted.agent == s.me
        and len(compacted.erasures) < s.terms.compact_after
        and len(compacted.raw) < _LONG
    }
    entries: dict[bytes, Tombstone | CompactedErasure] = {}
    for entry in (entry for compacted in short.values() for entry in compacted.erasures):
        if entry.retrain or entry.request not in entries:
            entries[entry.request] = entry
    entries |= {request: s.known.tombstones[request] for request in own}
    merged = CompactedErasures.write_all(s.me, turn.sign, s.terms.network_id, entries.values())
    kept = {name: c for name, c in s.known.compacted.items() if name not in short}
    s.known.compacted = {**kept, merged.name: merged}
    s.known.tombs = entomb(s.known.tombs, s.me, Tomb(compacted=own))
    s.known.gossip = None
    compact(s)


def is_long(s: State) -> bool:
    """Whether the evidence of open erasures is long."""
    if len(s.known.tombstones) >= s.terms.compact_after:
        return True
    return sum(len(tombstone.raw) for tombstone in s.known.tombstones.values()) >= _LONG


def compact(s: State) -> None:
    """Drop the signed evidence of compacted erasures."""
    compacted = [
        r
        for r, t in s.known.tombstones.items()
        if r in s.known.tombs.get(t.agent, NOTHING).compacted
    ]
    if compacted:
        s.known.tombstones = {r: t for r, t in s.known.tombstones.items() if r not in compacted}
    if not s.known.proved.isdisjoint(s.tomb.compacted):
        s.known.proved -= s.tomb.compacted
