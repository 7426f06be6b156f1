"""Faults that somebody asks for while a simulation runs, and requests of its owners.

    session = Session(…, kind=AskedFaults)
    asked = AskedEvents(session)
    asked.fault("crash", 2)  # → "a3 crashed. It starts again in 10 seconds."

Every fault ends by itself after some simulated seconds, except a departure. Every function returns
what happened as a sentence. What the protocol does not promise to survive is refused: two spoiled
disks at once, departures that leave no quorum or cut the graph.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from unweave.errors import ConfigError
from unweave.models import Shard
from unweave.protocol.events import Effect, EraseRequested
from unweave.protocol.given import forget_given
from unweave.protocol.state import State
from unweave.protocol.token import NOTHING, request_id, requested_of
from unweave.rng import Purpose, derive
from unweave.simulator.faults import Profile, RandomFaults
from unweave.simulator.invariants import (
    Violation,
    check_liveness,
    departed,
    known_departed,
)
from unweave.simulator.session import Session
from unweave.solvers.worker import record_key
from unweave.text import count

__all__ = ["FAULTS", "AskedEvents", "AskedFaults", "Fault"]

_DOWN = 10.0  # seconds that a crashed process is down: longer than neighbours wait for an answer
_FROZEN = 20.0  # seconds of a stopped process: the token is presumed lost
_APART = 20.0
_LOSSY = 20.0
_LOSS = 0.4  # of all messages
_POWER = 5.0
_VOTE = 12.0  # seconds between two rounds of votes
_NEW = 10  # records


class Fault(NamedTuple):
    """A button: what it says, and whether it strikes one agent."""

    label: str
    of_agent: bool


FAULTS = {
    "crash": Fault("Crash", True),
    "freeze": Fault("Freeze", True),
    "disk": Fault("Lose the disk", True),
    "restore": Fault("Restore an old backup", True),
    "depart": Fault("Depart for good", True),
    "data": Fault("New records", True),
    "partition": Fault("Cut the network in two", False),
    "loss": Fault("Lose 40% of the messages", False),
    "power": Fault("Power cut", False),
}


class AskedFaults(RandomFaults):
    """The faults of a profile, and those that somebody asks for. Without the latter its draws are
    those of `RandomFaults`."""

    def __init__(self, profile: Profile, size: int, seed: int) -> None:
        super().__init__(profile, size, seed)
        self.apart: frozenset[int] = frozenset()
        self.apart_until = 0.0
        self.lossy_until = 0.0
        self._draws = random.Random(f"asked {seed}")

    def flights(self, sender: int, to: int, now: float) -> Sequence[float]:
        cut = now < self.apart_until and (sender in self.apart) != (to in self.apart)
        if cut or (now < self.lossy_until and self._draws.random() < _LOSS):
            self.lost += 1
            return ()
        return super().flights(sender, to, now)


class AskedEvents:
    """Carries out what somebody asks for. It observes the world to have old disks to restore, and
    to know which records remain."""

    def __init__(
        self, session: Session, say: Callable[[str, str | None], None] = lambda text, agent: None
    ) -> None:
        assert isinstance(session.faults, AskedFaults)
        self.session = session
        self.faults = session.faults
        self.down_until: dict[int, float] = {}  # agents that are down or stopped on request
        self.leaving: set[int] = set()  # agents that have stopped for good
        self.altered: set[int] = set()  # agents whose remaining records changed; the reader clears
        self._absent: frozenset[int] = frozenset()  # agents that have departed
        self._say = say  # told when a fault ends
        self._rng = random.Random(f"asked events {session.seed}")
        self._backups: dict[int, tuple[float, State]] = {}
        self._spoiled: int | None = None
        session.world.observers.append(self)

    def after(self, agent: int, before: State, after: State, effects: Sequence[Effect]) -> None:
        factors, tombs = after.own.factors, after.known.tombs
        if factors is not before.own.factors or tombs is not before.known.tombs:
            # The last disk from before a change of the agent's factor or of its erasures.
            self._backups[agent] = (self.session.world.now, before)
        if tombs is not before.known.tombs:
            self._absent |= departed(tombs)
            self.altered |= tombs.keys() - before.known.tombs.keys() | {agent}
        if (
            after.known.intents is not before.known.intents
            or after.own.waiting is not before.own.waiting
            or after.incarnation != before.incarnation
        ):
            self.altered.add(agent)

    def remaining(self, k: int) -> Shard:
        """The records of agent k that are not erased, and of which no erasure is requested. A
        request that was lost with a disk, before another agent knew of it, erases nothing."""
        session, worker = self.session, self.session.workers[k]
        s, erased = session.world.state(k), session.checker.erased
        own = [*s.own_intents(), *s.own.waiting.requests.values()]
        if s.tomb.whole or k in self._absent or any(intent.whole for intent in own):
            return worker.whole.drop(np.arange(worker.whole.given))
        proved = {request for request in session.checker.certified if requested_of(request) == k}
        keys = {key for request in s.tomb.ids | proved for key in erased[request][1]}
        keys |= {key for intent in own for key in intent.rows}
        places = (divmod(int.from_bytes(key, "big"), 1 << 64) for key in keys)
        rows = [row for version, row in places if version == worker.version]
        return worker.whole.drop(np.array(rows, dtype=np.int64))

    def fault(self, name: str, agent: int | None = None) -> str:
        """Cause a fault of `FAULTS`."""
        if name not in FAULTS:
            raise ConfigError(f"no fault {name!r}. Fix: choose one of {', '.join(FAULTS)}")
        if not FAULTS[name].of_agent:
            return {"partition": self.cut, "loss": self.lose_messages, "power": self.cut_power}[
                name
            ]()
        if agent is None:
            raise ConfigError(f"{name}: no agent. Fix: name the agent that it strikes")
        self._check_running(agent)
        return {
            "crash": self.crash,
            "freeze": self.freeze,
            "disk": self.lose_disk,
            "restore": self.restore,
            "depart": self.depart,
            "data": self.add_records,
        }[name](agent)

    # ----------------------------------------------------------------------------- one process

    def crash(self, k: int) -> str:
        self._stop(k, _DOWN)
        return f"{self._name(k)} crashed. It starts again in {_DOWN:g} seconds."

    def freeze(self, k: int) -> str:
        self.session.world.freeze(k)
        self.down_until[k] = self.session.world.now + _FROZEN
        self.session.later(_FROZEN, lambda: self._thaw(k))
        return f"The process of {self._name(k)} was stopped. It goes on in {_FROZEN:g} seconds."

    def _thaw(self, k: int) -> None:
        if self.session.world.agents[k].backlog is not None and k not in self.leaving:
            self.session.world.thaw(k, lost=False)
            self._say(f"The process of {self._name(k)} goes on.", self._name(k))
        self.down_until.pop(k, None)

    def lose_disk(self, k: int) -> str:
        self._spoil(k)
        self._stop(k, _POWER)
        self.session.world.wipe(k)
        self.session.workload.learned[k] = self.session.workload.versions[k]
        return (
            f"{self._name(k)} lost its disk. It starts again in {_POWER:g} seconds, with its "
            "records and its key, but without a memory of the network."
        )

    def restore(self, k: int) -> str:
        if k not in self._backups:
            raise ConfigError(
                f"{self._name(k)} has no backup yet. Fix: wait until it has changed its factor"
            )
        self._spoil(k)
        taken, disk = self._backups[k]
        self._stop(k, _POWER)
        self.session.world.wipe(k, forget_given(disk))
        self.session.workload.learned[k] = -1  # what the old disk knows of the data is not known
        return (
            f"The disk of {self._name(k)} was replaced by a backup of second {taken:.1f}. It "
            f"starts again in {_POWER:g} seconds."
        )

    def _stop(self, k: int, seconds: float) -> None:
        session = self.session
        session.world.crash(k)
        session.workload.kept_down.add(k)
        self.down_until[k] = until = session.world.now + seconds

        def start() -> None:
            if self.down_until.get(k) == until:  # nobody has stopped it again since
                del self.down_until[k]
                session.workload.kept_down.discard(k)
                if k in session.world.down:
                    session.workload.restart(k)
                    self._say(f"{self._name(k)} started again.", self._name(k))

        session.later(seconds, start)

    def _spoil(self, k: int) -> None:
        """The protocol tolerates one spoiled disk at a time, until the network is at rest."""
        if self.session.terms.size == 1:
            raise ConfigError(
                "one agent alone: nobody else would remember what its disk held. Fix: simulate a "
                "network of several agents"
            )
        other = self._spoiled if self._spoiled is not None else self.session.workload.spoiled
        if other not in (None, k) and not self.at_rest():
            raise ConfigError(
                f"the network has not come to rest since {self._name(other)} lost a disk, and "
                "tolerates one at a time. Fix: wait until it is at rest"
            )
        self._spoiled = self.session.workload.spoiled = k

    def depart(self, k: int) -> str:
        """Stop for good; the others vote until all of them know."""
        session = self.session
        terms = session.terms
        gone = {*self.leaving, *known_departed(session.world), k}
        if session.workload.departed is not None:
            gone.add(session.workload.departed)
        if terms.size - len(gone) < terms.quorum:
            raise ConfigError(
                f"without {self._name(k)} the others would be no quorum of {terms.quorum}. Fix: "
                "let it stay"
            )
        rest = [a for a in range(terms.size) if a not in gone]
        far = terms.topology.distances_avoiding(rest[0], frozenset(gone))
        if any(far[a] < 0 for a in rest):
            raise ConfigError(
                f"without {self._name(k)} the graph falls apart. Fix: choose another agent"
            )
        session.world.crash(k)
        session.workload.kept_down.add(k)
        self.leaving.add(k)
        session.later(1.0, lambda: self._vote(k))
        return f"{self._name(k)} stopped for good. The others vote it out."

    def _vote(self, k: int) -> None:
        world, absent = self.session.world, self.leaving | known_departed(self.session.world)
        others = (a for a in range(len(world.agents)) if a not in absent)
        if any(k not in world.state(a).departed for a in others):
            self.session.workload.vote_out(k)
            self.session.later(_VOTE, lambda: self._vote(k))

    # ---------------------------------------------------------------------------- the network

    def cut(self) -> str:
        """Cut off the half of the agents that is nearest to one of them."""
        session, faults = self.session, self.faults
        if session.terms.size < 2:
            raise ConfigError("one agent alone has no network. Fix: simulate several agents")
        first = self._rng.randrange(session.terms.size)
        far = session.terms.topology.distances_avoiding(first, frozenset())
        near = sorted(range(session.terms.size), key=lambda k: (far[k], k))
        faults.apart = frozenset(near[: session.terms.size // 2])
        faults.apart_until = session.world.now + _APART
        session.later(_APART, lambda: self._ended("apart_until", "The network is whole again."))
        return (
            f"The network was cut in two: {count(len(faults.apart), 'agent')} around "
            f"{self._name(first)} and {session.terms.size - len(faults.apart)} others hear "
            f"nothing of each other for {_APART:g} seconds."
        )

    def lose_messages(self) -> str:
        self.faults.lossy_until = self.session.world.now + _LOSSY
        self.session.later(_LOSSY, lambda: self._ended("lossy_until", "Messages arrive again."))
        return f"For {_LOSSY:g} seconds {100 * _LOSS:g}% of all messages are lost."

    def _ended(self, until: str, text: str) -> None:
        if self.session.world.now >= getattr(self.faults, until):  # nobody has asked again since
            self._say(text, None)

    def cut_power(self) -> str:
        for k in range(self.session.terms.size):
            if k not in self.leaving:
                self._stop(k, _POWER)
        return f"A power cut: every process crashed. They start again in {_POWER:g} seconds."

    # -------------------------------------------------------------------------------- the data

    def add_records(self, k: int) -> str:
        """Give an agent some more records, drawn from its own: the model accepts those."""
        session = self.session
        if session.world.state(k).tomb.out or k in self.leaving:
            raise ConfigError(
                f"{self._name(k)} takes part no more. Fix: choose an agent that still learns"
            )
        if not session.world.state(k).peers.synced:
            raise ConfigError(
                f"{self._name(k)} has just started and does not know yet what was erased. Fix: "
                "let the simulation run on"
            )
        worker = session.workers[k]
        rows = self.remaining(k).rows
        if not len(rows):
            raise ConfigError(f"{self._name(k)} has no records. Fix: choose another agent")
        draws = np.random.default_rng(
            derive(session.seed, Purpose.PARTITION, k, session.workload.versions[k] + 1)
        )
        more = rows[draws.integers(0, len(rows), _NEW)]
        worker.replace(Shard(self._name(k), np.concatenate([rows, more])))
        self.altered.add(k)
        session.workload.change_data(k)
        return f"{self._name(k)} has {_NEW} new records."

    def check_erasure(self, k: int, rows: Sequence[int] | None) -> None:
        """Refuse what agent k cannot be asked to erase."""
        self._check_running(k)
        state, given = self.session.world.state(k), self.session.workers[k].whole.given
        if state.tomb.out or state.own.detached:
            raise ConfigError(f"{self._name(k)} was forgotten before. Fix: choose another agent")
        if rows is not None and (not rows or not all(0 <= row < given for row in rows)):
            raise ConfigError(
                f"{self._name(k)} has the records 0 to {given - 1}. Fix: give row numbers among "
                "them"
            )

    def erase(self, k: int, rows: Sequence[int] | None, *, at_once: bool = False) -> bytes:
        """Ask agent k to erase these records, or (None) everything; returns the request's id."""
        self.check_erasure(k, rows)
        world, worker = self.session.world, self.session.workers[k]
        keys = frozenset(record_key(row, worker.version) for row in rows or ())
        request = request_id(k, self._rng.randbytes(12))
        world.tell(
            k,
            EraseRequested(
                request, rows is None, keys, world.clock(k), date=world.now, at_once=at_once
            ),
        )
        state = world.state(k)
        waits = request in state.own.waiting.requests or request in state.known.intents
        if not waits and request not in state.known.tombs.get(k, NOTHING).ids:
            raise ConfigError(
                f"{self._name(k)} has not taken the request: it asks its neighbours what was "
                "erased meanwhile. Fix: let the simulation run on and ask again"
            )
        return request

    # --------------------------------------------------------------------------------- helpers

    def at_rest(self) -> bool:
        """Whether the token is parked with no pending work."""
        if self.session.world.parked is None:
            return False
        try:
            check_liveness(self.session.world, self.session.checker)
        except Violation:
            return False
        return True

    def _check_running(self, k: int) -> None:
        agent = self.session.world.agents[k]
        if agent.state is None or agent.backlog is not None:
            raise ConfigError(
                f"{self._name(k)} does not run now. Fix: wait until its process goes on"
            )

    def _name(self, k: int) -> str:
        return self.session.terms.name(k)
