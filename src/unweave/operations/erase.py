"""The operator's long requests: an erasure until it is certified, and an audit until all agents
have attested. Each waits with a timeout, and then reports which agents are missing and why.

`mismatches` and `audit_failure` turn the audit mismatches in the agents' statuses into an error.
`erased_keys` tells an owner which of its keys a certificate erases.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from unweave.errors import UnweaveError
from unweave.keys import verifier
from unweave.node.api.report import DEPARTED, EXPEL
from unweave.node.identity import Identity
from unweave.operations.cluster import LOOK, Cluster, TimedOut, wait_until
from unweave.operations.diagnose import cut_apart, stall_report
from unweave.operations.status import departed_agents
from unweave.operations.votes import collect_votes, describe_refusals
from unweave.protocol.certificate.unchecked import unchecked_tombstones
from unweave.protocol.certificate.verify import Erased, verify
from unweave.text import count, due, listed, quote

__all__ = [
    "Waits",
    "audit_and_wait",
    "audit_failure",
    "erase_and_wait",
    "erased_keys",
    "mismatches",
]


class Waits(UnweaveError):
    """The request waits for a batch. It is durable, and needs nothing more."""

    def __init__(self, request: str, subject: str, by: float) -> None:
        self.request, self.by = request, by
        super().__init__(
            f"{subject}: the request ({request}) waits until enough changes have gathered, until "
            f"{due(by)} at the latest. Fix: repeat the command then, for the certificate; or add "
            "--now"
        )


_QUIET = 5.0  # seconds without progress, until its cause is looked for
_LEAST = 1.0  # seconds for the erasure's report, also if the votes took the whole timeout


def erase_and_wait(
    agents: Cluster,
    name: str,
    *,
    keys: list[str] | None,
    departed: bool,
    timeout: float,
    tell: Callable[[str], None],
    repeat: str = "",
    missing_ok: bool = False,
    now: bool = False,
) -> tuple[bytes, Erased]:
    """Request an erasure, wait until it is certified, and return the certificate's bytes and its
    verified content. `departed`: collect votes instead of asking `name`. `repeat`: the command's
    options, for the advice to repeat it; without them it would forget the whole agent.
    `missing_ok`: also accept keys that are not in the data any more. `now`: do not wait for a
    batch; otherwise `Waits` is raised if the request has to wait."""
    subject = _subject(name, keys)
    refused: dict[str, str] = {}
    end = time.monotonic() + timeout
    if departed:
        request, asker, refused = collect_votes(
            agents, name, timeout, lambda text: tell(f"forgetting {subject}: {text}")
        )
        if refused:
            tell(f"forgetting {subject}: some agents do not vote: {describe_refusals(refused)}")
    else:
        what: dict[str, Any] = {"whole": True} if keys is None else {"keys": keys}
        what |= {"missing_ok": True} if missing_ok else {}
        what |= {"at_once": True} if now else {}
        if name in agents.agents:  # a frozen process accepts connections, but does not answer
            agents.again(name, "status", within=min(LOOK, timeout))
        asked = agents.of(name).ask("erase", within=max(_LEAST, end - time.monotonic()), **what)
        request, asker = asked["request"], name
        before = asked.get("before", 0)
        if before:
            tell(f"forgetting {name}: {before} of {len(keys or ())} keys were requested before")
    last: dict[str, Any] = {}
    status: dict[str, Any] = {}
    apart, reported = "", False
    stalled = _Stalled(agents)
    for remaining in wait_until(max(end - time.monotonic(), min(timeout, _LEAST))):
        limit = max(_LEAST, min(LOOK, remaining))
        answer = agents.again(asker, "erasure", within=limit, request=request)
        if answer is None:
            tell(f"forgetting {subject}: {asker} does not answer; the request stays valid")
            continue
        last = answer["erasure"]
        if last["state"] == "waiting":
            raise Waits(request, subject, last["by"])
        if last["state"] == "certified":
            text = json.dumps(last["certificate"], sort_keys=True, separators=(",", ":"))
            return text.encode(), _verified(text.encode(), agents, request)
        status = (agents.again(asker, "status", within=limit) or {"status": status})["status"]
        if status.get("phase") == "audit_failed":
            raise UnweaveError(
                f"{subject}: the request ({request}) stays valid, but waits: {status['notice']}"
            )
        apart = _apart(agents, name, status) if departed else ""
        if apart and not reported:
            tell(f"forgetting {subject}: {apart}")
            reported = True
        cause = "" if last["state"] == "voting" else stalled.cause(last)
        tell(f"forgetting {subject}: {_progress(name, last, status, refused)}{cause}")
    options = repeat or ("--departed" if departed else "")
    if keys is not None and not repeat:
        options = "--records FILE"  # without it the command would forget the whole agent
    again = (
        f"`{' '.join(filter(None, ['unweave forget', quote(agents.root), quote(name), options]))}`"
    )
    if apart:
        raise TimedOut(
            f"{name} is not forgotten in time: {apart}; then repeat {again}. "
            f"The request ({request}) stays valid"
        )
    if last.get("state") == "voting":
        raise TimedOut(_missing_votes(name, last, status, refused, again))
    raise TimedOut(_missing_attestations(agents, name, keys, request, last, again))


class _Stalled:
    """Names the agents that an erasure waits for, once it has made no progress for a while."""

    def __init__(self, agents: Cluster) -> None:
        self._agents = agents
        self._seen: Any = None
        self._since = self._next = 0.0
        self._cause = ""

    def cause(self, report: dict[str, Any]) -> str:
        """The cause and the fix, to be added to the progress; "" while there is progress."""
        seen = report["state"], report.get("waiting_for")  # epochs open also without progress
        now = time.monotonic()
        if seen != self._seen:
            self._seen, self._since, self._next, self._cause = seen, now, now + _QUIET, ""
        if now >= self._next:
            found = stall_report(self._agents, report.get("waiting_for"))
            self._next = now + _QUIET
            quiet = time.monotonic() - self._since
            self._cause = f"; no progress for {quiet:.0f} s: waiting for {found}" if found else ""
        return self._cause


def _apart(agents: Cluster, name: str, status: dict[str, Any]) -> str:
    """`cut_apart` for the agents that are known to be down. Agents without a folder in DIR count
    as running."""
    down = {name, *agents.down}
    departed = set(status.get("departed", ()))
    text = cut_apart(agents.manifest.topology, departed, down, agents.folders)
    frozen = agents.frozen() if text else {}
    return "; ".join([text, *(f"{agent}: {why}" for agent, why in frozen.items())])


def _subject(name: str, keys: list[str] | None) -> str:
    """The forgotten agent or records, for messages."""
    return name if keys is None else f"{count(len(set(keys)), 'record')} of {name}"


def _verified(certificate: bytes, agents: Cluster, request: str) -> Erased:
    """The certificate's entry for `request`; raises unless the certificate is valid."""
    manifest = agents.manifest
    account = verify(certificate, manifest.terms(), verifier(manifest.pems()))
    return next(erased for erased in account.erasures if erased.request == request)


