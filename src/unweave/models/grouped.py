"""Several groups at once: one conjugate model per level of a column, with its own parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unweave.arguments import shown
from unweave.errors import ConfigError
from unweave.families import Distribution, Family, RepeatedFamily
from unweave.families.marginals import Marginal
from unweave.lazy import linalg
from unweave.models.base import ConjugateModel, Model
from unweave.models.columns import Column, check_levels, check_size, labels
from unweave.models.shards import RowProblem
from unweave.models.units import Affine

__all__ = ["Grouped"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Grouped(ConjugateModel):
    """The conjugate model `each` for every level of the column `by`: the groups have independent
    priors and share nothing. `groups` lists the levels; a number n means the levels 1 to n."""

    groups: int | Sequence[str]
    by: str = "group"
    each: Model | Mapping[str, Any] | str = "beta-bernoulli"

    name: ClassVar[str] = "grouped"

    def check_settings(self) -> None:
        if isinstance(self.groups, int):
            check_size(self.name, "groups", self.groups, squares=False)
        check_levels(self.name, "groups", self.levels)
        each = _model(self.each)
        for setting, plain in (("alpha", 1.0), ("reduction", "sum")):
            if getattr(each, setting) != plain:
                raise ConfigError(
                    f"{self.name}: {setting} of each group. Fix: set {setting} beside groups"
                )
        if self.by in each.inputs:
            raise ConfigError(
                f"{self.name}: {self.by!r} is a column of {each.name}. Fix: name another (by=…)"
            )
        check_size(self.name, "groups", len(self.levels) * each.grid.dim, squares=False)
        if self.bits is not None:
            each = self._with_bits(each, self.bits)
        object.__setattr__(self, "each", each)

    def _with_bits(self, each: ConjugateModel, bits: int | Sequence[int]) -> ConjugateModel:
        """All groups have the same grid."""
        if isinstance(bits, int):
            return replace(each, bits=bits)
        part = tuple(bits[: each.grid.dim])
        if tuple(bits) != part * len(self.levels):
            raise ConfigError(f"{self.name}: bits differ between groups. Fix: one number")
        return replace(each, bits=part)

    @cached_property
    def levels(self) -> tuple[str, ...]:
        """The names of the groups."""
        if isinstance(self.groups, int):
            return tuple(str(k + 1) for k in range(self.groups))
        return tuple(self.groups)

    @property
    def model(self) -> ConjugateModel:
        """The model of one group."""
        assert isinstance(self.each, ConjugateModel)
        return self.each

    @cached_property
    def family(self) -> Family:
        return RepeatedFamily(self.model.family, self.levels)

    @property
    def prior(self) -> Distribution:
        return Distribution(self.family, np.tile(self.model.prior.eta, len(self.levels)))

    def default_bits(self) -> Sequence[int]:
        return self.model.grid.bits * len(self.levels)

    @property
    def schema(self) -> tuple[Column, ...]:
        return (labels(self.by, self.levels), *self.model.schema)

    @property
    def resolution(self) -> tuple[float, ...]:
        return (0.0, *self.model.resolution)

    def row_problem(self, rows: Floats) -> RowProblem | None:
        return self.model.row_problem(rows[:, 1:])

    def sums(self, rows: Floats) -> list[int]:
        parts = [self.model.sums(part) for part in self._parts(rows)]
        return [int(unit) for part in parts for unit in part]

    def rounding(self, rows: Floats) -> Floats:
        return np.concatenate([self.model.rounding(part) for part in self._parts(rows)])

    def log_base(self, rows: Floats) -> Floats:
        return self.model.log_base(rows[:, 1:])

    def outcomes_of(self, rows: Floats) -> Floats:
        return self.model.outcomes_of(rows[:, 1:])

    def replicate(self, theta: Floats, rows: Floats, rng: np.random.Generator) -> Floats:
        each = theta.reshape(len(self.levels), *self.model.family.event_shape)
        found = rows.copy()
        for g, one in enumerate(each):
            here = rows[:, 0] == g
            found[here, 1:] = self.model.replicate(one, rows[here, 1:], rng)
        return found

    def covariance_of(self, eta: Floats) -> Floats:
        members = eta.reshape(len(self.levels), -1)
        each = [self.model.covariance_of(one) for one in members]
        return np.asarray(linalg.block_diag(*each))

    def _parts(self, rows: Floats) -> list[Floats]:
        """The records of each group, without the column of the group."""
        order = np.argsort(rows[:, 0], kind="stable")
        ends = np.searchsorted(rows[order, 0], np.arange(len(self.levels)), side="right")
        return [np.ascontiguousarray(part) for part in np.split(rows[order, 1:], ends[:-1])]

    def eta_of(self, eta: ArrayLike, group: str) -> Floats:
        """The natural parameter of one group."""
        if group not in self.levels:
            raise ConfigError(
                f"{self.name}: no group {shown(group)}. Fix: choose from "
                f"{', '.join(self.levels[:12])}"
            )
        members = np.asarray(eta, dtype=np.float64).reshape(len(self.levels), -1)
        return np.asarray(members[self.levels.index(group)])

    def predictive(self, eta: ArrayLike, group: str, *args: Any, **kwargs: Any) -> Any:
        """The predictive of a new record of one group."""
        return self.model.predictive(self.eta_of(eta, str(group)), *args, **kwargs)

    @property
    def quantities(self) -> tuple[str, ...]:
        return tuple(f"{name}[{level}]" for level in self.levels for name in self.model.quantities)

    @property
    def affine(self) -> Affine | None:
        one = self.model.affine
        return None if one is None else _PerGroup.of(one, self)

    def marginals(self, eta: Floats) -> tuple[Marginal, ...]:
        members = eta.reshape(*eta.shape[:-1], len(self.levels), -1)
        return tuple(
            law.renamed(f"{law.name}[{level}]")
            for g, level in enumerate(self.levels)
            for law in self.model.marginals(members[..., g, :])
        )

    def named_samples(self, theta: Floats) -> dict[str, Floats]:
        groups, event = len(self.levels), self.model.family.event_shape
        named = self.model.named_samples(theta.reshape(-1, *event))
        return {
            name: draws.reshape(len(theta), groups, *draws.shape[1:])
            for name, draws in named.items()
        }

    @property
    def coordinates(self) -> dict[str, dict[str, Sequence[Any]]]:
        inner = self.model.coordinates
        draws = self.model.named_samples(np.ones((1, *self.model.family.event_shape)))
        return {name: {self.by: self.levels, **inner.get(name, {})} for name in draws}


@dataclass(frozen=True, eq=False)
class _PerGroup(Affine):
    """The map of every group's theta, side by side."""

    one: Affine | None = None

    @classmethod
    def of(cls, one: Affine, model: Grouped) -> _PerGroup:
        copies = len(model.levels)
        size = model.family.event_shape[0] // copies
        matrix, offset = one.matrix[:size, :size], one.offset[:size]
        joined = linalg.block_diag(*[matrix] * copies)
        return cls(joined, np.tile(offset, copies), np.empty(0), range(copies * size), one)

    def params(self, family: Family, params: dict[str, Floats]) -> dict[str, Floats]:
        assert isinstance(family, RepeatedFamily)
        assert self.one is not None
        groups = [
            self.one.params(family.base, {name: value[g] for name, value in params.items()})
            for g in range(len(family.labels))
        ]
        return {name: np.stack([group[name] for group in groups]) for name in params}


def _model(each: Any) -> ConjugateModel:
    """The model of one group: a model, its name, or its name and settings in a table."""
    from unweave.models.registry import as_model, by_name

    if isinstance(each, Mapping):
        settings = dict(each)
        each = by_name(str(settings.pop("name", "")), **settings)
    model = as_model(each)
    if not isinstance(model, ConjugateModel) or isinstance(model, Grouped):
        raise ConfigError(
            f"{Grouped.name}: {model.name} cannot be the model of a group. Fix: choose a "
            "conjugate model"
        )
    return model
