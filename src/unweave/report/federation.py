"""The report of a `Federation` that `Federation.save` has written: a network in one process."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress

from unweave.errors import DataError, UnweaveError
from unweave.federation import Federation
from unweave.report.facts import (
    AgentFact,
    CheckFact,
    ErasureFact,
    ModelFact,
    Report,
    Sentence,
    Verdict,
)
from unweave.report.network import privacy_fact, versions
from unweave.report.quantities import quantities_of
from unweave.report.settings import model_words, setting_words
from unweave.report.words import limits
from unweave.text import count, dated

__all__ = ["federation_report"]


def federation_report(network: Federation, name: str, written: str) -> Report:
    """The report of a network that ran in one process."""
    model, graph = network.model, network.graph
    privacy = privacy_fact(network)
    erasures = tuple(_unsigned(network))
    try:
        quantities = quantities_of({"posterior": network.posterior})
        remark = ""
    except UnweaveError as error:
        quantities, remark = (), str(error)
    checks = tuple(_checks(network))
    out, inside = set(network.forgotten), set(network.included)
    return Report(
        source="federation",
        network=name,
        made=dated(time.time()),
        as_of=written,
        agents=tuple(
            AgentFact(one, "erased" if one in out else "in" if one in inside else "not in")
            for one in graph.agents
        ),
        edges=tuple((a, b) for a, b in graph.edge_array.tolist()),
        erasures=erasures,
        certificates=(),
        models=(
            ModelFact(
                name=model.name,
                words=model_words(type(model)),
                exact=model.conjugate or model.settles,
                settings=setting_words(model.settings()),
                quantities=quantities,
                total=len(model.quantities),
                remark=remark,
            ),
        ),
        privacy=privacy,
        settings={
            "graph": f"{count(len(graph), 'agent')}, {count(len(graph.edges), 'connection')}",
            "way of the token": network.terms.schedule,
            "seed": str(network.seed),
        },
        versions=versions(),
        checks=checks,
        commands=(),
        verdict=_federation_verdict(erasures, len(inside), checks),
        limits=limits(erasures, privacy, signed=False),
    )


def _checks(network: Federation) -> Iterator[CheckFact]:
    """What can be computed again from the file: an attestation round of the agents, and the sum of
    a conjugate model from the remaining records."""
    with suppress(UnweaveError):  # no sum that could be attested
        network.audit(progress=False)
        text = "Every agent added its contribution a second time, and got the same sum."
        yield CheckFact((text,), True)
    if network.noise is not None:
        return
    text = "The sum was computed again from the remaining records in the file: equal, bit for bit."
    try:
        network.log_evidence()
    except DataError:
        yield CheckFact((text,), False)
    except UnweaveError:  # no closed form: nothing to compare with
        return
    else:
        yield CheckFact((text,), True)


def _unsigned(network: Federation) -> list[ErasureFact]:
    found = []
    for one in network.erasures:
        found += [ErasureFact(agent, "agent", "unsigned", kind=one.kind) for agent in one.agents]
        found += [
            ErasureFact(agent, "records", "unsigned", records=number, kind=one.kind)
            for agent, number in one.records.items()
        ]
    return found


def _federation_verdict(
    erasures: tuple[ErasureFact, ...], inside: int, checks: tuple[CheckFact, ...]
) -> Verdict:
    if any(check.holds is False for check in checks):
        text = "The sum in the file is not that of the records in it: the file was changed."
        return Verdict("bad", "A check failed", ((text,),))
    told: list[Sentence] = [(f"The model holds the contributions of {count(inside, 'agent')}.",)]
    kinds = {one.kind for one in erasures}
    if kinds == {"exact"}:
        told.append(
            (
                "For each erasure, the model is exactly, to the last bit, that of agents that "
                "never had the data: this follows from the form of the model.",
            )
        )
    if "exact_before_noise" in kinds:
        told.append(
            (
                "For each erasure, the sum before noise is exactly that of agents that never had "
                "the data. The noise follows from a seed here, and protects no data.",
            )
        )
    if "refined" in kinds or "retrained" in kinds:
        told.append(("After an erasure the remaining agents fitted their contributions again.",))
    if "subtracted" in kinds:
        text = "An erased contribution was subtracted, and the others were not fitted again yet."
        return Verdict("open", "Subtracted, not refined", (*told, (text,)))
    told.append(("No agent signed this: all agents ran in one process.",))
    return Verdict("good", "Erased" if erasures else "Nothing was erased", tuple(told))
