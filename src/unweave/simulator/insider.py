"""A world with one agent that has a valid key and lies to its neighbours (`lies`).

Before every message is handled, `InsiderWorld` checks the signatures and the bounds that a real
agent checks when it reads the message from the network. When `lying` becomes False, only the honest
core of the liar remains.
"""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

from unweave.errors import WireError
from unweave.grid import Ints
from unweave.persistent import Bitmap
from unweave.protocol.admission import KnownSignatures, check_message
from unweave.protocol.events import Effect, Send
from unweave.protocol.messages import (
    Ack,
    Alive,
    Heard,
    Message,
    Pass,
)
from unweave.protocol.statements import (
    Sign,
)
from unweave.protocol.terms import Terms
from unweave.protocol.token import (
    PASSES,
    Stamp,
    Token,
)
from unweave.simulator.lies import Liar
from unweave.simulator.world import World

__all__ = ["InsiderWorld", "keyed_signers"]


def keyed_signers(terms: Terms) -> list[Sign]:
    """Deterministic signatures, which differ between agents. The secrets are not secret; a liar is
    given its own signer only."""

    def signer(k: int) -> Sign:
        return lambda payload: hashlib.sha256(b"%d " % k + payload).digest()[:8]

    return [signer(k) for k in range(terms.size)]


class InsiderWorld(World):
    """A world in which the agent `liar` lies while `lying`."""

    def __init__(self, *args: Any, liar: int, made: dict[bytes, Ints], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        assert self.signers is not None, "without signatures every lie would be believed"
        self.liar = liar
        self.lying = True
        self.lies = Liar(
            self.terms,
            liar,
            self.signers[liar],
            random.Random(f"lies {self.seed}"),
            state=lambda: self.state(liar),
            clock=lambda: self.now,
            made=made,  # for the checker
        )
        self.lies.choose_habits()
        self.refused: Counter[str] = Counter()  # messages of the liar that no agent reads
        self._check = KnownSignatures(self._is_signed)

    def lie(self) -> None:
        """One lie, if the liar's process runs."""
        if self.lying and self.agents[self.liar].state is not None:
            for to, message in self.lies.lie():
                super()._perform(self.liar, Send(to, message))

    def _perform(self, k: int, effect: Effect) -> None:
        if isinstance(effect, Send):
            if effect.to == self.liar and isinstance(effect.message, Pass):
                self.lies.given.append((k, effect.message))
            if self.lying and k == self.liar:
                for to, message in self.lies.distort(effect.to, effect.message):
                    super()._perform(k, Send(to, message))
                return
        super()._perform(k, effect)

    def _admits(self, k: int, sender: int, message: Message) -> bool:
        problem = _impossible_number(message, self.terms)
        if problem is None:
            try:
                check_message(message, self.state(k), self.terms, self._check)
            except WireError as error:
                problem = str(error)
        if problem is not None:
            if sender != self.liar:
                raise AssertionError(f"{self.terms.name(sender)}, which is honest, sent {problem}")
            self.refused[problem] += 1
        return problem is None

    def _is_signed(self, author: int, payload: bytes, signature: bytes) -> bool:
        assert self.signers is not None
        return self.signers[author](payload) == signature


def _impossible_number(message: Message, terms: Terms) -> str | None:
    """Why a real agent cannot decode this message."""
    if not all(stamp.is_possible for stamp in _stamps(message)):
        return "a stamp beyond the limits"
    for token in _tokens(message):
        if token.passes > PASSES or len(token.included) != terms.size:
            return "a token beyond the limits"
        if Bitmap(k for k, r in enumerate(token.included) if r.counter) != token.inside:
            return "a token that includes other agents than it says"
    return None


def _stamps(message: Message) -> Iterator[Stamp]:
    if isinstance(message, Pass | Alive):
        yield message.token.stamp if isinstance(message, Pass) else message.stamp
    else:
        yield message.fence
    gossip = None if isinstance(message, Ack | Alive | Heard) else message.gossip
    if gossip is not None and gossip.parked is not None:
        yield gossip.parked.stamp
    if gossip is not None and gossip.news is not None:
        yield gossip.news.wake


def _tokens(message: Message) -> Iterator[Token]:
    if isinstance(message, Pass):
        yield message.token
    if not isinstance(message, Ack | Alive | Heard) and message.gossip is not None:
        if message.gossip.news is not None:
            yield from (proof.token for proof in message.gossip.news.proofs.values())
