"""The report of `unweave demo`: its report.json, and the certificates beside it, verified again.

The data set is public and all data lie in one place, so the posterior before the erasure and that
of a network without the erased data may be shown.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from unweave.errors import ConfigError
from unweave.manifest import load
from unweave.manifest.privacy import SEEN
from unweave.models import Posterior
from unweave.operations.certificates import certificates_in
from unweave.report.certified import certificate_facts, proved_erasures, written_in
from unweave.report.facts import (
    AgentFact,
    CertificateFact,
    CheckFact,
    ErasureFact,
    ModelFact,
    Name,
    PrivacyFact,
    Report,
    Sentence,
    Verdict,
)
from unweave.report.network import versions
from unweave.report.quantities import quantities_of
from unweave.report.settings import model_words, setting_words
from unweave.report.timeline import dates
from unweave.report.values import Text, Values, Whole
from unweave.report.words import certificate_checks, limits, network_verdict
from unweave.text import clip, dated

__all__ = ["demonstration_report"]


class _Hospital(Values):
    patients: Whole
    malignant: Whole


class _Forgotten(Values):
    hospital: Text
    patients: dict[Text, list[int]]


class _Stage(Values):
    model: Text
    settings: dict[Text, Any]
    posterior: dict[Literal["before", "after", "never_had_it"], dict[str, Any]]
    kinds: list[Literal["exact", "subtracted", "refined", "retrained"]]
    exact: bool


class _Network(Values):
    agents: dict[Text, int]
    model: Text  # the title of the model that the processes learn
    privacy: Literal["plain", "masked"]
    killed: Text
    attested: Whole
    hops: Whole
    seconds: float
    certificates: dict[Text, Any]
    agrees: bool


class _Demonstration(Values):
    data: Text
    seed: int
    edges: list[tuple[Text, Text]]
    hospitals: dict[Text, _Hospital]
    forgotten: _Forgotten
    models: dict[Text, _Stage]
    network: _Network
    exact: bool


def demonstration_report(values: Mapping[str, Any], folder: Path, written: str) -> Report:
    """The report of `unweave demo`. Certificates and network.toml are read from `folder`."""
    run = _Demonstration.model_validate(_tuples(values))
    manifest = load(folder / "network.toml", run_model=False)
    files = {
        name: content
        for name, content in certificates_in(folder).items()
        if name in run.network.certificates
    }
    facts, proved = certificate_facts(files, manifest)
    when = dates(sorted(path for path in (folder / "agents").glob("*") if path.is_dir()))
    privacy = PrivacyFact(run.network.privacy, SEEN[run.network.privacy])
    erasures = proved_erasures(facts, proved, when, written_in(folder))
    names, learned = tuple(run.hospitals), run.network.model
    return Report(
        source="demonstration",
        network=manifest.name,
        made=dated(time.time()),
        as_of=written,
        agents=tuple(_hospitals(run)),
        edges=tuple((names.index(a), names.index(b)) for a, b in run.edges),
        erasures=tuple(erasures),
        certificates=facts,
        models=tuple(
            _stage(title if title == learned else f"{title} (in memory, to illustrate)", stage)
            for title, stage in sorted(run.models.items(), key=lambda one: one[0] != learned)
        ),
        privacy=privacy,
        settings={
            "data": f"{run.data}, {sum(h.patients for h in run.hospitals.values())} patients",
            "seed": str(run.seed),
            "processes": f"{len(run.network.agents)}, over mutual TLS; {run.network.killed} was "
            "killed on the way and restarted",
            "steps of the token (hops)": f"{run.network.hops}, in {run.network.seconds:.1f} s",
        },
        versions=versions(manifest),
        checks=(*certificate_checks(facts), *_comparison(run)),
        commands=tuple(f"unweave verify {one.file} --network network.toml" for one in facts[:1]),
        verdict=_demonstration_verdict(run, erasures, facts, privacy),
        limits=limits(erasures, privacy, signed=True),
    )


def _tuples(values: Mapping[str, Any]) -> dict[str, Any]:
    """JSON has lists where a strict model has pairs."""
    edges = values.get("edges")
    pairs = [tuple(one) if isinstance(one, list) else one for one in edges or ()]
    return {**values, "edges": pairs}


def _hospitals(run: _Demonstration) -> list[AgentFact]:
    """The hospitals of a public data set: their numbers of patients may be shown."""
    out, fewer = run.forgotten.hospital, run.forgotten.patients
    return [
        AgentFact(
            name,
            "erased" if name == out else "in",
            f"{one.patients} patients"
            + (f", {len(fewer[name])} of them erased" if name in fewer else ""),
        )
        for name, one in run.hospitals.items()
    ]


def _stage(title: str, stage: _Stage) -> ModelFact:
    labels = {"posterior": "after", "before": "before", "never": "never_had_it"}
    about = {"model": stage.model, "settings": stage.settings}
    found = {
        label: Posterior.from_json({**stage.posterior[key], **about})
        for label, key in labels.items()
        if key in stage.posterior
    }
    if "posterior" not in found:
        raise ConfigError(
            f"models.{clip(title, 60)}: no posterior after forgetting. Fix: repeat `unweave demo`"
        )
    model = found["posterior"].model
    return ModelFact(
        name=stage.model,
        words=model_words(type(model)),
        exact=model.conjugate,
        settings=setting_words(stage.settings),
        quantities=quantities_of(found),
        total=len(model.quantities),
        title=title,
        remark=""
        if stage.exact
        else "after forgetting it is not that of a network without the data",
    )


def _comparison(run: _Demonstration) -> tuple[CheckFact, ...]:
    """The comparison that only a demonstration can make: all data lie in one place."""
    text = (
        "The same network was run again without the erased data, in memory and on another graph: "
        "both models are equal, bit for bit."
    )
    return (CheckFact((text,), run.exact and run.network.agrees),)


def _demonstration_verdict(
    run: _Demonstration,
    erasures: list[ErasureFact],
    facts: tuple[CertificateFact, ...],
    privacy: PrivacyFact,
) -> Verdict:
    if not (run.exact and run.network.agrees):
        text = "A posterior after forgetting differs from that of a network without the data."
        return Verdict("bad", "Not exact", ((text,),))
    wanted = {run.forgotten.hospital, *run.forgotten.patients}
    lacking = wanted - {one.agent for one in erasures}
    if lacking:
        told: Sentence = ("No certificate beside this file proves the erasure of ",)
        return Verdict("bad", "A certificate is missing", ((*told, Name(min(lacking)), "."),))
    return network_verdict(erasures, facts, privacy)
