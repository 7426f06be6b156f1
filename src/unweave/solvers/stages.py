"""The solver of staged atoms: the agent's log-likelihood at the atoms of every stage that the token
determines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar
from weakref import WeakKeyDictionary

from unweave.errors import ConfigError
from unweave.grid import Ints
from unweave.models import Data, Model
from unweave.models.atoms.staged import StagedAtoms
from unweave.models.atoms.stages import PRIOR, AtomStage, next_stage
from unweave.solvers.base import Context, Solution, Solver

__all__ = ["Stages"]


class Stages(Solver):
    """Goes through the stages until one is not complete: the other agents have not evaluated it
    yet, or at other atoms. A stage is evaluated once for the same records."""

    private: ClassVar[bool] = True

    def __init__(self) -> None:
        self._known: WeakKeyDictionary[Data, dict[AtomStage, Sequence[int]]] = WeakKeyDictionary()

    def check(self, model: Model) -> None:
        if not isinstance(model, StagedAtoms):
            raise ConfigError(f"{model.name} has no stages. Fix: use its own solver")

    def solve(
        self, model: Model, data: Data, cavity: Ints, current: Ints | None, context: Context
    ) -> Solution:
        assert isinstance(model, StagedAtoms)
        layout, grid = model.layout, model.grid
        factor, stage, others = grid.zeros(), PRIOR, int(cavity[0])
        known = self._known.setdefault(data, {})
        used: dict[AtomStage, Sequence[int]] = {}
        for s in range(layout.stages):
            slot = layout.slot(s)
            own = known.get(stage) or model.values(data, stage)
            used[stage] = own
            model.fill(factor, s, stage, own)
            agents, tags = (int(x) for x in cavity[slot.start - 2 : slot.start])
            agreed = agents == others and tags == others * stage.tag
            if stage.last or not agreed or not context.complete:
                break
            values = model.decode(grid.add(cavity, factor))[slot]
            following = next_stage(layout, stage, values[: len(own)])
            if isinstance(following, str):
                break
            stage = following
        self._known[data] = used
        return Solution(factor)

    def factor_at(self, model: Model, point: bytes, data: Data) -> Ints:
        assert isinstance(model, StagedAtoms)
        known = self._known.setdefault(data, {})
        used: dict[AtomStage, Sequence[int]] = {}
        factor = model.grid.zeros()
        for s, stage in enumerate(model.stages_at(point) if data.n else ()):
            used[stage] = known.get(stage) or model.values(data, stage)
            model.fill(factor, s, stage, used[stage])
        self._known[data] = used
        return factor

    def __repr__(self) -> str:
        return "Stages()"
