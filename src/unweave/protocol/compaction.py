"""Who keeps a certificate, and when the evidence behind it may go.

A certificate travels with the rest that it completes, until the next rest. Whoever asked for one of
its erasures keeps it for good: that is the driver's work (`Keep`). When the evidence of open
erasures has become long, every agent puts its own that are proved in this way into a chapter, and
nobody keeps or spreads their signed evidence any longer. Until then every new certificate proves
them again.
"""

from __future__ import annotations

from unweave.protocol.events import CertificateKept, KeepCertificate
from unweave.protocol.state import State, Turn
from unweave.protocol.statements import CompactedErasure, CompactedErasures, Tombstone
from unweave.protocol.token import NOTHING, Tomb, entomb

__all__ = ["compact", "keep_certificate", "on_kept"]


_MUCH = 1 << 18  # bytes


def keep_certificate(s: State, turn: Turn) -> None:
    """If the rest proves what was asked here, and no certificate of that is kept: keep this one."""
    rest = s.token.parked
    if rest is None or not rest.certificate:
        return
    asked = rest.tombs.get(s.me, NOTHING).open & s.known.tombstones.keys()
    asked |= {r for target, r in _voted(s) if rest.tombs.get(target, NOTHING).departed}
    if not asked <= s.known.proved:
        turn.do(KeepCertificate(rest.certificate))
    compact_own(s, turn)


def on_kept(s: State, turn: Turn, event: CertificateKept) -> None:
    """Only what is on the disk may be called proved."""
    asked = s.tomb.open | {request for _, request in _voted(s)}
    if not event.requests & asked <= s.known.proved:
        s.known.proved |= event.requests & asked
        compact_own(s, turn)


def _voted(s: State) -> list[tuple[int, bytes]]:
    return [(target, vote.request) for (target, me), vote in s.known.votes.items() if me == s.me]


def compact_own(s: State, turn: Turn) -> None:
    """Write a chapter of what is proved, if there is much evidence about. A short chapter from
    before is taken up in it, so that there are never many short ones."""
    own = s.known.proved & s.known.tombstones.keys() & s.tomb.open
    if not own or s.tomb.departed or not is_long(s):
        return
    short = {
        name: chapter
        for name, chapter in s.known.compacted.items()
        if chapter.agent == s.me
        and len(chapter.erasures) < s.terms.compact_after
        and len(chapter.raw) < _MUCH
    }
    entries: dict[bytes, Tombstone | CompactedErasure] = {}
    for entry in (entry for chapter in short.values() for entry in chapter.erasures):
        if entry.retrain or entry.request not in entries:
            entries[entry.request] = entry
    entries |= {request: s.known.tombstones[request] for request in own}
    chapter = CompactedErasures.write_all(s.me, turn.sign, s.terms.network_id, entries.values())
    kept = {name: c for name, c in s.known.compacted.items() if name not in short}
    s.known.compacted = {**kept, chapter.name: chapter}
    s.known.tombs = entomb(s.known.tombs, s.me, Tomb(compacted=own))
    s.known.gossip = None
    compact(s)


def is_long(s: State) -> bool:
    """Whether the evidence of open erasures is long."""
    if len(s.known.tombstones) >= s.terms.compact_after:
        return True
    return sum(len(record.raw) for record in s.known.tombstones.values()) >= _MUCH


def compact(s: State) -> None:
    """The evidence of what was put away is kept no longer."""
    filed = [
        r
        for r, t in s.known.tombstones.items()
        if r in s.known.tombs.get(t.agent, NOTHING).compacted
    ]
    if filed:
        s.known.tombstones = {r: t for r, t in s.known.tombstones.items() if r not in filed}
    if not s.known.proved.isdisjoint(s.tomb.compacted):
        s.known.proved -= s.tomb.compacted
