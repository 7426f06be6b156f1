"""Who is there? Lives of an agent, and which of them a neighbour's word belongs to (rule 1).

An agent that starts again may have lost its disk or have an old one: it has acknowledged nothing,
whatever its earlier lives have said. Lives are not ordered, and their words can arrive late. So an
acknowledgement counts only if it comes from the life that has answered the latest question; and a
word of another life is a reason to ask again.
"""

from __future__ import annotations

from unweave.protocol.gossip import current_gossip
from unweave.protocol.hearing import hear
from unweave.protocol.ids import bit
from unweave.protocol.joining import listen
from unweave.protocol.messages import Gossip, Heard, Hello, Welcome
from unweave.protocol.state import State
from unweave.protocol.turn import Turn

__all__ = ["hello", "on_heard", "on_hello", "welcomed"]


def hello(s: State, neighbour: int) -> Hello:
    """The latest question to a neighbour; repeated, it stays the same. It only names what this
    agent knows: it is repeated to neighbours that are down, and those who answer are told."""
    said = Gossip(current_gossip(s).digests)
    return Hello(s.fence, said, s.boot, s.questions.get(neighbour, 0))


def on_hello(s: State, turn: Turn, sender: int, message: Hello) -> None:
    hear(s, message.fence)
    listen(s, turn, message.gossip)
    if s.peers.get(sender) != message.boot:
        if sender in s.peers or s.claims.get(sender, message.boot) != message.boot:
            doubt(s, turn, sender)
        s.claims = {**s.claims, sender: message.boot}
    gossip = current_gossip(s)
    turn.send(sender, Welcome(s.fence, gossip, s.boot, message.boot, message.question))


def welcomed(s: State, turn: Turn, sender: int, message: Welcome) -> bool:
    """Take an answer in; whether it is the one to the latest question."""
    hear(s, message.fence)
    listen(s, turn, message.gossip)
    if (message.asker, message.question) != (s.boot, s.questions.get(sender, 0)):
        return False
    if s.peers.get(sender) != message.boot:
        if s.claims.get(sender, message.boot) != message.boot:
            doubt(s, turn, sender)  # it answered, and then another life of it said Hello, or before
            return False
        s.peers = {**s.peers, sender: message.boot}
    s.welcomed |= bit(sender)
    return True


def on_heard(s: State, turn: Turn, sender: int, message: Heard) -> None:
    hear(s, message.fence)
    if s.alone or s.peers.get(sender) == message.boot:
        s.acked = {**s.acked, sender: message.digests}
        if s.chapters and message.digests.chapters == current_gossip(s).digests.chapters:
            s.told = {**s.told, sender: s.chapters}
    elif sender in s.peers:
        doubt(s, turn, sender)


def doubt(s: State, turn: Turn, sender: int) -> None:
    """Two lives have spoken: which of them goes on? A new question; ask it until it is answered."""
    s.acked = {n: digests for n, digests in s.acked.items() if n != sender}
    s.told = {n: chapters for n, chapters in s.told.items() if n != sender}
    s.peers = {n: boot for n, boot in s.peers.items() if n != sender}
    s.claims = {n: boot for n, boot in s.claims.items() if n != sender}
    s.questions = {**s.questions, sender: s.questions.get(sender, 0) + 1}
    s.welcomed &= ~bit(sender)
    turn.send(sender, hello(s, sender))
    s.alarms = {**s.alarms, "hello": turn.now + s.terms.patience.resend}
