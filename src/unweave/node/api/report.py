"""Reports for the operator, as plain values: status, posterior, forgotten data, one erasure.

A report never shows a sum that a known tombstone forbids, that a departed agent holds, or that an
audit has rejected (`served`). In a network with private rounds it shows only a complete sum that
all agents have attested.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Protocol

from unweave.bounded import load_json
from unweave.families.marginals import finite
from unweave.manifest.brief import brief_settings
from unweave.models import Model
from unweave.node.config import SUPERVISOR
from unweave.node.driver import AgentDriver
from unweave.node.erasures import CertificateStore
from unweave.persistent import NOBODY
from unweave.protocol.certificate.unchecked import unchecked_requests
from unweave.protocol.messages import Pass
from unweave.protocol.rounds import awaited, is_too_small, spent_agents
from unweave.protocol.state import State
from unweave.protocol.steps import wrong_step
from unweave.protocol.terms import Terms
from unweave.protocol.token import (
    NOTHING,
    Token,
    commitment,
    dead,
    digest,
    missing,
    roster,
)
from unweave.text import listed

if TYPE_CHECKING:
    from unweave.privacy.mechanism import Mechanism

__all__ = [
    "DEPARTED",
    "NO_TOKEN",
    "brief_report",
    "erasure_report",
    "forgotten_report",
    "posterior_report",
    "receipts_report",
    "short_report",
    "status_report",
]


NO_TOKEN = "no token has been here yet"
NO_MORE = "no posterior is served any more"

_SHOWN = 10_000  # numbers of a posterior in a report, unless everything is wanted
_BRIEF = 6  # marginals in a report for a display
# Fields of a status that change while nothing happens, or with every visit of the token.
_PASSING = {"up_seconds", "counts", "refused", "phase", "epoch", "hop", "parked", "parked_stamp"}
_PASSING |= {"commitment", "others"}
_COMPUTED = ("marginals", "marginals_total", "remark")


def status_report(node: AgentDriver) -> dict[str, Any]:
    """The state of this agent; before its store is open, only the first part. While `facts` is the
    same, a page need not ask again."""
    report = _status(node)
    return report | {"facts": _facts(node.state, report)}


def _status(node: AgentDriver) -> dict[str, Any]:
    name = node.terms.name
    entry = node.folder.manifest.agent(node.folder.config.name)
    base: dict[str, Any] = {
        "name": node.folder.config.name,
        "address": node.folder.config.listen or entry.address,
        "pid": node.pid,
        "supervisor": int(os.environ.get(SUPERVISOR, 0)) or None,
        "phase": node.phase,
        "up_seconds": round(time.time() - node.started, 1),
        "replaced": node.replaced,
        "memory_holds_erased": node.memory.why or None,
        "counts": dict(node.counts),
        "refused": {
            f"{sender}: {reason}": count
            for (sender, reason), count in sorted(node.transport.refusals.items())
        },
    }
    s = node.state
    if s is None:
        return base
    token = served(s)
    absent = _missing(s, token)
    current = s.own.current
    return base | {
        "notice": _notice(s),
        "confirmed": _confirmed(s),
        "epoch": s.token.fence.epoch,
        "hop": s.token.fence.hop,
        "revision": current.revision.counter if current is not None else 0,
        "included": [] if token is None else [name(k) for k in token.inside],
        "stays_out": _stays_out(node, s, token),
        "data_problem": None if s.own.detached else node.data_problem,
        "concern": None if s.own.detached else node.concern,
        "dropped_records": None if (lost := node.missing()) is None else lost.report,
        "privacy_budget": None if s.own.detached else _budget(node),
        "missing": [name(k) for k in absent],
        "complete": token is not None and not absent,
        "private_round": _private_round(s) if s.terms.masked else None,
        "waiting": _waiting(s),
        "commitment": _hex(None if token is None else commitment(token)),
        "erased": sorted(name(k) for k, tomb in s.known.tombs.items() if tomb.whole),
        "departed": sorted(name(k) for k, tomb in s.known.tombs.items() if tomb.departed),
        "erasures": sum(len(tomb.ids) for tomb in s.known.tombs.values()),
        "erased_records": len(s.own.dropped),
        "pending": sorted({name(i.agent) for i in s.known.intents.values()}),
        "parked": _holder(s),
        "attested": 0 if s.token.parked is None else len(s.token.parked.attested),
        "parked_stamp": None if s.token.parked is None else list(s.token.parked.stamp),
        "suspects": sorted(name(k) for k in s.peers.suspects),
        "mismatches": sorted(name(one.author) for one in s.known.mismatches),
        "lies": {name(k): _lie(s, proof) for k, proof in sorted(s.known.proofs.items())},
        "others": {name(k): _other(node, s, token, k) for k in range(node.terms.size) if k != s.me},
        "votes": {
            name(t): sorted(name(v) for u, v in s.known.votes if u == t)
            for t in {t for t, _ in s.known.votes}
        },
        "departed_requests": {
            name(t): s.known.votes[t, v].request.hex()
            for t, v in sorted(s.known.votes, reverse=True)
        },
    }


def short_report(node: AgentDriver) -> dict[str, Any]:
    """The state of this agent in a few values that cost little: a page asks for it often."""
    s = node.state
    base = {
        "phase": node.phase,
        "sent": node.counts["tokens sent"],
        "facts": _facts(s, _status(node)),
    }
    if s is None:
        return base
    token, parked = served(s), s.token.parked
    current = s.own.current
    return base | {
        "epoch": s.token.fence.epoch,
        "hop": s.token.fence.hop,
        "revision": current.revision.counter if current is not None else 0,
        "shown": None if token is None else list(token.stamp),
        "inside": token is not None and s.me in token.inside,
        "parked": _holder(s),
        "attested": 0 if parked is None else len(parked.attested),
    }


def _facts(s: State | None, status: Mapping[str, Any]) -> str:
    """A digest that changes if the status or the posterior does, but for stamps, times and counts.
    An audit, for instance, changes neither."""
    kept: list[Any] = [value for key, value in status.items() if key not in _PASSING]
    if s is not None:
        kept += [
            other | {"heard_seconds_ago": other["heard_seconds_ago"] is None}
            for other in status["others"].values()
        ]
        token = served(s)
        kept.append(sorted(s.known.intents) + sorted(s.known.retrain_epoch))
        kept.append([(k, sorted(tomb.ids)) for k, tomb in s.known.tombs.items()])
        if token is not None:  # the revisions determine the sum
            kept += [*token.included, sorted(token.retrain_epoch), _fitting(s, token)]
    return blake2b(repr(kept).encode(), digest_size=8).hexdigest()


def receipts_report(node: AgentDriver) -> list[dict[str, Any]]:
    """The receipts that this agent keeps, the newest first."""
    found = []
    for receipt in () if node.state is None else node.state.own.receipts:
        body = receipt.body
        one = {"epoch": body["stamp"][0], "hop": body["stamp"][3], "request": body["request"]}
        found.append(one | {"before": body["before"][0], "after": body["after"][0]})
    return found


def _holder(s: State) -> str | None:
    """Where the token is parked; None: it moves, or will."""
    parked = s.token.parked
    asleep = parked is not None and s.token.wake < parked.stamp
    return s.terms.name(parked.holder) if parked is not None and asleep else None


def _hex(value: bytes | None) -> str | None:
    return None if value is None else value.hex()


def _missing(s: State, token: Token | None) -> Iterable[int]:
    """The agents that should be in the sum and are not."""
    if not s.terms.masked:
        return [] if token is None else missing(token)
    waits = awaited(s)
    return sorted(waits.to_enrol | waits.to_give)


def _waiting(s: State) -> dict[str, Any] | None:
    waiting = s.own.waiting
    if not (waiting.requests or waiting.data):
        return None
    return {
        "requests": len(waiting.requests),
        "data": waiting.data,
        "records": waiting.total - waiting.leaving,
        "by": waiting.due,
    }


def _budget(node: AgentDriver) -> dict[str, Any] | None:
    """The privacy ledger of this agent, and how many of its records were clipped."""
    release, mechanism = node.release, node.mechanism
    if release is None or mechanism is None:
        return None
    return {
        "epsilon": mechanism.terms.epsilon,
        "delta": mechanism.terms.delta,
        "given": release.given,
        "left": release.left,
        "clipped_records": node.clipped(),
    }


def _private_round(s: State) -> dict[str, Any]:
    waits, name = awaited(s), s.terms.name
    return {
        "agents": len(roster(s.terms.size, s.known.tombs)),
        "least": s.terms.min_roster,
        "published": served(s) is not None,
        "not_enrolled": [name(k) for k in sorted(waits.to_enrol)],
        "not_given": [name(k) for k in sorted(waits.to_give)],
        "not_attested": [name(k) for k in sorted(waits.to_attest)],
    }


def _lie(s: State, proof: Pass) -> str:
    assert proof.header is not None
    assert proof.step is not None
    return str(wrong_step(s.terms, proof.header.author, proof.token, proof.step))


def _stays_out(node: AgentDriver, s: State, token: Token | None) -> str | None:
    """Why the solver refused to make this agent's factor, if the token does not include it. In a
    private round it is included with a factor of zero."""
    if s.terms.masked:
        stays = s.own.infeasible_at is not None or s.own.spent
        return node.stays_out or None if stays and not (s.tomb.out or s.own.detached) else None
    out = s.tomb.out or s.own.detached or token is None or s.me in token.inside
    return None if out or s.own.infeasible_at is None else node.stays_out or None


def _other(node: AgentDriver, s: State, token: Token | None, k: int) -> dict[str, Any]:
    """What this agent knows of another one."""
    tomb = s.known.tombs.get(k, NOTHING)
    heard = s.peers.heard.get(k)
    influence = s.known.influences.get(k)
    return {
        "address": node.folder.manifest.entries[k].address,
        "neighbour": k in s.neighbours,
        "heard_seconds_ago": None if heard is None else round(time.monotonic() - heard, 1),
        "suspect": k in s.peers.suspects,
        "revision": 0 if token is None else token.included[k].counter,
        "attested": s.token.parked is not None and k in s.token.parked.attested,
        "erased": tomb.whole,
        "departed": tomb.departed,
        "erasures": len(tomb.ids),
        "influence": None if influence is None else influence.influence,
    }


def latest(s: State) -> Token | None:
    """The newest token this agent has seen."""
    token = s.token.held
    if token is None or (s.token.copy is not None and s.token.copy.stamp > token.stamp):
        return s.token.copy
    return token


def served(s: State) -> Token | None:
    """The newest token whose sum may be shown. None for a departed agent, after a failed audit, and
    for a token that a known tombstone forbids. Any other sum of a private round is noise."""
    newest = s.token.published if s.terms.masked else latest(s)
    token = None if s.tomb.departed or s.audit_failed else newest
    return None if token is None or dead(token, s.known.tombs, s.known.retrain_epoch) else token


def _notice(s: State) -> str | None:
    """Why this agent will never show a sum again; None: it may."""
    if s.tomb.departed:  # its token is old, and it gets no newer one
        return DEPARTED
    if s.terms.masked and is_too_small(s, s.known.tombs) and not s.audit_failed:
        left = len(roster(s.terms.size, s.known.tombs))
        return (
            f"{left} of {s.terms.size} agents remain, and a private sum needs "
            f"{s.terms.min_roster}: {NO_MORE}. Fix: make a new network of "
            "the remaining agents (`unweave init`)"
        )
    if s.terms.noise is not None and not s.audit_failed and served(s) is None:
        names = [s.terms.name(k) for k in sorted(spent_agents(s))]
        if names:
            return (
                f"the privacy budget of {listed(names)} is spent: {NO_MORE}. "
                "Fix: make a new network with other terms (`unweave init`); what records have "
                "spent stays spent"
            )
    return (
        _audit_failure(s.terms.name(one.author) for one in s.known.mismatches)
        if s.audit_failed
        else None
    )


def _confirmed(s: State) -> bool:
    """Whether every neighbour has answered since this process started."""
    return all(n in s.peers.welcomed or n in s.departed for n in s.neighbours)


class Source(Protocol):
    """Where a posterior or an erasure is read from: a running agent, or its store."""

    @property
    def state(self) -> State | None: ...
    @property
    def terms(self) -> Terms: ...
    @property
    def model(self) -> Model: ...
    @property
    def mechanism(self) -> Mechanism | None: ...
    @property
    def certificates(self) -> CertificateStore: ...


def posterior_report(
    node: Source,
    everything: bool = False,
    before: Mapping[str, Any] | None = None,
    *,
    erasures: bool = False,
    secret: bool = False,
    marginals: bool = True,
) -> dict[str, Any]:
    """The posterior as this agent knows it, and whether it is complete and confirmed.

    Of a large posterior only the first marginals and no units are reported, unless `everything` is
    wanted. The state is read once, so that a thread may call this. `before` is an earlier report of
    the same kind: the marginals of the same sum are not computed again. `erasures` adds all known
    erasures, so that the sums of other agents can be compared with them. `secret` adds that of the
    token's attestation round, which opens the commitment in a certificate. Without `marginals` they
    are left out.
    """
    s = node.state
    if s is None:
        return {"state": "unknown", "why": NO_TOKEN}
    more: dict[str, Any] = {}
    # Those that wait for a batch are known to their owner alone.
    if asked := {**s.own.waiting.requests, **s.known.intents}:
        more["asked"] = {r.hex(): node.terms.name(i.agent) for r, i in asked.items()}
    if erasures:
        more["erasures"] = _knowledge(s)
    notice = _notice(s)
    if notice is not None:
        failed = "audit_failed" if s.audit_failed else "unknown"
        return {"state": "departed" if s.tomb.departed else failed, "why": notice, **more}
    token = served(s)
    if token is None:
        return {"state": "unknown", "why": _why_no_sum(s), **more}
    if secret and token.round.secret:
        more["secret"] = token.round.secret.hex()
    return _sum_report(node, s, token, everything, before, marginals) | more


def _why_no_sum(s: State) -> str:
    if latest(s) is None and s.token.parked is None:
        return NO_TOKEN
    if not s.terms.masked:
        return "its sum holds erased data, and the next one has not arrived"
    for agents, what in zip(awaited(s), ("enrolled", "given", "attested"), strict=True):
        if agents:
            names = listed([s.terms.name(k) for k in sorted(agents)])
            return (
                f"the private round waits for {names}, not {what} yet. Fix: start every agent that "
                "does not run, or vote it out (`unweave vote`)"
            )
    return "the next private sum has not arrived"


def brief_report(report: Mapping[str, Any]) -> dict[str, Any]:
    """A report of the posterior as a display shows it. A process that shows it for a long time, as
    `unweave up` does, then holds no sum, from which data may be erased later."""
    private = ("units", "marginals", "noise")
    brief = {key: value for key, value in report.items() if key not in private}
    if "marginals" in report:
        brief["marginals"] = [
            {key: float(f"{v:.5g}") if isinstance(v, float) else v for key, v in row.items()}
            for row in report["marginals"][:_BRIEF]
        ]
    return brief


def _knowledge(s: State) -> dict[str, Any]:
    """The erasures that this agent knows, and those that its sum has carried out."""
    name, token = s.terms.name, served(s)
    return {
        "known": {
            name(k): {"ids": [r.hex() for r in tomb.ids], "out": tomb.out}
            for k, tomb in s.known.tombs.items()
        },
        "retrain_epoch": [r.hex() for r in s.known.retrain_epoch],
        "carried_out": {}
        if token is None
        else {name(k): [r.hex() for r in tomb.ids] for k, tomb in token.tombs.items()},
        "carried_out_retrain_epoch": []
        if token is None
        else [r.hex() for r in token.retrain_epoch],
    }


def forgotten_report(s: State) -> dict[str, Any]:
    """The agents that are known to be erased as a whole or departed, and the commitments of the own
    records that may not be used."""
    return {
        "out": sorted(s.terms.name(k) for k, tomb in s.known.tombs.items() if tomb.out),
        "erased": s.own.detached,
        "records": sorted(row.hex() for row in s.own.dropped),
    }


def _sum_report(
    node: Source,
    s: State,
    token: Token,
    everything: bool,
    before: Mapping[str, Any] | None,
    marginals: bool,
) -> dict[str, Any]:
    name = node.terms.name
    absent = [name(k) for k in missing(token)]
    model, mechanism = node.model, node.mechanism
    report: dict[str, Any] = {
        "state": "incomplete" if absent else "complete" if _confirmed(s) else "unconfirmed",
        "missing": absent,
        "included": [name(k) for k in token.inside],
        "stamp": list(token.stamp),
        "digest": digest(token.eta).hex(),
        "units_total": len(token.eta),
        "model": model.name,
        "settings": brief_settings(model),
        "fitting": _fitting(s, token),
    }
    most = math.inf if everything else _SHOWN
    if len(token.eta) <= most:
        report["units"] = token.eta.tolist()
    if mechanism is not None:
        report["noise"] = mechanism.noise_variances(len(token.inside)).tolist()
    eta = None if mechanism is not None else model.decode(token.eta)
    if eta is not None and not model.family.margin(eta) > 0.0:
        return report | {"state": "incomplete", "why": model.why_improper(token.eta)}
    if not marginals:
        return report
    if before is not None and before.get("digest") == report["digest"] and "marginals" in before:
        return report | {name: before[name] for name in _COMPUTED if name in before}
    if eta is not None:
        laws = model.marginals(eta)
    else:
        assert mechanism is not None
        noisy = mechanism.posterior(token.eta, len(token.inside))
        laws = noisy.marginals
        report |= {} if noisy.remark is None else {"remark": noisy.remark}
    rows = []
    for marginal in laws if everything else laws[:_SHOWN]:
        low, high = (float(v) for v in marginal.interval(0.95))
        rows.append(
            {
                "name": marginal.name,
                "mean": finite(marginal.mean()),
                "sd": finite(marginal.sd()),
                "low": finite(low),
                "high": finite(high),
            }
        )
    return report | {"marginals": rows, "marginals_total": len(laws)}


def _fitting(s: State, token: Token) -> int | None:
    """The number of passes, while the factors of a non-conjugate model still change; None if
    a token with these revisions is parked, or the factors are solved for at every visit."""
    if s.terms.conjugate or s.terms.solve != "pass" or s.terms.masked:
        return None
    parked = s.token.parked is not None and s.token.parked.included == token.included
    return None if parked else token.passes


def erasure_report(node: Source, request: bytes) -> dict[str, Any]:
    """The progress of one erasure: asked, voting, removed or certified; and who must attest."""
    s = node.state
    if s is None:
        return {"state": "starting"}
    name = node.terms.name
    if request in s.own.waiting.requests:
        assert s.own.waiting.due is not None
        return {"state": "waiting", "agent": name(s.me), "by": s.own.waiting.due}
    if request in s.known.intents:
        return {"state": "asked", "agent": name(s.known.intents[request].agent)}
    known = any(request in tomb.ids for tomb in s.known.tombs.values())
    by_vote = {t for (t, _), vote in s.known.votes.items() if vote.request == request}
    departed = any(s.known.tombs.get(t, NOTHING).departed for t in by_vote)
    if not known and not by_vote:
        return {"state": "unknown"}
    if not known and not departed:
        votes = max(sum(1 for t, _ in s.known.votes if t == target) for target in by_vote)
        return {"state": "voting", "votes": votes, "quorum": node.terms.quorum}
    parked = s.token.parked
    certificate = node.certificates.find(request)
    if certificate is None and parked is not None and parked.certificate:
        certificate = (
            parked.certificate if request in unchecked_requests(parked.certificate) else None
        )
    if certificate is not None:
        return {"state": "certified", "certificate": load_json(certificate)}
    attested = NOBODY if parked is None or s.token.wake >= parked.stamp else parked.attested
    return {
        "state": "removed",
        "waiting_for": [name(k) for k in node.terms.everybody - s.departed - attested],
        "suspects": sorted(name(k) for k in s.peers.suspects),
    }


EXPEL = (
    "examine all logs and disks; when a majority has voted the faulty agent out (`unweave vote "
    "AGENT_DIR NAME --lying`), the network goes on"
)
DEPARTED = "was declared departed by a quorum: it takes part no more"


def _audit_failure(found: Iterable[str]) -> str:
    """The report of a network with a failed audit, in place of a posterior."""
    return (
        f"two audits did not add up (found at {listed(sorted(set(found)))}): the network has "
        f"stopped and serves no posterior. Fix: {EXPEL}"
    )
