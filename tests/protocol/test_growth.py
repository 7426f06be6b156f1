"""Nothing grows with the number of erasures but what must: an id, and the rows' commitments."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.tally import Tally, tally_checker, tally_signers, tally_terms

from unweave.graph import graphs
from unweave.node.storage.sqlite import SqliteStore
from unweave.node.wire.codec import encode
from unweave.protocol.certificate.unchecked import unchecked_tombstones
from unweave.protocol.events import EraseRequested
from unweave.protocol.gossip import current_gossip
from unweave.protocol.messages import Pass, Welcome
from unweave.protocol.state import State
from unweave.protocol.token import request_id
from unweave.simulator.world import World

ID, ROW = 16, 16  # bytes: of a request, of a row's commitment


class Measured:
    """A network in which one agent erases record after record; each erasure is certified."""

    def __init__(self) -> None:
        self.terms = tally_terms(graphs.ring(3), seed=3)
        self.checker = tally_checker(self.terms)
        workers = [Tally(k, True) for k in range(3)]
        signers = tally_signers(self.terms)
        self.world = World(self.terms, workers, signers=signers, observers=[self.checker])
        self.erased = 0
        self.world.start()
        assert self.world.run(lambda: self.world.parked is not None, 10_000)

    def erase(self, count: int) -> None:
        for _ in range(count):
            self.erased += 1
            name = self.erased.to_bytes(12, "big")
            event = EraseRequested(request_id(1, name), False, frozenset({b"row " + name}), 0.0)
            self.world.tell(1, event)
            self.world.run(lambda: False, 10_000)
            assert self.world.parked is not None
            assert len(self.checker.certified) == self.erased

    def sizes(self, tmp: Path) -> dict[str, int]:
        s = self.world.state(0)
        file = tmp / f"{self.erased}.db"
        with SqliteStore.open(file, self.terms, 0) as store:
            store.commit(State(self.terms, 0), s)
        assert s.token.copy is not None
        assert s.token.parked is not None
        everything = Welcome(s.token.fence, current_gossip(s), s.incarnation)
        return {
            "token": len(encode(Pass(s.token.copy), self.terms)),
            "welcome": len(encode(everything, self.terms)),
            "statement": len(s.token.copy.round.statement),
            "certificate": len(s.token.parked.certificate),
            "disk": file.stat().st_size,
            "evidence": len(s.known.tombstones),
        }


def test_an_erasure_leaves_an_id_and_its_rows(tmp_path: Path) -> None:
    network = Measured()
    chapter = network.terms.compact_after
    period = chapter - 1  # all but the newest are put away when there are so many
    network.erase(2 * period)
    before = network.sizes(tmp_path)
    assert before["evidence"] < chapter
    network.erase(4 * period)
    after = network.sizes(tmp_path)
    assert after["evidence"] == before["evidence"]
    assert len(network.checker.compacted) >= 5 * period
    grown = {name: (after[name] - before[name]) / (4 * period) for name in before}
    # Per erasure of one record, in bytes; a chapter's head and signature are shared by many.
    assert grown["token"] <= ID + 1
    assert grown["welcome"] <= ID + ROW + 12
    assert abs(grown["statement"]) < 0.1
    assert abs(grown["certificate"]) < 2.0  # counters get longer
    assert grown["disk"] <= 2 * ID + ID + ROW + 48  # in the token, its copy and a chapter; in pages


def test_erasures_of_one_visit_do_not_repeat_each_other() -> None:
    """The evidence of n erasures of one visit has n parts of one size."""
    sizes = []
    for count in (1, 4, 64):
        network = Measured()
        for n in range(count):
            name = n.to_bytes(12, "big")
            event = EraseRequested(request_id(1, name), False, frozenset({b"row " + name}), 0.0)
            network.world.tell(1, event)
        network.world.run(lambda: False, 10_000)
        assert len(network.checker.certified) == count
        parked = network.world.state(1).token.parked
        assert parked is not None
        tombstones = [raw for raw, _ in unchecked_tombstones(parked.certificate)]
        receipts = [json.loads(json.loads(raw)["receipt"]) for raw in tombstones]
        assert len({str(receipt["stamp"]) for receipt in receipts}) == 1
        sizes.append({len(raw) for raw in tombstones})
    assert len(sizes[2]) == 1
    assert sizes[0] == sizes[1] == sizes[2]
