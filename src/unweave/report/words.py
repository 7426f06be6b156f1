"""What the facts mean, in sentences for readers who are not engineers.

Every sentence claims what a certificate proves and no more (docs/explanation/security.md, "What a
certificate means"). A sentence is a tuple of texts, with `Name` around names that others chose.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from unweave.report.facts import (
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
from unweave.report.quantities import figure
from unweave.text import clip, count

__all__ = [
    "CHANGE",
    "GLOSSARY",
    "KINDS",
    "NO_CHANGE",
    "NO_CHANGE_MASKED",
    "certificate_checks",
    "certified_words",
    "estimate_words",
    "learned_words",
    "limits",
    "listed_names",
    "network_verdict",
    "noise_words",
    "scope_words",
    "state_words",
]

KINDS = {
    "exact": "the model equals, bit for bit, that of training without the erased data",
    "exact_before_noise": "without its noise, the sum behind the model equals, bit for bit, that "
    "of training without the erased data",
    "refined": "the erased contribution was subtracted, and the others were fitted again, "
    "starting from contributions that were fitted with the erased data",
    "retrained": "all agents started again from zero; no contribution was fitted with the erased "
    "data",
    "subtracted": "the erased contribution was subtracted; the others were not fitted again",
}

GLOSSARY = {
    "agent": "One organisation's program. It holds that organisation's records and never sends "
    "them.",
    "attest": "To sign that the model has a stated content and that stated erasures are carried "
    "out.",
    "certificate": "A file with these signatures. It can be checked without the network.",
    "contribution": "What one agent adds to the model: sums over its records, no record.",
    "departed": "Declared permanently absent by the votes of a majority of the agents.",
    "KL": "A distance between two models; near 0, they can hardly be told apart.",
    "network.toml": "The agreement of the network: its agents, their keys, the model, the rules.",
    "owner": "The organisation whose records an agent holds. Only the owner can erase them.",
    "posterior, prior": "What the model says with the data, and what was assumed without them.",
    "95% interval": "The range that holds a quantity with a probability of 95%, by the model.",
}

CHANGE = (
    "From the model before the request to the one after the certificate, to the second digit of "
    "the standard deviation. Other data may have changed meanwhile."
)
NO_CHANGE = (
    "unweave forget and the page keep the change of an erasure that they asked for and waited for. "
    "Two reports, from before and after an erasure, show it, too."
)
NO_CHANGE_MASKED = (
    "Not shown: in private rounds it would say something about one agent. Whoever kept the model "
    "from before can compare."
)

_MOST_NAMES = 6
_MOST_VALUES = 3  # quantities whose values are on the first page
_MOST_LETTERS = 40  # of a setting's value there
_LONGEST = 240  # letters of a list of values or settings on the first page
_MOST_SENTENCES = 3  # erasures that are told one by one


def listed_names(names: Iterable[str], most: int = _MOST_NAMES) -> Sentence:
    """The first names, and how many there are."""
    every = list(names)
    shown: list[str] = []
    for name in every[:most]:
        shown += [", ", Name(name)] if shown else [Name(name)]
    if len(every) > most:
        shown.append(f", … ({len(every)} in all)")
    return tuple(shown)


def certified_words(kind: str) -> str:
    return f"Certified as {kind.replace('_', ' ')}: {KINDS[kind]}."


def scope_words(one: ErasureFact) -> str:
    """What was erased, for a table."""
    if one.scope == "agent":
        return "everything"
    if one.records is None:
        return "records"
    parts = [count(one.records, "record") if one.records else "no records"]
    if one.remembered:
        parts.append(f"{count(one.remembered, 'key')} without a record")
    return "; ".join(parts)


_STATES = {
    "certified": "certified",
    "removed": "removed from the model, no certificate here",
    "asked": "requested, not yet removed",
    "waiting": "the request waits for other changes",
    "voting": "votes are being collected",
    "unsigned": "in memory",
}


def state_words(one: ErasureFact) -> str:
    """How far an erasure is."""
    if one.state == "removed" and one.certified:
        return "certified, no certificate here"
    waits = f", waits for {', '.join(one.waits_for[:_MOST_NAMES])}" if one.waits_for else ""
    return _STATES[one.state] + waits + (f", until {one.until}" if one.until else "")


def estimate_words(found: Mapping[str, Any], *, brief: bool = False) -> str:
    """The closing agent's estimate of the distance from training without the data. It is one
    agent's claim. `brief`: without its method and accuracy."""
    kl, how = found.get("kl_to_optimum"), clip(found.get("method", ""), 100)
    if not isinstance(kl, float):
        why = f" ({how.removeprefix('none: ')})" if how else ""
        return f"The distance from training without the data was not estimated{why}."
    bound = found.get("bound")
    told = f"KL = {_small(kl)}"
    told += f", and at most {_small(bound)} by a computed bound" if isinstance(bound, float) else ""
    if not brief:
        said = [f"method: {how}"] if how else []
        said += [
            f"{key}: {clip(found[key], 100)}"
            for key in ("accuracy", "optimum")
            if isinstance(found.get(key), str)
        ]
        told += f" ({'; '.join(said)})" if said else ""
    published = found.get("published")
    same = isinstance(published, Mapping) and str(published.get("identical")).startswith("proved")
    rounded = " Rounded for publication, it is that of training without the data." if same else ""
    return (
        f"The agent that closed the certificate estimates the distance from training without the "
        f"data: {told}. Near 0, two models can hardly be told apart.{rounded} This is that agent's "
        "claim; no other agent has checked it."
    )


