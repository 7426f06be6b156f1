"""The report of a network's folder: running agents over their sockets, stopped ones from their
stores, certificates from files; or a folder with network.toml and certificates alone.

The rules of disclosure hold here: coarse numbers of the current posterior and of its change by an
erasure, no earlier posterior, no sum and no digest of one, and of single agents only whether they
are in the model, and their erasures.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unweave.errors import ConfigError
from unweave.manifest import Manifest, load
from unweave.models import Model, Posterior
from unweave.node.api.report import NO_TOKEN
from unweave.node.config import find_agents
from unweave.operations.certificates import ask_erasures, certificates_in, stored_erasures
from unweave.operations.cluster import LOOK, Cluster, open_cluster
from unweave.operations.reading import WHOLE, ask_posteriors, newest, read_posteriors
from unweave.operations.status import lies
from unweave.operations.tables import posterior_of
from unweave.protocol.certificate.format import FORMAT
from unweave.protocol.certificate.verify import Erased
from unweave.report.certified import certificate_facts, date, proved_erasures, written_in
from unweave.report.changes import kept_changes
from unweave.report.facts import (
    AgentFact,
    CertificateFact,
    ErasureFact,
    ModelFact,
    PrivacyFact,
    Report,
)
from unweave.report.quantities import quantities_of
from unweave.report.settings import network_settings, registered_words, setting_words
from unweave.report.timeline import Dates, dates, of_votes
from unweave.report.words import certificate_checks, limits, network_verdict
from unweave.text import dated, due, quote

if TYPE_CHECKING:
    from unweave.federation import Federation

__all__ = ["network_report", "privacy_fact", "versions"]

_MOST_ASKED = 50  # requests without a certificate that agents are asked about


@dataclass
class _Known:
    """What the agents of a folder know."""

    included: set[str] = field(default_factory=set)
    out: set[str] = field(default_factory=set)  # erased as a whole, or departed
    departed: dict[str, str] = field(default_factory=dict)  # agent → the request of the votes
    down: set[str] = field(default_factory=set)
    requests: dict[str, str] = field(default_factory=dict)  # request → agent: carried out
    asked: dict[str, str] = field(default_factory=dict)  # request → agent: not yet
    posterior: Posterior | None = None
    why: str = ""  # there is no posterior
    failure: tuple[str, str] | None = None  # what is wrong with the network, in short and in full
    as_of: str = ""
    progress: dict[str, dict[str, Any]] = field(default_factory=dict)
    waiting: dict[str, float] = field(default_factory=dict)  # agent with requests → at the latest


def network_report(folder: Path, *, run_model: bool = True) -> Report:
    """The report of DIR, of one AGENT_DIR, or of a folder with network.toml and certificates."""
    now = dated(time.time())
    with ExitStack() as stack:
        homes = _homes(folder)
        if homes:
            agents = stack.enter_context(open_cluster(folder, LOOK))
            manifest, known = agents.manifest, _ask(agents, now)
        else:
            manifest = load(folder / "network.toml", run_model=run_model)
            why = "this folder has no agent: the model is not known here"
            known = _Known(why=why, as_of=now)
        files = certificates_in(folder, homes)
        facts, proved = certificate_facts(files, manifest)
        if homes:
            lacking = [one for one in (*known.asked, *known.requests) if one not in proved]
            look = ask_erasures if agents.agents else stored_erasures
            known.progress = look(agents, lacking[:_MOST_ASKED])
            more: dict[str, bytes | str] = {}
            for request, one in known.progress.items():
                content = one.get("certificate")  # one file may prove several requests
                if content is not None and content not in (*files.values(), *more.values()):
                    more[f"certificate-{request[8:16]}.json"] = content
            if more:
                facts, proved = certificate_facts(files | more, manifest)
    report = _report(folder, manifest, known, facts, proved, dates(homes), now)
    if report.privacy.mode == "masked":
        return report  # a change would say something about one agent
    kept = kept_changes((folder, *homes))
    erasures = (replace(one, changes=kept.get(one.request or "", ())) for one in report.erasures)
    return replace(report, erasures=tuple(erasures))


def _homes(folder: Path) -> list[Path]:
    """The agents' folders; none for a folder with a manifest and without agents."""
    try:
        return find_agents(folder)
    except ConfigError:
        if (folder / "network.toml").is_file() and not (folder / "agents").exists():
            return []
        raise


def _ask(agents: Cluster, now: str) -> _Known:
    known = _Known(as_of=now, down=set(agents.down))
    statuses = agents.statuses()
    if agents.agents:
        found = ask_posteriors(agents, LOOK)
        details = agents.ask_all("posterior", LOOK, brief=True, erasures=True)
        knowledge = [answer["posterior"] for answer in details.values()]
    else:
        found = read_posteriors(agents)
        knowledge = list(found.values())
    for one in knowledge:
        known.asked |= one.get("asked", {})
        for name, tomb in one.get("erasures", {}).get("known", {}).items():
            known.requests |= dict.fromkeys(tomb["ids"], name)
            known.out |= {name} if tomb["out"] else set()
    known.asked = {k: v for k, v in known.asked.items() if k not in known.requests}
    for name, status in statuses.items():
        if waits := (status.get("waiting") or {}):
            known.waiting |= {name: waits["by"]} if waits["requests"] else {}
        requests = status.get("departed_requests", {})
        known.departed |= {name: requests.get(name, "") for name in status.get("departed", ())}
    best = newest(found) if found else {"state": "unknown", "why": NO_TOKEN}
    known.as_of = _minute(best["as_of"]) if "as_of" in best else now
    known.included = set(best.get("included", ()))
    if best["state"] == "audit_failed":
        known.failure = "The network has stopped", str(best["why"])
    elif told := lies(statuses):
        known.failure = "An agent has lied", "; ".join(told)
    if best["state"] in WHOLE and "marginals" in best:
        known.posterior = posterior_of(agents.root, best)
        if best.get("fitting") is not None:
            known.why = "the agents are still fitting: the numbers still change"
        elif best["state"] == "unconfirmed":
            known.why = (
                "not all neighbours have confirmed this model: a late erasure may be missing"
            )
    else:
        known.why = str(best.get("why") or "not all agents are in the model yet")
    return known


