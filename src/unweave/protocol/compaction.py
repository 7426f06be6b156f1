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
    rest = s.rest
    if rest is None or not rest.certificate:
        return
    asked = rest.tombs.get(s.me, NOTHING).open & s.tombstones.keys()
    asked |= {r for target, r in _voted(s) if rest.tombs.get(target, NOTHING).left}
    if not asked <= s.proved:
        turn.do(KeepCertificate(rest.certificate))
    compact_own(s, turn)


def on_kept(s: State, turn: Turn, event: CertificateKept) -> None:
    """Only what is on the disk may be called proved."""
    asked = s.tomb.open | {request for _, request in _voted(s)}
    if not event.requests & asked <= s.proved:
        s.proved |= event.requests & asked
        compact_own(s, turn)


def _voted(s: State) -> list[tuple[int, bytes]]:
    return [(target, vote.request) for (target, me), vote in s.votes.items() if me == s.me]


def compact_own(s: State, turn: Turn) -> None:
    """Write a chapter of what is proved, if there is much evidence about. A short chapter from
    before is taken up in it, so that there are never many short ones."""
    own = s.proved & s.tombstones.keys() & s.tomb.open
    if not own or s.tomb.left or not is_long(s):
        return
    short = {
        name: chapter
        for name, chapter in s.chapters.items()
        if chapter.agent == s.me
        and len(chapter.filed) < s.terms.chapter
        and len(chapter.raw) < _MUCH
    }
    entries: dict[bytes, Tombstone | CompactedErasure] = {}
    for entry in (entry for chapter in short.values() for entry in chapter.filed):
        if entry.retrain or entry.request not in entries:
            entries[entry.request] = entry
    entries |= {request: s.tombstones[request] for request in own}
    chapter = CompactedErasures.put_away(s.me, turn.sign, s.terms.run, entries.values())
    kept = {name: c for name, c in s.chapters.items() if name not in short}
    s.chapters = {**kept, chapter.name: chapter}
    s.tombs = entomb(s.tombs, s.me, Tomb(filed=own))
    s.gossip = None
    compact(s)


def is_long(s: State) -> bool:
    """Whether the evidence of open erasures is long."""
    if len(s.tombstones) >= s.terms.chapter:
        return True
    return sum(len(record.raw) for record in s.tombstones.values()) >= _MUCH


def compact(s: State) -> None:
    """The evidence of what was put away is kept no longer."""
    filed = [r for r, t in s.tombstones.items() if r in s.tombs.get(t.agent, NOTHING).filed]
    if filed:
        s.tombstones = {r: t for r, t in s.tombstones.items() if r not in filed}
    if not s.proved.isdisjoint(s.tomb.filed):
        s.proved -= s.tomb.filed
