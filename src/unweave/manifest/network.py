"""The manifest `network.toml`, which simulations and real agents share.

The SHA-256 of the file's exact bytes is the network id. Every token, receipt and certificate holds
the network id, so two networks never mix, and a certificate names the terms under which it was
issued.

    name = "clinics"
    seed = 7
    graph = "ring"                       # or edges = [["north", "east"], …]

    [model]
    name = "beta-bernoulli"
    a = 2.0
    b = 2.0

    [solver]                             # unless the model is conjugate
    name = "ep"
    tol = 1e-6

    [privacy]                            # or, in short, privacy = "masked"
    mode = "masked"

    [[agents]]
    name = "north"
    address = "10.0.0.1:7400"            # real agents
    certificate = \"\"\"-----BEGIN …\"\"\"     # the pinned identity
    data = "north.csv"                   # simulation

For a simulation `agents = 10` is enough.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import Field, PrivateAttr, ValidationError, field_validator, model_validator

from unweave.bounded import load_toml, read_bytes
from unweave.errors import ConfigError, GraphError, UnweaveError
from unweave.graph import Topology, graphs
from unweave.manifest.brief import brief_settings
from unweave.manifest.custom import PinnedSource, is_custom, load_custom
from unweave.manifest.entries import (
    AgentEntry,
    GraphEntry,
    ModelEntry,
    Name,
    SolverEntry,
    StrictTable,
    TimeoutsEntry,
    look_alike,
)
from unweave.manifest.errors import explain
from unweave.manifest.privacy import PrivacyEntry, PublishEntry, RoundTerms
from unweave.protocol.terms import Terms, Timeouts
from unweave.text import clip

if TYPE_CHECKING:
    from unweave.models import Model
    from unweave.privacy.mechanism import Mechanism
    from unweave.solvers import Solver

__all__ = ["Manifest", "load"]


_MOST_BYTES = 32 << 20  # of a file: a pinned certificate takes 1 kB
_Edge = Annotated[
    list[Annotated[str, Field(max_length=64)]], Field(min_length=2, max_length=2, fail_fast=True)
]


class Manifest(StrictTable):
    """The terms that all agents of a network share. `Manifest.make()`, `load("network.toml")`."""

    name: Annotated[Name, Field(max_length=64)]
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    schedule: Literal["metropolis", "sweep"] = "sweep"
    forget: Literal["seek", "walk"] = "seek"
    attest: Literal["sweep", "walk"] = "sweep"
    solve: Literal["pass", "visit"] = "pass"
    max_passes: Annotated[int, Field(ge=1, lt=2**31)] = 50
    kept: Annotated[int, Field(ge=1, le=1000)] = 2
    graph: Annotated[str, Field(max_length=64)] | GraphEntry | None = None
    edges: Annotated[list[_Edge], Field(fail_fast=True)] | None = None
    model: ModelEntry
    solver: SolverEntry = SolverEntry()
    # "refuse", or the consent of all agents to factors of fewer records than the model requires.
    small_shards: Literal["refuse", "neighbours can reconstruct records"] = "refuse"
    privacy: PrivacyEntry = PrivacyEntry(mode="plain")
    publish: PublishEntry | None = None
    timeouts: TimeoutsEntry = TimeoutsEntry()
    agents: (
        Annotated[int, Field(ge=1, le=100_000)]
        | Annotated[list[AgentEntry], Field(min_length=1, fail_fast=True)]
    )

    _raw: bytes | None = PrivateAttr(default=None)
    _where: Path = PrivateAttr(default=Path("network.toml"))
    _runs_model: bool = PrivateAttr(default=True)
    _topology: Topology | None = PrivateAttr(default=None)
    _mechanism: Mechanism | None = PrivateAttr(default=None)

    # Construction

    @classmethod
    def make(cls, **values: Any) -> Manifest:
        """A manifest in memory. If `model` is a Model, the manifest holds all its settings; if it
        is a PinnedSource, the name and the digest of its file."""
        model = values.get("model")
        if isinstance(model, PinnedSource):
            values["model"] = model.table()
            return _validated(values, model.path.parent / "network.toml", None)
        if model is not None and not isinstance(model, ModelEntry | dict):
            values["model"] = {"name": model.name, **brief_settings(model)}
        return _validated(values, Path("network.toml"), None)

    @classmethod
    def parse(cls, raw: bytes, where: str | Path = "network.toml") -> Manifest:
        """The manifest in these bytes; `where` is for error messages and relative data paths."""
        path = Path(where)
        try:
            values = load_toml(raw)
        except ValueError as error:
            raise ConfigError(
                f"{path.name}: not TOML: {clip(error, 200)}. Fix: correct it there"
            ) from None
        return _validated(values, path, raw)

    @field_validator("privacy", mode="before")
    @classmethod
    def _privacy_table(cls, value: Any) -> Any:
        """`privacy = "masked"` is short for the table."""
        if isinstance(value, str):
            return {"mode": value}
        if not isinstance(value, dict | PrivacyEntry):
            raise ConfigError('no mode. Fix: "plain", "masked" or a table [privacy]')
        return value

    @model_validator(mode="after")
    def _check(self) -> Self:
        entries = self.entries
        if not isinstance(self.agents, int):
            _check_unique("two agents are named", [e.name for e in entries])
            _check_unique("two agents look like", [look_alike(e.name) for e in entries])
        _check_unique("two agents have the address", [e.address for e in entries if e.address])
        for what in ("certificate", "public_key", "keyid"):
            shared = [v for e in entries if (v := getattr(e, what))]
            _check_unique(f"two agents have the same {what}", shared)
        keyless = [e.name for e in entries if not (e.pem or e.keyid)]
        if keyless and len(keyless) < len(entries):
            raise ConfigError(
                f'agent "{keyless[0]}" has no certificate, but others have. Fix: add it '
                "(every agent of a real network is pinned), or remove all of them (simulation)"
            )
        self._topology = self._build_topology()
        # The file of a new network states what follows from its number of agents today.
        self.__dict__["privacy"] = self.privacy.resolved(len(entries))
        if self.privacy.masked and self.solve == "visit":
            raise ConfigError(
                'solve = "visit" and privacy = "masked": in a private round an agent gives one '
                'value, not one per visit. Fix: solve = "pass", or privacy = "plain"'
            )
        if self.publish is not None:
            self.publish.check(self.privacy, len(entries))
        return self

    # Access

    @property
    def raw(self) -> bytes:
        """The file's exact bytes; for a manifest made in memory, the bytes that `write` writes."""
        if self._raw is None:
            self._raw = self.to_toml().encode()
        return self._raw

    @property
    def digest(self) -> bytes:
        """SHA-256 of the exact bytes: the network id."""
        return hashlib.sha256(self.raw).digest()

    @property
    def entries(self) -> list[AgentEntry]:
        """One entry per agent; `agents = 3` means a1, a2, a3."""
        if isinstance(self.agents, int):
            return [AgentEntry(name=f"a{k}") for k in range(1, self.agents + 1)]
        return self.agents

    @property
    def topology(self) -> Topology:
        assert self._topology is not None
        return self._topology

    def agent(self, name: str) -> AgentEntry:
        """The entry of one agent; an unknown name is a GraphError that lists similar names."""
        index = self.topology.index(name)
        return AgentEntry(name=name) if isinstance(self.agents, int) else self.agents[index]

    def data_path(self, name: str) -> Path | None:
        """The path of this agent's data in a simulation, inside the manifest's folder: a manifest
        may come from somebody else, and must not choose any file of this machine."""
        data = self.agent(name).data
        if data is None:
            return None
        folder = self._where.parent
        if not (folder / data).resolve().is_relative_to(folder.resolve()):
            raise ConfigError(
                f'{self._where.name}: agent "{name}": data leads out of the manifest\'s folder. '
                "Fix: copy the file there, and name it without .. or links"
            )
        return folder / data

    def build_model(self) -> Model:
        """The model with its settings; of a masked network, as private rounds learn it. With noise
        it clips records: a published sum is read by `build_mechanism().posterior`."""
        mechanism = self.build_mechanism()
        return self._rounds_model() if mechanism is None else mechanism.model

    def build_mechanism(self) -> Mechanism | None:
        """The noise of differential privacy by the `[privacy]` table, checked against the model;
        None without epsilon."""
        if self.privacy.epsilon is None:
            return None
        if self._mechanism is None:
            try:
                self._mechanism = self.privacy.mechanism(self._rounds_model())
            except ConfigError as error:
                raise ConfigError(f"{self._where.name}: [privacy]: {error}") from None
        return self._mechanism

    def _rounds_model(self) -> Model:
        model = self.stated_model()
        if not self.privacy.masked:
            return model
        from unweave.solvers import in_rounds

        try:
            return in_rounds(model, self.build_solver(model), len(self.topology))
        except ConfigError as error:
            raise ConfigError(f"{self._where.name}: privacy: {error}") from None

    def stated_model(self) -> Model:
        """The model with its settings, as plain mode learns it, and without noise."""
        from unweave.models import by_name

        try:
            if is_custom(self.model.name):
                if not self._runs_model:
                    raise ConfigError(
                        f"{self.model.name!r} is a program that came with the manifest, and would "
                        "be run. Fix: read it, and add --run-model"
                    )
                return load_custom(self.model.name, self.model.settings, self._where.parent)
            return by_name(self.model.name, **self.model.settings)
        except UnweaveError as error:
            raise ConfigError(f"{self._where.name}: [model]: {error}") from None

    def build_solver(self, model: Model) -> Solver:
        """The solver of the `[solver]` table, checked against the model."""
        from unweave.solvers import as_solver, by_name

        try:
            return as_solver(by_name(self.solver.name, model, **self.solver.settings), model)
        except UnweaveError as error:
            raise ConfigError(f"{self._where.name}: [solver]: {error}") from None

    def pems(self) -> tuple[str, ...]:
        """Every agent's certificate or public key, in order; verification needs all of them."""
        pems = []
        for entry in self.entries:
            if entry.pem is None:
                raise ConfigError(
                    f'{self._where.name}: agent "{entry.name}" has no certificate, and signatures '
                    "are checked against pinned keys. Fix: add certificate or public_key"
                )
            pems.append(entry.pem)
        return tuple(pems)

    def keyids(self) -> tuple[str, ...]:
        """The ids of the pinned keys, in order; empty for a simulation without keys."""
        return tuple(self._keyid(entry) for entry in self.entries if entry.pem or entry.keyid)

    def _keyid(self, entry: AgentEntry) -> str:
        if entry.pem is None:
            assert entry.keyid is not None
            return entry.keyid
        from unweave.keys import keyid_of, public_key

        try:
            found = keyid_of(public_key(entry.pem))
        except ConfigError as error:
            raise ConfigError(f'{self._where.name}: agent "{entry.name}": {error}') from None
        if entry.keyid not in (None, found):
            raise ConfigError(
                f'{self._where.name}: agent "{entry.name}": keyid is {entry.keyid}, but its key '
                f"has the id {found}. Fix: remove keyid, or pin the right key"
            )
        return found

    def terms(self) -> Terms:
        """The protocol's terms."""
        model = self.build_model()
        passes = self.max_passes
        if not model.conjugate and not self.privacy.masked:
            # After the passes of a solver that does not converge, the agents attest what there is.
            passes = min(passes, self.build_solver(model).stops_after or passes)
        keyids = self.keyids()
        try:
            _check_unique("two agents have the same key:", keyids)
            model.check_agents(len(self.topology))
            if self.publish is not None:
                self.publish.check_model(model)
        except ConfigError as error:
            raise ConfigError(f"{self._where.name}: {error}") from None
        return Terms(
            network_id=self.digest,
            topology=self.topology,
            grid=model.grid,
            frozen=model.frozen_grid,
            eta0=model.eta0,
            seed=self.seed,
            conjugate=model.conjugate,
            settles=model.settles,
            schedule=self.schedule,
            forget=self.forget,
            attest=self.attest,
            solve=self.solve,
            max_passes=passes,
            kept=self.kept,
            timeouts=Timeouts(**self.timeouts.model_dump()),
            keyids=keyids,
            publish=None if self.publish is None else self.publish.batches,
            **vars(RoundTerms.of(self.privacy, model, self.build_mechanism())),
        )

    # Output

    def to_toml(self) -> str:
        """The file's text, with all defaults: a new version may change defaults, but not the terms
        of an existing network."""
        import tomli_w

        values = self.model_dump(exclude_none=True)
        text = tomli_w.dumps(values)
        # Multi-line strings keep a PEM readable, but they lose the \r of a \r\n.
        return text if r"\r" in text else tomli_w.dumps(values, multiline_strings=True)

    def write(self, path: str | Path) -> None:
        """Write the exact bytes that `digest` names."""
        Path(path).write_bytes(self.raw)

    def _build_topology(self) -> Topology:
        names = [entry.name for entry in self.entries]
        if self.edges is not None and self.graph is not None:
            raise ConfigError("graph and edges name two graphs. Fix: keep one of them")
        if self.edges is not None:
            ends = {end for edge in self.edges for end in edge}
            alone = [name for name in names if name not in ends]
            if alone and len(names) > 1:
                raise ConfigError(
                    f'agent "{alone[0]}" has no edge, and the graph must be connected. '
                    "Fix: add it to an edge, or remove it"
                )
            return Topology(names, [(a, b) for a, b in self.edges])
        if self.graph is None:
            if len(names) > 1:
                raise ConfigError(
                    "no graph says who may talk to whom. Fix: add edges = [[…, …], …], or a graph "
                    'by name, for example graph = "ring"'
                )
            return Topology(names, [])
        entry = GraphEntry(name=self.graph) if isinstance(self.graph, str) else self.graph
        return graphs.by_name(entry.name, names, p=entry.p, k=entry.k, m=entry.m, seed=self.seed)


