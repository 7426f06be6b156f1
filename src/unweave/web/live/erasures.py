"""Erasures of a live network: preview, request, progress, certificates.

The network's own rules decide: the owner's agent is asked, or votes are collected for an agent that
will never run again. A certificate of an erasure that was requested here is written to DIR with the
change by it, as `unweave forget` does.
"""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from unweave.errors import ConfigError, UnweaveError
from unweave.manifest import Manifest
from unweave.node.api.client import Operator
from unweave.node.storage.atomic import unwritable, write_atomic
from unweave.operations.certificates import ask_erasures, certificates_in
from unweave.operations.cluster import LOOK, Cluster
from unweave.operations.disclosure import disclosed
from unweave.operations.votes import collect_votes
from unweave.protocol.certificate.verify import Erased
from unweave.report.certified import certificate_facts
from unweave.report.changes import Before, keep_change
from unweave.report.facts import ErasureFact, PrivacyFact, plain
from unweave.report.network import privacy_fact
from unweave.report.timeline import Dates, dates, of_votes
from unweave.report.words import KINDS, certificate_checks, certified_words, limits, scope_words
from unweave.text import count, due, listed
from unweave.web.live.posterior import KEPT, LiveReading
from unweave.web.source import NotFound
from unweave.web.view import ErasurePreview, ErasureView, ErasureWish, Verification

__all__ = ["LiveErasures", "check_certificate"]

# Words of a terminal, and what the page says instead; its boxes are named as in index.html.
_ON_PAGE = (
    (re.compile(r" \(docs/[^)]*\)"), ""),
    (re.compile(r"\bwith --now\b"), "without a batch"),
    (re.compile(r"check the keys file \(one key per line\)"), "check the keys"),
    (re.compile(r"use --missing-ok"), "choose “Keys that do not exist are no error”"),
    (
        re.compile(r"use --departed if it will never run again"),
        "if it will never run again, choose “The agent is gone for good: the others vote it out”",
    ),
)
_REQUEST = re.compile(r"\b[0-9a-f]{32}\b")
_ASKED_AT_A_TIME = 20  # requests that agents are asked about
_SHOWN = 200
_VOTES = 60.0  # seconds to collect votes

_STEPS = (
    "The request is stored at {agent} at once, and signed by it. It cannot be taken back.",
    "The token goes to {agent}, which takes {what} out of the sum and deletes what it kept "
    "of the erased data.",
    "Every remaining agent attests the new sum; the audit adds all factors a second time.",
    "A certificate is written here and at the agents. Anybody with network.toml can verify it.",
)
_VOTE_STEPS = (
    "The agents here vote that {agent} has departed; other operators vote with `unweave vote`.",
    "When a majority has voted, a new token is built without {agent}, which can never come back.",
    "Every remaining agent attests the new sum, and a certificate is written.",
)


