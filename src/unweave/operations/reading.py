"""One posterior from the reports of many agents, running (over their control sockets) or stopped
(from their stores).

A sum is valid only if no agent that was asked knows a tombstone that forbids it. An agent that was
down does not know the latest erasures: its sum may have the largest stamp and still hold erased
data.

`read_shards` reads the records of all agents of DIR, for a run in memory.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from unweave.errors import StoreError, UnweaveError
from unweave.grid import Ints
from unweave.manifest import Manifest
from unweave.models import Model, Shard
from unweave.node.agent import open_data, open_identity
from unweave.node.api.client import AgentDown
from unweave.node.api.report import erasure_report, forgotten_report, posterior_report
from unweave.node.config import AgentFolder
from unweave.node.erasures import CertificateStore
from unweave.node.storage.sqlite import look_into_store
from unweave.operations.cluster import LOOK, Cluster, open_cluster
from unweave.protocol.state import State
from unweave.protocol.terms import Terms
from unweave.protocol.token import Tomb, Tombs, dead
from unweave.text import quote

if TYPE_CHECKING:
    from unweave.privacy.mechanism import Mechanism

__all__ = [
    "ask_forgotten",
    "ask_posteriors",
    "newest",
    "read_erasures",
    "read_posteriors",
    "read_shards",
    "read_sum",
    "whole_sum",
]


Reports = Mapping[str, Mapping[str, Any]]  # by agent

_ORDER = ("departed", "unknown", "incomplete", "unconfirmed", "complete")
WHOLE = ("unconfirmed", "complete")
FORBIDDEN = "its sum holds data that another agent knows to be erased"


def ask_posteriors(
    agents: Cluster, within: float | None = None, *, brief: bool = False
) -> dict[str, dict[str, Any]]:
    """The reports of all running agents; with the erasures that they know, if the sums differ or an
    erasure was requested. `brief`: what a display shows, without the sum."""
    found = _reports(agents, within, brief=brief)
    if len({report.get("digest") for report in found.values()}) > 1 or any(
        report.get("asked") for report in found.values()
    ):
        found = _reports(agents, within, brief=brief, erasures=True)
    return found


def _reports(agents: Cluster, within: float | None, **request: Any) -> dict[str, dict[str, Any]]:
    answers = agents.ask_all("posterior", within, **request)
    return {name: answer["posterior"] for name, answer in answers.items()}


def whole_sum(agents: Cluster, wanted: str) -> list[int]:
    """The sum with this digest, from the first agent that still has it: the report of a large
    posterior holds a part of it only."""
    for name in agents.folders:
        if name in agents.agents:
            answer = agents.again(name, "posterior", everything=True)
            report = {} if answer is None else answer["posterior"]
        else:
            report = _stored_report(agents, name, everything=True) or {}
        if report.get("digest") == wanted and "units" in report:
            return [int(unit) for unit in report["units"]]
    raise UnweaveError(
        f"{agents.root}: the sum has changed meanwhile. Fix: repeat the command when the token is "
        "parked"
    )


class _Stored(NamedTuple):
    """A stopped agent, as a source of reports."""

    state: State | None
    terms: Terms
    model: Model
    mechanism: Mechanism | None
    certificates: CertificateStore

    @classmethod
    def of(cls, state: State | None, home: AgentFolder) -> Self:
        manifest = home.manifest
        model, mechanism = manifest.build_model(), manifest.build_mechanism()
        return cls(state, home.terms, model, mechanism, CertificateStore(home.certificates))


def read_posteriors(agents: Cluster) -> dict[str, dict[str, Any]]:
    """The reports of stopped agents, from their stores; empty if no agent has stored a state.
    Raises `AgentDown` if a process uses one of the stores."""
    reports = {name: _stored_report(agents, name) for name in agents.folders}
    found = {name: report for name, report in reports.items() if report is not None}
    if not found:
        return {}
    out = {name for report in found.values() for name in _out(report)}
    all_read = set(agents.manifest.topology.agents) <= out | found.keys()
    for report in found.values():
        if report["state"] == "unconfirmed" and all_read:
            report["state"] = "complete"  # no other agent could know a later erasure
    return found


def _look(agents: Cluster, home: AgentFolder) -> State | None:
    try:
        return look_into_store(home, open_identity(home))
    except StoreError as error:
        cause = error.__cause__
        name = getattr(cause, "sqlite_errorname", "") if isinstance(cause, sqlite3.Error) else ""
        if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            raise AgentDown(
                f"{agents.root}: {home.config.name} runs, but does not answer yet. "
                "Fix: run the command again"
            ) from None
        raise


def _written(store: Path) -> str:
    """When the agent last wrote to its store."""
    files = [store, store.with_name(store.name + "-wal")]
    last = max(file.stat().st_mtime for file in files if file.exists())
    return datetime.fromtimestamp(last, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def read_sum(agents: Cluster, name: str) -> tuple[Ints, bytes]:
    """The sum that agent `name` shows, and the secret that opens the commitment to it in the
    certificate of the sum's attestation round."""
    if name in agents.agents:
        report = agents.of(name).ask("posterior", everything=True, secret=True)["posterior"]
    else:
        home = AgentFolder.read(agents.folders[name])
        source = _Stored.of(_look(agents, home), home)
        report = posterior_report(source, everything=True, secret=True)
    if "secret" not in report or "units" not in report:
        raise UnweaveError(
            f"{name}: no agent has attested its sum, so no certificate names it. Fix: run "
            f"`unweave audit {quote(agents.root)}`, then repeat the command"
        )
    units = np.array([int(unit) for unit in report["units"]], dtype=np.int64)
    return units, bytes.fromhex(report["secret"])


