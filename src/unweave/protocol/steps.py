"""What one agent may do to a token, checked by the agent that receives it (rule 18).

The sender of a token signs a header: digests of the sum, of the included revisions, of the erasures
that they have carried out and of the attestation round. It also sends the header of the token that
it received, signed by its giver, and what it changed: its own factor. So the receiver undoes the
change and compares the digests:

    digest(eta − factor_k[now] + factor_k[before]) = the digest of eta that the giver signed

The token does not grow by the token before it, only by a header of about a kilobyte and by the
factors that changed. A step that is wrong under two valid signatures is a proof against its sender
that every agent can check again, and no honest agent can be accused.

A factor is named by its commitment, SHA-256(salt ‖ units), in the revision. The salt keeps others
from guessing a factor; the receiver of a changed token sees both (docs/explanation/security.md).
"""

from __future__ import annotations

import hashlib
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np

from unweave.grid import Ints
from unweave.persistent import Bitmap, Vector
from unweave.protocol.statements import Sign, SignedStatement, pae
from unweave.protocol.terms import Terms
from unweave.protocol.token import (
    NO_ROUND,
    NOT_MASKED,
    OUT,
    SECRET_BYTES,
    AttestationRound,
    Revision,
    Stamp,
    Token,
    digest,
    round_name,
)

__all__ = [
    "START",
    "Origin",
    "Revealed",
    "TokenHeader",
    "TokenStep",
    "header_problem",
    "make_step",
    "new_salt",
    "received_from",
    "write_header",
    "wrong_step",
]


class TokenHeader(SignedStatement):
    """What the sender of a token signs: the digests of its parts, and of the step that made it."""

    kind = "application/vnd.unweave.token+json"

    @cached_property
    def stamp(self) -> Stamp:
        return Stamp(*(int(part) for part in self.body["stamp"]))


class Revealed(NamedTuple):
    """A factor with the salt of its commitment. In a private round: the factor under the two masks,
    which tells nothing about it."""

    salt: bytes
    units: Ints
    audit: Ints | None = None

    @property
    def commitment(self) -> bytes:
        h = hashlib.sha256(self.salt + self.units.astype("<i8", copy=False).tobytes())
        if self.audit is not None:
            h.update(self.audit.astype("<i8", copy=False).tobytes())
        return h.digest()


class Origin(NamedTuple):
    """Where the token here comes from, before this agent changed it."""

    header: TokenHeader | None  # as its giver signed it; None: this agent started from eta_0
    revision: Revision  # of this agent, in the token as it was given
    removed: Revealed | None = None  # the factor behind it, once it was taken out


START = Origin(None, OUT)


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class TokenStep(NamedTuple):
    """How the sender made the token that it sends."""

    before: TokenHeader | None  # the token that it received, as its giver signed it; None: eta_0
    revision: Revision  # of the sender, in the token that it received
    removed: Revealed | None = None  # the factor behind `revision`, if it was taken out
    factor: Revealed | None = None  # the sender's factor in the token, if it is new or was audited


def new_salt(sign: Sign, network_id: bytes, counter: int, incarnation: int) -> bytes:
    """A salt that only the agent can compute: its signatures are deterministic, and it shows this
    one to nobody."""
    name = network_id + counter.to_bytes(8, "big") + incarnation.to_bytes(8, "big")
    secret = sign(pae("application/vnd.unweave.salt", name))
    return hashlib.sha256(secret).digest()[:16]


def received_from(header: TokenHeader | None, token: Token, me: int) -> Origin:
    """The origin of a token that has just been received."""
    return Origin(header, token.included[me])


def make_step(origin: Origin, token: Token, me: int, factor: Revealed | None) -> TokenStep:
    """The step from `origin` to `token`. The agent's `factor` is shown only if the receiver needs
    it: the factor is new, or it was added to the audit."""
    revision = token.included[me]
    changed = origin.revision != revision
    header = origin.header
    audited = me in token.round.agents and (
        header is None or header.body["round"] != _round_digests(token.round)
    )
    return TokenStep(
        header,
        origin.revision,
        origin.removed if changed else None,
        factor if revision.counter and (changed or audited) else None,
    )