class LiveErasures:
    """The erasures of one network. Its methods ask agents, so threads call them."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.views: dict[str, ErasureView] = {}
        self._folder, self._manifest = folder, manifest
        self._homes: list[Path] = []  # of the agents on this machine
        self._certificates: dict[str, tuple[str, bytes]] = {}  # request → file name, content
        self._requested_here: dict[str, str] = {}  # request → agent
        self._before: dict[str, tuple[str, Before, float]] = {}  # request → agent, numbers, until
        self.unkept = ""  # why a certificate is not in DIR yet
        self._scopes: dict[str, str] = {}
        self._certified_at: dict[str, float] = {}
        self._dropped: set[str] = set()  # requests that are not shown any more
        self._departed: dict[str, str] = {}  # request → agent that was voted out
        self._joint: dict[str, str] = {}  # request → the sentence on a change of several erasures

    def load(self, homes: list[Path]) -> None:
        """The erasures that the certificates in the folders prove, with dates of the logs."""
        self._homes = homes
        facts, proved = certificate_facts(certificates_in(self._folder, homes), self._manifest)
        contents = {fact.file: fact.content for fact in facts}
        when = dates(homes)
        found = []
        for request, (erased, file) in proved.items():
            view = _proved_view(erased, when)
            found.append((view.get("done_at", 0.0), request, view))
            self._certificates[request] = (file, contents[file])
        self.views = {request: view for _, request, view in sorted(found, key=lambda one: one[:2])}

    def note(self, request: str, agent: str, scope: str, at: float) -> None:
        """An agent tells of a request."""
        self._scopes[request] = scope
        if request in self._dropped:
            return
        # A look may have found the request before its event came.
        view = self.views.setdefault(request, _view(agent, scope, at))
        view.setdefault("asked_at", round(at, 1))

    def note_certified(self, requests: str, at: float) -> None:
        """An agent tells of a certificate, perhaps long after it. The first one is the date."""
        for request in _REQUEST.findall(requests):
            self._certified_at[request] = min(at, self._certified_at.get(request, at))
            if request in self.views and self.views[request]["certificate"]:
                self.views[request]["done_at"] = round(self._certified_at[request], 1)

    # ------------------------------------------------------------------------------- progress

    def look(
        self,
        agents: Cluster,
        reading: LiveReading,
        statuses: Mapping[str, Mapping[str, Any]],
        down: Mapping[str, str],
    ) -> None:
        """Bring all erasures up to date that are not certified. `down`: agents that do not answer,
        and what to do about each."""
        known = {**reading.requests, **reading.asked, **self._requested_here}
        departed = self._departed
        for status in statuses.values():
            departed |= {r: name for name, r in status.get("departed_requests", {}).items()}
        out = {n for s in statuses.values() for n in (*s.get("erased", ()), *s.get("departed", ()))}
        for request, name in {**known, **departed}.items():
            if request not in self.views and request not in self._dropped:
                whole = name in out or request in departed
                scope = self._scopes.get(request, "everything" if whole else "records")
                self.views[request] = _view(name, scope, None)
        pending = [r for r, view in self.views.items() if not view["certificate"]]
        for request, report in ask_erasures(agents, pending[-_ASKED_AT_A_TIME:]).items():
            self._progress(request, report, down)
        self._write()
        self._keep_changes()
        done = [r for r, view in self.views.items() if view["certificate"]]
        for request in done[: max(0, len(self.views) - _SHOWN)]:
            del self.views[request]
            self._dropped.add(request)

    def _write(self) -> None:
        """The certificates of erasures that were requested here; again until the disk has them."""
        self.unkept = ""
        for request in [one for one in self._requested_here if one in self._certificates]:
            name, content = self._certificates[request]
            try:
                write_atomic(self._folder / name, content)
            except OSError as error:
                self.unkept = str(unwritable(self._folder / name, error))
                return
            del self._requested_here[request]

    def _keep_changes(self) -> None:
        """For the report. After an erasure it may take a while until there is a posterior again."""
        for request, (name, before, until) in list(self._before.items()):
            kept = request in self._certificates and keep_change(
                self._folder, name, request, before
            )
            if kept or time.time() > until:
                del self._before[request]

    def _progress(self, request: str, report: Mapping[str, Any], down: Mapping[str, str]) -> None:
        view, state = dict(self.views[request]), report["state"]
        if state in ("unknown", "starting"):
            return
        view["state"], name = state, str(view["agent"])
        if state == "waiting":
            view["text"] = (
                "Waits until enough changes have gathered, until "
                f"{due(report['by'])} at the latest: nothing to do until then. Who cannot wait "
                "erases the same records again without a batch (`unweave forget … --now`); then "
                "the difference of two sums shows them."
            )
        elif state == "asked":
            view["text"] = f"Requested; the token goes to {name}{_remedy([name], down)}."
        elif state == "voting":
            others = {one: fix for one, fix in down.items() if one != name}
            voters = _remedy([], others) or f"; others vote with `unweave vote AGENT_DIR {name}`"
            votes = f"{report['votes']} of {report['quorum']} votes"
            view["text"] = f"{votes} that it has departed{voters}."
        elif state == "removed":
            waiting = report["waiting_for"]
            wait = _remedy(waiting, down) or ", when the token comes: nothing to do"
            view["text"] = f"Taken out of the sum; to attest: {listed(waiting, 5, 'nobody')}{wait}."
        elif state == "certified":
            view |= self._keep(request, str(view["agent"]), report["certificate"])
        view["text"] = f"{view['text']}{self._joint.get(request, '')}"
        self.views[request] = view  # type: ignore[assignment]

    def _keep(self, request: str, agent: str, certificate: bytes) -> Mapping[str, Any]:
        name = f"certificate-{agent}-{request[8:16]}.json"
        facts, proved = certificate_facts({name: certificate}, self._manifest)
        if request not in proved:
            why = facts[0].problem or "it does not name this request"
            return {"text": f"The agents' certificate proves nothing: {why}", "state": "removed"}
        erased = proved[request][0]
        self._certificates[request] = (name, certificate)
        view = _proved_view(erased, dates(self._homes))
        if request in self._certified_at:  # of an agent on another machine there is no log here
            view["done_at"] = round(self._certified_at[request], 1)
        return view

    def certificate(self, request: str) -> tuple[str, bytes]:
        if request not in self._certificates:
            raise NotFound(
                "certificates: no certificate of this request is known here. Fix: wait until the "
                "erasure is certified"
            )
        return self._certificates[request]

    def changed(self, removed: Collection[str], change: list[tuple[str, float, float]]) -> None:
        """By how much the posterior moved when these requests, and agents, were removed from the
        sum. Nobody knows the part of one of several: the last one shows the change of all."""
        found = [r for r in self.views if r in removed or self._departed.get(r) in removed]
        if not found:
            return
        *others, last = found
        self.views[last] = {**self.views[last], "change": change}
        words = {r: f"{self.views[r]['scope']} of {self.views[r]['agent']}" for r in found}
        if others:
            with_them = listed([words[one] for one in others], 3)
            self._joint[last] = f" The change shown is of this erasure together with {with_them}."
        for one in others:
            self._joint[one] = f" The change is shown together with that of {words[last]}."
        for one in found:
            self.views[one]["text"] += self._joint.get(one, "")

    # ------------------------------------------------------------------------------- requests

    def preview(self, agents: Cluster, wish: ErasureWish) -> ErasurePreview:
        """What will happen, and what others will be able to compute."""
        name, keys, departed = self._checked(agents, wish)
        named = {"before": 0, "absent": 0}
        if not departed:
            with _page_words():
                owner = self._operator(agents, name)
                if keys is not None:
                    missing_ok = bool(wish.get("missing_ok"))
                    named = owner.ask("preview", keys=keys, missing_ok=missing_ok)
        what = "everything" if keys is None else count(len(set(keys)), "record")
        steps = _VOTE_STEPS if departed else _STEPS
        batch = self._manifest.publish if keys is not None else None
        if batch is not None and not wish.get("now"):
            wait = (
                f"It waits until {count(batch.records, 'record')} of "
                f"{count(batch.agents, 'agent')} have changed, or {batch.at_most} have passed."
            )
            steps = (steps[0], wait, *steps[1:])
        if named["before"]:
            earlier = f"An earlier request names {count(named['before'], 'record')} of these"
            steps = (*steps, f"{earlier}: the certificate of that one proves its erasure.")
        if named["absent"]:
            lost = f"The data do not have {count(named['absent'], 'key')} of these"
            steps = (*steps, f"{lost}: should such a record come back, it will not be used.")
        note = disclosed(agents, name, keys, now=bool(wish.get("now")))
        if note:
            shown = [_on_page(note.removeprefix("note: ")) + "."]
        elif self._manifest.privacy.masked:
            shown = ["The difference of the sums before and after, together with other changes."]
        else:
            shown = ["Neighbours can compute what was taken out: the difference of two tokens."]
        shown.append("What others saw or kept before stays with them.")
        found: ErasurePreview = {
            "what": f"Vote {name} out, and erase everything of it"
            if departed
            else f"Erase {what} of {name}",
            "steps": [step.format(agent=name, what=what) for step in steps],
            "shown": [one[:1].upper() + one[1:] for one in shown],
            "irreversible": f"{'Votes' if departed else 'A signed request'} cannot be taken back: "
            "the erased data can never be learned again in this network.",
        }
        if batch is not None:
            found["batched"] = True
        return found

    def ask(self, agents: Cluster, wish: ErasureWish) -> tuple[str, Before | None]:
        """Ask the owner's agent, or collect votes; returns when the request is durable. Also the
        numbers before it."""
        name, keys, departed = self._checked(agents, wish)
        before = Before.of(self._folder)
        if departed:
            return collect_votes(agents, name, _VOTES).request, before
        what: dict[str, Any] = {"whole": True} if keys is None else {"keys": keys}
        what |= {"missing_ok": True} if wish.get("missing_ok") else {}
        what |= {"at_once": True} if wish.get("now") else {}
        with _page_words():
            return str(self._operator(agents, name).ask("erase", **what)["request"]), before

    def _operator(self, agents: Cluster, name: str) -> Operator:
        """The agent that has to sign the request; it must run."""
        if name in agents.agents:  # a frozen process accepts connections, but does not answer
            agents.again(name, "status", within=LOOK)
        return agents.of(name)

    def register(self, request: str, before: Before | None, wish: ErasureWish) -> None:
        """The request was made here: its certificate is written to DIR, and the change by it. It
        may be an earlier request, which names these records already, and others."""
        name, keys = wish["agent"], wish.get("keys")
        scope = "everything" if keys is None else count(len(set(keys)), "record")
        self._requested_here[request] = name
        if before is not None:
            self._before[request] = (name, before, time.time() + KEPT)
        scope = self._scopes.setdefault(request, scope)
        known = self.views.get(request)
        if known is None or not known["certificate"]:
            at = time.time() if known is None else known.get("asked_at", time.time())
            self.views[request] = _view(name, scope, at)

    def _checked(self, agents: Cluster, wish: ErasureWish) -> tuple[str, list[str] | None, bool]:
        name, keys, departed = wish["agent"], wish.get("keys"), bool(wish.get("departed"))
        try:
            agents.check_name(name)
        except UnweaveError as error:
            raise NotFound(str(error)) from None
        if departed and keys is not None:
            raise ConfigError("departed: votes remove the whole agent. Fix: leave the keys out")
        if wish.get("missing_ok") and keys is None:
            raise ConfigError("missing_ok: no keys are given. Fix: give keys, or leave it out")
        if wish.get("now") and (keys is None or self._manifest.publish is None):
            raise ConfigError("now: nothing waits in this network. Fix: leave it out")
        return name, keys, departed


def _on_page(text: str) -> str:
    for words, instead in _ON_PAGE:
        text = words.sub(instead, text)
    return text


@contextmanager
def _page_words() -> Iterator[None]:
    """An error of the operator's commands, in the words of the page."""
    try:
        yield
    except UnweaveError as error:
        error.args = (_on_page(str(error)),)
        raise


