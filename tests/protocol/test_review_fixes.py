"""Corners that were mended once, each with the test that shows it."""

from __future__ import annotations

import numpy as np
import pytest
from tests.support.tally import Tally
from tests.support.wire import Flight, Wire

from unweave.models.beta_exponential import BetaExponential
from unweave.protocol.certificate.verify import verify
from unweave.protocol.events import Appraise, Received, Refused, Solve, SolveResult, Tick
from unweave.protocol.gossip import current_gossip
from unweave.protocol.machine import handle
from unweave.protocol.messages import Digests, Erasures, Gossip, Pass, Share
from unweave.protocol.state import Out, State
from unweave.protocol.statements import Tombstone
from unweave.protocol.token import Tomb, request_id
from unweave.solvers import default_solver
from unweave.solvers.worker import ModelWorker

RING = [(0, 1), (1, 2), (2, 3), (3, 0)]
DEAD = "the token included what a tombstone forbids"


def rested(**settings) -> Wire:
    wire = Wire(4, RING, **settings)
    wire.settle()
    assert wire.resting
    return wire


# ------------------------------------------------------------------- two tombstones of one request


def judges(wire: Wire, verdict: bool) -> None:
    """What every agent answers when a removal asks whether the others may go on from there."""
    for worker in wire.workers:
        worker.judge = lambda work: verdict


@pytest.mark.parametrize("verdicts", [(True, True), (True, False), (False, True)])
def test_two_records_of_one_request_become_one(verdicts: tuple[bool, bool]) -> None:
    """An owner carries out a request and tells one neighbour; its disk is that from before, and the
    others, who know nothing of it, lead it to carry out the request again."""
    wire = rested(conjugate=False)
    asked = wire.erase(1, rows=[1])
    backup = wire.disks[1]
    judges(wire, verdicts[0])
    wire.settle(until=lambda: asked in wire.disks[1].known.tombstones)
    wire.drop(sender=1, to=2)
    wire.settle(
        hold=lambda f: f.sender not in (0, 1) or f.to not in (0, 1) or isinstance(f.message, Pass),
        until=lambda: asked in wire.disks[0].known.tombstones,
    )
    first = wire.disks[0].known.tombstones[asked]
    wire.crash(1)
    wire.flight.clear()
    wire.start_agent(1, backup)
    judges(wire, verdicts[1])

    def cut(flight: Flight) -> bool:
        return 0 in (flight.sender, flight.to)

    wire.wait(90.0, hold=cut, until=lambda: asked in wire.disks[1].known.tombstones)
    second = wire.disks[1].known.tombstones[asked]
    assert first.raw != second.raw
    assert (first.retrain, second.retrain) == (not verdicts[0], not verdicts[1])
    wire.wait(120.0)
    assert wire.resting
    kept = {s.known.tombstones[asked].raw for s in wire.disks}
    assert len(kept) == 1
    assert kept <= {first.raw, second.raw}
    assert len({current_gossip(s.fork()).digests for s in wire.disks}) == 1
    if not all(verdicts):
        assert all(
            s.known.tombstones[asked].retrain and asked in s.known.retrain_epoch for s in wire.disks
        )
    assert asked in wire.checker.certified


def record_of(wire: Wire, request: bytes, **changes) -> Tombstone:
    body = {"whole": False, "rows": [], "retrain": False, "agent": 1, "name": "a2"} | changes
    run = wire.terms.network_id.hex()
    return Tombstone.write(1, wire.signers[1], network_id=run, request=request.hex(), **body)


def hears(wire: Wire, state: State, record: Tombstone, generation: frozenset[bytes]) -> State:
    """`state` hears from a neighbour that keeps `record`; an honest message is not refused."""
    tombs = {1: Tomb(frozenset({record.request}), whole=record.whole)}
    said = Erasures(tombs, generation, {record.request: record}, {})
    share = Share(state.token.fence, Gossip(Digests(b"c", b"e", b"r", b"n", b"o"), erasures=said))
    after, effects = handle(state, Received(1, share, wire.now), wire.signers[state.me])
    assert not [e.why for e in effects if isinstance(e, Refused)]
    return after


def test_either_record_is_backing_enough() -> None:
    """Whoever knows one record hears the other, in either order, with or without what it asks."""
    wire = rested(conjugate=False)
    request = request_id(1, b"r" * 12)
    mild = record_of(wire, request, rows=["aa"])
    strict = record_of(wire, request, retrain=True)
    both = frozenset({request})
    for order in ([mild, strict], [strict, mild]):
        state, generation = wire.disks[0], frozenset()
        for record in order:
            generation |= both if record.retrain else frozenset()
            state = hears(wire, state, record, generation)
        assert state.known.tombstones[request] == strict
        assert state.known.retrain_epoch == both
    # One that knows the mild record, and of the generation, by the token alone.
    state = hears(wire, wire.disks[0], strict, both)
    assert hears(wire, state, mild, both).known.tombstones[request] == strict


# --------------------------------------------------------------------- solvers that refuse new data


class Refusing(Tally):
    """A worker whose solver can be made to refuse."""

    answer: SolveResult | None = None

    def solve(self, work: Solve) -> SolveResult:
        if self.answer is None:
            return super().solve(work)
        self.solved += 1
        return self.answer


