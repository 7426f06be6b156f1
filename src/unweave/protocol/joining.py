"""How an agent takes in what a neighbour knows: the join, part by part."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from unweave.protocol.archive import keep_certificate
from unweave.protocol.chapters import Chapter, tombs_of
from unweave.protocol.events import Detach
from unweave.protocol.hearing import hear, learn, settled
from unweave.protocol.messages import Erasures, Gossip, News, Rest
from unweave.protocol.records import Figure, Intent, Tombstone
from unweave.protocol.state import State
from unweave.protocol.tombs import NOTHING, Tomb, Tombs
from unweave.protocol.turn import Turn

__all__ = ["elect", "listen", "stamps"]


def stamps(s: State, heard: Gossip) -> None:
    """Hear every stamp in it: stamps are compared before tombstones are learned."""
    if heard.rest is not None:
        hear(s, heard.rest.stamp)
    if heard.news is not None:
        hear(s, heard.news.wake)


def listen(s: State, turn: Turn, heard: Gossip) -> None:
    """Join what a neighbour knows. Stamps were compared before this, tombstones come first."""
    if s.gossip is not None and heard.digests == s.gossip.digests:
        return
    stamps(s, heard)
    if heard.chapters is not None:
        _take_chapters(s, turn, heard.chapters)
    if heard.erasures is not None:
        _take_erasures(s, turn, heard.erasures)
    if heard.news is not None:
        _take_intents(s, heard.news.intents.values())
    if heard.rest is not None and _supersedes_rest(heard.rest, s.rest):
        s.rest = heard.rest
        s.gossip = None
        keep_certificate(s, turn)
    if heard.news is not None:
        _take_news(s, heard.news)


def _supersedes_rest(rest: Rest, known: Rest | None) -> bool:
    """The larger stamp; at the same one the rest that brings its certificate."""
    if known is None or rest.stamp != known.stamp:
        return known is None or rest.stamp > known.stamp
    return bool(rest.certificate) and not known.certificate


def _take_chapters(s: State, turn: Turn, chapters: Mapping[bytes, Chapter]) -> None:
    """Erasures that were put away: their ids are learned like any others, their evidence goes. A
    chapter that says less than another one is not kept, whichever came first."""
    new = {
        name: chapter
        for name, chapter in chapters.items()
        if name not in s.chapters and _says_more(chapter, s)
    }
    if not new:
        return
    said = {**s.chapters, **new}
    s.chapters = {name: c for name, c in said.items() if not _taken_up(c, new.values())}
    s.gossip = None
    own = (chapter.rows for chapter in new.values() if chapter.agent == s.me)
    _drop_rows_again(s, turn, frozenset().union(*own))
    generation = frozenset().union(*(chapter.generation for chapter in new.values()))
    again = [t for t in s.tombstones.values() if t.agent == s.me and t.retrain]
    learn(s, turn, tombs_of(new.values()), generation)
    again = [t for t in again if t.request in s.tomb.filed - generation]
    if again:
        # A restored owner carried out again what was put away, and asked for retraining this time:
        # the records go, and the generation needs its word.
        chapter = Chapter.put_away(s.me, turn.sign, s.terms.run, again)
        s.chapters = {**s.chapters, chapter.name: chapter}
        s.gossip = None


def _says_more(chapter: Chapter, s: State) -> bool:
    """Whether it has something that was not put away, or not with that generation, or takes up a
    shorter one."""
    if not chapter.ids <= s.tombs.get(chapter.agent, NOTHING).filed:
        return True
    known = [c for c in s.chapters.values() if c.agent == chapter.agent]
    generation = frozenset().union(*(c.generation for c in known))
    return not chapter.generation <= generation or any(_taken_up(c, [chapter]) for c in known)


def _taken_up(chapter: Chapter, others: Iterable[Chapter]) -> bool:
    return any(
        c.agent == chapter.agent and chapter.ids < c.ids and chapter.generation <= c.generation
        for c in others
    )


def _take_erasures(s: State, turn: Turn, heard: Erasures) -> None:
    records = {
        request: record
        for request, record in heard.tombstones.items()
        if request not in s.tombs.get(record.agent, NOTHING).filed
        and _supersedes(record, s.tombstones.get(request))
    }
    votes = {key: vote for key, vote in heard.votes.items() if key not in s.votes}
    if records:
        s.tombstones = {**s.tombstones, **records}
        s.gossip = None
        own = (record.rows for record in records.values() if record.agent == s.me)
        _drop_rows_again(s, turn, frozenset().union(*own))
    if votes:
        s.votes = {**s.votes, **votes}
        s.gossip = None
    learn(s, turn, heard.tombs, heard.generation)
    elect(s, turn)


def _supersedes(record: Tombstone, known: Tombstone | None) -> bool:
    """Two records of one request come from an owner that was restored and removed its rows again;
    everybody keeps the same one: that which asks for more, then the larger bytes."""
    if known is None:
        return True
    return (record.retrain, record.whole, record.raw) > (known.retrain, known.whole, known.raw)


def _drop_rows_again(s: State, turn: Turn, rows: frozenset[bytes]) -> None:
    """Rows of an own erasure that this disk does not remember must go again."""
    if not rows <= s.dropped:
        s.dropped |= rows
        s.rows += 1
        s.pending, s.memo = None, {}
        turn.do(Detach(False))


def elect(s: State, turn: Turn) -> None:
    """Rule 13: a majority of the original manifest declares an agent gone."""
    count: dict[int, int] = {}
    for target, _ in s.votes:
        count[target] = count.get(target, 0) + 1
    gone: Tombs = {k: Tomb(left=True) for k, votes in count.items() if votes >= s.terms.quorum}
    learn(s, turn, gone, frozenset())


def _take_intents(s: State, intents: Iterable[Intent]) -> None:
    for intent in intents:
        if intent.request in s.intents or settled(s, intent.agent, intent.request):
            continue
        s.intents = {**s.intents, intent.request: intent}
        s.gossip = None
        if intent.agent == s.me and not intent.rows <= s.dropped:
            s.dropped |= intent.rows
            s.rows += 1


def _take_news(s: State, heard: News) -> None:
    if not heard.halts <= s.halts:
        s.halts |= heard.halts
        s.gossip = None
    figures = {k: f for k, f in heard.figures.items() if _is_newer(f, s.figures.get(k))}
    if figures:
        s.figures = {**s.figures, **figures}
        s.gossip = None
    if heard.wake > s.wake:
        s.wake = heard.wake
        s.gossip = None


def _is_newer(figure: Figure, known: Figure | None) -> bool:
    return known is None or (figure.stamp, figure.raw) > (known.stamp, known.raw)