def _remedy(needed: Collection[str], down: Mapping[str, str]) -> str:
    """Who does not answer, of those that are needed or of all, and what to do."""
    absent = [name for name in down if name in needed] or list(down)
    if not absent:
        return ""
    verb = "does" if len(absent) == 1 else "do"
    return f"; {listed(absent, 5)} {verb} not answer: {down[absent[0]].rstrip('.')}"


def _proved_view(erased: Erased, when: Dates) -> ErasureView:
    """An erasure that a certificate proves, with the dates of the agents' logs."""
    fact = ErasureFact(
        erased.agent, erased.scope, "certified", erased.found, erased.remembered or 0
    )
    view: ErasureView = {
        "agent": erased.agent,
        "scope": scope_words(fact),
        "state": "certified",
        "text": certified_words(erased.kind),
        "kind": erased.kind,
        "certificate": True,
    }
    key = erased.request if erased.by == "owner" else of_votes(erased.agent)
    logged = when.get(erased.request, {}) | when.get(key, {})
    if "requested" in logged:
        view["asked_at"] = logged["requested"]
    if "certified" in logged:
        view["done_at"] = logged["certified"]
    return view


def _view(agent: str, scope: str, at: float | None) -> ErasureView:
    view: ErasureView = {
        "agent": agent,
        "scope": scope,
        "state": "asked",
        "text": f"Requested; the token goes to {agent}.",
        "certificate": False,
    }
    if at is not None:
        view["asked_at"] = round(at, 1)
    return view


