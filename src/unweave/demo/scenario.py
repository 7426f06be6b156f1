"""The demonstration in memory: the reference that the real agents must reproduce bit for bit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unweave.datasets import load
from unweave.federation import Audit, Erasure, Federation
from unweave.federation.history import Step
from unweave.graph import Topology, graphs
from unweave.models import BetaBernoulli, LinearRegressionUnknownNoise, Model, Posterior
from unweave.sharding import partition

__all__ = ["FEATURES", "HOSPITALS", "Scenario", "Stage", "models", "run_scenario"]


HOSPITALS = ("harbour", "hillside", "lakeview", "old town", "university")
_ROADS = (  # a ring with one short cut
    ("harbour", "hillside"),
    ("hillside", "lakeview"),
    ("lakeview", "old town"),
    ("old town", "university"),
    ("university", "harbour"),
    ("hillside", "university"),
)

# Feature → (centre, unit), fixed in advance: a scale computed from the data cannot be unlearned.
FEATURES = {
    "mean_radius": (14.0, 3.5),
    "mean_texture": (19.0, 4.0),
    "mean_smoothness": (0.1, 0.015),
    "mean_concavity": (0.1, 0.08),
    "mean_symmetry": (0.18, 0.03),
}

_PATIENTS = 3  # single patients that withdraw their consent

Columns = dict[str, NDArray[Any]]


def models() -> dict[str, Model]:
    """The two models of the demonstration, by title."""
    return {
        "share of malignant diagnoses": BetaBernoulli(a=1, b=1),
        "diagnosis from cell features": LinearRegressionUnknownNoise(
            features=tuple(FEATURES), intercept=True, target="diagnosis"
        ),
    }


@dataclass(frozen=True)
class Stage:
    """One model: its posterior before forgetting, after it, and of a network without the data."""

    title: str
    before: Posterior
    after: Posterior
    never: Posterior
    influence: Mapping[str, float]  # KL, before anything was forgotten
    erasures: tuple[Erasure, ...]
    audit: Audit
    steps: tuple[Step, ...]

    @property
    def exact(self) -> bool:
        """After forgetting equals never had, bit for bit; and all agents have attested that sum."""
        return self.after == self.never and self.audit.digest == self.never.digest


@dataclass(frozen=True)
class Scenario:
    """The data, the graph, the forgotten hospital and patients, and one stage per model."""

    seed: int
    graph: Topology
    patients: Mapping[str, int]
    malignant: Mapping[str, int]
    forgotten: str
    withdrawn: Mapping[str, tuple[int, ...]]  # hospital → ids of patients
    files: Mapping[str, Columns]  # hospital → its private table: ids, features, diagnosis
    stages: tuple[Stage, ...]

    @property
    def exact(self) -> bool:
        return all(stage.exact for stage in self.stages)


def run_scenario(seed: int = 3, tick: Callable[[str], None] = lambda done: None) -> Scenario:
    """Learn, forget, audit and compare with every model. `tick` is called after each step with a
    description of it."""
    data = load("breast_cancer")
    shards: dict[str, Columns] = partition(
        data, HOSPITALS, how="dirichlet", seed=seed, labels=data["diagnosis"], concentration=2.0
    )
    graph = graphs.from_edges(_ROADS)
    networks = {
        title: Federation(model, _view(shards, model), graph, seed=seed).learn(progress=False)
        for title, model in models().items()
    }
    tick("five hospitals have learned")
    first = next(iter(networks.values()))
    forgotten = next(iter(first.influence()))  # the most influential
    largest = max((n for n in shards if n != forgotten), key=lambda n: len(shards[n]["id"]))
    rows = np.sort(np.random.default_rng(seed).permutation(len(shards[largest]["id"]))[:_PATIENTS])
    withdrawn = {largest: tuple(int(i) for i in shards[largest]["id"][rows])}
    stages = []
    for title, network in networks.items():
        before, influence = network.posterior, network.influence()
        network.forget(forgotten, progress=False)
        network.forget(records={largest: rows}, progress=False)
        tick(f"{forgotten} and {_PATIENTS} patients of {largest} are forgotten: {title}")
        steps = tuple(network.history)
        audit = network.audit(progress=False)
        never = _never_had(network.model, shards, forgotten, largest, rows, seed)
        tick(f"audited, and compared with a network that never had them: {title}")
        stages.append(
            Stage(
                title,
                before,
                network.posterior,
                never,
                influence,
                tuple(network.erasures),
                audit,
                steps,
            )
        )
    return Scenario(
        seed,
        graph,
        {name: len(part["id"]) for name, part in shards.items()},
        {name: int(part["diagnosis"].sum()) for name, part in shards.items()},
        forgotten,
        withdrawn,
        _files(shards),
        tuple(stages),
    )


def _files(shards: Mapping[str, Columns]) -> dict[str, Columns]:
    """Each hospital's private file: the patients' ids and the columns of the regression."""
    view = _view(shards, models()["diagnosis from cell features"])
    return {name: {"id": part["id"], **view[name]} for name, part in shards.items()}


def _never_had(
    model: Model,
    shards: Mapping[str, Columns],
    forgotten: str,
    owner: str,
    rows: NDArray[np.intp],
    seed: int,
) -> Posterior:
    """The posterior of a network without the forgotten data, on another graph, with another
    walk."""
    kept = {name: part for name, part in shards.items() if name != forgotten}
    kept[owner] = {column: np.delete(part, rows) for column, part in kept[owner].items()}
    return (
        Federation(model, _view(kept, model), "complete", seed=seed + 1)
        .learn(progress=False)
        .posterior
    )


def _view(shards: Mapping[str, Columns], model: Model) -> dict[str, Any]:
    """The columns that `model` reads, features in their fixed units."""
    if isinstance(model, BetaBernoulli):
        return {name: part["diagnosis"] for name, part in shards.items()}
    return {
        name: {
            **{f: (part[f] - centre) / unit for f, (centre, unit) in FEATURES.items()},
            "diagnosis": part["diagnosis"],
        }
        for name, part in shards.items()
    }
