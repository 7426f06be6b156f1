"""A federation as JSON: its settings, the agents' remaining records, and the state of the protocol.

Values of the protocol are written by the names of their classes and fields. Reading makes objects
of these classes only, by setting their fields; no code of the file runs, unlike with pickle. An
object that several others share is written once (`ref`).

The history is not written: it holds earlier sums, from which erased data could be computed. For the
same reason erased records are left out of the shards.
"""

from __future__ import annotations

import base64
import importlib
import json
from collections import deque
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from fractions import Fraction
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

import unweave.solvers as solvers
from unweave.errors import ConfigError, UnweaveError
from unweave.federation.walk import MaskedWalk
from unweave.graph import Topology
from unweave.models import Shard, by_name
from unweave.models.shards import Missing
from unweave.privacy.ledger import MemoryLedger
from unweave.solvers import Solver

if TYPE_CHECKING:
    from unweave.federation.federation import Federation

__all__ = ["restored", "saved"]

F = TypeVar("F", bound="Federation")

_MODULES = ("unweave.protocol.", "unweave.persistent", "unweave.federation.results")
_PLAIN = (str, bool, float, type(None))
_LISTS: dict[str, Callable[[list[Any]], Any]] = {
    "tuple": tuple,
    "list": list,
    "set": set,
    "frozenset": frozenset,
    "deque": deque,
}


def damaged() -> ConfigError:
    return ConfigError("this is no saved federation. Fix: give a file that Federation.save wrote")


def _attributes(value: Any) -> list[str]:
    """The names of the fields of an object of the protocol."""
    if is_dataclass(value):
        return [field.name for field in fields(value)]
    slots = [name for cls in type(value).__mro__ for name in getattr(cls, "__slots__", ())]
    return slots or list(vars(value))


class Encoder:
    """Turns values into JSON; `shared` are objects that the reader has already, by name."""

    def __init__(self, shared: dict[str, Any]) -> None:
        self._names = {id(value): name for name, value in shared.items()}
        self._seen: dict[int, int] = {}
        self._kept: list[Any] = []  # so that no id is used twice

    def __call__(self, value: Any) -> Any:
        if isinstance(value, _PLAIN):
            return {"nan": repr(value)} if value != value or value in (np.inf, -np.inf) else value
        if isinstance(value, int):
            return value if abs(value) < 2**53 else {"int": str(value)}
        if id(value) in self._names:
            return {"shared": self._names[id(value)]}
        if id(value) in self._seen:
            return {"ref": self._seen[id(value)]}
        found = self._new(value)
        self._seen[id(value)] = len(self._seen)
        self._kept.append(value)
        return found

    def _new(self, value: Any) -> dict[str, Any]:
        kind = type(value)
        if kind is bytes:
            return {"bytes": base64.b64encode(value).decode()}
        if kind is np.ndarray:
            return {"array": value.ravel().tolist(), "type": str(value.dtype), "shape": value.shape}
        if kind.__name__ in _LISTS and kind.__module__ in ("builtins", "collections"):
            return {kind.__name__: [self(one) for one in value]}
        if kind in (dict, MappingProxyType):
            pairs = [[self(k), self(v)] for k, v in value.items()]
            return {"dict" if kind is dict else "constant": pairs}
        name = f"{kind.__module__}:{kind.__qualname__}"
        if hasattr(kind, "_fields"):
            return {"class": name, "values": [self(one) for one in value]}
        return {"class": name, "fields": {a: self(getattr(value, a)) for a in _attributes(value)}}


class Decoder:
    """The inverse of `Encoder`; ConfigError for anything that `Encoder` does not write."""

    def __init__(self, shared: dict[str, Any]) -> None:
        self._shared = shared
        self._made: list[Any] = []

    def __call__(self, found: Any) -> Any:
        if not isinstance(found, dict):
            return found
        try:
            if "shared" in found:
                return self._shared[found["shared"]]
            if "ref" in found:
                return self._made[found["ref"]]
            if "nan" in found:
                return float(found["nan"])
            if "int" in found:
                return int(found["int"])
            made = self._new(found)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError):
            raise damaged() from None
        self._made.append(made)
        return made

    def _new(self, found: dict[str, Any]) -> Any:
        if "bytes" in found:
            return base64.b64decode(found["bytes"], validate=True)
        if "array" in found:
            array = np.array(found["array"], dtype=np.dtype(found["type"]))
            array = array.reshape(found["shape"])
            array.setflags(write=False)
            return array
        for name, make in _LISTS.items():
            if name in found:
                return make([self(one) for one in found[name]])
        for name, of in (("dict", dict), ("constant", lambda d: MappingProxyType(dict(d)))):
            if name in found:
                return of([(self(k), self(v)) for k, v in found[name]])
        cls = _class(found["class"])
        if "values" in found:
            return cls(*(self(one) for one in found["values"]))
        made: Any = object.__new__(cls)
        for name, value in found["fields"].items():
            object.__setattr__(made, name, self(value))
        return made


def _class(name: str) -> type:
    """A class of the protocol's values by its name; nothing else can be named."""
    module, _, kind = name.partition(":")
    if not module.startswith(_MODULES) or not kind.isidentifier():
        raise KeyError(name)
    cls = getattr(importlib.import_module(module), kind)
    if not isinstance(cls, type) or cls.__module__ != module:
        raise KeyError(name)
    return cls


_QUEUES = ("_gossip", "_soon", "_later", "_order", "_parked", "now", "events", "transitions")
_PROCESS = ("state", "disk", "starts", "incarnation", "tick_at", "backlog")


