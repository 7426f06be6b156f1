"""The front door: a whole network in one memory.

    federation = Federation(BetaBernoulli(), shards, graphs.ring(5))
    federation.learn()
    federation.forget("a3")
    federation.posterior

It runs the protocol core of `unweave.protocol` on the calm world of `unweave.simulate`: the rules
are those of real agents, only the wire is instant.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike

from unweave.draws import Purpose, derive
from unweave.errors import ConfigError, DataError, SolverError
from unweave.graph import Topology, graphs
from unweave.grid import Ints
from unweave.history import History, Step
from unweave.models import Model
from unweave.models.posterior import Posterior
from unweave.progress import Bar, bar
from unweave.protocol.events import Continue, DataChanged, Effect, EraseRequested, Event
from unweave.protocol.ids import bit, members, request_id
from unweave.protocol.state import State
from unweave.protocol.terms import Terms
from unweave.protocol.token import Token, missing
from unweave.protocol.tombs import NOTHING, whole_bitmap
from unweave.simulate.worker import ModelWorker, influence, record_key
from unweave.simulate.world import World
from unweave.solvers import Solver, default_solver

__all__ = ["Audit", "Erasure", "Federation"]

Schedule = Literal["metropolis", "sweep"]


@dataclass(frozen=True)
class Erasure:
    """What was taken out, and how: `exact`, `subtracted` (refine to go on), or `retrained`."""

    agents: tuple[str, ...]
    records: Mapping[str, int]
    iterations: int  # until the last contribution had left the token
    moved: float  # KL(posterior before ‖ after); nan if one of them is improper
    kind: Literal["exact", "subtracted", "refined", "retrained"]


@dataclass(frozen=True)
class Audit:
    """The result of a quiet cover: everybody has attested the same sum."""

    digest: str
    attested: tuple[str, ...]
    included: tuple[str, ...]
    iterations: int


class Federation:
    """K agents that learn one model over a graph, and can forget.

    `shards` is one data set per agent: a mapping by name or a sequence in the graph's order.
    `graph` is a `Topology` or a name such as "ring". `schedule` is "metropolis" (the paper's random
    walk) or "sweep". `forget` says how the token reaches an agent that is to be forgotten: "seek"
    takes the shortest path, "walk" keeps to the schedule (the paper). A removal that moves the
    posterior by more than `retrain_above` in KL makes everybody start from zero (models that are
    not conjugate; refining might lose there).
    """

    def __init__(
        self,
        model: Model,
        shards: Mapping[str, Any] | Sequence[Any],
        graph: Topology | str = "complete",
        schedule: Schedule = "metropolis",
        seed: int = 0,
        *,
        solver: Solver | None = None,
        forget: Literal["seek", "walk"] = "seek",
        retrain_above: float = 3.0,
    ) -> None:
        if schedule not in ("metropolis", "sweep"):
            raise ConfigError(f'schedule = {schedule!r}: choose "metropolis" or "sweep"')
        if forget not in ("seek", "walk"):
            raise ConfigError(f'forget = {forget!r}: choose "seek" or "walk"')
        self.model = model
        self.seed = seed
        self.solver = default_solver(model) if solver is None else solver
        self.graph, data = _match(graph, shards)
        model.check_agents(len(self.graph.agents))
        self._workers = [
            ModelWorker(
                model, self.solver, model.shard(part, name), seed, retrain_above=retrain_above
            )
            for name, part in zip(self.graph.agents, data, strict=True)
        ]
        self._terms = Terms(
            run=_run_id(model, self.graph, schedule, seed),
            topology=self.graph,
            grid=model.grid,
            eta0=model.eta0,
            seed=seed,
            conjugate=model.conjugate,
            schedule=schedule,
            forget=forget,
            attest="sweep",
            solve="visit",
            rest=False,
        )
        self.history = History(model)
        self.erasures: list[Erasure] = []
        self._recorder = _Recorder(self)
        self._world = World(self._terms, self._workers, seed=seed, observers=[self._recorder])
        self._started = False
        self._requests = 0

    # --------------------------------------------------------------------------------- reading

    @property
    def agents(self) -> tuple[str, ...]:
        return self.graph.agents

    @property
    def included(self) -> tuple[str, ...]:
        """The agents whose contribution is in the token now."""
        token = self._recorder.token
        return () if token is None else tuple(self.agents[k] for k in members(token.inside))

    @property
    def forgotten(self) -> tuple[str, ...]:
        """The agents that were erased as a whole."""
        token = self._recorder.token
        return (
            ()
            if token is None
            else tuple(self.agents[k] for k in members(whole_bitmap(token.tombs)))
        )

    @property
    def units(self) -> Ints:
        """The token's natural parameter on the grid."""
        token = self._recorder.token
        return self.model.eta0 if token is None else token.eta

    @property
    def posterior(self) -> Posterior:
        """What the network knows now; the prior before anything was learned."""
        return self.model.posterior(self.units)

    def factor(self, agent: str) -> Ints:
        """An agent's current contribution; zero if it is not in the token."""
        k = self.graph.index(agent)
        token = self._recorder.token
        held = None if token is None else self._world.state(k).factor(token.included[k])
        return self.model.grid.zeros() if held is None else held.units

    def influence(self) -> dict[str, float]:
        """KL of the posterior with and without each agent, the most influential first."""
        units = self.units
        found = {name: influence(self.model, units, self.factor(name)) for name in self.included}
        return dict(sorted(found.items(), key=lambda item: -item[1]))

    # -------------------------------------------------------------------------------- learning

    def learn(
        self,
        iterations: int | None = None,
        *,
        tol: float = 1e-4,
        max_iterations: int | None = None,
        progress: bool | None = None,
    ) -> Self:
        """Let the token walk: for `iterations`, or until the work is done.

        Conjugate models are done when everybody is in. The others go on until a whole pass (a
        cover of all agents) has moved the posterior by less than `tol` in KL.
        """
        if iterations is not None:
            if iterations < 0:
                raise ConfigError(f"iterations = {iterations}: a number of iterations is ≥ 0")
            self._walk(len(self.history) + iterations, "learning", progress)
        elif self.model.conjugate:
            self._until(self._complete, "learning", progress, max_iterations)
        else:
            self._converge(tol, "learning", progress, max_iterations)
        return self

    def refine(
        self,
        *,
        tol: float = 1e-4,
        max_iterations: int | None = None,
        progress: bool | None = None,
    ) -> Self:
        """After forgetting in a model that is not conjugate: the others' factors were fitted with
        the forgotten data present, so let them settle without it. Exact models need none."""
        if not self.model.conjugate:
            self._converge(tol, "refining", progress, max_iterations)
            if self.erasures and self.erasures[-1].kind == "subtracted":
                self.erasures[-1] = replace(self.erasures[-1], kind="refined")
        return self

    def update(self, agent: str, data: Any) -> Self:
        """Replace an agent's data; the next visit corrects the token."""
        k = self.graph.index(agent)
        if self._gone(k):
            raise DataError(f"agent {agent!r} was forgotten: it cannot contribute again")
        self._workers[k].replace(self.model.shard(data, agent))
        self._tell(k, DataChanged(0.0))
        return self

    # ------------------------------------------------------------------------------- forgetting

    def forget(
        self,
        agents: str | Iterable[str] = (),
        *,
        records: Mapping[str, ArrayLike] | None = None,
        max_iterations: int | None = None,
        progress: bool | None = None,
    ) -> Self:
        """Take out whole agents, single records, or both.

        `records` maps an agent to a boolean mask over its records or to their row numbers, counted
        in the data as they were given. On return the contributions have left the token; for a
        model that is not conjugate call `refine()` next. See `erasures` for what was earned.
        """
        names = (agents,) if isinstance(agents, str) else tuple(agents)
        wanted = {name: self._rows(name, chosen) for name, chosen in (records or {}).items()}
        if not names and not wanted:
            raise ConfigError("forget: name an agent, several agents, or records={agent: rows}")
        for name in (*names, *wanted):
            if self._gone(self.graph.index(name)):
                raise DataError(f"agent {name!r} was forgotten before")
        before, first = self.units, len(self.history)
        requests: dict[int, set[bytes]] = {}
        for name in names:
            requests.setdefault(self.graph.index(name), set()).add(self._erase(name, None))
        for name, rows in wanted.items():
            if name not in names:
                requests.setdefault(self.graph.index(name), set()).add(self._erase(name, rows))

        def done() -> bool:
            token = self._recorder.token
            return token is not None and all(
                ids <= token.tombs.get(k, NOTHING).ids for k, ids in requests.items()
            )

        self._until(done, "forgetting", progress, max_iterations)
        token = self._recorder.token
        assert token is not None
        all_ids = frozenset().union(*requests.values())
        retrained = bool(all_ids & token.generation)
        iterations = len(self.history) - first
        if retrained:
            self._until(self._complete, "retraining", progress, max_iterations)
            self._converge(1e-4, "retraining", progress, max_iterations)
        self.erasures.append(
            Erasure(
                names,
                {name: len(rows) for name, rows in wanted.items()},
                iterations,
                self._moved(before),
                "exact" if self.model.conjugate else "retrained" if retrained else "subtracted",
            )
        )
        return self

    def audit(self, *, progress: bool | None = None) -> Audit:
        """One quiet cover: every agent adds its factor to a second sum and attests the result. The
        protocol requires the two sums to be equal, bit for bit."""
        first = len(self.history)
        self._begin()
        self._world.amend(replace(self._terms, rest=True, solve="pass", max_passes=0))
        try:
            self._until(lambda: self._attested() is not None, "auditing", progress, None)
            token = self._attested()
            assert token is not None
        finally:
            self._world.amend(self._terms)
            self._wake()
        return Audit(
            self.model.posterior(token.eta).digest,
            tuple(self.agents[k] for k in members(token.quiet.agents)),
            tuple(self.agents[k] for k in members(token.inside)),
            len(self.history) - first,
        )

    # --------------------------------------------------------------------------------- internal

    def _begin(self) -> None:
        if not self._started:
            self._started = True
            self._world.start()

    def _tell(self, k: int, event: Event) -> None:
        self._begin()
        self._world.tell(k, event)

    def _erase(self, name: str, rows: frozenset[bytes] | None) -> bytes:
        self._requests += 1
        words = [derive(self.seed, Purpose.NONCE, 1 << 32, self._requests, i) for i in (0, 1)]
        agent = self.graph.index(name)
        request = request_id(agent, b"".join(word.to_bytes(8, "big") for word in words))
        event = EraseRequested(request, rows is None, rows or frozenset(), 0.0)
        self._tell(agent, event)
        return request

    def _rows(self, name: str, chosen: ArrayLike) -> frozenset[bytes]:
        """Row numbers of a mask or of indices, checked against the agent's data."""
        worker = self._workers[self.graph.index(name)]
        if worker.whole.n == worker.whole.drop(chosen).n:  # raises if the choice makes no sense
            raise DataError(f"agent {name!r}: no record is chosen; nothing would be forgotten")
        array = np.asarray(chosen)
        rows = np.flatnonzero(array) if array.dtype == bool else np.atleast_1d(array)
        return frozenset(record_key(int(row), worker.version) for row in rows)

    def _gone(self, k: int) -> bool:
        return self._started and self._world.state(k).tomb.out

    def _complete(self) -> bool:
        """Everybody who belongs in the token is in it, at its current revision."""
        token = self._recorder.token
        if token is None:
            return False
        absent = members(missing(token, self._terms.everybody))
        return not any(map(self._has_rows, absent)) and not self._recorder.outdated(token)

    def _has_rows(self, k: int) -> bool:
        """Whether anything is left to contribute: all records may have been forgotten."""
        return self._workers[k].shard(self._world.state(k).dropped).n > 0

    def _attested(self) -> Token | None:
        holder = self._world.parked
        token = None if holder is None else self._world.state(holder).token
        complete = token is not None and token.quiet.agents == self._terms.everybody
        return token if complete else None

    def _wake(self) -> None:
        """After an audit the token rests; let the walk go on from there."""
        holder = self._world.parked
        if holder is not None:
            self._world.tell(holder, Continue(0.0))

    def _moved(self, before: Ints) -> float:
        family, decode = self.model.family, self.model.grid.decode
        old, new = decode(before), decode(self.units)
        if not (family.margin(old) > 0.0 and family.margin(new) > 0.0):
            return float("nan")
        return float(family.kl(old, new))

    def _walk(self, until: int, what: str, progress: bool | None) -> None:
        self._begin()
        with bar(what, until - len(self.history), progress) as show:
            self._run(lambda: len(self.history) >= until, show)

    def _until(
        self, done: Callable[[], bool], what: str, progress: bool | None, limit: int | None
    ) -> None:
        """Run until the work is done; an unbounded walk is an error that says what to do."""
        self._begin()
        size = len(self.agents)
        allowed = limit if limit is not None else 10_000 + 100 * size * size
        end = len(self.history) + allowed
        with bar(what, None, progress) as show:
            self._run(lambda: done() or len(self.history) >= end, show)
        if not done():
            raise SolverError(
                f"{what} was not done after {allowed} iterations; allow more (max_iterations=…) or "
                f'use schedule="sweep"'
            )

    def _run(self, done: Callable[[], bool], show: Bar) -> None:
        """Step the world; `done` can only change with a visit."""
        world, recorder = self._world, self._recorder
        while not done():
            seen = recorder.visits
            while recorder.visits == seen:
                if not world.step():
                    raise SolverError("the token came to rest before the work was done")
            show()

    def _converge(self, tol: float, what: str, progress: bool | None, limit: int | None) -> None:
        """Passes until one of them moves q by less than tol: KL(after ‖ before) ≤ tol."""
        size = len(self.agents)
        end = len(self.history) + (limit if limit is not None else 10_000 * size)
        decode, family = self.model.grid.decode, self.model.family
        self._until(self._complete, what, progress, limit)
        while True:
            before = decode(self.units)
            live = self._terms.everybody & ~whole_bitmap(self._token().tombs)
            seen = 0
            start = len(self.history)
            while live & ~seen:
                self._walk(len(self.history) + 1, what, False)
                seen |= bit(self.graph.index(self.history[-1].agent))
            moved = float(family.kl(decode(self.units), before))
            if moved <= tol:
                return
            if len(self.history) >= end:
                raise SolverError(
                    f"{what} did not converge: the last pass ({len(self.history) - start} "
                    f"iterations) moved the posterior by KL = {moved:.3g}; raise tol, allow more "
                    f"iterations (max_iterations=…), or use a gradient without noise"
                )

    def _token(self) -> Token:
        token = self._recorder.token
        assert token is not None
        return token

    def __repr__(self) -> str:
        k = len(self.included)
        return (
            f"Federation({self.model.name}, {len(self.agents)} agents, {self._terms.schedule}: "
            f"{k} included, {len(self.forgotten)} forgotten, {len(self.history)} iterations)"
        )


