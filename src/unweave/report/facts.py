"""The facts of a report: one value that every source makes, and that the page and `--json` show.

Plain values only. What a live network must not disclose is not in them: no sum, no digest of one,
no earlier posterior, nothing about a single agent beyond its part in the network and its erasures.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypeAlias

__all__ = [
    "AgentFact",
    "CertificateFact",
    "ChangeFact",
    "CheckFact",
    "CurveFact",
    "ErasureFact",
    "Kind",
    "ModelFact",
    "Moments",
    "Name",
    "PrivacyFact",
    "QuantityFact",
    "Report",
    "Sentence",
    "Verdict",
    "plain",
]


class Name(str):
    """A name that others chose. The page isolates it: its letters may run from right to left."""

    __slots__ = ()


Sentence: TypeAlias = tuple[str, ...]  # with `Name` where a name is


def plain(sentence: Sentence) -> str:
    return "".join(sentence)


Source = Literal["network", "demonstration", "simulation", "federation"]
Kind = Literal["exact", "exact_before_noise", "refined", "retrained", "subtracted"]
State = Literal["certified", "removed", "asked", "waiting", "voting", "unsigned"]


@dataclass(frozen=True)
class ChangeFact:
    """By how much an erasure changed a quantity, in coarse numbers."""

    name: str
    mean: float
    sd: float


@dataclass(frozen=True)
class ErasureFact:
    """One erasure. `unsigned`: carried out in one process, without signatures."""

    agent: str
    scope: Literal["agent", "records"]
    state: State
    records: int | None = None  # scope "records": how many the data held; None: not known
    remembered: int = 0  # keys that named no record
    by: Literal["owner", "quorum"] | None = None
    kind: Kind | None = None
    request: str | None = None
    requested: str | None = None  # dates, by the clocks of the agents' machines
    carried_out: str | None = None
    certified: str | None = None
    certificate: str | None = None  # the file that proves it
    waits_for: tuple[str, ...] = ()
    until: str | None = None  # a request that waits for others: when it goes at the latest
    changes: tuple[ChangeFact, ...] = ()


@dataclass(frozen=True)
class CertificateFact:
    """One certificate, verified when the report was made, and its file."""

    file: str
    content: bytes = field(repr=False)
    problem: str | None = None  # why it proves nothing
    attested: tuple[str, ...] = ()
    not_attested: tuple[str, ...] = ()
    included: tuple[str, ...] = ()
    closed_by: str = ""
    converged: bool = True
    estimate: Mapping[str, Any] | None = None
    noise: Mapping[str, Any] | None = None  # of differential privacy, as every agent states it
    epoch: int = 0
    hop: int = 0
    requests: tuple[str, ...] = ()

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()


@dataclass(frozen=True)
class Moments:
    """A quantity in short: mean, standard deviation, 95% interval. None: it does not exist."""

    mean: float | None
    sd: float | None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class CurveFact:
    """A density, relative to the largest one in the same picture."""

    label: str
    x: tuple[float, ...]
    y: tuple[float, ...]


@dataclass(frozen=True)
class QuantityFact:
    """One learned quantity, by label of the moment: "prior", "posterior", and in runs in memory
    also "before" and "never"."""

    name: str
    moments: Mapping[str, Moments]
    curves: tuple[CurveFact, ...] = ()


@dataclass(frozen=True)
class ModelFact:
    """A model, its settings in words, and what it learned."""

    name: str
    words: str
    exact: bool | None  # whether forgetting is exact by the model's form; None: not known
    settings: Mapping[str, str]
    quantities: tuple[QuantityFact, ...]
    total: int  # quantities of the model; `quantities` are the first
    title: str = ""
    remark: str = ""  # why there is no posterior, or what is special about it


@dataclass(frozen=True)
class AgentFact:
    """An agent's part in the network."""

    name: str
    state: Literal["in", "not in", "erased", "departed", "unknown"]
    note: str = ""


@dataclass(frozen=True)
class PrivacyFact:
    """The privacy mode, and what stays visible in it."""

    mode: Literal["plain", "masked"]
    seen: str
    least: int | None = None  # agents for which a sum is published
    epsilon: float | None = None
    delta: float | None = None


@dataclass(frozen=True)
class CheckFact:
    """One thing that was checked, and whether it holds; None: only claimed."""

    what: Sentence
    holds: bool | None


@dataclass(frozen=True)
class Verdict:
    """The result in plain words."""

    level: Literal["good", "open", "bad"]
    headline: str
    sentences: tuple[Sentence, ...]


@dataclass(frozen=True)
class Report:
    """Everything that a report says."""

    source: Source
    network: str
    made: str  # date of the report
    as_of: str  # what the report describes, in time
    agents: tuple[AgentFact, ...]
    edges: tuple[tuple[int, int], ...]
    erasures: tuple[ErasureFact, ...]
    certificates: tuple[CertificateFact, ...]
    models: tuple[ModelFact, ...]
    privacy: PrivacyFact
    settings: Mapping[str, str]  # of the network, in words
    versions: Mapping[str, str]
    checks: tuple[CheckFact, ...]
    commands: tuple[str, ...]  # that repeat the checks
    verdict: Verdict
    limits: tuple[Sentence, ...]  # what it does not prove
    size: int = 0  # number of agents, if they have no names here

    def to_dict(self) -> dict[str, Any]:
        """The facts as JSON values; a certificate as the text of its file."""
        values: dict[str, Any] = _finite(asdict(self))
        for one, fact in zip(values["certificates"], self.certificates, strict=True):
            one["content"] = fact.content.decode("utf-8", "replace")
            one["sha256"] = fact.sha256
        values["verdict"]["sentences"] = [plain(one) for one in self.verdict.sentences]
        values["limits"] = [plain(one) for one in self.limits]
        for one, check in zip(values["checks"], self.checks, strict=True):
            one["what"] = plain(check.what)
        return {"unweave": "report", **values}


def _finite(value: Any) -> Any:
    """JSON has no infinity, and bytes are replaced later."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return None if isinstance(value, bytes) else value
