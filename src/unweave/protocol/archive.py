"""Who keeps a certificate, and when the evidence behind it may go.

A certificate travels with the rest that it completes, until the next rest. Whoever asked for one of
its erasures keeps it for good: that is the driver's work (`Keep`). When enough of an agent's own
requests are proved in this way, it puts them away in a chapter, and nobody keeps or spreads their
signed evidence any longer. Until then every new certificate proves them again.
"""

from __future__ import annotations

from unweave.protocol.chapters import Chapter
from unweave.protocol.events import Keep
from unweave.protocol.hearing import compact
from unweave.protocol.state import State
from unweave.protocol.tombs import NOTHING, Tomb, entomb
from unweave.protocol.turn import Turn

__all__ = ["keep_certificate"]


def keep_certificate(s: State, turn: Turn, *, again: bool = False) -> None:
    """The rest has just become known: if it proves what was asked here, and was not proved before,
    keep its certificate. `again`: this process may have died before it was kept."""
    rest = s.rest
    if rest is None or not rest.certificate:
        return
    proves = rest.tombs.get(s.me, NOTHING).open & s.tombstones.keys()
    proves |= {
        vote.request
        for (target, voter), vote in s.votes.items()
        if voter == s.me and rest.tombs.get(target, NOTHING).left
    }
    if proves and (again or not proves <= s.proved):
        turn.do(Keep(rest.certificate))
    if not proves <= s.proved:
        s.proved |= proves
        put_away(s, turn)


def put_away(s: State, turn: Turn) -> None:
    """Write a chapter when it is full."""
    own = s.proved & s.tombstones.keys() & s.tomb.open
    if len(own) < s.terms.chapter or s.tomb.left:
        return
    records = [s.tombstones[request] for request in own]
    chapter = Chapter.put_away(s.me, turn.sign, s.terms.run, records)
    s.chapters = {**s.chapters, chapter.name: chapter}
    s.tombs = entomb(s.tombs, s.me, Tomb(filed=own))
    s.gossip = None
    compact(s)