class _Recorder:
    """Writes the history: a visit is done when a token leaves the agent, or stays for another."""

    def __init__(self, federation: Federation) -> None:
        self._history = federation.history
        self._names = federation.graph.agents
        self._states: dict[int, State] = {}
        self.token: Token | None = None
        self.visits = 0

    def after(self, agent: int, before: State, after: State, effects: Sequence[Effect]) -> None:
        self._states[agent] = after
        token = after.copy
        if token is None or token is before.copy:
            return
        old = self.token
        self.token = token
        was = None if old is None else old.included[agent]
        now = token.included[agent]
        if now.counter and (was is None or not was.counter):
            action = "learn"
        elif was is not None and was.counter and not now.counter:
            action = "forget"
        else:
            action = "pass" if was == now else "update"
        if after.tombs is not before.tombs and after.tombstones is not before.tombstones:
            action = "forget"
        self.visits += 1
        self._history.append(
            Step(
                self.visits,
                token.stamp.epoch,
                self._names[agent],
                action,
                token.inside.bit_count(),
                token.eta,
            )
        )

    def outdated(self, token: Token) -> bool:
        """Whether somebody's data are newer than what the token includes."""
        for agent, state in self._states.items():
            current = state.current
            if current is None or state.tomb.out:
                continue
            if current.revision != token.included[agent] or (
                current.data != state.data or current.rows != state.rows
            ):
                return True
        return False