def load(path: str | Path, *, run_model: bool = True, known: Manifest | None = None) -> Manifest:
    """Read a manifest. Every error names the file, the key, the cause and the fix.

    Without `run_model`, a model that is a program beside the manifest is refused: the manifest may
    come from somebody else. `known` is returned if the file has its bytes: every agent's folder
    holds a copy, and with thousands of agents each takes seconds to check.
    """
    path = Path(path)
    try:
        raw = read_bytes(path, _MOST_BYTES)
    except ValueError as error:
        raise ConfigError(f"{path}: {error}. Fix: give the network's manifest") from None
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot be read: {error.strerror or error}. Fix: give the path of network.toml"
        ) from None
    if known is not None and known.raw == raw and known._runs_model == run_model:
        return known
    manifest = Manifest.parse(raw, path)
    manifest._runs_model = run_model
    return manifest


def _validated(values: dict[str, Any], where: Path, raw: bytes | None) -> Manifest:
    try:
        manifest = Manifest.model_validate(values)
    except ValidationError as error:
        raise ConfigError(f"{where.name}: {explain(error, values, Manifest)}") from None
    except GraphError as error:
        raise ConfigError(f"{where.name}: {error}") from None
    manifest._raw = raw
    manifest._where = where
    return manifest


def _check_unique(what: str, values: Any) -> None:
    seen = set()
    for value in values:
        if value in seen:
            shown = f'"{value}"' if len(value) <= 64 else ""
            raise ConfigError(f"{what} {shown}".rstrip() + ". Fix: each needs its own")
        seen.add(value)