def saved(federation: Federation) -> dict[str, Any]:
    """Everything that `restored` needs, as JSON values."""
    walk, model = federation._walk, federation.model
    terms, noise = walk.terms, walk.noise
    encode = Encoder({"terms": terms})
    shards = []
    for k, worker in enumerate(walk.workers):
        state = walk.world.agents[k].disk
        gone = state.tomb.out
        shard = (
            worker.whole.drop(range(worker.whole.given))
            if gone
            else (worker.shard(state.own.dropped))
        )
        assert isinstance(shard, Shard)
        numbers = np.arange(shard.n) if shard.numbers is None else shard.numbers
        shards.append(
            {
                "rows": encode(np.array(shard.rows)),
                "numbers": encode(np.array(numbers)),
                "given": shard.given,
                "missing": shard.missing.report,
                "version": worker.version,
            }
        )
    return {
        "unweave": "federation",
        "model": {"name": model.name, "settings": model.settings()},
        "solver": _solver_values(federation.solver),
        "agents": list(federation.agents),
        "edges": [list(edge) for edge in federation.graph.edges],
        "seed": federation.seed,
        "terms": {"schedule": terms.schedule, "forget": terms.forget, "solve": terms.solve},
        "retrain_above": encode(float(walk.workers[0].retrain_above)),
        "privacy": federation.privacy.model_dump(exclude_none=True)
        if federation.privacy.epsilon is not None
        else federation.privacy.mode,
        "ledgers": [_ledger_values(one) for one in ([] if noise is None else noise.ledgers)],
        "columns": federation.columns,
        "missing": federation.missing,
        "shards": shards,
        "started": walk.started,
        "world": {name: encode(getattr(walk.world, name)) for name in _QUEUES},
        "processes": [
            {name: encode(getattr(agent, name)) for name in _PROCESS} for agent in walk.world.agents
        ],
        "token": encode(walk.token),
        "visits": walk.visit_count,
        "requests": federation._requests.count,
        "erasures": encode(federation.erasures),
    }


def restored(cls: type[F], raw: bytes) -> F:
    """The federation of `saved`, in its state, from a file."""
    try:
        values = json.loads(raw)
    except ValueError:
        raise damaged() from None
    if not isinstance(values, dict) or values.get("unweave") != "federation":
        raise damaged()
    try:
        return _restored(cls, values)
    except UnweaveError:
        raise
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        raise damaged() from None


def _restored(cls: type[F], values: dict[str, Any]) -> F:
    shared: dict[str, Any] = {}
    decode = Decoder(shared)
    shards = {}
    for name, one in zip(values["agents"], values["shards"], strict=True):
        rows = np.array(decode(one["rows"]), dtype=np.float64)
        numbers = np.array(decode(one["numbers"]), dtype=np.int64)
        shards[name] = Shard(name, rows, numbers, one["given"], Missing(**one["missing"]))
    federation = cls(
        by_name(values["model"]["name"], **values["model"]["settings"]),
        shards,
        Topology(values["agents"], [(a, b) for a, b in values["edges"]]),
        values["terms"]["schedule"],
        values["seed"],
        solver=_solver(values["solver"]),
        forget=values["terms"]["forget"],
        solve=values["terms"]["solve"],
        retrain_above=decode(values["retrain_above"]),
        columns=values["columns"],
        missing=values["missing"],
        privacy=values["privacy"],
    )
    walk = federation._walk
    shared["terms"] = walk.terms
    for worker, one in zip(walk.workers, values["shards"], strict=True):
        worker.version = one["version"]
    for name in _QUEUES:
        setattr(walk.world, name, decode(values["world"][name]))
    for agent, one in zip(walk.world.agents, values["processes"], strict=True):
        for name in _PROCESS:
            setattr(agent, name, decode(one[name]))
    if walk.noise is not None:
        for k, one in enumerate(values["ledgers"]):
            walk.noise.wipe(k, _ledger(walk.noise.shares.budget, one))
    walk.world.renew_keyrings()
    walk.resume(decode(values["token"]), values["visits"], values["started"])
    if isinstance(walk, MaskedWalk) and walk.noise is not None and walk.started:
        walk.renew_keys()
    federation._requests.count = values["requests"]
    federation.erasures[:] = decode(values["erasures"])
    return federation


def _ledger_values(ledger: MemoryLedger) -> dict[str, Any]:
    keys = sorted(key.hex() for key in ledger.keys)
    return {
        "spent": str(ledger.spent),
        "given": ledger.given,
        "keys": keys,
        "in_doubt": ledger.in_doubt,
    }


def _ledger(budget: float, values: dict[str, Any]) -> MemoryLedger:
    keys = {bytes.fromhex(key) for key in values["keys"]}
    spent, in_doubt = Fraction(values["spent"]), bool(values["in_doubt"])
    return MemoryLedger(budget, spent, values["given"], keys, in_doubt)


def _solver_values(solver: Solver) -> dict[str, Any]:
    kind = type(solver)
    if getattr(solvers, kind.__name__, None) is not kind:
        raise ConfigError(
            f"the solver {kind.__name__} cannot be saved. Fix: use a solver of unweave.solvers"
        )
    known: Any = solver
    settable = [f.name for f in fields(known) if f.init] if is_dataclass(kind) else []
    chosen = {name: getattr(solver, name) for name in settable}
    if not all(isinstance(value, (*_PLAIN, int)) for value in chosen.values()):
        raise ConfigError(
            f"a setting of {kind.__name__} cannot be saved. Fix: give numbers and names"
        )
    return {"name": kind.__name__, "settings": chosen}


def _solver(values: dict[str, Any]) -> Solver:
    kind = getattr(solvers, values["name"])
    if not (isinstance(kind, type) and issubclass(kind, Solver)):
        raise damaged()
    return kind(**values["settings"])
