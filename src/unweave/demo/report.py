"""The demonstration's results as a JSON document and as a Markdown page."""

from __future__ import annotations

from typing import Any

from unweave.demo.network import NetworkRun
from unweave.demo.pictures import CAPTION
from unweave.demo.scenario import Scenario, Stage
from unweave.models import Posterior
from unweave.protocol.certificate.verify import Erased
from unweave.text import count, in_markdown

__all__ = ["INFLUENCE", "as_dict", "as_markdown", "posterior_rows"]

INFLUENCE = (
    "Influences are computed in memory, where all data lie in one place. Between masked agents "
    "none is published: it would nearly be an agent's sums."
)


def as_dict(scenario: Scenario, run: NetworkRun) -> dict[str, Any]:
    return {
        "data": "breast_cancer",
        "seed": scenario.seed,
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
        "marginals": {
            m.name: {"mean": float(m.mean()), "sd": float(m.sd())} for m in q.model.marginals(q.eta)
        },
    }


def as_markdown(scenario: Scenario, run: NetworkRun, pictures: list[str]) -> str:
    """The report as a page; the pictures lie beside it."""
    forgotten = in_markdown(scenario.forgotten)
    owner, ids = next(iter(scenario.withdrawn.items()))
    lines = [
        "# Five hospitals learn; one of them and a few patients are forgotten",
        "",
        f"{sum(scenario.patients.values())} patients of the Breast Cancer Wisconsin (Diagnostic) "
        "data set (CC BY 4.0, doi:10.24432/C5DW2B), split among five hospitals with different "
        f"numbers of patients and shares of malignant diagnoses. Seed {scenario.seed}.",
        "",
        f"Forgotten: everything from **{forgotten}**, the most influential hospital, and patients "
        f"{', '.join(map(str, ids))} of {in_markdown(owner)}.",
        "",
        "| hospital | patients | malignant | influence on share (KL) | on regression (KL) |",
        "|---|---:|---:|---:|---:|",
    ]
    share, regression = scenario.stages
    lines += [
        f"| {in_markdown(name)} | {n} | {scenario.malignant[name] / n:.0%} | "
        f"{share.influence[name]:.3g} | {regression.influence[name]:.3g} |"
        for name, n in scenario.patients.items()
    ]
    lines += ["", INFLUENCE]
    for stage in scenario.stages:
        lines += ["", f"## {stage.title[0].upper()}{stage.title[1:]}", "", *_table(stage)]
    lines += ["", *_network(scenario, run)]
    for name in pictures:
        lines += ["", f"![{name.removesuffix('.png')}]({name})"]
        if name == "token.png":
            lines += ["", f"*{CAPTION}*"]
    lines.append("")
    return "\n".join(lines)


def _network(scenario: Scenario, run: NetworkRun) -> list[str]:
    """The section on the agent processes."""
    verdict = "equal, bit for bit" if run.agrees(scenario) else "NOT equal"
    return [
        "## Between real processes",
        "",
        f"The regression was learned by {len(run.agents)} processes over mutual TLS, each with its "
        f"own key, database and address, in private rounds: no hospital saw the sums of another, "
        f"only the sum of all of them. **{in_markdown(run.killed)}** was killed (`kill -9`) "
        f"and restarted. {run.hops} hops, {run.seconds:.1f} s from the first start to the last "
        "verification. Before and after forgetting, the network's sum and the sum in memory are "
        f"{verdict}; {run.attested} agents attested the last sum.",
        "",
        "| certificate | erased | kind | attested by |",
        "|---|---|---|---:|",
        *(
            f"| [{name}]({name}) | "
            + "; ".join(f"{in_markdown(e.agent)}: {_scope(e)}" for e in account.erasures)
            + f" | {', '.join(sorted({e.kind for e in account.erasures}))} "
            f"| {len(account.attested)} |"
            for name, account in run.certificates.items()
        ),
        "",
        "Verify a certificate with `network.toml` alone: "
        "`unweave verify certificate-….json --network network.toml`.",
    ]


def _scope(erased: Erased) -> str:
    if erased.scope == "agent":
        return "everything"
    return count(erased.rows or 0, "record")


def _table(stage: Stage) -> list[str]:
    verdict = "equal, bit for bit" if stage.exact else "NOT equal"
    *rows, (_, *digests) = posterior_rows(stage)
    took = " and ".join(str(e.iterations) for e in stage.erasures)
    return [
        f"`{stage.before.model.name}`: the posteriors after forgetting and without the data are "
        f"{verdict}. Forgetting took {took} iterations; {len(stage.audit.attested)} hospitals "
        "attested the sum.",
        "",
        "| mean ± sd | learned from all | after forgetting | never had it |",
        "|---|---:|---:|---:|",
        *(f"| {in_markdown(label)} | {' | '.join(cells)} |" for label, *cells in rows),
        f"| digest | {' | '.join(f'`{digest}`' for digest in digests)} |",
    ]


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
