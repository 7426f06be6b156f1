"""What takes an operator more than one question: erasing and auditing, each with a limit."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from unweave.errors import UnweaveError
from unweave.graph.topology import Topology
from unweave.keys import verifier
from unweave.node.api.client import asleep, lives
from unweave.node.api.report import GONE
from unweave.node.config import AgentFolder
from unweave.node.identity import Identity
from unweave.operations.cluster import LOOK, Cluster, TimedOut, wait_until
from unweave.operations.diagnose import cut_apart, stall_report
from unweave.operations.votes import collect_votes, told
from unweave.protocol.certificate.verify import Erased, verify
from unweave.protocol.certificate.write import tombstones_of
from unweave.text import listed, quote

__all__ = ["audit_and_wait", "did_not_add_up", "erase_and_wait", "erased_keys", "on_record"]


_LEAST = 1.0  # seconds to look how far it is, when the votes took all the time there was


def erase_and_wait(
    agents: Cluster,
    name: str,
    *,
    keys: list[str] | None,
    gone: bool,
    timeout: float,
    tell: Callable[[str], None],
    repeat: str = "",
    missing_ok: bool = False,
) -> tuple[bytes, Erased]:
    """Ask, wait until certified, and return the certificate's bytes and what it proves. `repeat`:
    the options that ask for the same once more; without them the whole agent would be forgotten.
    `missing_ok`: also keys that are not in the data any more."""
    subject = _subject(name, keys)
    refused: dict[str, str] = {}
    end = time.monotonic() + timeout
    topology = _topology(agents)
    if gone:
        request, asker, refused = collect_votes(
            agents, name, timeout, lambda text: tell(f"forgetting {subject}: {text}")
        )
        if refused:
            tell(f"forgetting {subject}: not everybody votes: {told(refused)}")
    else:
        what: dict[str, Any] = {"whole": True} if keys is None else {"keys": keys}
        what |= {"missing_ok": True} if missing_ok else {}
        if name in agents.agents:  # a door that opens is no answer yet
            agents.again(name, "status", within=min(LOOK, timeout))
        asked = agents.of(name).ask("erase", within=max(_LEAST, end - time.monotonic()), **what)
        request, asker = asked["request"], name
        before = asked.get("before", 0)
        if before:
            tell(f"forgetting {name}: {before} of {len(keys or ())} were asked for before")
    last: dict[str, Any] = {}
    status: dict[str, Any] = {}
    apart, said = "", False
    for left in wait_until(max(end - time.monotonic(), min(timeout, _LEAST))):
        limit = max(_LEAST, min(LOOK, left))
        answer = agents.again(asker, "erasure", within=limit, request=request)
        if answer is None:
            tell(f"forgetting {subject}: {asker} does not answer; the request stands")
            continue
        last = answer["erasure"]
        if last["state"] == "certified":
            text = json.dumps(last["certificate"], sort_keys=True, separators=(",", ":"))
            return text.encode(), _proved(text.encode(), agents, request)
        status = (agents.again(asker, "status", within=limit) or {"status": status})["status"]
        apart = _apart(agents, topology, name, status) if gone else ""
        if apart and not said:
            tell(f"forgetting {subject}: {apart}")
            said = True
        tell(f"forgetting {subject}: {_progress(name, last, status, refused)}")
    words = repeat or ("--gone" if gone else "")
    if keys is not None and not repeat:
        words = "--records FILE"  # never advise what would erase more than was asked
    again = (
        f"`{' '.join(filter(None, ['unweave forget', quote(agents.root), quote(name), words]))}`"
    )
    if apart:
        raise TimedOut(
            f"{name} is not forgotten in time: {apart}. The request ({request}) stands: ask "
            f"again with {again} when they are connected"
        )
    if last.get("state") == "voting":
        raise TimedOut(_who_votes(name, last, status, refused, again))
    raise TimedOut(_who_erases(agents, name, keys, request, last, again))


def _topology(agents: Cluster) -> Topology:
    return AgentFolder.read(next(iter(agents.folders.values()))).manifest.topology


def _apart(agents: Cluster, topology: Topology, name: str, status: dict[str, Any]) -> str:
    """Whether those who are dead cut the others from each other; those elsewhere may well live."""
    down = {name, *agents.down}
    text = cut_apart(topology, set(status.get("departed", ())), down, agents.folders)
    frozen = [one for one in agents.silent if lives(agents.silent[one])] if text else []
    return "; ".join([text, *(f"{one}: {asleep(agents.silent[one])}" for one in frozen)])


def _subject(name: str, keys: list[str] | None) -> str:
    """What is forgotten."""
    if keys is None:
        return name
    number = len(set(keys))
    return f"1 record of {name}" if number == 1 else f"{number} records of {name}"


def _proved(certificate: bytes, agents: Cluster, request: str) -> Erased:
    """Nothing is called forgotten on evidence that nobody would believe."""
    manifest = AgentFolder.read(next(iter(agents.folders.values()))).manifest
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
        number = "1 attestation" if len(waiting) == 1 else f"{len(waiting)} attestations"
        return f"taken out; {number} to come: {listed(waiting, 5)}"
    return "the token is on its way"


def _votes(
    name: str, report: dict[str, Any], status: dict[str, Any], refused: dict[str, str]
) -> str:
    """How many, whose, and who refused."""
    voted = status.get("votes", {}).get(name, [])
    text = f"{report['votes']} of {report['quorum']} votes that {name} is gone ({listed(voted, 5)})"
    return f"{text}; not by {told(refused)}" if refused else text


def _who_votes(
    name: str, report: dict[str, Any], status: dict[str, Any], refused: dict[str, str], again: str
) -> str:
    silent = _silent(name, status, refused)
    return (
        f"only {_votes(name, report, status, refused)}. Not heard of: {listed(silent, 5)}; their "
        f"operators vote with `unweave vote AGENT_DIR {quote(name)}`, and the request stands: then "
        f"ask again with {again}"
    )


def _who_erases(
    agents: Cluster,
    name: str,
    keys: list[str] | None,
    request: str,
    report: dict[str, Any],
    again: str,
) -> str:
    many = keys is not None and len(set(keys)) > 1
    if report.get("state") == "removed":
        done = f"{'were' if many else 'was'} taken out, but not everybody has attested"
    else:
        done = f"{'are' if many else 'is'} not out"
    who = stall_report(agents, report.get("waiting_for")) or "the token"
    return (
        f"{_subject(name, keys)} {done} in time: waiting for {who}. The request ({request}) stands "
        f"and goes on by itself: ask again with {again}, or wait longer (--timeout)"
    )


def _silent(name: str, status: dict[str, Any], refused: dict[str, str]) -> list[str]:
    """Who could still vote."""
    heard = {name, *status.get("votes", {}).get(name, ()), *refused, *status.get("departed", ())}
    everybody = [status.get("name", name), *status.get("others", {})]
    return [agent for agent in everybody if agent not in heard]


# ---------------------------------------------------------------------------------------- audit


def audit_and_wait(
    agents: Cluster, timeout: float, *, tell: Callable[[str], None]
) -> dict[str, Any]:
    """Rouse the token, and wait until everybody has attested it anew; returns the status then.

    An audit that does not add up is an error at once, and also if it is heard of only at the end:
    the network rebuilds its token, and everybody would attest that one.
    """
    end = time.monotonic() + timeout
    agent = _insider(agents, min(LOOK, timeout))
    statuses = agents.statuses(min(LOOK, timeout)).values()
    known = on_record(statuses)

    def check(statuses: Iterable[dict[str, Any]]) -> None:
        if (error := did_not_add_up(agents.root, known, on_record(statuses))) is not None:
            raise error

    check(statuses)
    before = agents.agents[agent].ask("wake", within=LOOK)["before"]
    last: dict[str, Any] = {}
    size, anew = len(_topology(agents)), 0
    for left in wait_until(max(end - time.monotonic(), min(timeout, _LEAST))):
        answer = agents.again(agent, "status", within=max(_LEAST, min(LOOK, left)))
        if answer is None or "parked_stamp" not in answer["status"]:
            continue  # it is starting again
        last = answer["status"]
        check([last])
        if agent in last["departed"]:
            raise UnweaveError(f"{agent}: {GONE}")
        fresh = last["parked_stamp"] is not None and (
            before is None or last["parked_stamp"] > before
        )
        # Until the token rests again, the count is that of the rest from which it was roused.
        anew = int(last["attested"]) if fresh and last["parked"] is not None else 0
        # A pending rest has fewer attestations than there are agents.
        number = size - len(last["departed"])
        if anew and anew >= number:
            check(agents.statuses().values())
            return last
        tell(f"auditing: {anew} of {number} have attested")
    check(agents.statuses(_LEAST).values())
    raise TimedOut(_who_attests(agents, anew, size - len(last.get("departed", ()))))


def _insider(agents: Cluster, within: float) -> str:
    """An agent that answers and has not left: the others are told nothing any more."""
    agents.any()
    statuses = agents.statuses(within)
    left = {gone for status in statuses.values() for gone in status.get("departed", ())}
    inside = [name for name in statuses if name not in left]
    return inside[0] if inside else agents.any().name


def _who_attests(agents: Cluster, anew: int, number: int) -> str:
    return (
        f"the audit was not complete in time: {anew} of {number} agents have attested; waiting "
        f"for {stall_report(agents) or 'the token'}. Or wait longer (--timeout)"
    )


# ------------------------------------------------------------------------------
# Audits that did not add up, as the agents have them on record: who found one, and what to say.


def on_record(statuses: Iterable[Mapping[str, Any]]) -> list[str]:
    """Who has found a mismatch, once for each: all that any of these agents has heard of."""
    known: Counter[str] = Counter()
    for status in statuses:
        known |= Counter(status.get("mismatches", ()))
    return sorted(known.elements())


def did_not_add_up(root: Path, before: Iterable[str], now: Iterable[str]) -> UnweaveError | None:
    """What an audit ends with if a mismatch is on record that was not before, or if the network
    has halted because of two of them; None: neither."""
    found = sorted(now)
    new = sorted((Counter(found) - Counter(before)).elements())
    if not new and len(found) < 2:
        return None
    again = f"when that is found, run `unweave audit {quote(root)}` again"
    if len(found) >= 2:
        done = (
            "It was the second time, so the network has halted and keeps its evidence: trust no "
            "posterior of it"
        )
        again = (
            "then make a new network with `unweave init`, from data without the forgotten records"
        )
    else:
        done = (
            "That token was dropped, and the network rebuilds it from the factors that the agents "
            "hold now: the posterior may be another one than before. A second time it halts"
        )
    where = ", ".join(new or found)
    return UnweaveError(
        "the audit did NOT add up: the agents' factors, added up a second time, were not the "
        f"token (found at {where}, where the cover ended; the cause may be anywhere). {done}. "
        "Look at what can change numbers behind an agent's back: the log of every agent around "
        "that time, its disk and memory, who can write to its folder and read its key.pem, and "
        f"whether all run the same version; {again}"
    )


# ------------------------------------------------------------------------------
# Which of its records an owner finds in a certificate: only its key can tell.


def erased_keys(certificate: bytes, owner: Identity, keys: Iterable[str]) -> list[str]:
    """Those of `keys` whose records this certificate, which must have been verified, erases one by
    one. A tombstone names records by commitments that the owner alone can compute."""
    rows: set[str] = set()
    for payload, _ in tombstones_of(certificate):
        rows.update(json.loads(payload)["rows"])
    return [key for key in keys if owner.commit(key).hex() in rows]
