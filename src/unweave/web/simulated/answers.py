"""Answers on a simulation: one agent, what an erasure does, certificates, the report."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

from unweave.errors import ConfigError, NotCertified, UnweaveError
from unweave.protocol.certificate.verify import verify
from unweave.protocol.state import State
from unweave.protocol.terms import Terms
from unweave.report.page import page
from unweave.report.simulation import simulation_report
from unweave.simulator.asked import AskedEvents
from unweave.simulator.insider import keyed_signers
from unweave.simulator.run import report_of
from unweave.solvers.worker import influence
from unweave.text import count, dated, listed
from unweave.web.simulated.specification import SIGNED, Simulated
from unweave.web.simulated.watch import Watch
from unweave.web.view import AgentDetails, Entry, ErasurePreview, ErasureWish, Verification

__all__ = ["agent_details", "erasure_preview", "html_report", "verification", "wished_rows"]


def agent_details(watch: Watch, k: int) -> AgentDetails:
    world, terms, asked = watch.world, watch.terms, watch.asked
    s = world.state(k)
    near = [terms.name(n) for n in s.neighbours]
    facts = {
        "neighbours": listed(near, 12, "none"),
        "records": f"{asked.remaining(k).n} of {watch.session.workers[k].whole.given} remain",
        "process": "runs" if k not in world.down else "does not run",
        "starts": str(world.agents[k].starts),
        "epoch, hop that it has heard of": f"{s.token.fence.epoch}, {s.token.fence.hop}",
        "erasures that it knows": str(sum(len(t.ids) for t in s.known.tombs.values())),
        "neighbours that do not answer": listed(
            [terms.name(n) for n in sorted(s.peers.suspects)], 12, "none"
        ),
    }
    if s.own.current is not None and not terms.masked:
        facts["revision of its factor"] = str(s.own.current.revision.counter)
    details: AgentDetails = {
        "name": terms.name(k),
        "facts": facts,
        "receipts": [] if terms.masked else _receipts(s),
        "influence_text": "In private rounds nobody sees a single factor, so no influence is "
        "shown.",
    }
    if not terms.masked:
        _add_influence(details, watch, s)
    return details


def _add_influence(details: AgentDetails, watch: Watch, s: State) -> None:
    token, model = watch.token, watch.session.model
    factor = None if token is None else s.own.factor(token.included[s.me])
    if token is None or factor is None or not model.inside(token.eta):
        details["influence_text"] = "Its factor is not in the sum now."
        return
    found = influence(model, token.eta, factor.units)
    if math.isfinite(found):
        details["influence"] = found
        details["influence_text"] = "KL of the posterior to the one without this agent."
    else:
        details["influence_text"] = "Without this agent there is no proper posterior."


def _receipts(s: State) -> list[Entry]:
    found: list[Entry] = []
    for receipt in s.own.receipts[:20]:
        epoch, hop = receipt.body["stamp"][0], receipt.body["stamp"][3]
        was, now = receipt.body["before"][0], receipt.body["after"][0]
        what = f"revision {now} of its factor" if now else "nothing of it"
        instead = f" instead of revision {was}" if was else ""
        text = f"Epoch {epoch}, hop {hop}: the token left with {what}{instead}."
        found.append({"at": 0.0, "text": text, "level": "info"})
    return found


def erasure_preview(name: str, rows: Sequence[int] | None, *, masked: bool) -> ErasurePreview:
    """What the erasure of these rows of an agent does, and what others will see."""
    what = "everything" if rows is None else count(len(rows), "record")
    shown = (
        "Whoever keeps the sum before and after sees the difference of the two."
        if masked
        else "Neighbours see the factor that is taken out: the difference of two tokens."
    )
    return {
        "what": f"Forget {what} of {name}, in this simulation.",
        "steps": [
            f"{name} signs a request, which cannot be taken back.",
            "A new private round is learned without the data."
            if masked
            else f"The token goes to {name} and leaves without its data.",
            "All remaining agents attest the new sum; a certificate proves it.",
        ],
        "shown": [shown, SIGNED],
        "irreversible": "In this run the data never come back. A restart brings them back.",
    }


def wished_rows(wish: ErasureWish) -> list[int] | None:
    """The rows that are to be erased; None: everything."""
    if wish.get("departed"):
        raise ConfigError('departed: use the fault "Depart for good". Fix: leave it out')
    keys = wish.get("keys")
    if keys is None:
        return None
    if not all(key.isascii() and key.isdigit() and len(key) < 19 for key in keys):
        raise ConfigError(
            "keys: the records of a simulation are named by row numbers. Fix: give 0, 1, 2 …"
        )
    return sorted({int(key) for key in keys})


def verification(certificate: bytes, terms: Terms) -> Verification:
    signers = keyed_signers(terms)
    try:
        account = verify(
            certificate, terms, lambda k, payload, signed: signers[k](payload) == signed
        )
    except (NotCertified, UnweaveError) as error:
        return {
            "valid": False,
            "text": f"The certificate is not one of this simulation: {error}",
            "erasures": [],
            "proves": [],
            "does_not_prove": [],
        }
    return {
        "valid": True,
        "text": "The certificate is valid in this simulation. "
        f"Attested by {listed(account.attested, 12)}.",
        "erasures": [
            {"agent": one.agent, "scope": one.scope, "kind": one.kind, "request": one.request}
            for one in account.erasures
        ],
        "proves": [
            "Every remaining agent of the simulation has attested a sum without the erased data.",
        ],
        "does_not_prove": [SIGNED, "Anything about a real network: these agents are simulated."],
    }


def html_report(
    simulated: Simulated, asked: AskedEvents, seed: int, wished: Sequence[str]
) -> bytes:
    """The report of a run that has ended. `wished`: what was asked for on the page."""
    session = asked.session
    if not asked.at_rest() or session.running:
        raise ConfigError(
            "the run has not ended, so it has no result to report. Fix: let it run until the "
            "network is at rest"
        )
    shards = [asked.remaining(k) for k in range(session.terms.size)]
    values = {
        "ok": True,
        "network": simulated.manifest.name,
        "data": simulated.data,
        "forgotten": simulated.forgotten,
        **report_of(session, shards).report(),
        "repeat": "" if wished else simulated.repeat(seed),
    }
    if wished:
        note = f"No command repeats the run: asked for on its page were {'; '.join(wished)}."
        values["notes"] = [note, *values["notes"]]
    return page(simulation_report(values, dated(time.time())))
