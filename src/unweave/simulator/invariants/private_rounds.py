"""The invariants of private rounds, P1 to P7: what agents give, what a token shows, what leaves."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn

import numpy as np

from unweave.grid import Ints
from unweave.protocol.events import Effect, Opened
from unweave.protocol.state import Factor, GivenValue, State
from unweave.protocol.terms import Terms
from unweave.protocol.token import NOTHING, Revision, Token, Tombs, round_name

__all__ = ["PrivateRounds"]


class PrivateRounds:
    """Checks P1 to P7 for a `Checker`, which shares its factors and says what a violation is."""

    def __init__(
        self,
        terms: Terms,
        factors: Mapping[tuple[int, Revision], Factor],
        fail: Callable[[str, int, str], NoReturn],
    ) -> None:
        self._terms = terms
        self._factors = factors
        self._fail = fail
        self.clock: Callable[[], float] = lambda: math.inf  # what wall clocks show
        self.noise: Mapping[bytes, Ints] = {}  # key → what was added to the value that it masked
        self.paid: Callable[[int], float] = lambda agent: math.inf  # values by an agent's ledger
        self.shown: dict[int, set[bytes]] = {}  # agent → keys of its values that others have got
        self.given: dict[bytes, tuple[int, GivenValue]] = {}  # public key → who gave what under it
        self.rounds: set[bytes] = set()  # the names of complete rounds
        self.left: set[bytes] = set()  # requests that wait for no batch, also of lost disks

    def check_change(
        self, agent: int, before: State, after: State, effects: Sequence[Effect]
    ) -> None:
        was, now = before.own, after.own
        if (now.data, now.rows) == (was.data, was.rows) or not was.factors:
            return
        tomb = after.known.tombs.get(agent, NOTHING)
        whole = any(i.whole and i.agent == agent for i in after.known.intents.values())
        if tomb != before.known.tombs.get(agent, NOTHING) or tomb.whole or tomb.departed or whole:
            return  # an erasure of its own that it had lost, or of everything
        new = after.known.intents.keys() - before.known.intents.keys()
        if now.data == was.data and new and new <= self.left:
            return  # it has left before, and the disk had lost that
        if was.waiting.due is not None and self.clock() >= was.waiting.due:
            return
        if was.factors[0].data != was.data or was.factors[0].rows != was.rows:
            return  # a change was on its way already: the next solve reads this one, too
        if any(isinstance(e, Opened) and "is no longer kept" in e.why for e in effects):
            return  # what the sum includes of it is lost
        tokens = filter(None, (before.token.held, after.token.held))
        if not any(self._in_batch(agent, token) for token in tokens):
            self._fail("P6", agent, "a change left alone")

    def _in_batch(self, agent: int, token: Token) -> bool:
        """Whether the enrolments of this round show enough changes, this agent's among them."""
        least = self._terms.publish
        if least is None:
            return False
        counts = {
            k: int(one.body["changed"])
            for k, one in token.masked.keys.items()
            if one.body["base"] == token.masked.base.hex() and one.body["changed"] > 0
        }
        enough = len(counts) >= least.agents and sum(counts.values()) >= least.records
        return agent in counts and enough

    def check_token(self, agent: int, token: Token) -> None:
        members = set(self._terms.everybody) - _out(token.tombs)
        complete = bool(token.inside) and set(token.inside) == set(token.masked.keys)
        factors = [self._factors[k, token.included[k]] for k in token.inside]
        plain = self._terms.eta0 + sum((one.units for one in factors), self._terms.grid.zeros())
        if self._terms.noise is not None:
            keys = [one.given.key for one in factors if one.given is not None]
            for k, key in zip(token.inside, keys, strict=True):
                if k != agent:
                    self.shown.setdefault(k, set()).add(key)
            plain = plain + sum((self.noise[key] for key in keys), self._terms.grid.zeros())
        if complete:
            self.rounds.add(round_name(self._terms.network_id, token.masked))
            if not np.array_equal(plain, token.eta):
                self._fail("P3", agent, f"token {token.stamp}: the masks have not cancelled")
            if len({one.point for one in factors}) > 1:
                self._fail("P3", agent, f"token {token.stamp}: factors of several points")
        elif token.inside and np.array_equal(plain, token.eta):
            self._fail("P4", agent, f"token {token.stamp} is not masked")
        spent = [one for one in token.masked.keys.values() if not one.body["key"]]
        empty = not token.inside and (len(members) < self._terms.min_roster or bool(spent))
        if token.round.agents and not empty and members - set(token.inside):
            self._fail("P5", agent, f"token {token.stamp} is attested and not complete")

    def check_given(self, agent: int, s: State, given: GivenValue) -> None:
        new = given.key not in self.given
        who, first = self.given.setdefault(given.key, (agent, given))
        if who != agent:
            self._fail("P1", agent, f"gave under the key of {who}")
        same = np.array_equal(first.units, given.units) and np.array_equal(first.audit, given.audit)
        if first.round != given.round or not same:
            self._fail("P1", agent, "gave two values under one key")
        if first is given:
            count = len(self.shown.get(agent, set()) | {given.key})
            if count > self.paid(agent):
                self._fail("P7", agent, f"gave {count} values, and has paid for {self.paid(agent)}")
        token = s.token.held or s.token.copy
        if first is given and token is not None:
            if round_name(self._terms.network_id, token.masked) != given.round:
                return  # the sum was complete, and the next round has started
            known = set(self._terms.everybody) - _out(s.known.tombs)
            if set(token.masked.keys) != known:
                self._fail("P2", agent, f"gave to {set(token.masked.keys)}, knows of {known}")
            waiting = s.own.waiting  # a change after the value was given waits for the next batch
            if new and self._in_batch(agent, token) and (waiting.requests or waiting.data):
                self._fail("P6", agent, "gave to the round of its batch without its changes")


def _out(tombs: Tombs) -> set[int]:
    return {k for k, tomb in tombs.items() if tomb.whole or tomb.departed}