def check_certificate(content: bytes, manifest: Manifest) -> Verification:
    """What a certificate proves under this manifest, and what it does not."""
    facts, proved = certificate_facts({"certificate": content}, manifest)
    (fact,) = facts
    privacy: PrivacyFact = privacy_fact(manifest)
    if fact.problem is not None:
        return {
            "valid": False,
            "text": f"This file proves nothing in {manifest.name}: {fact.problem}",
            "erasures": [],
            "proves": [],
            "does_not_prove": [],
        }
    erasures = []
    known: list[ErasureFact] = []
    for request, (erased, _) in proved.items():
        one = ErasureFact(
            erased.agent,
            erased.scope,
            "certified",
            erased.found,
            erased.remembered or 0,
            by=erased.by,
            kind=erased.kind,
        )
        known.append(one)
        erasures.append(
            {
                "agent": erased.agent,
                "scope": scope_words(one),
                "kind": erased.kind,
                "meaning": KINDS[erased.kind],
                "by": "its owner" if erased.by == "owner" else "a majority of the agents",
                "request": request,
            }
        )
    signed = f"Signed by {listed(fact.attested, 12)}; closed by {fact.closed_by}."
    return {
        "valid": True,
        "text": f"The certificate is valid: {count(len(erasures), 'erasure')}, "
        f"at epoch {fact.epoch}, hop {fact.hop}.",
        "erasures": erasures,
        "proves": [
            *(plain(check.what) for check in certificate_checks(facts) if check.holds),
            signed,
        ],
        "does_not_prove": [
            *(plain(check.what) for check in certificate_checks(facts) if check.holds is None),
            *(plain(one) for one in limits(known, privacy, signed=True)),
        ],
    }
