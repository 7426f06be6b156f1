"""The token protocol: a sans-IO core, `machine.handle(state, event) → (state, effects)`.

One invariant carries everything:

    I1. Every token ever sent satisfies eta = eta_0 + Σ_k factor_k[included_k], and factor_k[r] was
        durable at agent k before any token with included_k = r left agent k.

`unweave.simulator.invariants` lists all invariants, I1 to I15 and for private rounds P1 to P7, and
checks them after every event.

Rules. Code, tests and pages cite them by number; docs/explanation/protocol.md gives the
reason for each.

     0. Genesis. The manifest's seed names the first agent. It opens epoch 1 if it has heard of no
        epoch; every other agent's first epoch has a number of at least 2.
     1. Start. A new process draws a new incarnation and is quarantined: it accepts, sends and
        solves nothing, but says and answers Hello. Quarantine ends when every neighbour has
        answered, after a timeout when two have, and after five timeouts when one has.
     2. Stamps first. A stamp raises the fence before anything else in a message is learned; a
        role token with a smaller stamp is dropped without a rebuild.
     3. Learn. Tombstones and retrain epochs are joined by union. What a new one forbids is wiped
        in the same transaction; a role token that includes it is dead and is rebuilt.
     4. Receive. A token is acknowledged after the commit that stores it and before solving. A
        stale one is only learned from; a dead one is rebuilt; any other is held and visited.
     5. Visit. cavity = eta − factor_k[included_k], eta ← cavity + wanted; wanted is zero for
        an erased agent. Factor, token, receipt, tombstone and outbox are one transaction.
     6. Attest and park. In an attestation round nothing changes: each agent adds its factor to a
        second sum and signs one statement, which names the sum by HMAC under a secret that the
        round's first agent draws and only the token carries. When all have signed, the second sum
        must equal eta bit for bit; then the token is parked and certified. A mismatch is recorded
        and answered by a rebuild. Mismatches of two agents, neither of which has departed, are an
        audit failure: the network stops until another agent is declared departed.
     7. Route. The manifest's schedule names the next agent; while an erasure is pending, `seek`
        takes the shortest path to it. A pass ends at its root: the token is parked if the pass
        changed nothing.
     8. Resend. The same token goes to the same neighbour until it is acknowledged or superseded,
        at intervals that double, within bounds, while the neighbour is silent.
     9. Go elsewhere. A token that is not acknowledged in time starts a new epoch from the outbox,
        if there is another neighbour.
    10. Loss. Without heartbeats of the token any agent may open an epoch from its copy, or
        rebuild. A parked token that nothing has superseded needs no heartbeat.
    11. Wake. Pending work is durable state, compared with the parked token after every event: a
        lost wake-up is repeated.
    12. Erase. A request is a durable intent. The owner writes the tombstone in the transaction of
        the visit that removes the data, not before.
    13. Depart. A majority of the original manifest declares an agent departed; voters refuse
        while they hear it, unless it has lied (rule 19). Votes never delete the departed agent's
        own data, and every message of a departed agent is answered with the votes.
    14. Rebuild. A new epoch starts from eta_0 with no agent included; each agent adds its current
        factor when visited, without solving.
    15. Responsibility. The agent that holds, parks or has sent a token without an acknowledgement
        opens the rebuild if the token dies; others only purge copies.
    16. Retrain. If the sum without a factor is outside the domain, or too far away to refine, the
        removing agent adds the request to the retrain epoch: every older factor is void, and
        every agent starts from zero.
    17. Openings. An epoch exists only with its opener's signed opening, and its number is at most
        1 + the sum of the openings of all agents. Every other stamp is ignored. Hops and passes
        have limits far below what a store can hold.
    18. Steps. The sender of a token signs a header with digests of its parts, and shows the header
        that its giver signed and the factors that it exchanged. The receiver undoes the step and
        compares. It refuses, and does not acknowledge, a step that is wrong.
    19. Lies. A wrong step under its sender's signature is a proof, which spreads and which every
        agent checks again. An agent that has lied can be voted out while it is heard. A vote
        that no operator has cast needs a proof.
    20. Private rounds (`privacy = "masked"`). No token shows a factor. Every agent of the roster
        signs a one-time key onto the token; when all have, each adds its factor under masks that
        cancel in the sum of all, and adds the same bytes whenever it is asked again. A key masks
        one value. Nothing is subtracted: an erasure, a change of the data or of the roster
        starts a new round from eta_0. Only a complete sum is attested, and only an attested sum
        is served.
    21. Batches (`publish`). A change or an erasure of records waits at its agent, which enrols
        with the number of records that wait since the last published round. When the enrolments
        show enough records of enough agents, a round starts, and every agent that is counted in
        it lets its changes go with it. After its period a change goes alone. The erasure of a
        whole agent never waits.
    22. Noise (`epsilon`). A given value carries noise, which is drawn once and paid for before.
        An enrolment states how many values its agent has given; an agent takes the largest
        number that it has signed for its own, as tokens show it and neighbours remember it. A
        process makes no key before every neighbour has told it the number. An account that was
        lost or restored counts as spent unless all neighbours remember a number. An agent whose
        budget is spent enrols without a key: then no agent gives, new data start no
        round, and an empty sum is attested, so that erasures are still certified.

The driver's duties, in this order, for every event:

    1. persist   commit the durable part of the new state (`ports.Store`); on failure, stop
    2. send      carry out `Send` effects (`ports.Transport`); each is one attempt (rule 8)
    3. compute   give `Work` to the worker (`ports.Worker`), `Enrol` and `Mask` to the keyring of
                 this process; feed the answers back as `Done`
    4. report    certificates to keep, refusals and news for the operator
    5. wait      feed a `Tick` when `deadline(state)` has come, and a `BatchDue` when the wall
                 clock has come to `own.waiting.due`

A crash between 1 and 4 loses nothing: `start` and `resume` recompute every outstanding effect.
"""
