"""Each state change has one log line, with the names that matter."""

from __future__ import annotations

import io
from collections import Counter, defaultdict

import numpy as np

from unweave.manifest import Manifest
from unweave.models import BetaBernoulli
from unweave.node.activity import MISMATCH, log_activity, news
from unweave.node.log import Log
from unweave.protocol.events import EraseRequested, VoteCast
from unweave.protocol.statements import AuditMismatch
from unweave.protocol.token import NOTHING, request_id
from unweave.simulator.faults import RandomFaults, profile
from unweave.simulator.invariants import Checker
from unweave.simulator.run import draw_shards
from unweave.simulator.session import NO_FAULTS
from unweave.simulator.workload import run_workload
from unweave.simulator.world import World
from unweave.solvers import default_solver
from unweave.solvers.worker import ModelWorker, record_key

RENEWED = "new epoch in place of the last one"


class Diary:
    """Every agent's entries, as an observer of a world."""

    def __init__(self) -> None:
        self.entries = defaultdict(list)

    def after(self, agent, before, after, effects):
        self.entries[agent] += news(before, after)

    def of(self, agent: int, what: str) -> list[dict]:
        return [entry.facts for entry in self.entries[agent] if entry.what == what]

    @property
    def kinds(self) -> Counter[str]:
        return Counter(entry.what for entries in self.entries.values() for entry in entries)


def world_of(diary: Diary, faults: RandomFaults, agents: int = 4, **settings):
    model = BetaBernoulli()
    manifest = Manifest.make(name="n", model=model, agents=agents, graph="ring", **settings)
    terms = manifest.terms()
    workers = [
        ModelWorker(model, default_solver(model), shard, terms.seed)
        for shard in draw_shards(model, terms.topology.agents, 1)
    ]
    checker = Checker(terms)
    return World(terms, workers, seed=1, faults=faults, observers=[checker, diary]), checker


def run(world: World) -> None:
    """Until all has been said: signs of life go on for ever."""
    for _ in range(2000):
        world.step()


def at_rest() -> tuple[Diary, World]:
    """Four agents without faults that have learned."""
    diary = Diary()
    world, _ = world_of(diary, RandomFaults(NO_FAULTS, 4, 1))
    for k in range(4):
        world.start_agent(k)
    run(world)
    return diary, world


def test_the_lines_of_a_run_without_faults():
    diary, world = at_rest()
    for k in range(4):
        whats = [entry.what for entry in diary.entries[k]]
        assert whats == ["joined", "added the factor", "the token is parked"]
    (parked,) = diary.of(0, "the token is parked")
    assert parked["attested"] == 4
    assert (
        len({facts["commitment"] for k in range(4) for facts in diary.of(k, "the token is parked")})
        == 1
    )

    request = request_id(2, bytes(12))
    world.tell(2, EraseRequested(request, False, frozenset({record_key(5)}), world.clock(2)))
    run(world)
    named = {"agent": "a3", "scope": "1 record", "request": request.hex()}
    assert diary.of(2, "an erasure was requested") == [named]
    for k in range(4):
        assert diary.of(k, "an erasure was requested") in (
            [],
            [named],
        )  # done before it heard, or not
        assert diary.of(k, "an erasure was carried out") == [named]
        assert diary.of(k, "certified") == [{"agents": "a3", "requests": request.hex()}]
        assert len(diary.of(k, "the token is parked")) == 2
    again = diary.of(2, "replaced the factor: records were erased")
    assert again == [{"revision": 2}]
    assert not diary.of(1, "replaced the factor: records were erased")


def test_a_certificate_names_the_agent_that_was_voted_out():
    diary, world = at_rest()
    world.crash(3)
    run(world)
    for k in (0, 2, 1):  # its neighbours first
        world.tell(k, VoteCast(3, request_id(3, b"v" * 12), world.clock(k)))
        run(world)
    for k in range(3):
        assert diary.of(k, "certified") == [{"agents": "a4"}]