def _minute(written: str) -> str:
    """The time of a store, in the form of all dates here: else an erasure seems to be later."""
    return dated(datetime.strptime(written, "%Y-%m-%d %H:%M:%S %Z").replace(tzinfo=UTC).timestamp())


# ----------------------------------------------------------------------------------- erasures


def _open_erasures(
    known: _Known, proved: Mapping[str, tuple[Erased, str]], when: Dates
) -> list[ErasureFact]:
    """The erasures that are known here, and that no certificate proves."""
    found = []
    requests = {**{r: n for n, r in known.departed.items() if r}, **known.requests, **known.asked}
    for request, name in requests.items():
        if request in proved:
            continue
        state, waits = _progress(request, known)
        quorum = name in known.departed
        latest = known.waiting.get(name) if state == "waiting" else None
        logged = when.get(request, {}) | (when.get(of_votes(name), {}) if quorum else {})
        if "certified" in logged:  # agents sign again at every later change: none is missing here
            state, waits = "removed", ()
        fact = ErasureFact(
            name,
            "agent" if name in known.out or quorum else "records",
            state,
            by="quorum" if quorum else "owner",
            request=request,
            requested=date(logged.get("requested")),
            carried_out=date(logged.get("carried_out")),
            certified=date(logged.get("certified")),
            waits_for=waits,
            until=None if latest is None else due(latest),
        )
        found.append(fact)
    return found


def _progress(request: str, known: _Known) -> tuple[Any, tuple[str, ...]]:
    report = known.progress.get(request, {})
    state = report.get("state")
    if state in ("waiting", "voting", "asked", "removed"):
        return state, tuple(report.get("waiting_for", ()))
    return ("asked" if request in known.asked else "removed"), ()


# -------------------------------------------------------------------------------------- the value


def _report(
    folder: Path,
    manifest: Manifest,
    known: _Known,
    facts: tuple[CertificateFact, ...],
    proved: Mapping[str, tuple[Erased, str]],
    when: Dates,
    now: str,
) -> Report:
    known.out |= {one.agent for one, _ in proved.values() if one.scope == "agent"}
    erasures = (
        *proved_erasures(facts, proved, when, written_in(folder)),
        *_open_erasures(known, proved, when),
    )
    privacy = privacy_fact(manifest)
    model = manifest.build_model()
    valid = [one for one in facts if one.problem is None]
    shown = valid[0].file if valid else "CERTIFICATE"
    return Report(
        source="network",
        network=manifest.name,
        made=now,
        as_of=known.as_of,
        agents=tuple(_agents(manifest, known, valid)),
        edges=tuple((a, b) for a, b in manifest.topology.edge_array.tolist()),
        erasures=erasures,
        certificates=facts,
        models=(_model(manifest, model, known),),
        privacy=privacy,
        settings=network_settings(manifest, model),
        versions=versions(manifest),
        checks=certificate_checks(facts),
        commands=(f"unweave verify {quote(shown)} --network network.toml",) if facts else (),
        verdict=network_verdict(erasures, facts, privacy, failure=known.failure),
        limits=limits(erasures, privacy, signed=True),
    )


def _agents(
    manifest: Manifest, known: _Known, certificates: list[CertificateFact]
) -> Iterable[AgentFact]:
    departed = {*known.departed, *(certificates[0].not_attested if certificates else ())}
    has_agents = bool(known.included or known.requests or known.down or known.asked)
    for name in manifest.topology.agents:
        note = (
            "did not answer"
            if name in known.down and len(known.down) < len(manifest.topology)
            else ""
        )
        if name in departed:
            yield AgentFact(name, "departed")
        elif name in known.out:
            yield AgentFact(name, "erased")
        elif name in known.included:
            yield AgentFact(name, "in", note)
        elif not has_agents and certificates:
            inside = name in certificates[0].included
            yield AgentFact(name, "in" if inside else "not in", "at the certificate's moment")
        else:
            yield AgentFact(name, "not in" if has_agents else "unknown", note)


def _model(manifest: Manifest, model: Model, known: _Known) -> ModelFact:
    quantities = (
        () if known.posterior is None else quantities_of({"posterior": known.posterior}, live=True)
    )
    return ModelFact(
        name=manifest.model.name,
        words=registered_words(manifest.model.name, type(model)),
        exact=model.conjugate or model.settles,
        settings=setting_words(manifest.model.settings),
        quantities=quantities,
        total=len(model.quantities),
        remark=known.why,
    )


def privacy_fact(network: Manifest | Federation) -> PrivacyFact:
    entry = network.privacy
    return PrivacyFact(entry.mode, entry.seen, entry.min_roster, entry.epsilon, entry.delta)


def versions(manifest: Manifest | None = None) -> dict[str, str]:
    found = {"unweave": version("unweave")}
    if manifest is not None:
        found["form of certificates"] = FORMAT
        found["network.toml, SHA-256"] = hashlib.sha256(manifest.raw).hexdigest()
    return found