def _match(
    graph: Topology | str, shards: Mapping[str, Any] | Sequence[Any]
) -> tuple[Topology, list[Any]]:
    """The graph and the shards in its order; names must agree."""
    if isinstance(shards, Mapping):
        names = [str(name) for name in shards]
        topology = graphs.by_name(graph, names) if isinstance(graph, str) else graph
        extra = sorted(set(names) - set(topology.agents))
        absent = [name for name in topology.agents if name not in shards]
        if extra or absent:
            raise ConfigError(
                "the shards and the graph name different agents: "
                + "; ".join(
                    [f"no shard for {', '.join(absent)}"] * bool(absent)
                    + [f"not in the graph: {', '.join(extra)}"] * bool(extra)
                )
            )
        return topology, [shards[name] for name in topology.agents]
    topology = graphs.by_name(graph, len(shards)) if isinstance(graph, str) else graph
    if len(shards) != len(topology.agents):
        raise ConfigError(
            f"{len(shards)} shards for {len(topology.agents)} agents: give one data set per agent"
        )
    return topology, list(shards)


def _run_id(model: Model, graph: Topology, schedule: str, seed: int) -> bytes:
    """Names this network: a digest of everything its agents agree on."""
    what = {
        "model": model.name,
        "settings": model.settings(),
        "agents": graph.agents,
        "edges": graph.edges,
        "schedule": schedule,
        "seed": seed,
    }
    return hashlib.sha256(json.dumps(what, sort_keys=True, default=str).encode()).digest()
