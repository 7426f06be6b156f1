"""What a model of atoms has in common: parameters with priors, and a log-likelihood.

A likelihood in up to six parameters is evaluated at public atoms θ_m, and a factor is the vector of
its sums over an agent's records. Such a factor depends on no cavity: learning does not depend on
the order, and forgetting is a subtraction of whole numbers, whatever the shape of the likelihood.
"""

from __future__ import annotations

import inspect
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from hashlib import sha256
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unweave.arguments import generator
from unweave.errors import ConfigError
from unweave.families.atoms import CloudFamily
from unweave.families.atoms.clouds import Cloud
from unweave.families.atoms.parameters import Parameter, Space
from unweave.lazy import special
from unweave.models.atoms.likelihood import BITS, Named, log_likelihoods
from unweave.models.base import Model
from unweave.models.columns import Column, binary, count, nonnegative, positive, real

__all__ = ["COLUMNS", "MOST_PARAMETERS", "AtomBase", "AtomPredictive", "Given", "name_of"]

Floats = NDArray[np.float64]

MOST_PARAMETERS = 6
COLUMNS = {
    "real": real,
    "positive": positive,
    "nonnegative": nonnegative,
    "count": count,
    "binary": binary,
}


@dataclass(frozen=True)
class AtomBase(Model):
    """A model of atoms; `seed` draws the atoms, so all agents have the same ones.

    From one factor, neighbours can compute the records of an agent that has few
    (docs/explanation/security.md).
    """

    _: KW_ONLY
    seed: int = 0

    def disclosure(self) -> str:
        return "from its one factor, neighbours can compute its records"

    @property
    @abstractmethod
    def parameters(self) -> tuple[Parameter, ...]:
        """The parameters with their priors, at most six."""

    @abstractmethod
    def log_likelihood(self, theta: Named, record: Named) -> Floats:
        """log p(record | θ): parameters by name [1, M], columns by name [B, 1] → [B, M].

        Use functions that work element by element; −inf says that a record is impossible."""

    def simulate(self, theta: Named, rng: np.random.Generator) -> Floats:
        """One record for each θ: parameters by name [n] → [n, C]."""
        raise ConfigError(
            f"{self.name} cannot draw records. Fix: draw theta with posterior.sample(n), and "
            "records given theta"
        )

    def check_settings(self) -> None:
        if not 1 <= self.space.dim <= MOST_PARAMETERS:
            raise ConfigError(
                f"{self.name}: {self.space.dim} parameters. Fix: 1 to {MOST_PARAMETERS}"
            )
        if len(set(self.space.names)) < self.space.dim:
            raise ConfigError(f"{self.name}: two parameters have one name. Fix: rename one")
        if not 0 <= self.seed < 2**63:
            raise ConfigError(f"{self.name}: seed = {self.seed}. Fix: a whole number, at least 0")
        if self.bits is not None and max(np.atleast_1d(cast(Any, self.bits))) > BITS:
            raise ConfigError(
                f"{self.name}: bits = {self.bits}: rounding of float64 would show. Fix: at most "
                f"{BITS}"
            )

    @cached_property
    def space(self) -> Space:
        return Space(self.parameters)

    def cloud(self, eta: Floats) -> Cloud:
        return cast(CloudFamily, self.family).cloud(eta)

    def predictive(self, eta: ArrayLike) -> AtomPredictive:
        return AtomPredictive(self, self.cloud(np.asarray(eta, dtype=np.float64)))

    def replicate(self, theta: Floats, rows: Floats, rng: np.random.Generator) -> Floats:
        each = np.repeat(np.asarray(theta)[None], len(rows), axis=0)
        return self.simulate(self.named_samples(each), rng)

    def named_samples(self, theta: Floats) -> dict[str, Floats]:
        columns = theta[:, None] if theta.ndim == 1 else theta
        return {name: columns[:, j] for j, name in enumerate(self.space.names)}


class AtomPredictive:
    """A new record, θ integrated out over the nodes of the posterior."""

    how = "by a sum over nodes of the posterior"

    def __init__(self, model: AtomBase, cloud: Cloud) -> None:
        self._model = model
        self._cloud = cloud
        used = cloud.weights > 0.0
        self._u = cloud.u[used]
        self._log_weights = np.log(cloud.weights[used])

    def log_prob(self, records: Any) -> Floats:
        """log p(record) of each record, in any form that `model.shard` accepts."""
        model, rows = self._model, self._model.shard(records, "predict").rows
        at = log_likelihoods(model.log_likelihood, model.space, model.columns, self._u, rows)
        return np.asarray(special.logsumexp(at + self._log_weights, axis=1))

    def sample(self, n: int, seed: int = 0) -> Floats:
        """n records [n, C]; [n] if a record has one column."""
        rng = generator(n, seed)
        theta = self._model.space.outward(self._cloud.draw(cast(Any, rng), n))
        rows = self._model.simulate(self._model.named_samples(theta), rng)
        return rows[:, 0] if rows.shape[1] == 1 else rows


@dataclass(frozen=True)
class Given(AtomBase):
    """A user's log-likelihood.

    `params` maps each parameter to its prior, e.g. {"shape": "lognormal(0, 1)"}. `records` maps
    each column to its values: "real", "positive", "nonnegative", "count" or "binary".
    """

    likelihood: Any
    params: Any
    records: Any

    def check_settings(self) -> None:
        if not callable(self.likelihood):
            raise ConfigError(f"{self.name}: the likelihood is no function. Fix: give one")
        if not isinstance(self.params, Mapping):
            raise ConfigError(f'{self.name}: params. Fix: give {{"shape": "lognormal(0, 1)"}}')
        records = self.records
        if isinstance(records, Sequence) and not isinstance(records, str):
            records = dict.fromkeys(records, "real")
        if not isinstance(records, Mapping) or any(v not in COLUMNS for v in records.values()):
            raise ConfigError(f"{self.name}: records. Fix: map each column to {', '.join(COLUMNS)}")
        # Settings must be hashable, so the tables become tuples.
        laws = {str(name): law for name, law in self.params.items()}
        parsed = tuple(Parameter.parse(name, law) for name, law in laws.items())
        object.__setattr__(self, "params", _Table((p.name, str(p)) for p in parsed))
        object.__setattr__(self, "records", _Table(records.items()))
        super().check_settings()

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return tuple(Parameter.parse(name, law) for name, law in self.params.items())

    def log_likelihood(self, theta: Named, record: Named) -> Floats:
        return cast(Floats, self.likelihood(theta, record))

    def settings(self) -> dict[str, Any]:
        return {**super().settings(), "likelihood": name_of(self.likelihood)}

    @property
    def schema(self) -> tuple[Column, ...]:
        return tuple(COLUMNS[kind](name) for name, kind in self.records.items())


class _Table(dict[str, str]):
    """Texts by name, hashable."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(self.items()))


def name_of(function: Any) -> str:
    """The function's name and the digest of its source or, without a source, of its code."""
    try:
        text = inspect.getsource(function).encode()
    except (OSError, TypeError):
        code = getattr(function, "__code__", None)
        text = b"" if code is None else code.co_code
    name = getattr(function, "__qualname__", type(function).__name__)
    return f"{name} {sha256(text).hexdigest()}"
