"""The invariants of the protocol, checked after every event.

I1  every token anywhere (held, parked, in an outbox, a copy, in flight) satisfies
    eta = eta_0 + Σ_k factor_k[included_k]; so each factor is in it exactly once
I2  durable before sent: every revision that a token includes was committed by its owner before, and
    a revision names one factor for ever
I3  a role token is never older than its agent's fence, nor newer than its last accepted stamp
I4  nothing that a tombstone forbids exists where the tombstone is known: no dead token, no dead
    copy, no factor computed from erased rows, no factor of an older retrain epoch; an agent that
    knows a tombstone that asked for retraining has it in its retrain epoch
I5  after certification every synced agent that no agent knows as departed knows the erasure and
    holds nothing of it, in its factors or in a sum, at every later time
I6  a certificate that says `retrained` covers no factor that was fitted before the request, and an
    erasure that asked for retraining is never certified as anything less
I7  receipts form one hash chain: each names the hash it continues, and the token carries the end
I8  tombstones, retrain epochs and fences of a running process only grow
I9  a token parked after a complete attestation round was audited: the second sum equals eta, the
    statement is about this token, exactly the agents that have not departed signed it, the frozen
    sum is the sum of their vectors at this eta, and if it says "converged", every solver would keep
    its factor; its certificate verifies
I10 an agent, up or down, is responsible for the newest token, unless a disk was lost, a quorum
    voted or the audit failed: no agent acknowledges a token that it has not stored, or drops one
    silently
I11 a stamp names one token, sent to one neighbour that has not departed
I12 a token that starts an epoch, or is woken, starts a pass: no agent was seen or has attested
I13 in quarantine an agent sends nothing but Hello and Welcome and asks for no work; with a past it
    leaves quarantine only when at least one neighbour has answered
I14 a synced agent holds the signed evidence of every open erasure it knows; an erasure is compacted
    only after certification, by the agent that asked, which holds the certificate
I15 nothing that leaves the tokens gives a sum away: no certificate, receipt, tombstone or audit
    mismatch holds the secret of an attestation round or a digest of a sum that is not keyed by one;
    a secret serves one statement

In private rounds (rule 20), I1 holds for the masked values modulo 2^64, and:

P1  one value per key: under a one-time key one vector is ever given to the sum and one to the
    audit, for one round, over all incarnations, lost disks and restored backups
P2  an agent gives only to the roster that it derives itself: it knows no agent of the round to be
    out, and no other agent to be in
P3  masks cancel: a token that includes its whole roster is eta_0 + Σ_k factor_k (with noise: and
    the noise that was drawn for these values), bit for bit, and all factors were computed at one
    point
P4  an incomplete sum is noise: no token with an agent in and another one missing equals its
    unmasked sum
P5  a token is attested only if it is complete; or empty, if its roster is too small for a sum or an
    agent of it has spent its privacy budget
P6  with batches (rule 21) a change of records leaves its agent only with a round whose enrolments
    show enough changes, its own among them; or after its date; or with the erasure of the whole
    agent; or if the agent's disk has lost what the sum includes of it. An agent that gives to
    the round of its batch keeps no change back
P7  with noise (rule 22) an agent's ledger counts every value that another agent has got from it,
    also after the ledger was lost or restored, when it gives the next one

If one agent lies (`InsiderChecker`), I1 to I15 hold for the honest agents, except what only the
liar could have kept: the chain of receipts (I7), its frozen vector and its solver (I9), the token
that it swallowed (I10), the pass that it started (I12), its own erasures (I6, I14). And:

J1  every token of an honest agent is eta_0 + the honest factors that it includes + the vector that
    the liar has committed to in its own revision
J2  no honest agent is declared departed, is accused by a proof that an agent keeps, or stops for an
    audit failure
J3  no number comes near what a store can hold
J4  at the end no agent holds a proof against an agent that has not departed, if agents answer
    proofs with votes
J5  no honest agent ever finds an audit mismatch: a wrong sum is refused where it first arrives

The checks use none of the protocol's own predicates (`dead`, `departed`, `join`): a bug there must
not hide itself.

`check_liveness` checks the end of a run, after the faults: one parked token in one epoch; every
agent that should be is included, at its current revision; no agent has pending work; a departed
agent that runs knows the votes; every erasure that a disk remembers was carried out and certified.

The modules: `checker` (I1 to I15), `private_rounds` (P1 to P7), `insiders` (J1 to J5), `liveness`.
"""

from __future__ import annotations

from unweave.simulator.invariants.checker import Checker, Violation, departed
from unweave.simulator.invariants.insiders import InsiderChecker
from unweave.simulator.invariants.liveness import (
    check_liveness,
    check_proofs,
    known_departed,
    parked_token,
)

__all__ = [
    "Checker",
    "InsiderChecker",
    "Violation",
    "check_liveness",
    "check_proofs",
    "departed",
    "known_departed",
    "parked_token",
]