def test_the_lines_of_faults():
    told: Counter[str] = Counter()
    for seed in range(1, 5):
        diary = Diary()
        faults = RandomFaults(profile("severe"), 5, seed)
        world, checker = world_of(diary, faults, agents=5)
        run_workload(world, faults, checker, erasure, events=1500)
        told += diary.kinds
        assert diary.kinds["joined"] >= 5
        lost = diary.of(0, RENEWED)
        lost = {tuple(facts.values()) for facts in lost}  # an old disk hears of one again
        assert len(lost) <= sum(1 for why in checker.opened if why != "genesis")
        for entry in (entry for entries in diary.entries.values() for entry in entries):
            assert entry.level in ("info", "warning", "error")
            assert not any(isinstance(value, (bytes, np.ndarray)) for value in entry.facts.values())
    for what in ("a neighbour does not answer", RENEWED, "certified"):
        assert told[what] > 0, what


def erasure(rng, agent):
    whole = rng.random() < 0.15
    return whole, frozenset() if whole else frozenset({record_key(rng.randrange(100))})


def test_a_private_round_is_told_without_a_digest_of_any_sum():
    diary = Diary()
    world, _ = world_of(diary, RandomFaults(NO_FAULTS, 4, 1), privacy="masked")
    for k in range(3):
        world.start_agent(k)
    run(world)
    waits = diary.of(0, "the private round waits")
    assert waits[-1] == {"not_enrolled": "a4"}
    world.start_agent(3)
    run(world)
    request = request_id(2, b"r" * 12)
    world.tell(2, EraseRequested(request, False, frozenset({record_key(2, 0)}), 0.0))
    run(world)
    for k in range(4):
        told = [entry.what for entry in diary.entries[k]]
        for what in ("enrolled for a private round", "gave its value to a private round"):
            assert told.count(what) >= 2, (k, what)
        served = [what for what in told if what.startswith("the private sum")]
        assert served == [
            "the private sum is complete and attested",
            "the private sum holds erased data: it is served no more",
            "the private sum is complete and attested",
        ]
        assert diary.of(k, "the private sum is complete and attested")[-1] == {"agents": 4}
        assert not any("factor" in what for what in told)
    facts = [entry.facts for entries in diary.entries.values() for entry in entries]
    assert not any("digest" in one for one in facts)


def test_an_audit_that_failed_is_an_error_that_names_who_found_it():
    diary = Diary()
    world, _ = world_of(diary, RandomFaults(NO_FAULTS, 4, 1))
    first = world.state(0)
    halts = [
        AuditMismatch.write(author, lambda raw: b"", stamp=[author], departed=[])
        for author in (2, 1)
    ]
    before = first
    for number, halt in enumerate(halts, 1):
        after = before.fork()
        after.known.mismatches = before.known.mismatches | {halt}
        entries = list(news(before, after))
        assert entries[0] == (MISMATCH, {"found_at": f"a{halt.author + 1}"}, "error")
        assert len(entries) == number  # the second one halts
        before = after
    log = io.StringIO()
    log_activity(Log("a1", stream=log), first, before)
    assert "ERROR" in log.getvalue().upper()
    assert "found_at=a2" in log.getvalue()


def test_a_token_that_was_not_lost_is_not_called_so():
    """A new epoch is no accident if an erasure or a quorum asked for it."""
    _, world = at_rest()
    before = world.state(0)
    for changes, said in (
        ({"retrain_epoch": frozenset({bytes(16)})}, "every agent starts from zero"),
        ({"tombs": {1: NOTHING._replace(departed=True)}}, "without a departed agent"),
        ({}, "in place of the last one"),
    ):
        after = before.fork()
        after.token.fence = before.token.fence._replace(epoch=before.token.fence.epoch + 1)
        for name, value in changes.items():
            after.set_durable(name, value)
        (what,) = [entry.what for entry in news(before, after) if "epoch" in entry.facts]
        assert what.endswith(said)


def test_nothing_new_is_nothing_to_say_and_a_gap_is_told():
    diary = Diary()
    world, _ = world_of(diary, RandomFaults(NO_FAULTS, 4, 1))
    world.start_agent(0)
    state = world.state(0)
    assert list(news(state, state)) == []
    text = io.StringIO()
    log_activity(Log("a1", stream=text), state, None)
    assert "a change was not logged" in text.getvalue()