@pytest.mark.parametrize(
    ("conjugate", "answer"),
    [(False, SolveResult(None, failed=True)), (True, SolveResult(None, failed=True))],
)
def test_a_solver_that_refuses_new_data_does_not_keep_the_network_awake(
    conjugate: bool, answer: SolveResult
) -> None:
    wire = Wire(4, RING, conjugate=conjugate)
    worker = wire.workers[1] = Refusing(1, conjugate)
    wire.settle()
    before = wire.token.included[1]
    worker.answer = answer
    wire.change_data(1)
    wire.wait(30.0)
    assert wire.resting
    assert wire.token.included[1] == before  # what was learned stays
    stamp, solved = wire.token.stamp, worker.solved
    wire.wait(300.0)
    assert wire.token.stamp == stamp
    assert worker.solved == solved
    # Somebody else's change is a reason to look again; it still refuses, and all is quiet again.
    wire.change_data(3)
    wire.wait(30.0)
    assert wire.resting
    assert worker.solved > solved
    stamp, solved = wire.token.stamp, worker.solved
    wire.wait(300.0)
    assert wire.token.stamp == stamp
    # It would succeed now: the next change takes its data in.
    worker.answer = None
    wire.change_data(3)
    wire.wait(30.0)
    assert wire.resting
    assert wire.token.included[1] != before
    assert wire.disks[1].own.current.data == wire.disks[1].own.data


def test_new_data_are_looked_at_though_older_ones_were_refused() -> None:
    wire = Wire(4, RING, conjugate=False)
    worker = wire.workers[1] = Refusing(1, False)
    wire.settle()
    before = wire.token.included[1]
    worker.answer = SolveResult(None, failed=True)
    wire.change_data(1)
    wire.wait(30.0)
    worker.answer = None
    wire.change_data(1)
    wire.wait(30.0)
    assert wire.resting
    assert wire.token.included[1] != before


# ----------------------------------------------------------------- certificates without an estimate


def improper() -> tuple[ModelWorker, np.ndarray]:
    """A worker, and a sum that is no posterior: a = 1/2, where E[1/θ] does not exist."""
    model = BetaExponential(a=3.0, b=3.0)
    shard = model.shard({"z": [0.5, 1.0]})
    worker = ModelWorker(model, default_solver(model), shard, 1, tolerance=1e-6)
    return worker, model.grid.encode(np.array([0.5, 3.0]))


def test_nothing_is_claimed_of_a_sum_that_is_no_posterior() -> None:
    worker, eta = improper()
    said = worker.appraise(Appraise(("k",), eta, worker.model.grid.zeros()))
    assert said["kl_to_optimum"] is None
    assert "not a proper posterior" in said["method"]


def test_a_certificate_without_an_estimate_ends_the_walk() -> None:
    """What a real agent says when nothing can be said: the token rests, and the certificate
    holds."""
    wire = Wire(4, RING, conjugate=False)
    wire.checker.frozen = None
    for worker in wire.workers:
        worker.freeze = lambda work: wire.terms.grid.zeros()
        worker.appraise = lambda work: {"kl_to_optimum": float("inf"), "method": "none"}
    asked = wire.erase(1, rows=[1])
    wire.settle()
    assert wire.resting
    account = verify(
        wire.disks[0].token.parked.certificate,
        wire.terms,
        lambda agent, payload, signature: wire.signers[agent](payload) == signature,
    )
    assert asked.hex() in {e.request for e in account.erasures}
    assert account.estimate == {"kl_to_optimum": None, "method": "none"}


# ------------------------------------------------------------------------------------ dead outboxes


def test_an_outbox_that_a_tombstone_kills_is_rebuilt() -> None:
    """Two epochs at once: an agent has sent the newer token on, un-acknowledged, with the factor
    that its owner removes from the older one. Whoever is responsible for it opens the rebuild."""
    wire = rested(forget="walk")
    far = (wire.holder + 2) % 4
    owner = (wire.holder + 1) % 4
    asked = wire.erase(owner, rows=[1])
    wire.settle(
        hold=lambda f: isinstance(f.message, Pass) and f.to == owner,
        until=lambda: bool(wire.find(Pass, to=owner)) and asked in wire.disks[far].known.intents,
    )
    assert wire.disks[far].token.copy.inside == {0, 1, 2, 3}
    # It hears nothing, presumes the token lost, and sends its copy on in a new epoch.
    wire.tell(far, Tick(wire.now + 1000.0))
    while wire.local:
        agent, event = wire.local.pop(0)
        wire.tell(agent, event)
    role = wire.disks[far].token.role
    assert isinstance(role, Out)
    assert role.token.inside == {0, 1, 2, 3}
    wire.settle(hold=lambda f: f.sender == far, until=lambda: asked in wire.disks[owner].tomb.ids)
    wire.drop(Pass)
    opened = len(wire.opened)
    wire.settle(
        hold=lambda f: f.sender == far or isinstance(f.message, Pass),
        until=lambda: asked in wire.disks[far].known.tombs.get(owner, Tomb()).ids,
    )
    assert wire.opened[opened:] == [DEAD]
    assert wire.disks[far].token.held is not None
    wire.wait(60.0)
    assert wire.resting
    assert asked in wire.checker.certified