def write_header(
    network_id: bytes, me: int, sign: Sign, token: Token, step: TokenStep
) -> TokenHeader:
    body = {"network_id": network_id.hex(), "agent": me, **_digests(token)}
    body["step"] = _step_digest(step)
    header = TokenHeader.write(me, sign, **body)
    vars(header)["body"] = body  # what a reader of the bytes finds: in one memory nobody parses it
    return header


def header_problem(header: TokenHeader, sender: int, token: Token, step: TokenStep) -> str | None:
    """Why the header is not that of this token and step, sent by `sender`. No proof: everybody can
    put a wrong token below a header."""
    body = header.body
    if header.author != sender or body["agent"] != sender:
        return "a token under another agent's header"
    if body["step"] != _step_digest(step):
        return "a step that its header does not name"
    if any(body[name] != value for name, value in _digests(token).items()):
        return "a token that its header does not name"
    return None


def wrong_step(terms: Terms, who: int, token: Token, step: TokenStep) -> str | None:
    """Why `who` cannot honestly have made this token in this step. The header binds `who` to both;
    its signature, and that of `step.before`, were verified."""
    before, own = step.before, token.stamp.initiator == who
    if before is None:
        if not own:
            return "a token from nothing in another agent's epoch"
        eta, included = digest(terms.eta0).hex(), _included_digest(Vector((OUT,) * terms.size))
    else:
        if before.author not in terms.topology.adjacency[who]:
            return "a token that no neighbour gave it"
        same = token.stamp[:3] == before.stamp[:3]
        if not own and not same:
            return "a token that was moved to another agent's epoch"
        if same and token.stamp.hop <= before.stamp.hop:
            return "a hop that does not follow"
        eta, included = before.body["eta"], before.body["included"]
    was, now = step.revision, token.included[who]
    if terms.masked:
        problem = _wrong_masks(terms, token, step, was, now)
        if problem is not None:
            return problem
    if _included_digest(token.included.set(who, was)) != included:
        return "a change of another agent's revision"
    given = token.eta
    if was != now:
        if now.counter:
            if step.factor is None or step.factor.commitment != now.commitment:
                return "a new revision without its factor"
            given = given - step.factor.units
        elif now != OUT:
            return "a commitment to no factor"
        if was.counter:
            if step.removed is None or step.removed.commitment != was.commitment:
                return "a sum without the factor that was in it"
            given = given + step.removed.units
    if digest(given).hex() != eta:
        return "a sum that does not follow from the one that it received"
    return _wrong_erasures(who, token, step) or _wrong_round(terms, who, token, step)


def _wrong_masks(
    terms: Terms, token: Token, step: TokenStep, was: Revision, now: Revision
) -> str | None:
    """Rule 20: a value stays in its round, and a round to which a value was given stays as it is.
    The audit's value is shown with the other one: the commitment is to both."""
    if was.counter and was != now:
        return "a round without the value that was given to it"
    if step.factor is not None and step.factor.audit is None:
        return "a value without the one for the audit"
    before = step.before
    nobody = _included_digest(Vector((OUT,) * terms.size))
    if before is not None and before.body["included"] != nobody:
        if before.body.get("masked") != _masked_name(token):
            return "another round under values that were given"
    return None


def _wrong_erasures(who: int, token: Token, step: TokenStep) -> str | None:
    """An erasure joins a token only when its agent takes the factor out, or while the agent is not
    included; a retrain epoch only while the token is empty. Otherwise an old sum, with a new claim
    that the erased data are not in it, would pass."""
    if step.before is None:
        return None
    before, own = step.before.body, str(who)
    erased = {agent: ids for agent, ids in before["erased"].items() if agent != own}
    if {agent: ids for agent, ids in _erased(token).items() if agent != own} != erased:
        return "an erasure of data that are in the sum"
    includes = step.revision.counter or token.inside.minus(who)
    if includes and _ids_digest(token.retrain_epoch) != before["retrain_epoch"]:
        return "a retrain epoch of a sum that is older"
    return None


_FIXED = ("statement", "secret")  # of a round, by its first agent


