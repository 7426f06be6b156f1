"""How many values an agent has given, by its own signature (rule 22).

The ledger of an agent counts them, but a ledger that was restored from a backup has forgotten the
last ones. So every enrolment states the number, the neighbours of an agent remember the largest
one, and an agent that starts hears it again: it takes the largest number that it has signed for its
own. A value leaves an agent on a token, whose first receiver is a neighbour. So an agent makes no
key before every neighbour has answered it: one that is silent may alone know of a value.

A neighbour that remembers no enrolment of the agent cannot vouch for the number: it has seen none,
or has lost its disk, too. A restored disk remembers for others no more (`forget_given`), because it
would vouch for what was given after its backup. An agent without a memory begins one with what a
running process has signed: tokens on restored disks show older numbers.
"""

from __future__ import annotations

from unweave.protocol.messages import Welcome
from unweave.protocol.state import State
from unweave.protocol.statements import Enrolment
from unweave.protocol.token import Token

__all__ = ["awaits_counts", "count_welcome", "forget_given", "is_vouched", "remember_given"]


def remember_given(s: State, token: Token) -> None:
    """Count the own values, and remember what the neighbours have signed, by this token."""
    for keys in (token.masked.keys, token.masked.spare):
        if s.me in keys:
            _count(s, keys[s.me])
        for n in s.neighbours:
            known, heard = s.known.enrolments.get(n), keys.get(n)
            if heard is None:
                continue
            running = s.peers.alone or s.peers.incarnations.get(n) == heard.incarnation
            if running if known is None else heard.given > known.given:
                s.known.enrolments = {**s.known.enrolments, n: heard}


def count_welcome(s: State, sender: int, message: Welcome) -> None:
    """Count the own values by what a neighbour remembers of them; it was asked by this process."""
    s.peers.counted |= {sender}
    if message.enrolment is not None and message.enrolment.author == s.me:
        s.peers.vouched |= {sender}
        _count(s, message.enrolment)


def _count(s: State, mine: Enrolment) -> None:
    s.own.counter = max(s.own.counter, mine.given)


def awaits_counts(s: State) -> bool:
    """Whether a neighbour has not told this process yet what it remembers."""
    return s.terms.noise is not None and not _by_all(s, s.peers.counted)


def is_vouched(s: State) -> bool:
    """Whether every neighbour remembers how many values this agent has given."""
    return _by_all(s, s.peers.vouched)


def _by_all(s: State, answered: frozenset[int]) -> bool:
    # Without quarantine no agent has had another process, so none has forgotten anything.
    return s.peers.alone or all(n in answered for n in s.neighbours if n not in s.departed)


def forget_given(state: State) -> State:
    """The state of a disk that is restored: it vouches for no neighbour."""
    s = state.fork()
    s.known.enrolments = {}
    return s
