"""What takes an operator more than one question: erasing and auditing, each with a limit."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from unweave.errors import UnweaveError
from unweave.node.config import AgentFolder
from unweave.node.fleet import Fleet, TimedOut, patiently
from unweave.node.identity import verifier
from unweave.protocol.verify import verify

__all__ = ["audit_and_wait", "erase_and_wait"]


def erase_and_wait(
    agents: Fleet,
    name: str,
    *,
    keys: list[str] | None,
    gone: bool,
    timeout: float,
    tell: Callable[[str], None],
) -> tuple[bytes, str]:
    """Ask, wait until certified, and return the certificate's bytes and the request's id."""
    if gone:
        asker, request = _vote(agents, name)
    else:
        what: dict[str, Any] = {"whole": True} if keys is None else {"keys": keys}
        request = agents.of(name).ask("erase", **what)["request"]
        asker = name
    last: dict[str, Any] = {}
    for _ in patiently(timeout):
        answer = agents.again(asker, "erasure", request=request)
        if answer is None:
            tell(f"forgetting {name}: {asker} does not answer; the request stands")
            continue
        last = answer["erasure"]
        if last["state"] == "certified":
            text = json.dumps(last["certificate"], sort_keys=True, separators=(",", ":"))
            return _verified(text.encode(), agents), request
        tell(_progress(name, last))
    raise TimedOut(_who_erases(name, request, last, agents.down))


def _verified(certificate: bytes, agents: Fleet) -> bytes:
    """Nothing is called forgotten on evidence that nobody would believe."""
    manifest = AgentFolder.read(next(iter(agents.folders.values()))).manifest
    verify(certificate, manifest.terms(), verifier(manifest.pems()))
    return certificate


def _vote(agents: Fleet, name: str) -> tuple[str, str]:
    """Vote for every agent whose folder is here; each refuses by itself while it hears NAME."""
    agents.any()
    if name in agents.agents:
        raise UnweaveError(
            f"{name} answers here: it is not gone. Ask it: `unweave forget DIR {name}`"
        )
    request = None
    refused = []
    for voter, operator in agents.agents.items():
        if voter == name:
            continue
        if request is None:
            request = operator.ask("status")["status"].get("gone_requests", {}).get(name)
        try:
            request = operator.ask("vote", agent=name, request=request)["request"]
        except UnweaveError as error:
            refused.append(str(error))
    others = [voter for voter in agents.agents if voter != name]
    if not others or request is None or len(refused) == len(others):
        raise UnweaveError("; ".join(refused) or f"nobody here can vote that {name} is gone")
    return others[0], request


def _progress(name: str, report: dict[str, Any]) -> str:
    state = report["state"]
    if state == "voting":
        return f"forgetting {name}: {report['votes']} of {report['quorum']} votes"
    if state == "removed":
        waiting = report["waiting_for"]
        return f"forgetting {name}: taken out; waiting for {len(waiting)} attestations"
    return f"forgetting {name}: the token is on its way"


def _who_erases(name: str, request: str, report: dict[str, Any], down: list[str]) -> str:
    state = report.get("state")
    if state == "voting":
        return (
            f"only {report['votes']} of {report['quorum']} votes that {name} is gone: other "
            f"operators confirm with `unweave vote AGENT_DIR {name}`, then ask again"
        )
    missing = ", ".join(down) or ", ".join(report.get("waiting_for", [])[:5]) or "the token"
    done = "was taken out, but not everybody has attested" if state == "removed" else "is not out"
    return (
        f"{name} {done} in time: waiting for {missing}. Start the missing agents; the request "
        f"({request}) stands and goes on by itself: ask again with `unweave forget`, or wait "
        "longer (--timeout)"
    )


# ---------------------------------------------------------------------------------------- audit


def audit_and_wait(agents: Fleet, timeout: float, *, tell: Callable[[str], None]) -> dict[str, Any]:
    """Rouse the token, and wait until everybody has attested it anew; returns the status then."""
    agent = agents.any().name
    before = agents.agents[agent].ask("rouse")["before"]
    last: dict[str, Any] = {}
    for _ in patiently(timeout):
        answer = agents.again(agent, "status")
        if answer is None or "rest" not in answer["status"]:
            continue  # it is starting again
        last = answer["status"]
        fresh = last["rest"] is not None and (before is None or last["rest"] > before)
        if fresh and last["resting"] is not None and _all(last, agents):
            return last
        tell(f"auditing: {last.get('attested', 0)} attested")
    raise TimedOut(_who_attests(last, agents.down))


def _all(status: dict[str, Any], agents: Fleet) -> bool:
    """A pending rest has fewer attestations than there are agents."""
    folder = next(iter(agents.folders.values()))
    size = len(AgentFolder.read(folder).manifest.topology.agents)
    return int(status["attested"]) >= size - len(status["left"])


def _who_attests(status: dict[str, Any], down: list[str]) -> str:
    missing = ", ".join(down or status.get("suspects", [])) or "an agent that is not here"
    return (
        f"the audit was not complete in time: {status.get('attested', 0)} agents have attested; "
        f"waiting for {missing}. Start it, wait longer (--timeout), or, if it is gone for good, "
        "`unweave forget DIR NAME --gone`"
    )
