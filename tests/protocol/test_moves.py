"""The table of moves, from which the state diagram is drawn, is what agents do in fault runs."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, get_args

import pytest
from tests.support.swarm import run_seed

from unweave.protocol import machine, state
from unweave.protocol.events import Received
from unweave.protocol.machine import MOVES
from unweave.simulator import world

SEEDS = range(72)  # eight runs of each profile; every third one in private rounds
RARE = {("Parked", "Idle"), ("Parked", "Out"), ("Quarantine", "Parked")}  # not in so few runs

Seen = dict[tuple[str, str], set[str]]


def role(s: state.State) -> str:
    return type(s.token.role).__name__ if s.peers.synced else "Quarantine"


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    """Every change of role in a simulated world, with the events that caused it."""
    found: Seen = defaultdict(set)

    def handle(before: state.State, event: Any, *rest: Any, **more: Any) -> Any:
        after, effects = machine.handle(before, event, *rest, **more)
        if role(before) != role(after):
            cause = event.message if isinstance(event, Received) else event
            found[role(before), role(after)].add(type(cause).__name__)
        return after, effects

    monkeypatch.setattr(world, "handle", handle)
    return found


def test_fault_runs_make_the_moves_of_the_table(seen: Seen) -> None:
    for seed in SEEDS:
        run_seed(seed, privacy="masked" if seed % 3 == 0 else "plain")
    table = {(move.before, move.after): set(move.events) for move in MOVES}
    assert seen.keys() <= table.keys()
    for move, events in seen.items():
        assert events <= table[move], move
    assert table.keys() - seen.keys() <= RARE


def test_the_table_names_roles_and_events_that_exist() -> None:
    roles = {kind.__name__ for kind in get_args(state.Role)} | {"Quarantine"}
    assert {name for move in MOVES for name in (move.before, move.after)} == roles
    known = {kind.__name__ for kind in (*machine._EVENTS, *machine._MESSAGES)}
    assert {event for move in MOVES for event in move.events} <= known
    assert len({(move.before, move.after) for move in MOVES}) == len(MOVES)
