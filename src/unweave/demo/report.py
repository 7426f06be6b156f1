"""What the demonstration found, for machines and for people."""

from __future__ import annotations

from typing import Any

from unweave.demo.network import NetworkRun
from unweave.demo.pictures import CAPTION
from unweave.demo.story import Stage, Story
from unweave.models import Posterior
from unweave.protocol.certificate.verify import Erased
from unweave.text import in_markdown

__all__ = ["as_dict", "as_markdown"]


def as_dict(story: Story, run: NetworkRun) -> dict[str, Any]:
    return {
        "data": "breast_cancer",
        "seed": story.seed,
        "hospitals": {
            name: {"patients": n, "malignant": story.malignant[name]}
            for name, n in story.patients.items()
        },
        "forgotten": {
            "hospital": story.forgotten,
            "patients": {name: list(ids) for name, ids in story.withdrawn.items()},
        },
        "models": {chapter.title: _chapter(chapter) for chapter in story.chapters},
        "network": {
            "agents": dict(run.agents),
            "killed": run.killed,
            "learned": run.learned,
            "forgotten": run.forgotten,
            "attested": run.attested,
            "hops": run.hops,
            "seconds": round(run.seconds, 2),
            "certificates": {name: a.to_dict() for name, a in run.certificates.items()},
            "agrees": run.agrees(story),
        },
        "exact": story.exact and run.agrees(story),
    }


def _chapter(chapter: Stage) -> dict[str, Any]:
    return {
        "model": chapter.before.model.name,
        "settings": chapter.before.model.settings(),
        "posterior": {
            "before": _posterior(chapter.before),
            "after": _posterior(chapter.after),
            "never_had_it": _posterior(chapter.never),
        },
        "influence": dict(chapter.influence),
        "iterations": {
            "learn": len(chapter.steps) - sum(e.iterations for e in chapter.erasures),
            "forget": [e.iterations for e in chapter.erasures],
            "audit": chapter.audit.iterations,
        },
        "kinds": [e.kind for e in chapter.erasures],
        "attested_by": list(chapter.audit.attested),
        "exact": chapter.exact,
    }


def _posterior(q: Posterior) -> dict[str, Any]:
    return {
        "digest": q.digest,
        "marginals": {
            m.name: {"mean": float(m.mean()), "sd": float(m.sd())} for m in q.model.marginals(q.eta)
        },
    }


def as_markdown(story: Story, run: NetworkRun, pictures: list[str]) -> str:
    """A page that says what happened, with the pictures beside it."""
    gone = in_markdown(story.forgotten)
    owner, ids = next(iter(story.withdrawn.items()))
    lines = [
        "# Five hospitals learn; one of them and a few patients are forgotten",
        "",
        f"{sum(story.patients.values())} patients of the Breast Cancer Wisconsin (Diagnostic) data "
        "set (CC BY 4.0, doi:10.24432/C5DW2B), split among five hospitals of unequal size and "
        f"unlike patients. Seed {story.seed}.",
        "",
        f"Forgotten: everything from **{gone}**, the most influential hospital, and patients "
        f"{', '.join(map(str, ids))} of {in_markdown(owner)}.",
        "",
        "| hospital | patients | malignant | influence on share (KL) | on regression (KL) |",
        "|---|---:|---:|---:|---:|",
    ]
    share, regression = story.chapters
    lines += [
        f"| {in_markdown(name)} | {n} | {story.malignant[name] / n:.0%} | "
        f"{share.influence[name]:.3g} | {regression.influence[name]:.3g} |"
        for name, n in story.patients.items()
    ]
    for chapter in story.chapters:
        lines += ["", f"## {chapter.title[0].upper()}{chapter.title[1:]}", "", *_table(chapter)]
    lines += ["", *_network(story, run)]
    for name in pictures:
        lines += ["", f"![{name.removesuffix('.png')}]({name})"]
        if name == "token.png":
            lines += ["", f"*{CAPTION}*"]
    lines.append("")
    return "\n".join(lines)


def _network(story: Story, run: NetworkRun) -> list[str]:
    """What happened between the processes."""
    verdict = "equal, bit for bit" if run.agrees(story) else "NOT equal"
    return [
        "## Between real processes",
        "",
        f"The regression was learned by {len(run.agents)} processes over mutual TLS, each with its "
        f"own key, database and address. **{in_markdown(run.killed)}** was killed (`kill -9`) on "
        f"the way and came back. {run.hops} hops, {run.seconds:.1f} s from the first start to the "
        "last verification. Before and after forgetting, the network's sum and the one in memory "
        f"are {verdict}; {run.attested} agents attested the last one.",
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
        "Anybody who has `network.toml` can check them: "
        "`unweave verify certificate-….json --network network.toml`.",
    ]


def _scope(erased: Erased) -> str:
    if erased.scope == "agent":
        return "everything"
    return "1 record" if erased.rows == 1 else f"{erased.rows} records"


def _table(chapter: Stage) -> list[str]:
    verdict = "equal, bit for bit" if chapter.exact else "NOT equal"
    columns = (chapter.before, chapter.after, chapter.never)
    labels = chapter.before.model.quantities
    rows = [
        f"| {in_markdown(label)} | "
        + " | ".join(
            f"{float(m.mean()):.4f} ± {float(m.sd()):.4f}"
            for m in (q.distribution.marginals[j] for q in columns)
        )
        + " |"
        for j, label in enumerate(labels)
    ]
    digests = " | ".join(f"`{q.digest[:12]}`" for q in columns)
    took = " and ".join(str(e.iterations) for e in chapter.erasures)
    return [
        f"`{chapter.before.model.name}`: after forgetting and never having had it are {verdict}. "
        f"Forgetting took {took} iterations; {len(chapter.audit.attested)} hospitals attested the "
        "sum.",
        "",
        "| mean ± sd | learned from all | after forgetting | never had it |",
        "|---|---:|---:|---:|",
        *rows,
        f"| digest | {digests} |",
    ]