def _progress(
    name: str, report: dict[str, Any], status: dict[str, Any], refused: dict[str, str]
) -> str:
    state = report["state"]
    if state == "voting":
        return _votes(name, report, status, refused)
    if state == "removed":
        waiting = report["waiting_for"]
        number = count(len(waiting), "attestation")
        return f"removed from the token; {number} missing: {listed(waiting, 5)}"
    return "waiting for the token"


def _votes(
    name: str, report: dict[str, Any], status: dict[str, Any], refused: dict[str, str]
) -> str:
    """The number of votes, the voters, and the refusals."""
    voted = status.get("votes", {}).get(name, [])
    number = f"{report['votes']} of {report['quorum']} votes"
    text = f"{number} that {name} has departed ({listed(voted, 5)})"
    return f"{text}; refused: {describe_refusals(refused)}" if refused else text


def _missing_votes(
    name: str, report: dict[str, Any], status: dict[str, Any], refused: dict[str, str], again: str
) -> str:
    silent = _silent(name, status, refused)
    return (
        f"only {_votes(name, report, status, refused)}. No vote from {listed(silent, 5)}. Fix: "
        f"their operators run `unweave vote AGENT_DIR {quote(name)}`; then repeat {again}"
    )


def _missing_attestations(
    agents: Cluster,
    name: str,
    keys: list[str] | None,
    request: str,
    report: dict[str, Any],
    again: str,
) -> str:
    many = keys is not None and len(set(keys)) > 1
    if report.get("state") == "removed":
        done = f"{'were' if many else 'was'} removed, but not all agents have attested"
    else:
        done = f"{'are' if many else 'is'} not removed"
    awaited = stall_report(agents, report.get("waiting_for")) or "the token"
    return (
        f"{_subject(name, keys)} {done} in time: waiting for {awaited}. The request ({request}) "
        f"stays valid. Fix: repeat {again}, or raise --timeout"
    )


