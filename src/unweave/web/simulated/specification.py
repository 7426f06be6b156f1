"""What is simulated on the page: a network, its data, its faults and its seed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from unweave.manifest import Manifest
from unweave.models import Model, Shard
from unweave.report.settings import network_settings
from unweave.simulator.asked import AskedFaults
from unweave.simulator.run import draw_shards
from unweave.simulator.session import Session

__all__ = ["SIGNED", "Simulated"]

SIGNED = (
    "Certificates of a simulation are signed with keys of the simulation: this page verifies them, "
    "nobody else can."
)
_DATA = {
    "agents": "from the agents' folders",
    "manifest": "the files that the manifest names",
}


@dataclass(frozen=True)
class Simulated:
    """What is simulated: a manifest, its model and data, and the options of `unweave simulate`."""

    manifest: Manifest
    model: Model
    shards: Sequence[Shard]
    data: str  # where the shards come from
    forgotten: dict[str, Any] | None
    faults: str | None
    seed: int
    hops: int | None
    repeat: Callable[[int], str]  # seed → the command that repeats the run

    def _drawn(self, seed: int) -> Sequence[Shard]:
        """Synthetic records depend on the seed, as those of the command that repeats the run."""
        if seed == self.seed or not self.data.startswith("synthetic"):
            return self.shards
        return draw_shards(self.model, self.manifest.topology.agents, seed)

    def session(self, seed: int) -> Session:
        solver = self.manifest.solver
        return Session(
            self.model,
            self.manifest.terms(),
            self._drawn(seed),
            self.faults,
            seed,
            self.hops,
            solver=self.manifest.build_solver(self.model),
            tol=solver.tol,
            retrain_above=solver.retrain_above,
            signed=True,
            kind=AskedFaults,
            mechanism=self.manifest.build_mechanism(),
        )

    def settings(self, seed: int) -> dict[str, str]:
        return {
            **network_settings(self.manifest, self.model),
            "data": _DATA.get(self.data, "synthetic, drawn with the seed"),
            "faults": self.faults or "none, but those that are asked for",
            "seed": str(seed),
            "certificates": SIGNED,
        }
