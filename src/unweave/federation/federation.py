"""`Federation`: K agents in one process that learn one model over a graph, and can forget."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Self, get_args

import numpy as np
from numpy.typing import ArrayLike

from unweave.arguments import number, seed_number, shown, whole_number
from unweave.errors import ConfigError, DataError, DomainError
from unweave.federation.history import History
from unweave.federation.requests import (
    EXAMPLES,
    Requests,
    agent_index,
    attested,
    chosen_agents,
    chosen_records,
    erased,
    retrained,
)
from unweave.federation.results import Audit, Erasure, Kind
from unweave.federation.saving import restored, saved
from unweave.federation.terms import Forgetting, Schedule, Solving, privacy_of, terms_of
from unweave.federation.walk import MaskedWalk, Walk
from unweave.graph import Topology, match
from unweave.grid import Ints, digest
from unweave.json_form import read_saved
from unweave.manifest.privacy import Mode
from unweave.models import LossModel, Model, as_model
from unweave.models.fitted.posterior import Posterior
from unweave.models.resolution import check_shards
from unweave.models.shards import Missing, MissingRule, Shard
from unweave.privacy.terms import PrivacyTerms
from unweave.protocol.events import DataChanged
from unweave.protocol.terms import Terms
from unweave.protocol.token import Token, all_out
from unweave.solvers import Solver, as_solver, in_rounds
from unweave.solvers.worker import ModelWorker, influence

__all__ = ["Federation"]


Method = Literal["auto", "subtract", "refine", "retrain"]
Until = Literal["tol", "identical"]


class Federation:
    """K agents that learn one model over a graph, and can forget.

    - `model`: a model, or the name of one.
    - `shards`: one data set per agent, a mapping by name or a sequence in the graph's order. Tables
      may have more columns than the model.
    - `graph`: a `Topology`, a name such as "ring", pairs of agents, or a networkx graph.
    - `schedule`: "sweep" (depth first) or "metropolis" (the paper's random walk).
    - `seed`: of all draws; the same seed gives the same walk.
    - `solver`: for a model that is not conjugate; by default its own.
    - `forget`: how the token reaches an agent with an erasure. "seek" takes the shortest path,
      "walk" follows the schedule (the paper).
    - `solve`: for models that are not conjugate. "pass": an agent solves once per pass; "visit": at
      every visit, as in the paper.
    - `retrain_above`: a removal that moves the posterior by more than this in KL makes all agents
      start from zero; by default 3·max(1, D/31) for D quantities.
    - `columns`: a model's column → its name in the tables, e.g. `{"x": "diagnosis"}`.
    - `missing`: what becomes of a record with a missing value. "refuse": an error; "drop":
      `dropped` counts them, and row numbers stay those of the tables.
    - `privacy`: "plain" (the paper's walk, in which a token shows factors) or "masked" (private
      rounds: only the sum of all agents can be read). The sums are the same, bit for bit, if the
      model is conjugate. A mapping, with the names of the table `[privacy]` of network.toml, also
      asks for differential privacy: `{"epsilon": 1.0, "delta": 1e-6, "bounds": {"x": (-5, 5)}}`.
      Then records are clipped, sums carry noise, and `posterior` knows of it (`noise` says what was
      promised). Here the noise follows from the seed, for planning: it protects nobody who can read
      the records.
    """

    def __init__(
        self,
        model: Model | str,
        shards: Mapping[str, Any] | Sequence[Any],
        graph: Topology | str | Iterable[tuple[Any, Any]] = "complete",
        schedule: Schedule = "sweep",
        seed: int = 0,
        *,
        solver: Solver | str | None = None,
        forget: Forgetting = "seek",
        solve: Solving = "pass",
        retrain_above: float | None = None,
        columns: Mapping[str, str] | None = None,
        missing: MissingRule = "refuse",
        privacy: Mode | Mapping[str, Any] | PrivacyTerms = "plain",
    ) -> None:
        self.model = as_model(model)
        self.seed = seed_number(seed)
        self.solver = as_solver(solver, self.model)
        self.graph, data = match(graph, shards)
        self.model.check_agents(len(self.graph.agents))
        self.privacy = privacy_of(privacy, len(self.graph.agents))
        if self.privacy.masked:
            self.model = in_rounds(self.model, self.solver, len(self.graph.agents))
        mechanism = self.privacy.mechanism(self.model)
        terms = terms_of(
            self.model,
            self.graph,
            schedule=schedule,
            forget=forget,
            solve=solve,
            seed=self.seed,
            privacy=self.privacy,
            mechanism=mechanism,
        )
        self.columns = dict(columns or {})
        self.missing = missing
        parts = [
            part if isinstance(part, Shard) else self.model.shard(part, name, self.columns, missing)
            for name, part in zip(self.graph.agents, data, strict=True)
        ]
        check_shards(self.model, parts)
        far = _threshold(retrain_above)
        summed = self.model if mechanism is None else mechanism.model
        workers = [
            ModelWorker(summed, self.solver, part, self.seed, retrain_above=far) for part in parts
        ]
        self.erasures: list[Erasure] = []
        kind = MaskedWalk if terms.masked else Walk
        self._walk = kind(self.model, terms, workers, mechanism)
        self._requests = Requests(self._walk)

    # reading

    @property
    def agents(self) -> tuple[str, ...]:
        return self.graph.agents

    @property
    def history(self) -> History:
        """The steps so far, one row per iteration."""
        return self._walk.history

    @property
    def dropped(self) -> dict[str, Missing]:
        """The records that were left out for a missing value, by agent (`missing="drop"`)."""
        shards = (worker.whole for worker in self._walk.workers)
        return {shard.agent: shard.missing for shard in shards if shard.missing.records}

    @property
    def included(self) -> tuple[str, ...]:
        """The agents whose contribution is in the token now."""
        token = self._walk.token
        return () if token is None else self._names(token.inside)

    @property
    def forgotten(self) -> tuple[str, ...]:
        """The agents that were erased as a whole."""
        token = self._walk.token
        return () if token is None else self._names(all_out(token.tombs))

    @property
    def token(self) -> Token | None:
        """The newest token whose sum can be read; None before the first one."""
        return self._walk.token

    @property
    def terms(self) -> Terms:
        """What the agents agree on."""
        return self._walk.terms

    @property
    def units(self) -> Ints:
        """The token's natural parameter on the grid."""
        token = self._walk.token
        return self.model.eta0 if token is None else token.eta

    @property
    def posterior(self) -> Posterior:
        """The current posterior; the prior before the first visit. Of a sum with noise, one that
        knows of it (`NoisyPosterior`)."""
        if error := self._walk.withheld:
            raise DataError(f"no posterior: {error}")
        return self._walk.read(self.units)

    @property
    def noise(self) -> dict[str, Any] | None:
        """The noise of differential privacy, what it promises, and how many values each agent may
        still give; None without epsilon."""
        mechanism, noise = self._walk.mechanism, self._walk.noise
        if mechanism is None or noise is None:
            return None
        releases = [noise.release(k, 0).left for k in range(len(self.agents))]
        return {**mechanism.statement(), "left": dict(zip(self.agents, releases, strict=True))}

    def factor(self, agent: str) -> Ints:
        """An agent's current contribution; zero if it is not in the token."""
        self._refuse_factors("factor")
        k = agent_index(self.graph, agent)
        token = self._walk.token
        held = None if token is None else self._walk.world.state(k).own.factor(token.included[k])
        return self.model.grid.zeros() if held is None else held.units

    def log_evidence(self) -> float:
        """log p(data) of a conjugate model, of all records that are in the token."""
        token = self._walk.token
        inside = () if token is None else token.inside
        states = [(k, self._walk.world.state(k)) for k in inside]
        rows = [self._walk.workers[k].shard(state.own.dropped).rows for k, state in states]
        none = np.empty((0, len(self.model.schema)))
        return self.posterior.log_evidence(Shard("all", np.concatenate([none, *rows])))

    def influence(self) -> dict[str, float]:
        """KL of the posterior with and without each agent, the most influential first."""
        self._refuse_factors("influence")
        units = self.units
        found = {name: influence(self.model, units, self.factor(name)) for name in self.included}
        return dict(sorted(found.items(), key=lambda item: -item[1]))

    def __repr__(self) -> str:
        return (
            f"Federation({self.model.name}, {len(self.agents)} agents, "
            f"{self._walk.terms.schedule}: {len(self.included)} included, "
            f"{len(self.forgotten)} forgotten, {len(self.history)} iterations)"
        )

    # learning

    def learn(
        self,
        iterations: int | None = None,
        *,
        tol: float = 1e-4,
        until: Until = "tol",
        max_iterations: int | None = None,
        progress: bool | None = None,
    ) -> Self:
        """Let the token walk: for `iterations`, or until the work is done.

        A conjugate model is done when all agents are included. Another model is done when a whole
        pass (a cover of all agents) has moved the posterior by less than `tol` in KL; with
        `until="identical"`, when no further pass can change `posterior.published()`. Private rounds
        are done when the network is at rest, with a sum that all agents have attested.
        """
        self._check_until(until)
        tol, limit = number(tol, "tol", least=0.0), _limit(max_iterations)
        if iterations is not None:
            if self.privacy.masked:
                raise ConfigError(
                    f"learn: iterations = {shown(iterations)}: a private round shows nothing "
                    "before it is complete. Fix: leave it out"
                )
            self._walk.visits(whole_number(iterations, "iterations", 0), "learning", progress)
        elif self.model.conjugate:
            self._walk.until(self._walk.complete, "learning", progress, limit)
        else:
            self._walk.converge(tol, "learning", progress, limit)
            if until == "identical":
                self._walk.settle("learning", limit)
            self._warn()
        return self

    def refine(
        self,
        *,
        tol: float = 1e-4,
        until: Until = "tol",
        max_iterations: int | None = None,
        progress: bool | None = None,
    ) -> Self:
        """Fit the factors again after forgetting in a model that is not conjugate: they were fitted
        with the forgotten data present. A conjugate model needs no refinement.

        With `until="identical"`, until no further pass can change `posterior.published()`:
        retraining then publishes the same, as far as this was measured.
        """
        self._check_until(until)
        tol, limit = number(tol, "tol", least=0.0), _limit(max_iterations)
        if not self.model.conjugate:
            first = len(self.history)
            self._walk.converge(tol, "refining", progress, limit)
            if until == "identical":
                self._walk.settle("refining", limit)
            took = len(self.history) - first
            self.erasures[:] = [
                replace(e, kind="refined", iterations=e.iterations + took)
                if e.kind == "subtracted"
                else e
                for e in self.erasures
            ]
        return self

    def update(self, agent: str, data: Any) -> Self:
        """Replace an agent's data; the next visit corrects the token."""
        k = agent_index(self.graph, agent)
        if self._erased(k):
            raise DataError(
                f"agent {agent!r} was forgotten and cannot contribute again. Fix: make a new "
                "Federation with its data"
            )
        shard = self.model.shard(data, agent, self.columns, self.missing)
        others = [
            worker.whole
            for j, worker in enumerate(self._walk.workers)
            if j != k and not self._erased(j)
        ]
        check_shards(self.model, [*others, shard])
        self._walk.workers[k].replace(shard)
        self._walk.tell(k, DataChanged(0.0))
        return self

    # forgetting

    def forget(
        self,
        agents: str | Iterable[str] = (),
        *,
        records: Mapping[str, ArrayLike] | None = None,
        method: Method = "auto",
        tol: float = 1e-4,
        until: Until = "tol",
        max_iterations: int | None = None,
        progress: bool | None = None,
    ) -> Self:
        """Forget whole agents, single records, or both.

        `records` maps an agent to a boolean mask over its records or to their row numbers, counted
        in the data as they were given. On return the token no longer holds the contributions;
        `erasures` lists the results. For a model that is not conjugate the other factors were
        fitted with the forgotten data present. `method` says what becomes of them: "subtract"
        leaves them, "refine" fits them again (to `tol`, as in `learn`), "retrain" makes all agents
        start from zero, and "auto" retrains after a removal of more than `retrain_above`, and
        refines after any other. A sum that is no posterior is always retrained. With
        `until="identical"` the result is `posterior.published()` as retraining publishes it. In
        private rounds nothing is subtracted: a new round is learned without the data.
        """
        self._check_until(until)
        limit, tol = _limit(max_iterations), number(tol, "tol", least=0.0)
        if method not in get_args(Method):
            choices = ", ".join(get_args(Method))
            raise ConfigError(f"forget: method = {shown(method)}. Fix: choose from {choices}")
        if method == "subtract" and self.privacy.masked:
            raise ConfigError(
                "forget: method = 'subtract': no agent sees a factor that could be subtracted. "
                "Fix: leave it out"
            )
        names, wanted = chosen_agents(self.graph, agents), chosen_records(self._walk, records)
        if not names and not wanted:
            raise ConfigError(f"forget: no agent and no records. Fix: write {EXAMPLES}")
        for name in (*names, *wanted):
            if self._erased(agent_index(self.graph, name)):
                raise DataError(f"agent {name!r} was forgotten before. Fix: leave it out")
        before, first = self.units, len(self.history)
        learned = self._walk.complete()
        # Records of an agent that is forgotten as a whole need no request of their own.
        parts = {name: rows for name, rows in wanted.items() if name not in names}
        asked = {
            (k := self.graph.index(name)): frozenset({self._requests.ask(k, rows)})
            for name, rows in {**dict.fromkeys(names), **parts}.items()
        }
        walk = self._walk
        if isinstance(walk, MaskedWalk):
            walk.aim(tol)
        with self._judged_by(method):
            walk.until(lambda: erased(walk.token, asked), "forgetting", progress, limit)
        again = retrained(walk.current_token(), asked)
        if again:
            walk.until(walk.complete, "retraining", progress, limit)
            walk.converge(tol, "retraining", progress, limit)
            if until == "identical":
                walk.settle("retraining", limit)
        elif self.model.settles and learned and not self.privacy.masked:
            # Where the sum without the data moves an ellipsoid, everybody evaluates again.
            walk.converge(0.0, "settling", progress, limit)
        self.erasures.append(
            Erasure(
                names,
                {name: len(rows) for name, rows in wanted.items()},
                len(self.history) - first,
                self._moved(before),
                self._kind(again),
            )
        )
        if learned and self.erasures[-1].kind == "subtracted" and method in ("auto", "refine"):
            self.refine(tol=tol, until=until, max_iterations=max_iterations, progress=progress)
        return self

    def audit(self, *, progress: bool | None = None) -> Audit:
        """One attestation round: every agent adds its factor to a second sum and attests the
        result. The protocol requires the two sums to be equal, bit for bit."""
        first, walk = len(self.history), self._walk
        if isinstance(walk, MaskedWalk):
            walk.attest(progress)
            return self._audited(attested(walk), first)
        walk.begin()
        walk.world.amend(replace(walk.terms, parks=True, solve="pass", max_passes=0))
        try:
            walk.until(lambda: attested(walk) is not None, "auditing", progress, None)
            token = attested(walk)
        finally:
            walk.world.amend(walk.terms)
            walk.wake()
        return self._audited(token, first)

    def _audited(self, token: Token | None, first: int) -> Audit:
        assert token is not None
        return Audit(
            digest(token.eta).hex(),
            self._names(token.round.agents),
            self._names(token.inside),
            len(self.history) - first,
        )

    # saving

    def save(self, path: str | Path) -> None:
        """Write the federation as JSON: settings, remaining records, and the state of the protocol.

        Erased records are not written, nor is the history, which holds earlier sums.
        """
        Path(path).write_text(json.dumps(saved(self)) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read what `save` has written; learning and forgetting go on from there, bit for bit."""
        return read_saved(path, lambda raw: restored(cls, raw))

    # internal

    def _warn(self) -> None:
        """Warn of a converged result that says little."""
        assert isinstance(self.model, LossModel)
        walk = self._walk
        data = [walk.workers[k].shard(walk.world.state(k).own.dropped) for k in self._inside()]
        concern = self.model.concern(self.units, data)
        if concern is not None:
            warnings.warn(concern, stacklevel=3)

    def _check_until(self, until: str) -> None:
        if until not in ("tol", "identical"):
            raise ConfigError(f'until = {until!r}: unknown. Fix: choose "tol" or "identical"')
        if until == "identical" and self.privacy.masked and not self.model.conjugate:
            raise ConfigError(
                "until = 'identical': private rounds end at a tolerance. Fix: until='tol', or "
                'privacy="plain"'
            )

    def _refuse_factors(self, what: str) -> None:
        if self.privacy.masked:
            raise ConfigError(
                f"{what}: under masks no agent sees another's factor, and an influence nearly is "
                'one. Fix: privacy="plain" for data that lie in one place, as here'
            )

    def _inside(self) -> Iterable[int]:
        return self._walk.current_token().inside

    @contextmanager
    def _judged_by(self, method: Method) -> Iterator[None]:
        """The agents' threshold for starting from zero, while they carry out one request."""
        usual = {worker: worker.retrain_above for worker in self._walk.workers}
        for worker in usual if method != "auto" else ():
            worker.retrain_above = -np.inf if method == "retrain" else np.inf
        try:
            yield
        finally:
            for worker, threshold in usual.items():
                worker.retrain_above = threshold

    def _names(self, agents: Iterable[int]) -> tuple[str, ...]:
        return tuple(self.agents[k] for k in agents)

    def _erased(self, k: int) -> bool:
        return self._walk.started and self._walk.world.state(k).tomb.out

    def _kind(self, again: bool) -> Kind:
        """Of an erasure after which all agents started from zero (`again`), or not."""
        if self.noise is not None:
            return "exact_before_noise"
        if self.model.conjugate or self.model.settles:
            return "exact"
        if again:
            return "retrained"
        return "refined" if self.privacy.masked else "subtracted"

    def _moved(self, before: Ints) -> float:
        if self._walk.withheld:
            return float("nan")
        try:
            return self._walk.read(before).kl(self._walk.read(self.units))
        except DomainError:  # the sum is not a proper posterior
            return float("nan")


def _limit(max_iterations: int | None) -> int | None:
    return None if max_iterations is None else whole_number(max_iterations, "max_iterations", 1)


def _threshold(retrain_above: float | None) -> float | None:
    """KL ≥ 0; infinity never retrains, None is the model's threshold."""
    if retrain_above is None:
        return None
    return np.inf if retrain_above == np.inf else number(retrain_above, "retrain_above", least=0.0)