def _silent(name: str, status: dict[str, Any], refused: dict[str, str]) -> list[str]:
    """The agents that have neither voted nor refused nor departed."""
    known = {name, *status.get("votes", {}).get(name, ()), *refused, *status.get("departed", ())}
    agents = [status.get("name", name), *status.get("others", {})]
    return [agent for agent in agents if agent not in known]


def audit_and_wait(
    agents: Cluster, timeout: float, *, tell: Callable[[str], None]
) -> dict[str, Any]:
    """Wake the token, wait until all agents have attested it again, and return the final status.

    A new audit mismatch is an error during the wait, and also at its end: the network rebuilds the
    token after a mismatch, and all agents attest the rebuilt one.
    """
    end = time.monotonic() + timeout
    agent = _remaining_agent(agents, min(LOOK, timeout))
    statuses = agents.statuses(min(LOOK, timeout)).values()
    known = mismatches(statuses)

    def check(statuses: Iterable[dict[str, Any]]) -> None:
        statuses = list(statuses)
        stopped = any(status.get("phase") == "audit_failed" for status in statuses)
        error = audit_failure(agents.root, known, mismatches(statuses), stopped=stopped)
        if error is not None:
            raise error

    check(statuses)
    before = agents.agents[agent].ask("wake", within=LOOK)["before"]
    last: dict[str, Any] = {}
    size, attested = len(agents.manifest.topology), 0
    for remaining in wait_until(max(end - time.monotonic(), min(timeout, _LEAST))):
        answer = agents.again(agent, "status", within=max(_LEAST, min(LOOK, remaining)))
        if answer is None or "parked_stamp" not in answer["status"]:
            continue  # the agent is restarting
        last = answer["status"]
        check([last])
        if agent in last["departed"]:
            raise UnweaveError(f"{agent}: {DEPARTED}. Fix: ask another agent's folder")
        fresh = last["parked_stamp"] is not None and (
            before is None or last["parked_stamp"] > before
        )
        # Until the token is parked again, `attested` counts the attestation round before.
        attested = int(last["attested"]) if fresh and last["parked"] is not None else 0
        required = size - len(last["departed"])
        if attested and attested >= required:
            check(agents.statuses().values())
            return last
        tell(f"auditing: {attested} of {required} have attested")
    check(agents.statuses(_LEAST).values())
    raise TimedOut(
        f"the audit was not complete in time: {attested} of {size - len(last.get('departed', ()))} "
        f"agents have attested; waiting for {stall_report(agents) or 'the token'}. "
        "Fix: start those agents, or raise --timeout"
    )


def _remaining_agent(agents: Cluster, within: float) -> str:
    """An agent that answers and has not departed: departed agents receive no news."""
    agents.any()
    statuses = agents.statuses(within)
    departed = departed_agents(statuses)
    remaining = [name for name in statuses if name not in departed]
    return remaining[0] if remaining else agents.any().name


def mismatches(statuses: Iterable[Mapping[str, Any]]) -> list[str]:
    """The agents that found audit mismatches, once per mismatch, from the lists in `statuses`."""
    known: Counter[str] = Counter()
    for status in statuses:
        known |= Counter(status.get("mismatches", ()))
    return sorted(known.elements())


def audit_failure(
    root: Path, before: Iterable[str], now: Iterable[str], *, stopped: bool
) -> UnweaveError | None:
    """The error for an audit with a mismatch that is not in `before`, or for a network that has
    stopped because two agents found one; else None."""
    found = sorted(now)
    new = sorted((Counter(found) - Counter(before)).elements())
    if not new and not stopped:
        return None
    where = ", ".join(dict.fromkeys(new or found))
    if stopped:
        result = "Two agents found one: the network has stopped, and serves no posterior"
        then = EXPEL
    else:
        result = "The network rebuilds the token; a mismatch at another agent stops it"
        then = f"examine all logs and disks, then repeat `unweave audit {quote(root)}`"
    return UnweaveError(
        f"audit mismatch: the sum of all factors is not the token (found at {where}). {result}. "
        f"Fix: {then}"
    )


def erased_keys(certificate: bytes, owner: Identity, keys: Iterable[str]) -> list[str]:
    """Those of `keys` whose records this verified certificate erases one by one. A tombstone names
    records by commitments, which only the owner can compute."""
    rows: set[str] = set()
    for payload, _ in unchecked_tombstones(certificate):
        rows.update(json.loads(payload)["rows"])
    return [key for key in keys if owner.commit(key).hex() in rows]
