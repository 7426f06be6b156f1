"""The page: the facts of a report as one HTML file, with the summary on its first printed page."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path

from unweave.report import plots
from unweave.report.facts import (
    CertificateFact,
    CheckFact,
    ErasureFact,
    ModelFact,
    Name,
    QuantityFact,
    Report,
    Sentence,
)
from unweave.report.markup import Child, Element, document, download, el, link
from unweave.report.quantities import figure
from unweave.report.words import (
    CHANGE,
    GLOSSARY,
    KINDS,
    NO_CHANGE,
    NO_CHANGE_MASKED,
    estimate_words,
    learned_words,
    listed_names,
    noise_words,
    scope_words,
    state_words,
)
from unweave.text import clip, count

__all__ = ["page"]

_STYLE = Path(__file__).with_name("style.css").read_text(encoding="utf-8")
_SUMMARY_ROWS = 3  # erasures on the first page
_MOST_ROWS = 500  # of a table
_ATTACHED = 8 << 20  # bytes of certificates inside the page

_TITLES = {
    "network": "Report on learning and erasure",
    "demonstration": "Report on a demonstration of learning and erasure",
    "simulation": "Report on a simulated network",
    "federation": "Report on a network in one process",
}
_PURPOSE = {
    "network": "what the agents of this network learned together, what was erased, how the "
    "erasure was verified, and what that does not prove",
    "demonstration": "what five processes learned together from a public data set, what they "
    "forgot, how that was verified, and what that does not prove",
    "simulation": "how a network of this kind learned and forgot under faults in a simulation, "
    "what was checked, and what that does not prove",
    "federation": "what was learned and forgotten by agents that ran together in one process, and "
    "what that does not prove",
}
_MARKS = {"good": "✓", "open": "!", "bad": "✗"}
_STATES = {
    "in": "in the model",
    "not in": "not in the model",
    "erased": "erased",
    "departed": "departed",
    "unknown": "not known here",
}


def page(report: Report) -> bytes:
    """The HTML file. It needs nothing but itself: no script, no address."""
    title = f"{_TITLES[report.source]}: {clip(report.network, 64)}"
    digest = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    return document(
        el(
            "html",
            el(
                "head",
                el("meta", charset="utf-8"),
                el("meta", http_equiv="Content-Security-Policy", content=policy),
                el("meta", name="viewport", content="width=device-width, initial-scale=1"),
                el("meta", name="referrer", content="no-referrer"),
                el("meta", name="color-scheme", content="light dark"),
                el("title", title),
                el("style", _STYLE),
            ),
            el("body", el("main", _summary(report), _details(report))),
            lang="en",
        )
    )


def words(sentence: Sentence) -> list[Child]:
    """A sentence, with names isolated from the direction of the text around them."""
    return [el("bdi", part) if isinstance(part, Name) else part for part in sentence]


# -------------------------------------------------------------------------------- the first page


def _summary(report: Report) -> Element:
    verdict = report.verdict
    size = len(report.agents) or report.size
    return el(
        "section",
        el(
            "header",
            el("p", _TITLES[report.source], class_="kind"),
            el("h1", el("bdi", report.network)),
            el(
                "p",
                f"{count(size, 'agent')} · as of {report.as_of} · made {report.made}",
                class_="meta",
            ),
            el("p", f"This report says {_PURPOSE[report.source]}.", class_="purpose"),
        ),
        el(
            "div",
            el(
                "p",
                el("span", _MARKS[verdict.level], aria_hidden="true"),
                f" {verdict.headline}",
                class_="headline",
            ),
            *(el("p", *words(one)) for one in verdict.sentences),
            class_=f"verdict {verdict.level}",
        ),
        el("h2", "What was learned, and by whom"),
        *(el("p", *words(one)) for one in learned_words(report)),
        el("h2", "What was erased"),
        _erasures(report.erasures[-_SUMMARY_ROWS:], len(report.erasures)),
        el("h2", "How it was verified"),
        *_verification(report),
        el("h2", "What this does not prove"),
        el("ul", *(_limit(one) for one in report.limits), class_="limits"),
        class_="summary",
    )


def _limit(sentence: Sentence) -> Element:
    """Its first words, up to the full stop, are its title."""
    first, *more = sentence
    title, _, rest = first.partition(". ")
    return el("li", el("strong", f"{title}."), f" {rest}", *words(tuple(more)))


def _erasures(erasures: tuple[ErasureFact, ...], total: int) -> Element:
    if not erasures:
        return el("p", "Nothing: no erasure is known here.")
    dated = any(one.requested or one.carried_out or one.certified for one in erasures)
    heads = ["whose data", "what", "asked by"]
    heads += ["requested (UTC)", "carried out", "certified"] if dated else []
    rows = []
    for one in reversed(erasures):
        cells: list[Child] = [el("bdi", one.agent), scope_words(one), _asker(one)]
        if dated:
            moments = (one.requested, one.carried_out, one.certified)
            cells += ["–" if each is None else each.removesuffix(" UTC") for each in moments]
        done = one.state in ("certified", "unsigned") and one.kind is not None
        how = _kind(one.kind or "") if done else state_words(one)
        rows.append([*cells, how])
    table = _table("Erasures", [*heads, "kind"], rows)
    if total <= len(erasures):
        return table
    return el(
        "div",
        table,
        el(
            "p",
            f"The latest {len(erasures)} of {total}; all are ",
            link("all-erasures", "below"),
            ".",
        ),
    )


def _changes(report: Report) -> list[Element]:
    """By how much erasures changed what was learned; or why that is not shown. Runs in memory show
    the posteriors themselves."""
    certified = [one for one in report.erasures if one.state == "certified"]
    if report.source != "network" or not certified:
        return []
    parts: list[Element] = [el("h3", "What the erasures changed")]
    if report.privacy.mode == "masked":
        return [*parts, el("p", NO_CHANGE_MASKED)]
    parts.append(el("p", CHANGE))
    rows: list[list[Child]] = [
        [
            el("bdi", one.agent),
            scope_words(one),
            el("bdi", each.name),
            *map(_signed, (each.mean, each.sd)),
        ]
        for one in reversed(certified[-_MOST_ROWS:])
        for each in one.changes
    ]
    if rows:
        heads = ["whose data", "what", "quantity", "change of the mean", "change of the sd"]
        parts.append(_table("What the erasures changed", heads, rows))
    if unknown := sum(not one.changes for one in certified):
        parts.append(el("p", f"Not known here: {count(unknown, 'erasure')}. {NO_CHANGE}"))
    return parts


def _signed(value: float) -> str:
    return f"{value:+.6g}".replace("-", "−") if value else "less than can be shown"


def _kind(kind: str) -> str:
    return kind.replace("_", " ")


def _asker(one: ErasureFact) -> str:
    return {"owner": "its owner", "quorum": "a majority", None: "–"}[one.by]


def _verification(report: Report) -> list[Element]:
    parts: list[Element] = []
    if report.checks:
        parts.append(el("ul", *map(_check, report.checks), class_="checks"))
    else:
        parts.append(el("p", "There is no certificate here to verify."))
    if report.commands:
        again = "Anyone can repeat the checks of a certificate, anywhere and without the network:"
        if report.source in ("simulation", "federation"):
            again = "The run can be repeated:"
        parts.append(el("p", again, class_="again"))
        parts += [el("p", el("code", one), class_="command") for one in report.commands]
    return parts


def _check(check: CheckFact) -> Element:
    mark, word = {True: ("✓", "holds"), False: ("✗", "does not hold"), None: ("○", "claimed")}[
        check.holds
    ]
    return el(
        "li",
        el("span", mark, class_="mark", role="img", aria_label=word),
        el("span", *words(check.what)),
        class_={True: "holds", False: "fails", None: "claimed"}[check.holds],
    )


# ------------------------------------------------------------------------------------- the details


def _details(report: Report) -> Element:
    several = len(report.models) > 1
    return el(
        "section",
        el("h2", "Details", class_="details-title"),
        *_certificates(report),
        *(part for one in report.models for part in _model(one, several)),
        *_changes(report),
        *_agents(report),
        el("h3", "Privacy"),
        *_privacy(report),
        el("h3", "The network"),
        _facts({**report.settings, **report.versions}),
        el("h3", "Words"),
        el(
            "dl",
            *(part for term, text in GLOSSARY.items() for part in (el("dt", term), el("dd", text))),
            class_="glossary",
        ),
        class_="details",
    )


def _certificates(report: Report) -> list[Element]:
    parts: list[Element] = []
    if len(report.erasures) > _SUMMARY_ROWS:
        parts += [
            el("h3", "All erasures", id="all-erasures"),
            _erasures(report.erasures[-_MOST_ROWS:], min(len(report.erasures), _MOST_ROWS)),
        ]
    kinds = [one for one in KINDS if any(one == e.kind for e in report.erasures)]
    if kinds:
        parts += [
            el("h3", "Kinds of erasure"),
            _facts({_kind(one): KINDS[one] + "." for one in kinds}),
        ]
    if not report.certificates:
        return parts
    parts += [
        el("h3", "Certificates"),
        el(
            "p",
            "This file holds the certificates themselves, for machines. Save one, compare its "
            "SHA-256, and verify it with network.toml, whose SHA-256 is below.",
        ),
    ]
    room = _ATTACHED
    for one in report.certificates:
        parts.append(_certificate(one, room))
        room -= len(one.content)
    return parts


def _certificate(one: CertificateFact, room: int) -> Element:
    if one.problem is not None:
        text = f" proves nothing: {clip(one.problem, 300)}"
        return el("p", el("bdi", one.file), text, class_="broken")
    saved: Child = one.file
    if len(one.content) <= room:
        saved = download(one.file, one.content, el("bdi", one.file))
    facts: dict[str, Child | list[Child]] = {
        "file": saved,
        "SHA-256": el("code", one.sha256),
        "signed by": _names(one.attested),
        "closed by": el("bdi", one.closed_by),
        "in the certified model": _names(one.included) or "no agent",
        "moment": f"epoch {one.epoch}, hop {one.hop}",
        "erasures": ", ".join(clip(r, 40) for r in one.requests[:20]) or "–",
    }
    if one.not_attested:
        facts["departed, not signed"] = _names(one.not_attested)
    if one.estimate is not None:
        facts["estimate"] = estimate_words(one.estimate)
    if one.noise is not None:
        facts["noise"] = noise_words(one.noise)
    if not one.converged:
        facts["converged"] = "no: the passes ended before"
    return _facts(facts, "certificate")


def _names(names: Iterable[str]) -> list[Child]:
    return words(listed_names(names, 40))


def _model(model: ModelFact, several: bool) -> list[Element]:
    title = f"What was learned: {model.title}" if several and model.title else "What was learned"
    parts = [
        el("h3", title),
        el("p", "Model ", el("code", model.name), ". ", model.words),
    ]
    if model.exact is not None:
        by_form = (
            "Each contribution is a function of its own agent's records alone, so an erasure is "
            "exact."
            if model.exact
            else "Contributions depend on each other, so an erasure is followed by new fitting."
        )
        parts.append(el("p", by_form))
    if model.remark:
        parts.append(el("p", model.remark[:1].upper() + clip(model.remark[1:], 400), class_="note"))
    if model.quantities:
        parts += _posterior(model)
    if model.settings:
        parts += [el("p", el("strong", "Settings")), _facts(model.settings)]
    return parts


def _posterior(model: ModelFact) -> list[Element]:
    labels = [one for one in plots.LABELS if one in model.quantities[0].moments]
    drawn = [one for one in model.quantities if one.curves]
    parts: list[Element] = []
    picture: list[Element] = []
    few = len(model.quantities) <= 3
    if few and len(drawn) == len(model.quantities):
        picture = [
            el("figure", plots.densities(one), el("figcaption", el("bdi", one.name)))
            for one in drawn
        ]
        parts.append(el("div", *picture, class_="panels"))
    elif (whole := plots.intervals(model.quantities)) is not None:
        picture = [whole]
        parts.append(el("figure", whole, el("figcaption", "Means and 95% intervals")))
    if picture:
        parts.append(plots.legend(labels))
    if few and len(drawn) < len(model.quantities):
        hidden = _names(one.name for one in model.quantities if one not in drawn)
        why = " is not drawn: the numbers of this report do not determine it."
        parts.append(el("p", "The density of ", *hidden, why, class_="note"))
    parts.append(
        _table("What was learned", _heads(labels), [_row(one, labels) for one in model.quantities])
    )
    if model.total > len(model.quantities):
        parts.append(el("p", f"The first {len(model.quantities)} of {model.total:,} quantities."))
    return parts


_COLUMNS = {
    "posterior": "learned",
    "prior": "prior",
    "before": "before the erasure",
    "never": "never had the data",
}


def _heads(labels: list[str]) -> list[str]:
    return [
        "quantity",
        "learned: mean ± sd",
        "95% interval",
        *(f"{_COLUMNS[one]}: mean ± sd" for one in labels if one != "posterior"),
    ]


def _row(one: QuantityFact, labels: list[str]) -> list[Child]:
    now = one.moments["posterior"]
    interval = "–"
    if now.low is not None and now.high is not None:
        interval = f"{figure(now.low, now)} to {figure(now.high, now)}"
    cells: list[Child] = [el("bdi", one.name)]
    for label in ("posterior", *(k for k in labels if k != "posterior")):
        found = one.moments[label]
        cells.append(f"{figure(found.mean, found)} ± {figure(found.sd, found)}")
        if label == "posterior":
            cells.append(interval)
    return cells


def _agents(report: Report) -> list[Element]:
    if not report.agents:
        return []
    parts: list[Element] = [el("h3", "Agents")]
    picture = plots.graph(report.agents, report.edges)
    if picture is not None:
        caption = "Lines: which agents exchange messages. Hollow: not in the model."
        parts.append(el("figure", picture, el("figcaption", caption)))
    rows: list[list[Child]] = [
        [el("bdi", one.name), _STATES[one.state], one.note or "–"]
        for one in report.agents[:_MOST_ROWS]
    ]
    noted = any(one.note for one in report.agents)
    parts.append(
        _table(
            "Agents", ["agent", "state", "note"][: 2 + noted], [row[: 2 + noted] for row in rows]
        )
    )
    if len(report.agents) > _MOST_ROWS:
        parts.append(el("p", f"The first {_MOST_ROWS} of {len(report.agents):,} agents."))
    return parts


def _privacy(report: Report) -> list[Element]:
    privacy = report.privacy
    parts = [el("p", el("strong", f"{privacy.mode}. "), privacy.seen)]
    if privacy.epsilon is not None:
        text = (
            f"Published sums carry noise: differential privacy with epsilon = {privacy.epsilon:g} "
            f"and delta = {privacy.delta:g} for every record, over all rounds."
        )
        parts.append(el("p", text))
    return parts


# ------------------------------------------------------------------------------------------ parts


def _table(label: str, heads: list[str], rows: Iterable[list[Child]]) -> Element:
    """A table that scrolls sideways where it has no room; the keyboard reaches it."""
    return el(
        "div",
        el(
            "table",
            el("thead", el("tr", *(el("th", head, scope="col") for head in heads))),
            el(
                "tbody",
                *(
                    el("tr", el("th", row[0], scope="row"), *(el("td", cell) for cell in row[1:]))
                    for row in rows
                ),
            ),
        ),
        class_="scroll",
        role="group",
        aria_label=label,
        tabindex="0",
    )


def _facts(facts: Mapping[str, Child | list[Child]], class_: str = "") -> Element:
    return el(
        "dl",
        *(
            part
            for term, value in facts.items()
            for part in (
                el("dt", term),
                el("dd", *(value if isinstance(value, list) else [value])),
            )
        ),
        class_=f"facts {class_}".strip(),
    )