def _wrong_round(terms: Terms, who: int, token: Token, step: TokenStep) -> str | None:
    """The round is empty, or was started here, or is the round as received with at most the
    sender's own attestation more."""
    new, digests = token.round, _round_digests(token.round)
    if not new.agents:
        return None if digests == _round_digests(NO_ROUND) else "an attestation round of no agent"
    if new.audit is None or (new.frozen is None) != (not terms.freezes or new.unknown):
        return "an attestation round without its sums"
    if len(new.secret) != SECRET_BYTES:
        return "an attestation round without its secret"
    if not terms.freezes and new.unknown:
        return "an attestation round that estimates an exact sum"
    old = None if step.before is None else step.before.body["round"]
    unchanged = step.revision == token.included[who]
    if old is not None and unchanged and old == digests:
        return None
    if who not in new.agents:
        return "a change of an attestation round of others"
    part = terms.grid.zeros()
    if token.included[who].counter:
        shown = step.factor
        if shown is None or shown.commitment != token.included[who].commitment:
            return "an audit without the factor that was added to it"
        part = shown.units if shown.audit is None else shown.audit
    rest = new.audit - part
    if set(new.agents) == {who}:
        same = np.array_equal(rest, terms.eta0)
        return None if same else "another factor in the audit than in the sum"
    if old is None or not unchanged or any(old[part] != digests[part] for part in _FIXED):
        return "attestations of another token"
    if Bitmap.of(int(old["agents"], 16)) != new.agents.minus(who):
        return "attestations that others have not given"
    if new.converged > old["converged"] or new.unknown < old["unknown"]:
        return "an attestation round that says more than its agents did"
    if digest(rest).hex() != old["audit"]:
        return "another factor in the audit than in the sum"
    return None


def _digests(token: Token) -> dict[str, Any]:
    """The parts of a token that a header names, except those that only choose the way."""
    return {
        "stamp": list(token.stamp),
        "eta": digest(token.eta).hex(),
        "included": _included_digest(token.included),
        "erased": _erased(token),
        "retrain_epoch": _ids_digest(token.retrain_epoch),
        "round": _round_digests(token.round),
        **({} if token.masked == NOT_MASKED else {"masked": _masked_name(token)}),
    }


def _masked_name(token: Token) -> str:
    return round_name(token.network_id, token.masked).hex()


def _round_digests(so_far: AttestationRound) -> dict[str, Any]:
    return _NO_ROUND if so_far is NO_ROUND else _digests_of_round(so_far)


def _digests_of_round(so_far: AttestationRound) -> dict[str, Any]:
    return {
        "agents": f"{int(so_far.agents):x}",
        "statement": _hash(so_far.statement),
        "audit": "" if so_far.audit is None else digest(so_far.audit).hex(),
        "frozen": "" if so_far.frozen is None else digest(so_far.frozen).hex(),
        "converged": so_far.converged,
        "unknown": so_far.unknown,
        "secret": _hash(so_far.secret),
    }


_NO_ROUND = _digests_of_round(NO_ROUND)


def _erased(token: Token) -> dict[str, str]:
    """The erasures that each included agent has carried out in the sum."""
    return {
        str(agent): _ids_digest(tomb.ids)
        for agent, tomb in token.tombs.items()
        if tomb.ids and agent in token.inside
    }


@lru_cache(maxsize=64)  # ids are kept for ever, and change seldom
def _ids_digest(ids: frozenset[bytes]) -> str:
    return _hash(b"".join(sorted(ids)))


def _included_digest(included: Vector[Revision]) -> str:
    """Computed once for a vector: most visits change no revision."""
    if included.digest is None:
        parts = [b"%d %d %b" % revision for revision in included]
        included.digest = _hash(b"".join(parts))
    return included.digest


def _step_digest(step: TokenStep) -> str:
    h = hashlib.sha256(b"" if step.before is None else step.before.name)
    h.update(b"%d %d " % step.revision[:2] + step.revision.commitment)
    for shown in (step.removed, step.factor):
        h.update(b"-" if shown is None else b"+" + shown.commitment)
    return h.hexdigest()
