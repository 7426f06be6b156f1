"""Proofs of wrong steps: an agent that has signed one can be voted out while it is heard (rule 19).

A proof is the token with its header and step, as the lying agent signed them, without the gossip.
Every agent checks it again. It holds a sum, so it is kept in memory only, and is dropped when the
sum includes what a tombstone forbids and when the agent has departed. Votes are durable.
"""

from __future__ import annotations

import hashlib

from unweave.protocol.events import LieProved
from unweave.protocol.messages import Pass
from unweave.protocol.state import State, Turn
from unweave.protocol.steps import header_problem, wrong_step
from unweave.protocol.token import dead, request_id

__all__ = ["drop_proofs", "expulsion_request", "step_problem", "take_proof"]


# Bytes of the vectors of a proof. A larger one is not passed on: its receiver alone knows the lie.
LARGEST = 8 << 20


def step_problem(s: State, turn: Turn, sender: int, message: Pass) -> str | None:
    """Rule 18: why the sender's step is refused. A wrong step under its signature is kept as a
    proof."""
    header, step = message.header, message.step
    if header is None or step is None:
        return "a token without its header"
    problem = header_problem(header, sender, message.token, step)
    if problem is not None:
        return problem
    problem = wrong_step(s.terms, sender, message.token, step)
    if problem is not None:
        take_proof(s, turn, message._replace(gossip=None))
    return problem


def take_proof(s: State, turn: Turn, proof: Pass) -> None:
    """Keep a proof if it holds, and no other one against the same agent is known."""
    header, step = proof.header, proof.step
    if header is None or step is None:
        return
    liar = header.author
    if liar == s.me or liar in s.known.proofs or liar in s.departed:
        return
    if dead(proof.token, s.known.tombs, s.known.retrain_epoch) or _size(proof) > LARGEST:
        return
    if header_problem(header, liar, proof.token, step) is not None:
        return
    why = wrong_step(s.terms, liar, proof.token, step)
    if why is not None:
        s.known.proofs = {**s.known.proofs, liar: proof}
        s.known.gossip = None
        turn.do(LieProved(liar, f"{s.terms.name(liar)} sent {why}"))


def drop_proofs(s: State) -> None:
    """Drop the proofs against departed agents, and those whose sum became forbidden."""
    departed = s.departed
    kept = {
        liar: proof
        for liar, proof in s.known.proofs.items()
        if liar not in departed and not dead(proof.token, s.known.tombs, s.known.retrain_epoch)
    }
    if len(kept) != len(s.known.proofs):
        s.known.proofs = kept
        s.known.gossip = None


def expulsion_request(s: State, liar: int) -> bytes:
    """The id of the request to vote `liar` out: that of the votes cast so far, or one that every
    agent computes alike."""
    for (target, _), vote in sorted(s.known.votes.items()):
        if target == liar:
            return vote.request
    return request_id(liar, hashlib.sha256(b"lying" + s.terms.network_id).digest())


def _size(proof: Pass) -> int:
    so_far, step = proof.token.round, proof.step
    vectors = [proof.token.eta, so_far.audit, so_far.frozen]
    for shown in () if step is None else (step.removed, step.factor):
        vectors += [] if shown is None else [shown.units, shown.audit]
    return sum(vector.nbytes for vector in vectors if vector is not None) + len(
        proof.token.masked.point
    )