def noise_words(stated: Mapping[str, Any]) -> str:
    """The noise of differential privacy that a certificate states."""
    return (
        f"epsilon {stated['epsilon']:g}, delta {stated['delta']:g} for each record, over "
        f"{stated['releases']} values of an agent, if at most {stated['colluders']} agents "
        "collude; stated by every agent, and not verifiable"
    )


def _small(value: float) -> str:
    """One digit, without an exponent where zeros can be counted."""
    if not 1e-9 < value < 1e6:
        return f"{value:.1g}"
    return f"{float(f'{value:.1g}'):.10f}".rstrip("0").rstrip(".")


def learned_words(report: Report) -> list[Sentence]:
    """What was learned, by whom and with what settings, in a few sentences."""
    told: list[Sentence] = []
    size = len(report.agents) or report.size
    who = listed_names(one.name for one in report.agents) or (count(size, "simulated agent"),)
    model = report.models[0]
    about = f" ({model.title})" if model.title else ""
    if model.quantities:
        number = "1 quantity" if model.total == 1 else f"{model.total:,} quantities"
        known = (f". It has {number}", *_quantity_words(model), ".")
    else:
        known = (f". No posterior is shown: {clip(model.remark, 200)}.",)
    inside = [one.name for one in report.agents if one.state == "in"]
    began = model.quantities or inside or report.erasures or report.source != "network"
    did = "learned together" if began else "have agreed to learn together"
    told.append((*who, f" {did} the model ", Name(model.name), about, *known))
    if inside and len(inside) < size:
        told.append(("The model now holds the contributions of ", *listed_names(inside), "."))
    if model.settings:
        told.append(_settings_words(model.settings))
    told.append((f"Privacy mode {report.privacy.mode}. {report.privacy.seen}",))
    return told


def _settings_words(settings: Mapping[str, str]) -> Sentence:
    """The first settings: the summary has one page."""
    shown: list[str] = []
    for key, value in settings.items():
        short = value if len(value) <= _MOST_LETTERS else f"{value[: _MOST_LETTERS - 1]}…"
        more = ["; " if shown else "Settings: ", f"{key}: ", Name(short)]
        if sum(map(len, (*shown, *more))) > _LONGEST:
            return (*shown, "; the others are in the details.")
        shown += more
    return (*shown, ".")


def _quantity_words(model: ModelFact) -> Sentence:
    """The learned values if they are few, else the first names."""
    names = (": ", *listed_names(one.name for one in model.quantities))
    if model.total > _MOST_VALUES:
        return names
    parts: list[str] = []
    for one in model.quantities:
        now = one.moments["posterior"]
        if now.mean is None or now.sd is None:
            return names
        parts += ["; " if parts else " (mean ± standard deviation): ", Name(one.name)]
        parts.append(f" = {figure(now.mean, now)} ± {figure(now.sd, now)}")
        if now.low is not None and now.high is not None:
            parts.append(f", 95% interval {figure(now.low, now)} to {figure(now.high, now)}")
    return tuple(parts) if sum(map(len, parts)) <= _LONGEST else names


# ------------------------------------------------------------------------------------ the verdict


