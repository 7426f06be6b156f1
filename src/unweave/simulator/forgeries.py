"""Tokens of an agent with a valid key that no honest agent would send.

A forger signs what it likes in its own name; what other agents have signed it can only repeat.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable
from typing import Any

import numpy as np

from unweave.grid import Ints
from unweave.persistent import Bitmap, Stack
from unweave.protocol.certificate.write import sign_statement
from unweave.protocol.messages import Digests, Gossip, Message, News, Pass
from unweave.protocol.recovery import empty_token
from unweave.protocol.state import State
from unweave.protocol.statements import Opening, Sign, SignedStatement
from unweave.protocol.steps import Revealed, TokenHeader, TokenStep, write_header
from unweave.protocol.terms import Terms
from unweave.protocol.token import (
    EPOCHS,
    HOPS,
    NEVER,
    NO_ROUND,
    OPENINGS,
    OUT,
    PASSES,
    SECRET_BYTES,
    AttestationRound,
    Revision,
    Stamp,
    Token,
    Tomb,
    join,
    request_id,
)

__all__ = ["ROUND_TWISTS", "TWISTS", "Forger"]


class Forger:
    """Agent `me`, with its signer. `state` is that of its honest core, `clock` its clock; `made`
    collects the factors that it commits to."""

    def __init__(
        self,
        terms: Terms,
        me: int,
        sign: Sign,
        rng: random.Random,
        state: Callable[[], State],
        clock: Callable[[], float],
        made: dict[bytes, Ints],
    ) -> None:
        self.terms = terms
        self.me = me
        self.sign = sign
        self.rng = rng
        self.state = state
        self.clock = clock
        self.made = made
        self.favourites = [*TWISTS, *ROUND_TWISTS]
        self.given: deque[tuple[int, Pass]] = deque(maxlen=60)  # tokens that the agent was sent
        self.told: Counter[str] = Counter()  # the lies, by kind

    def write(self, kind: type[SignedStatement], **body: Any) -> Any:
        return kind.write(self.me, self.sign, network_id=self.terms.network_id.hex(), **body)

    def junk(self) -> Digests:
        return Digests(*(self.rng.randbytes(4) for _ in Digests._fields))

    def saying(self, s: State, **parts: Any) -> Gossip:
        news = News({}, frozenset(), {}, NEVER)
        news = news._replace(**{k: v for k, v in parts.items() if k in News._fields})
        rest = {k: v for k, v in parts.items() if k in Gossip._fields}
        return Gossip(self.junk(), **{"news": news, "openings": s.known.openings, **rest})

    def sign_opening(self, s: State, count: int, epoch: int) -> Opening:
        found: Opening = self.write(
            Opening,
            agent=self.me,
            count=count,
            epoch=epoch,
            incarnation=self.rng.getrandbits(60),
        )
        return found

    def next_opening(self, s: State, more: int) -> tuple[int, int]:
        """A count that the liar may sign, and the largest epoch number that it then may open."""
        known = s.known.openings
        count = min((known[self.me].count if self.me in known else 0) + more, OPENINGS - 1)
        others = sum(o.count for agent, o in known.items() if agent != self.me)
        return count, min(1 + count + others, EPOCHS - 1)

    def other(self, s: State) -> int:
        return self.rng.choice([k for k in range(s.terms.size) if k != self.me])

    def token(self, s: State) -> list[Message]:
        """A token from one that was given or from nothing, in its epoch or in a new one, with
        something wrong."""
        base = self._base(s)
        return [] if base is None else [self.twisted(base)]

    def fork(self, s: State) -> list[Message]:
        """A token that follows from one that was given, perhaps long ago."""
        base = self._base(s)
        return [] if base is None else [base]

    def revived(self, s: State) -> list[Message]:
        """An old sum, which claims to be without everything that was erased since."""
        base = self._base(s)
        if base is None or base.step is None:
            return []
        token = base.token._replace(
            tombs=join(base.token.tombs, s.known.tombs),
            retrain_epoch=base.token.retrain_epoch | s.known.retrain_epoch,
        )
        return [self._signed(base, token, base.step)]

    def _base(self, s: State) -> Pass | None:
        """A token, and the honest step to it from a token that the liar was given, or from eta_0,
        in the same epoch or in a new one. The liar leaves its own part as it is."""
        rng, before = self.rng, None
        if self.given and rng.random() < 0.9:
            _, before = self.given[-1] if rng.random() < 0.6 else rng.choice(self.given)
        openings = s.known.openings
        if before is None:
            token, header = empty_token(s, NEVER), None
        else:
            token, header = before.token, before.header
        if before is None or rng.random() < 0.6:
            count, most = self.next_opening(s, 1)
            opening = self.sign_opening(s, count, most)
            openings = {**openings, self.me: opening}
            stamp = Stamp(*opening.epoch, 1, 7)
        else:
            stamp = token.stamp.next(rng.getrandbits(60))
        same_round = rng.random() < 0.5 and before is not None
        token = token._replace(
            stamp=stamp,
            seen=Bitmap(),
            stack=Stack(),
            busy=True,
            round=token.round if same_round else NO_ROUND,
        )
        if stamp.epoch > s.token.fence.epoch + 2**60:
            return None
        step = TokenStep(header, token.included[self.me])
        message = Pass(token, self.saying(s, openings=openings), None, step)
        return self._signed(message, token, step)

    def _signed(self, message: Pass, token: Token, step: TokenStep) -> Pass:
        header = write_header(self.terms.network_id, self.me, self.sign, token, step)
        return message._replace(token=token, header=header, step=step)

    def twisted(self, message: Pass) -> Pass:
        """The token with one thing wrong; sometimes it is unusual and allowed."""
        attested = message.token.round.audit is not None
        usable = [one for one in self.favourites if attested or one not in ROUND_TWISTS]
        what, twist = self.rng.choice(usable or TWISTS)
        self.told["token: " + what] += 1
        assert message.step is not None
        found = twist(self, message.token, message.step)
        if isinstance(found, Pass):
            return found._replace(gossip=message.gossip)
        token, step = (found, message.step) if isinstance(found, Token) else found
        return self._signed(message, token, step)

    def _moved(self, eta: Ints) -> Ints:
        moved = eta.copy()
        moved[self.rng.randrange(len(moved))] += self.rng.choice([1, -1, 12345, 2**40])
        return moved

    def _revision(self) -> Revision:
        rng = self.rng
        return Revision(rng.choice([1, 99]), rng.getrandbits(60), rng.randbytes(32))

    def _reveal(self, size: int) -> Revealed:
        """A factor of the liar's own."""
        units = np.array([self.rng.randrange(100) for _ in range(size)], dtype=np.int64)
        shown = Revealed(self.rng.randbytes(16), units)
        self.made[shown.commitment] = units
        return shown

    def _of_another(self, token: Token, revision: Revision) -> Token:
        other = self.rng.choice([k for k in range(len(token.included)) if k != self.me])
        return _with(token, other, revision)

    def twist_eta(self, token: Token, step: TokenStep) -> Token:
        return token._replace(eta=self._moved(token.eta))

    def twist_edge(self, token: Token, step: TokenStep) -> Token:
        edge = self.rng.choice([2**63 - 1, -(2**63)])
        return token._replace(eta=np.full_like(token.eta, edge))

    def twist_included(self, token: Token, step: TokenStep) -> Token:
        return self._of_another(token, self._revision())

    def twist_dropped(self, token: Token, step: TokenStep) -> Token:
        return self._of_another(token, OUT)

    def twist_unshown(self, token: Token, step: TokenStep) -> Token:
        """A new factor of the liar that it does not show."""
        return _with(token._replace(eta=self._moved(token.eta)), self.me, self._revision())

    def twist_own(self, token: Token, step: TokenStep) -> tuple[Token, TokenStep]:
        """Any factor of its own is the liar's right, if nothing of it was in the sum."""
        if step.revision.counter or token.included[self.me].counter:
            return self.twist_exchanged(token, step)
        shown = self._reveal(len(token.eta))
        revision = Revision(7, self.rng.getrandbits(60), shown.commitment)
        times = self.rng.choice([1, 1, 2, 0])
        token = _with(token, self.me, revision)._replace(
            eta=token.eta + times * shown.units, round=NO_ROUND
        )
        return token, step._replace(factor=shown)

    def twist_exchanged(self, token: Token, step: TokenStep) -> tuple[Token, TokenStep]:
        """The factor in the sum is replaced, and another one is said to have been there."""
        removed, shown = self._reveal(len(token.eta)), self._reveal(len(token.eta))
        revision = Revision(8, self.rng.getrandbits(60), shown.commitment)
        eta = token.eta - removed.units + shown.units
        token = _with(token, self.me, revision)._replace(eta=eta, round=NO_ROUND)
        return token, step._replace(removed=removed, factor=shown)

    def twist_renamed(self, token: Token, step: TokenStep) -> Token:
        return _with(token, self.me, self._revision())

    def twist_removed(self, token: Token, step: TokenStep) -> tuple[Token, TokenStep]:
        return token, step._replace(removed=self._reveal(len(token.eta)))

    def twist_factor(self, token: Token, step: TokenStep) -> tuple[Token, TokenStep]:
        return token, step._replace(factor=self._reveal(len(token.eta)))

    def twist_revision(self, token: Token, step: TokenStep) -> tuple[Token, TokenStep]:
        return token, step._replace(revision=self.rng.choice([OUT, self._revision()]))

    def twist_self_given(self, token: Token, step: TokenStep) -> tuple[Token, TokenStep]:
        """The token before was signed by the liar itself."""
        eta = self._moved(token.eta)
        nothing = TokenStep(None, step.revision)
        earlier = token._replace(stamp=token.stamp._replace(hop=max(token.stamp.hop - 1, 1)))
        mine = write_header(
            self.terms.network_id, self.me, self.sign, earlier._replace(eta=eta), nothing
        )
        return token._replace(eta=eta), step._replace(before=mine)

    def twist_given_by_another(self, token: Token, step: TokenStep) -> Pass:
        """The token before is below the name of an agent that has not signed it."""
        _, step = self.twist_self_given(token, step)
        assert step.before is not None
        forged = TokenHeader(step.before.raw, self.other(self.state()), step.before.signature)
        return self._signed(Pass(token), token, step._replace(before=forged))

    def twist_before(self, token: Token, step: TokenStep) -> tuple[Token, TokenStep]:
        """Another token before: an old one, or none."""
        headers = [given.header for _, given in self.given]
        return token, step._replace(before=self.rng.choice([None, *headers]))

    def twist_no_step(self, token: Token, step: TokenStep) -> Pass:
        signed = self._signed(Pass(token), token, step)
        without = signed._replace(step=None), signed._replace(header=None)
        return self.rng.choice(without)

    def twist_header(self, token: Token, step: TokenStep) -> Pass:
        """A token below the header of another one."""
        signed = self._signed(Pass(token), token, step)
        return signed._replace(token=token._replace(eta=self._moved(token.eta)))

    def twist_hop(self, token: Token, step: TokenStep) -> Token:
        hop = self.rng.choice([1, HOPS - 2, HOPS - 9, HOPS, 2**61])
        return token._replace(stamp=token.stamp._replace(hop=hop))

    def twist_passes(self, token: Token, step: TokenStep) -> Token:
        passes = self.rng.choice([2**31, PASSES, PASSES + 1, 2**62 - 1])
        return token._replace(passes=passes, seen=self.terms.everybody)

    def twist_epoch(self, token: Token, step: TokenStep) -> Token:
        epoch = token.stamp.epoch + self.rng.choice([1, 2**32 - 1])
        return token._replace(stamp=token.stamp._replace(epoch=epoch))

    def twist_initiator(self, token: Token, step: TokenStep) -> Token:
        other = self.other(self.state())
        return token._replace(stamp=token.stamp._replace(initiator=other))

    def twist_way(self, token: Token, step: TokenStep) -> Token:
        size = self.terms.size
        stack = Stack.of(self.rng.randrange(size) for _ in range(min(size, 5)))
        return token._replace(stack=stack, seen=Bitmap.of(self.rng.getrandbits(size)))

    def twist_tombs(self, token: Token, step: TokenStep) -> Token:
        """Without an erasure, or with one that no agent has asked for."""
        tombs = dict(token.tombs)
        if tombs and self.rng.random() < 0.7:
            del tombs[self.rng.choice(sorted(tombs))]
            return token._replace(tombs=tombs, retrain_epoch=frozenset())
        other = self.other(self.state())
        tombs[other] = Tomb(frozenset({request_id(other, b"z" * 12)}))
        return token._replace(tombs=tombs)

    def twist_receipts(self, token: Token, step: TokenStep) -> Token:
        return token._replace(receipts=self.rng.randbytes(32))

    def twist_all_attested(self, token: Token, step: TokenStep) -> Token:
        """Every agent has attested; the signatures are the liar's."""
        agents = self.terms.everybody
        mine = sign_statement(b"{}", self.sign)
        signatures = dict.fromkeys(agents, mine)
        return token._replace(
            round=AttestationRound(
                agents, token.eta, None, b"{}", signatures, True, False, bytes(SECRET_BYTES)
            )
        )

    def twist_audit(self, token: Token, step: TokenStep) -> Token:
        so_far = token.round
        audit = token.eta if so_far.audit is None else so_far.audit
        return token._replace(round=so_far._replace(audit=self._moved(audit)))

    def twist_frozen(self, token: Token, step: TokenStep) -> Token:
        frozen = None if token.round.frozen is None else self._moved(token.round.frozen)
        return token._replace(round=token.round._replace(frozen=frozen))

    def twist_said(self, token: Token, step: TokenStep) -> Token:
        """The round says that it converged, or that a vector does not exist."""
        so_far = token.round
        return token._replace(
            round=so_far._replace(converged=not so_far.converged)
            if self.rng.random() < 0.5
            else so_far._replace(unknown=not so_far.unknown, frozen=None)
        )

    def twist_attested(self, token: Token, step: TokenStep) -> Token:
        """One agent's attestation is taken out, or the liar's own is added without its factor."""
        so_far = token.round
        if self.me not in so_far.agents and self.rng.random() < 0.5:
            signature = sign_statement(so_far.statement, self.sign)
            return token._replace(
                round=so_far._replace(
                    agents=so_far.agents.plus(self.me),
                    signatures={**so_far.signatures, self.me: signature},
                )
            )
        gone = self.rng.choice(sorted(so_far.agents))
        kept = {k: v for k, v in so_far.signatures.items() if k != gone}
        agents = so_far.agents.minus(gone)
        return token._replace(round=so_far._replace(agents=agents, signatures=kept))


def _with(token: Token, agent: int, revision: Revision) -> Token:
    """The token with this revision of an agent, and nothing else changed."""
    inside = token.inside.plus(agent) if revision.counter else token.inside.minus(agent)
    return token._replace(included=token.included.set(agent, revision), inside=inside)


_ROUND = ("audit", "frozen", "said", "attested")
TWISTS: list[tuple[str, Callable[..., Any]]] = [
    (name.removeprefix("twist_").replace("_", " "), getattr(Forger, name))
    for name in vars(Forger)
    if name.startswith("twist_") and name.removeprefix("twist_") not in _ROUND
]
ROUND_TWISTS = [(name, getattr(Forger, "twist_" + name)) for name in _ROUND]
