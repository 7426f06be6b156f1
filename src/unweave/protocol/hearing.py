"""What an agent does with what it hears: stamps first, then tombstones (rules 2 and 3)."""

from __future__ import annotations

from unweave.protocol.epochs import drop_role, rebuild
from unweave.protocol.events import Detach
from unweave.protocol.ids import FAR, Stamp
from unweave.protocol.state import State
from unweave.protocol.tombs import NOTHING, Tomb, Tombs, dead, join
from unweave.protocol.turn import Turn

__all__ = ["compact", "hear", "learn", "recheck", "settled", "unresolved"]


def hear(s: State, stamp: Stamp) -> None:
    """Rule 2: raise the fence; a token with a smaller stamp has been superseded."""
    if stamp > s.fence and stamp.epoch - s.fence.epoch < FAR:
        s.fence = stamp
        token = s.token
        if s.synced and token is not None and token.stamp < stamp:
            drop_role(s)


def learn(s: State, turn: Turn, tombs: Tombs, generation: frozenset[bytes]) -> None:
    """Rule 3: union; whatever the new tombstones forbid is wiped in the same transaction."""
    mine = s.tomb
    joined = join(s.tombs, tombs)
    if joined is s.tombs and generation <= s.generation:
        return
    s.tombs = joined
    s.generation |= generation
    s.gossip = None
    compact(s)
    if s.tomb != mine:
        forget_own(s, turn, mine)
    if not all(s.generation <= factor.generation for factor in s.factors):
        s.factors = tuple(f for f in s.factors if s.generation <= f.generation)
        s.solved_for = b""
        s.pending, s.memo = None, {}
    done = [request for request, i in s.intents.items() if settled(s, i.agent, request)]
    if done:
        s.intents = {request: i for request, i in s.intents.items() if request not in done}
    if s.copy is not None and dead(s.copy, s.tombs, s.generation):
        s.copy = None
    if s.synced:
        recheck(s, turn)


def compact(s: State) -> None:
    """The evidence of what was put away is kept no longer."""
    filed = [r for r, t in s.tombstones.items() if r in s.tombs.get(t.agent, NOTHING).filed]
    if filed:
        s.tombstones = {r: t for r, t in s.tombstones.items() if r not in filed}
    if not s.proved.isdisjoint(s.tomb.filed):
        s.proved -= s.tomb.filed


def forget_own(s: State, turn: Turn, before: Tomb) -> None:
    """An erasure of this agent that its own disk does not remember: a backup was restored. The rows
    go again, and every factor that was computed from them."""
    if s.tomb.ids != before.ids or s.tomb.whole != before.whole:
        s.factors = ()
        s.rows += 1
        s.solved_for = b""
        s.pending, s.memo = None, {}
        s.detached = s.detached or s.tomb.whole
        turn.do(Detach(s.detached))


def settled(s: State, agent: int, request: bytes) -> bool:
    """Whether this request was carried out already, or overtaken by the end of its agent."""
    tomb = s.tombs.get(agent)
    return tomb is not None and (tomb.out or request in tomb.ids)


def recheck(s: State, turn: Turn) -> None:
    """Is the token this agent is responsible for still alive? Nobody purges one silently."""
    if s.tomb.left or s.halted:
        drop_role(s)
        return
    token = s.token
    if token is None:
        return
    if token.stamp < s.fence:
        drop_role(s)
    elif dead(token, s.tombs, s.generation):
        rebuild(s, turn, "the token included what a tombstone forbids")


def unresolved(s: State) -> bool:
    """Whether an own erasure is known by id only: which rows it covers is still to arrive."""
    tomb = s.tomb
    return not tomb.out and bool(tomb.ids) and not tomb.open <= s.tombstones.keys()