def network_verdict(
    erasures: Sequence[ErasureFact],
    certificates: Sequence[CertificateFact],
    privacy: PrivacyFact,
    failure: tuple[str, str] | None = None,
) -> Verdict:
    """The result for a network. `failure`: what is wrong with the network, in short and in full."""
    broken = [one for one in certificates if one.problem is not None]
    unproved = [one for one in erasures if one.state != "certified"]
    proved = [one for one in erasures if one.state == "certified"]
    told = _proved(proved, [one for one in certificates if one.problem is None], privacy)
    if told and (failure or broken or unproved):  # else "this" would be about all of it
        told = (("What follows is about the certified erasures alone.",), *told)
    if failure is not None:
        short, full = failure
        return Verdict("bad", short, ((full,), *told))
    if broken:
        why = tuple(
            ("The file ", Name(one.file), f" proves nothing: {clip(one.problem, 200)}")
            for one in broken[:_MOST_SENTENCES]
        )
        headline = f"{count(len(broken), 'certificate')} failed the check"
        return Verdict("bad", headline, (*why, *told))
    if unproved:
        open_ = tuple(_unproved(one) for one in unproved[:_MOST_SENTENCES])
        waiting = sum(one.state != "removed" or bool(one.waits_for) for one in unproved)
        headline = f"{count(waiting, 'erasure')} not certified yet"
        if not waiting:
            headline = f"{count(len(unproved), 'erasure')} without a certificate here"
        return Verdict("open", headline, (*open_, *told))
    if not erasures:
        return Verdict(
            "good",
            "Nothing was erased",
            (("No agent of this network has asked for an erasure, as far as is known here.",),),
        )
    if all(one.scope == "records" and one.records == 0 for one in proved):
        return Verdict("open", "Certified, but no record was found", told)
    return Verdict("good", "Erased and certified", told)


def _unproved(one: ErasureFact) -> Sentence:
    was, is_ = ("was", "is") if one.scope == "agent" or one.records == 1 else ("were", "are")
    if one.certified:  # by a log
        return (
            *_subject(one),
            f" {was} removed from the model and, by the agents' logs, certified on "
            f"{one.certified}. The certificate is not here: its owner's agent keeps the file.",
        )
    if one.state == "removed" and not one.waits_for:
        return (
            *_subject(one),
            f" {was} removed from the model, but no certificate of it is here: agents have still "
            "to sign, or its owner's agent keeps the file.",
        )
    if one.state == "removed":
        waits = listed_names(one.waits_for)
        return (*_subject(one), f" {was} removed from the model; still to sign: ", *waits, ".")
    return (*_subject(one), f" {is_} still in the model: {state_words(one)}.")


def _subject(one: ErasureFact) -> Sentence:
    what = "Everything" if one.scope == "agent" else scope_words(one)
    return (f"{what[:1].upper()}{what[1:]} of ", Name(one.agent))


def _proved(
    erasures: Sequence[ErasureFact],
    certificates: Sequence[CertificateFact],
    privacy: PrivacyFact,
) -> tuple[Sentence, ...]:
    """What the valid certificates prove; the newest of them comes first."""
    if not erasures or not certificates:
        return ()
    shown = _MOST_SENTENCES if len(erasures) <= _MOST_SENTENCES else _MOST_SENTENCES - 1
    told = [_removed(one) for one in reversed(erasures[-shown:])]
    if len(erasures) > shown:
        told.append((f"Earlier erasures, {len(erasures) - shown} in number, are listed below.",))
    newest = certificates[0]
    signed = len(newest.attested)
    if newest.not_attested:
        told.append(
            (
                f"All {signed} agents that have not departed signed this; departed: ",
                *listed_names(newest.not_attested),
                ".",
            )
        )
    else:
        told.append((f"All {signed} agents of the network signed this.",))
    return (*told, *_meaning(erasures, newest, privacy))


def _removed(one: ErasureFact) -> Sentence:
    if one.by == "quorum":
        since = f" since {one.carried_out}" if one.carried_out else ""
        return (
            "Everything of ",
            Name(one.agent),
            f" is out of the model{since}: a majority of the agents declared it permanently "
            "absent.",
        )
    when = f" on {one.carried_out}" if one.carried_out else ""
    if one.scope == "agent":
        return (*_subject(one), f" was removed from the model{when}.")
    if not one.records:
        return (
            f"{count(one.remembered, 'key')} of ",
            Name(one.agent),
            " named no record in its data: nothing was removed, and records with these keys can "
            "never be learned.",
        )
    were = "was" if one.records == 1 else "were"
    return (f"{count(one.records, 'record')} of ", Name(one.agent), f" {were} removed{when}.")


