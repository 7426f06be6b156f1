"""How many values an agent has given, by its own signature (rule 22).

The ledger of an agent counts them, but a ledger that was restored from a backup has forgotten the
last ones. So every enrolment states the number, the neighbours of an agent remember the largest
one, and an agent that starts hears it again: it takes the largest number that it has signed for its
own. A value leaves an agent on a token, whose first receiver is a neighbour.
"""

from __future__ import annotations

from unweave.protocol.messages import Welcome
from unweave.protocol.state import State
from unweave.protocol.statements import Enrolment
from unweave.protocol.token import Token

__all__ = ["count_welcome", "remember_given"]


def remember_given(s: State, token: Token) -> None:
    """Count the own values, and remember what the neighbours have signed, by this token."""
    for keys in (token.masked.keys, token.masked.spare):
        if s.me in keys:
            _count(s, keys[s.me])
        for n in s.neighbours:
            known, heard = s.known.enrolments.get(n), keys.get(n)
            if heard is not None and (known is None or heard.given > known.given):
                s.known.enrolments = {**s.known.enrolments, n: heard}


def count_welcome(s: State, message: Welcome) -> None:
    """Count the own values by what a neighbour remembers of them."""
    if message.enrolment is not None and message.enrolment.author == s.me:
        _count(s, message.enrolment)


def _count(s: State, mine: Enrolment) -> None:
    s.own.counter = max(s.own.counter, mine.given)
