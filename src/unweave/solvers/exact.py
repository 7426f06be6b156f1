"""The solver of conjugate models: the factor is a sum over records, whatever the cavity."""

from __future__ import annotations

from typing import ClassVar, cast
from weakref import WeakKeyDictionary

from unweave.errors import ConfigError
from unweave.grid import Ints
from unweave.models import ConjugateModel, Data, Model
from unweave.solvers.base import Context, Solution, Solver

__all__ = ["Exact"]


class Exact(Solver):
    """eta_k = (1/alpha) Σ s(x) (`eq:nat_para_sum`), computed once per shard."""

    private: ClassVar[bool] = True

    def __init__(self) -> None:
        self._cache: WeakKeyDictionary[Data, tuple[Model, Ints]] = WeakKeyDictionary()

    def check(self, model: Model) -> None:
        if not isinstance(model, ConjugateModel):
            raise ConfigError(
                f"{model.name} has no exact factor. Fix: use solver=NaturalGradient()"
            )

    def solve(
        self, model: Model, data: Data, cavity: Ints, current: Ints | None, context: Context
    ) -> Solution:
        return Solution(self.factor_at(model, b"", data))

    def factor_at(self, model: Model, point: bytes, data: Data) -> Ints:
        cached = self._cache.get(data)
        if cached is None or cached[0] is not model:
            self.check(model)
            cached = (model, cast(ConjugateModel, model).factor(data))
            self._cache[data] = cached
        return cached[1]

    def __repr__(self) -> str:
        return "Exact()"
