"""The report of a simulated network: the JSON of `unweave simulate --json`."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from unweave.errors import ConfigError
from unweave.manifest.privacy import seen_words
from unweave.report.facts import (
    CheckFact,
    ErasureFact,
    Kind,
    ModelFact,
    Moments,
    PrivacyFact,
    QuantityFact,
    Report,
    Sentence,
    Verdict,
)
from unweave.report.network import versions
from unweave.report.quantities import MOST
from unweave.report.settings import registered_words, setting_words
from unweave.report.values import Text, Values, Whole
from unweave.report.words import limits
from unweave.text import clip, count, dated

__all__ = ["simulation_report"]


class _Moments(Values):
    mean: float | None
    sd: float | None
    low: float | None = None
    high: float | None = None

    def fact(self) -> Moments:
        return Moments(self.mean, self.sd, self.low, self.high)


class _Noise(Values):
    epsilon: float
    delta: float


class _Erased(Values):
    agent: Text
    records: Whole | None


class _Simulation(Values):
    ok: Literal[True]
    network: Text
    model: Text
    settings: dict[Text, Any]
    conjugate: bool
    agents: Annotated[int, Field(ge=1)]
    privacy: Literal["plain", "masked"]
    faults: Text
    data: Text
    seed: int
    hops: Whole
    events: Whole
    checked_transitions: Whole
    messages_lost: Whole
    crashes: Whole
    agents_departed: Whole
    lies: Whole
    notes: list[Text]
    erasures_asked: Whole
    erasures_certified: Whole
    erased: Annotated[list[_Erased], Field(max_length=100_000)]
    erasures_without_effect: dict[Text, int]
    records_left: Whole
    agents_left_with_records: Whole
    prior: dict[Text, _Moments]
    posterior: dict[Text, _Moments]
    noise: _Noise | None
    equal_to_fault_free: bool | None
    kl_to_fault_free: float | None
    repeat: Text

    @property
    def epsilon(self) -> float | None:
        return None if self.noise is None else self.noise.epsilon

    @property
    def delta(self) -> float | None:
        return None if self.noise is None else self.noise.delta


def simulation_report(values: Mapping[str, Any], written: str) -> Report:
    """The report of `unweave simulate --json`."""
    if values.get("ok") is False:
        raise ConfigError(
            "the run broke an invariant, so it has no result to report. Fix: repeat it with the "
            "command in its file, and report the violation"
        )
    run = _Simulation.model_validate(values)
    seen = seen_words(run.privacy, run.epsilon, run.delta)
    privacy = PrivacyFact(run.privacy, seen, epsilon=run.epsilon, delta=run.delta)
    exact: Kind = "exact" if run.noise is None else "exact_before_noise"
    quantities = tuple(
        QuantityFact(
            name,
            ({"prior": run.prior[name].fact()} if name in run.prior else {})
            | {"posterior": found.fact()},
        )
        for name, found in list(run.posterior.items())[:MOST]
    )
    model = ModelFact(
        name=run.model,
        words=registered_words(run.model),
        exact=run.conjugate,
        settings=setting_words(run.settings),
        quantities=quantities,
        total=len(run.posterior),
    )
    return Report(
        source="simulation",
        network=run.network,
        made=dated(time.time()),
        as_of=written,
        agents=(),
        size=run.agents,
        edges=(),
        erasures=tuple(
            ErasureFact(
                one.agent,
                "agent" if one.records is None else "records",
                "unsigned",
                records=one.records,
                by="owner",
                kind=exact if run.conjugate else None,
            )
            for one in run.erased
        ),
        certificates=(),
        models=(model,),
        privacy=privacy,
        settings={
            "faults": run.faults,
            "seed": str(run.seed),
            "data": run.data,
            "steps of the token (hops)": f"{run.hops:,}",
            "events": f"{run.events:,}",
            "messages lost": f"{run.messages_lost:,}",
            "crashes": f"{run.crashes:,}",
            "agents declared absent": f"{run.agents_departed:,}",
            "lies of one agent": f"{run.lies:,}",
            "erasures requested": f"{run.erasures_asked:,}",
            "erasures certified": f"{run.erasures_certified:,}",
            "agents and records that remain": f"{run.agents_left_with_records:,} with "
            f"{count(run.records_left, 'record')}",
        },
        versions=versions(),
        checks=_simulation_checks(run),
        commands=(run.repeat,) if run.repeat else (),
        verdict=Verdict("good", "Every rule held", tuple(_simulation_words(run))),
        limits=limits((), privacy, signed=False),
    )


def _simulation_checks(run: _Simulation) -> tuple[CheckFact, ...]:
    checked = (
        f"After each of {count(run.checked_transitions, 'change')} of an agent, the invariants of "
        "the protocol were checked: every contribution is in the sum once, and nothing that was "
        "certified as erased comes back."
    )
    certified = (
        f"{count(run.erasures_certified, 'erasure')} certified of {run.erasures_asked} requested; "
        "each other one had no effect, for a stated reason."
        if run.erasures_without_effect
        else f"All {count(run.erasures_asked, 'requested erasure')} certified."
    )
    found = [CheckFact((checked,), True)]
    if run.erasures_asked:
        found.append(CheckFact((certified,), True))
    if run.equal_to_fault_free is not None:
        equal = run.equal_to_fault_free
        text = (
            f"{'The result' if run.noise is None else 'Without its noise, the result'} equals, bit "
            "for bit, that of a run without faults on the remaining records."
            if equal
            else "The result is near that of a run without faults on the remaining records "
            f"(KL = {run.kl_to_fault_free or 0.0:.2g}); for this model it depends on the order of "
            "visits."
        )
        found.append(CheckFact((text,), True))
    return tuple(found)


def _simulation_words(run: _Simulation) -> list[Sentence]:
    told: list[Sentence] = [
        (
            f"{count(run.agents, 'simulated agent')} learned together "
            + ("without faults" if run.faults == "none" else f"under faults ({run.faults})")
            + "; all messages and clocks were simulated.",
        )
    ]
    if run.erasures_asked:
        asked = count(run.erasures_asked, "erasure")
        told.append((f"{asked} requested, {run.erasures_certified} certified.",))
    else:
        told.append(("No erasure was requested.",))
    for why, number in list(run.erasures_without_effect.items())[:3]:
        told.append((f"Without effect: {number}, {clip(why, 120)}.",))
    told += [(clip(note, 200),) for note in run.notes[:3]]
    return told