def _meaning(
    erasures: Sequence[ErasureFact], newest: CertificateFact, privacy: PrivacyFact
) -> list[Sentence]:
    if not newest.included:
        why = "no agent's contribution is in it"
        if privacy.least is not None and privacy.mode == "masked":
            spent = "" if privacy.epsilon is None else "the privacy budget is spent, or "
            why = f"{spent}fewer than {privacy.least} agents remain; nothing is published any more"
        return [(f"The certified model is empty: {why}.",)]
    kinds = {one.kind for one in erasures}
    told: list[Sentence] = []
    if "exact" in kinds:
        told.append((_EXACT,))
    if "exact_before_noise" in kinds:
        told.append((_NOISY,))
    if "retrained" in kinds:
        told.append((_RETRAINED,))
    if "refined" in kinds:
        told.append((_REFINED,))
    if newest.estimate is not None and kinds & {"refined", "retrained"}:
        told.append((estimate_words(newest.estimate, brief=True),))
    if not newest.converged:
        told.append(
            ("The agents had not finished fitting when they signed: the passes had ended.",)
        )
    return told


_EXACT = (
    "The certified model is exactly, to the last bit, that of a network that never had these data."
)
_NOISY = (
    "Before noise, the certified sum is exactly that of a network that never had these data. The "
    "published model carries random noise, so it is not that of such a network bit for bit."
)
_RETRAINED = (
    "After the request all agents started again from zero: no contribution in the certified model "
    "was computed with these data."
)
_REFINED = (
    "The contribution was subtracted, and the other agents fitted theirs again, starting from "
    "contributions that were fitted with these data. The result need not equal that of a network "
    "that never had them."
)


# ----------------------------------------------------------------------------- checks and limits


def certificate_checks(certificates: Sequence[CertificateFact]) -> tuple[CheckFact, ...]:
    """What `verify` has checked in these certificates."""
    if not certificates:
        return ()
    broken = sum(one.problem is not None for one in certificates)
    failed: tuple[CheckFact, ...] = ()
    if 0 < broken < len(certificates):
        failed = (
            CheckFact(
                (
                    f"{count(broken, 'certificate')} of {len(certificates)} failed the check. What "
                    "follows holds for the others.",
                ),
                False,
            ),
        )
    holds = broken < len(certificates)
    checked = (
        "Every agent that has not departed signed, with its key in the network's agreement "
        "(network.toml).",
        "Each certified erasure has the signed statement of its owner, or the votes of a majority.",
        "The certified model holds no contribution of an agent whose erasure is certified, and "
        "none that an owner made before a certified erasure of its records.",
    )
    claimed = (
        "Claimed and signed by the closing agent alone: added a second time, the contributions "
        "gave the same sum."
    )
    return (*failed, *(CheckFact((one,), holds) for one in checked), CheckFact((claimed,), None))


def limits(
    erasures: Sequence[ErasureFact],
    privacy: PrivacyFact,
    *,
    signed: bool,
) -> tuple[Sentence, ...]:
    """What the report does not prove. `signed`: it is about certificates, not a run in memory."""
    noise = "" if privacy.epsilon is None else ", except what the noise hides"
    told: list[Sentence] = [
        (
            "Physical deletion. Files, databases and backups of the owner, and blocks of a disk, "
            "are not looked at: the owner deletes records there.",
        ),
        (
            "Truthful data. No check finds an agent that contributed false data, or that claims an "
            "erasure of its own data which it did not carry out.",
        ),
        (
            "Copies elsewhere. What others saw or kept before the erasure stays with them: earlier "
            "models, predictions, messages, backups.",
            f" {_VISIBLE[privacy.mode]}{noise}.",
        ),
    ]
    if any(one.by == "quorum" for one in erasures):
        told.append(
            ("Deletion by a departed agent. No vote makes an absent agent delete its data.",)
        )
    if privacy.epsilon is not None:
        told.append(
            (
                "Noise. No check finds an agent that did not add its noise. What earlier models "
                "show of these data stays, within epsilon and delta.",
            )
        )
    if signed:
        told.append(
            (
                "Dates and later models. A certificate has no date: dates come from the clocks of "
                "the agents' machines. It is about one moment of the model.",
            )
        )
    else:
        told.append(
            (
                "Anything about other parties. This run was in one place, without keys of its "
                "own for each organisation: its numbers can be repeated, not proved.",
            )
        )
    return tuple(told)


_VISIBLE = {
    "plain": "In this network neighbours could compute sums over an agent's records. Whoever kept "
    "the model from before can subtract the one after it, and so see what changed",
    "masked": "Whoever kept the model from before can subtract the one after it, and so see what "
    "changed",
}
