"""The invariants of the honest agents of a network in which one agent lies, J1 to J5."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from unweave.grid import Ints
from unweave.protocol.events import Certified, Effect, Opened
from unweave.protocol.state import Factor, State
from unweave.protocol.terms import Terms
from unweave.protocol.token import Token
from unweave.simulator.invariants.checker import Checker, Violation, departed

__all__ = ["InsiderChecker"]


_EPOCHS, _HOPS, _PASSES = 2**62, 2**40, 2**32


class InsiderChecker(Checker):
    """Checks the honest agents of a network in which the agent `liar` lies."""

    liar: int

    def __init__(
        self,
        terms: Terms,
        *args: Any,
        liar: int,
        made: dict[bytes, Ints] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(terms, *args, **kwargs)
        self.liar = liar
        self.made = {} if made is None else made  # what the liar has committed to

    def after(self, agent: int, before: State, after: State, effects: Sequence[Effect]) -> None:
        if agent == self.liar:
            self._note(before, after, effects)
            return
        super().after(agent, before, after, effects)
        if departed(after.known.tombs) - {self.liar}:
            self._fail("J2", agent, f"knows {departed(after.known.tombs)} as departed")
        if after.audit_failed:
            self._fail("J2", agent, "has stopped for an audit failure")
        if any(mismatch.author != self.liar for mismatch in after.known.mismatches):
            self._fail("J5", agent, "knows an audit mismatch of an honest agent")
        self._numbers(agent, after)

    def _note(self, before: State, after: State, effects: Sequence[Effect]) -> None:
        """What the liar does is not checked, but what it has made is needed to check others."""
        known = self.latest.get(self.liar)
        if known is not None and known is not before:
            self._spoiled(self.liar)
        self.latest[self.liar] = after
        self.starts += before.incarnation != after.incarnation
        for factor in after.own.factors:
            self.made.setdefault(factor.revision.commitment, factor.added)
            self.factors.setdefault((self.liar, factor.revision), factor)
        for request, tombstone in after.known.tombstones.items():
            self.erased.setdefault(request, (tombstone.agent, tombstone.rows))
        own = {r for r, intent in after.known.intents.items() if intent.agent == self.liar}
        self.requests.setdefault(self.liar, set()).update(own)
        for effect in effects:
            if isinstance(effect, Certified):
                self._certificate(self.liar, after, effect.certificate)
            elif isinstance(effect, Opened):
                self.opened.append(effect.why)

    def _token(self, agent: int, token: Token) -> None:
        revision = token.included[self.liar]
        if revision.counter:
            units = self.made.get(revision.commitment)
            if units is None:
                self._fail("J1", agent, f"token {token.stamp}: the liar committed to nothing")
            invented = Factor(revision, units, frozenset(), 0, 0, b"")
            self.factors.setdefault((self.liar, revision), invented)
        try:
            super()._token(agent, token)
        except Violation as violation:
            raise Violation(str(violation).replace("I1 at", "J1 at")) from None

    def _numbers(self, agent: int, s: State) -> None:
        stamps = [s.token.last, s.token.fence, s.token.wake]
        tokens = [token for token in (s.token.held, s.token.copy) if token is not None]
        stamps += [token.stamp for token in tokens]
        stamps += [] if s.token.parked is None else [s.token.parked.stamp]
        if any(stamp.epoch >= _EPOCHS or stamp.hop >= _HOPS for stamp in stamps):
            self._fail("J3", agent, f"a stamp that no store holds: {max(stamps)}")
        if any(token.passes > _PASSES for token in tokens):
            self._fail("J3", agent, f"passes that no store holds: {tokens}")

    def _new_pass(self, agent: int, before: State, s: State) -> None:
        token = s.token.held
        if token is None or token.stamp.initiator != self.liar:
            super()._new_pass(agent, before, s)

    def _receipts(self, agent: int, s: State) -> None:
        """The liar may break the chain."""

    def _responsible(self, agent: int, before: State, s: State) -> None:
        """The liar may swallow a token."""
