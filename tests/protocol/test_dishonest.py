"""What one agent with a valid key cannot do to the others, nor bad data to a walk."""

import numpy as np
import pytest
from tests.support.tally import Tally, tally_terms

from unweave.errors import WireError
from unweave.graph import graphs
from unweave.node.wire.codec import decode, encode
from unweave.persistent import NOBODY, Bitmap, Stack
from unweave.protocol.admission import check_attestations
from unweave.protocol.events import Opened, Received, Refused, SolveResult, StaysOut
from unweave.protocol.gossip import current_gossip, handover
from unweave.protocol.machine import handle
from unweave.protocol.messages import Alive, Digests, Erasures, Gossip, Hello, News, Pass, Share
from unweave.protocol.recovery import open_epoch
from unweave.protocol.state import Turn, unsigned
from unweave.protocol.statements import Intent, Vote
from unweave.protocol.token import NEVER, AttestationRound, Stamp, request_id, requested_of
from unweave.simulator.world import World


class Quietly(Tally):
    """A worker with the factor that it is told to have."""

    def __init__(self, agent, units):
        super().__init__(agent, True)
        self.units = np.array(units, dtype=np.int64)

    def solve(self, work):
        return SolveResult(self.units)


def settled(workers=None, *, checked=True):
    terms = tally_terms(graphs.ring(3), seed=1, checked=checked)
    world = World(terms, workers or [Tally(k, True) for k in range(3)])
    world.start()
    assert world.run(lambda: world.parked is not None, 500)
    return world


def test_an_impossible_epoch_is_not_believed():
    """It would use up the numbers: no later epoch could be written."""
    world = settled()
    state = world.state(0)
    for ahead in (1, 5, 2**32 - 1, 2**61):
        stamp = Stamp(state.token.fence.epoch + ahead, 1, 1, 1, 1)
        after, _ = handle(state, Received(1, Alive(stamp, 0.0), 0.0))
        assert after.token.fence == state.token.fence
    before = world.state(1)
    opened = before.fork()
    open_epoch(opened, Turn(0.0, unsigned), None, "a test")
    stamp, news = opened.token.fence, Share(opened.token.fence, current_gossip(opened))
    after, _ = handle(state, Received(1, news, 0.0))
    assert after.token.fence == stamp
    sent = handover(opened, Turn(0.0, unsigned), opened.token.held, 0)
    _, effects = handle(state, Received(1, sent._replace(gossip=None), 0.0))
    assert any(isinstance(e, Refused) and "no agent has opened" in e.why for e in effects)
    after, effects = handle(state, Received(1, sent, 0.0))
    assert after.token.last >= stamp
    assert not any(isinstance(e, Refused) for e in effects)


def test_a_factor_that_does_not_fit_stays_out_and_the_walk_goes_on():
    huge = [2**62, 1]
    seen = []

    class Observer:
        def after(self, agent, before, after, effects):
            seen.extend(e.why for e in effects if isinstance(e, StaysOut))

    terms = tally_terms(graphs.ring(3), seed=1)
    workers = [Quietly(0, huge), Quietly(1, huge), Quietly(2, [5, 5])]
    world = World(terms, workers, observers=[Observer()])
    world.start()
    assert world.run(lambda: world.parked is not None, 500)
    token = world.state(world.parked).token.held
    assert len(token.inside) == 2
    assert 2 in token.inside
    assert any("leaves the grid" in why for why in seen)


def test_a_request_id_belongs_to_its_agent():
    terms = tally_terms(graphs.ring(3), seed=1)
    mine = request_id(2, b"x" * 12)
    assert requested_of(mine) == 2

    def message(record, field, key):
        news = News({}, frozenset(), {}, NEVER)
        said = Erasures({}, frozenset(), {}, {})
        if field == "intents":
            news = news._replace(intents={key: record})
        else:
            said = said._replace(votes={key: record})
        digests = Digests(b"", b"", b"", b"", b"")
        return Share(Stamp(1, 0, 1, 1, 1), Gossip(digests, erasures=said, news=news))

    def intent(author, request):
        return Intent.write(
            author,
            lambda raw: b"",
            network_id=terms.network_id.hex(),
            request=request.hex(),
            agent=author,
            whole=True,
            rows=[],
        )

    decode(encode(message(intent(2, mine), "intents", mine), terms), terms)
    with pytest.raises(WireError, match="names another agent"):
        decode(encode(message(intent(1, mine), "intents", mine), terms), terms)
    self_vote = Vote.write(
        2, lambda raw: b"", network_id=terms.network_id.hex(), agent=2, request=mine.hex()
    )
    with pytest.raises(WireError, match="declare itself departed"):
        decode(encode(message(self_vote, "votes", (2, 2)), terms), terms)


def test_a_false_attestation_is_refused_where_it_arrives():
    world = settled()
    terms, token = world.terms, world.state(world.parked).token.held
    quiet = AttestationRound(Bitmap([0, 1]), token.eta, None, b"statement", {0: b"good", 1: b"bad"})

    def verify(agent, payload, signature):
        return signature == b"good"

    with pytest.raises(WireError, match="a2 did not sign"):
        check_attestations(Pass(token._replace(round=quiet)), terms, verify)
    honest = quiet._replace(signatures={0: b"good", 1: b"good"})
    check_attestations(Pass(token._replace(round=honest)), terms, verify)
    with pytest.raises(WireError, match="agents of the round"):
        missing = quiet._replace(signatures={0: b"good"})
        check_attestations(Pass(token._replace(round=missing)), terms, verify)
    check_attestations(Hello(token.stamp, None), terms, verify)


def test_an_audit_that_nothing_can_be_added_to_is_found_in_the_end():
    """A lying neighbour writes a second sum at the edge of the grid: it wraps around, and the one
    who closes the cover sees that it is not the sum, also where no step is checked."""
    world = settled(checked=False)
    holder = world.parked
    to = world.state(holder).neighbours[0]
    token = world.state(holder).token.held
    full = np.full(2, 2**63 - 1, dtype=np.int64)
    everybody = world.terms.everybody
    quiet = token.round._replace(agents=everybody.minus(to), audit=full)
    sent = token._replace(
        stamp=token.stamp.next(7), round=quiet, busy=True, seen=NOBODY, stack=Stack()
    )
    after, effects = handle(world.state(to), Received(holder, Pass(sent), 0.0))
    (mismatch,) = after.known.mismatches  # it spreads and stays, so it names no sum
    assert mismatch.body.keys() == {"network_id", "stamp", "agent", "departed"}
    assert any("did not add up" in e.why for e in effects if isinstance(e, Opened))