def _stored_report(agents: Cluster, name: str, everything: bool = False) -> dict[str, Any] | None:
    home = AgentFolder.read(agents.folders[name])
    state = _look(agents, home)
    if state is None:
        return None
    source = _Stored.of(state, home)
    report = posterior_report(source, everything, erasures=True)
    return report | {"as_of": _written(home.store)}


def read_erasures(agents: Cluster, requests: Iterable[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """What the store of each stopped agent tells of these requests."""
    asked = list(requests)
    home = None
    for path in agents.folders.values() if asked else ():
        home = AgentFolder.read(path, like=home)
        state = _look(agents, home)
        if state is not None:
            source = _Stored.of(state, home)
            yield from ((one, erasure_report(source, bytes.fromhex(one))) for one in asked)


def newest(found: Reports) -> dict[str, Any]:
    """Of the whole reports that no known tombstone forbids, that with the largest stamp; without
    any, the report that is closest to whole. After an audit failure there is none."""
    for report in found.values():
        if report["state"] == "audit_failed":
            return _plain(report)
    number: dict[str, int] = {}
    known = [report["erasures"] for report in found.values() if "erasures" in report]
    allowed = [
        _withheld(report) if _forbidden(report, known, number) else report
        for report in found.values()
    ]
    best = max(allowed, key=_worth, default={"state": "unknown"})
    return _plain(best) | {"erasure_pending": _pending(best, found.values())}


class _Shown(NamedTuple):
    """A reported sum, as `dead` reads it."""

    inside: frozenset[int]
    tombs: Tombs
    retrain_epoch: frozenset[bytes]


def _forbidden(
    report: Mapping[str, Any], known: Iterable[Mapping[str, Any]], number: dict[str, int]
) -> bool:
    def of(name: str) -> int:
        return number.setdefault(name, len(number))

    if "digest" not in report or "erasures" not in report:
        return False
    erasures = report["erasures"]
    shown = _Shown(
        frozenset(of(name) for name in report["included"]),
        {of(name): Tomb(_ids(ids)) for name, ids in erasures["carried_out"].items()},
        _ids(erasures["carried_out_retrain_epoch"]),
    )
    return any(
        dead(
            shown,
            {of(name): Tomb(_ids(t["ids"]), t["out"]) for name, t in one["known"].items()},
            _ids(one["retrain_epoch"]),
        )
        for one in known
    )


def _withheld(report: Mapping[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in report.items() if key in ("as_of", "erasures")}
    return {"state": "unknown", "why": FORBIDDEN, **kept}


def _ids(texts: Iterable[str]) -> frozenset[bytes]:
    return frozenset(bytes.fromhex(text) for text in texts)


def _pending(best: Mapping[str, Any], found: Iterable[Mapping[str, Any]]) -> list[str]:
    """The agents with a requested erasure that this sum does not carry out yet."""
    inside = set(best.get("included", ()))
    done = best.get("erasures", {}).get("carried_out", {})
    asked = {pair for report in found for pair in report.get("asked", {}).items()}
    return sorted({who for ident, who in asked if who in inside and ident not in done.get(who, ())})


def _plain(report: Mapping[str, Any]) -> dict[str, Any]:
    """The report without the fields that serve only to compare reports."""
    return {key: value for key, value in report.items() if key not in ("asked", "erasures")}


def _out(report: Mapping[str, Any]) -> list[str]:
    return [name for name, tomb in report["erasures"]["known"].items() if tomb["out"]]


def _worth(report: Mapping[str, Any]) -> tuple[bool, list[int], bool, int]:
    """Sort key: whole reports by stamp; the others by state and number of agents included."""
    whole = report["state"] in WHOLE
    place = _ORDER.index(report["state"])
    count = [] if whole else [place, len(report.get("included", ()))]
    fitted = report.get("fitting") is None
    return whole, count + list(report.get("stamp", ())), fitted, place


def ask_forgotten(agents: Cluster) -> dict[str, dict[str, Any]]:
    """The erased data of each agent, from running agents and from the stores of stopped ones. An
    agent without a store has forgotten nothing."""
    found = {name: answer["forgotten"] for name, answer in agents.ask_all("forgotten").items()}
    home = None
    for name, path in agents.folders.items():
        if name not in found:
            home = AgentFolder.read(path, like=home)
            state = _look(agents, home)
            found[name] = forgotten_report(State(home.terms, home.me) if state is None else state)
    return found


def read_shards(manifest: Manifest, folder: Path) -> tuple[list[Shard], dict[str, Any], str]:
    """The records in the agents' folders, without those that the network has forgotten; a count of
    the forgotten data; or why the records cannot be used."""
    shards: list[Shard] = []
    records = 0
    try:
        with open_cluster(folder, LOOK) as agents:
            homes = agents.folders
            for name in manifest.topology.agents:
                if name not in homes:
                    return [], {}, f"the folder of {name} is not in {folder / 'agents'}"
            found = ask_forgotten(agents)
        out = {name for one in found.values() for name in one["out"]}
        out |= {name for name, one in found.items() if one["erased"]}
        agent = None
        for name in manifest.topology.agents:
            agent = AgentFolder.read(homes[name], like=agent)
            data = open_data(agent, open_identity(agent))
            if name in out:
                shards.append(data.empty())
                continue
            dropped = frozenset(bytes.fromhex(row) for row in found[name]["records"])
            shards.append(Shard(name, data.shard(dropped).rows))
            records += len(dropped)
    except UnweaveError as error:
        return [], {}, str(error)
    return shards, {"agents": sorted(out), "records": records}, ""
