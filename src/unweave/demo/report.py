"""The demonstration's results as JSON, which `unweave report` reads, and as a table."""

from __future__ import annotations

from typing import Any

from unweave.demo.network import NetworkRun, regression
from unweave.demo.scenario import Scenario, Stage
from unweave.models import Posterior

__all__ = ["INFLUENCE", "as_dict", "posterior_rows"]

INFLUENCE = (
    "Influences are computed in memory, where all data lie in one place. Between masked agents "
    "none is published: it would nearly be an agent's sums."
)


def as_dict(scenario: Scenario, run: NetworkRun) -> dict[str, Any]:
    return {
        "unweave": "demonstration",
        "data": "breast_cancer",
        "seed": scenario.seed,
        "edges": [list(edge) for edge in scenario.graph.edges],
        "hospitals": {
            name: {"patients": n, "malignant": scenario.malignant[name]}
            for name, n in scenario.patients.items()
        },
        "forgotten": {
            "hospital": scenario.forgotten,
            "patients": {name: list(ids) for name, ids in scenario.withdrawn.items()},
        },
        "models": {stage.title: _stage(stage) for stage in scenario.stages},
        "network": {
            "agents": dict(run.agents),
            "model": regression(scenario).title,
            "privacy": "masked",
            "killed": run.killed,
            "learned": run.learned,
            "forgotten": run.forgotten,
            "attested": run.attested,
            "hops": run.hops,
            "seconds": round(run.seconds, 2),
            "certificates": {name: a.to_dict() for name, a in run.certificates.items()},
            "agrees": run.agrees(scenario),
        },
        "exact": scenario.exact and run.agrees(scenario),
    }


def _stage(stage: Stage) -> dict[str, Any]:
    return {
        "model": stage.before.model.name,
        "settings": stage.before.model.settings(),
        "posterior": {
            "before": _posterior(stage.before),
            "after": _posterior(stage.after),
            "never_had_it": _posterior(stage.never),
        },
        "influence": dict(stage.influence),
        "iterations": {
            "learn": len(stage.steps) - sum(e.iterations for e in stage.erasures),
            "forget": [e.iterations for e in stage.erasures],
            "audit": stage.audit.iterations,
        },
        "kinds": [e.kind for e in stage.erasures],
        "attested_by": list(stage.audit.attested),
        "exact": stage.exact,
    }


def _posterior(q: Posterior) -> dict[str, Any]:
    return {
        "digest": q.digest,
        "units": q.units.tolist(),
        "marginals": {
            m.name: {"mean": float(m.mean()), "sd": float(m.sd())} for m in q.model.marginals(q.eta)
        },
    }


def posterior_rows(stage: Stage) -> list[list[str]]:
    """A table of the posteriors before, after and without the data: a label and three cells per
    row; the last row has the digests."""
    columns = (stage.before, stage.after, stage.never)
    marginals = zip(*(q.distribution.marginals for q in columns), strict=True)
    return [
        *(
            [label, *(f"{float(m.mean()):.4f} ± {float(m.sd()):.4f}" for m in three)]
            for label, three in zip(stage.before.model.quantities, marginals, strict=True)
        ),
        ["digest", *(q.digest[:12] for q in columns)],
    ]
