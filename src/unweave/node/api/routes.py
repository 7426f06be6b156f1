"""The operator's API: every request with its parameters and its answer, in one table.

The server and the client use this table, and the OpenAPI document and docs/reference/http-api.md
are written from it.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated, Any, Literal, NamedTuple, NotRequired

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, model_validator
from typing_extensions import TypedDict

from unweave.json_form import SAFE

__all__ = [
    "ROUTES",
    "ChangesQuery",
    "EraseRequest",
    "ErasureQuery",
    "InfluenceRequest",
    "Nothing",
    "PosteriorQuery",
    "PreviewRequest",
    "Route",
    "VoteRequest",
    "WaitQuery",
    "openapi",
]


Integer = Annotated[
    int,
    Field(json_schema_extra={"type": ["integer", "string"], "pattern": "^-?[0-9]+$"}),
]
RequestId = Annotated[str, Field(pattern="^[0-9a-f]{32}$")]


# ------------------------------------------------------------------------------------ requests


class Nothing(BaseModel):
    """No parameters."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class PosteriorQuery(Nothing):
    everything: bool = Field(
        False, description="all marginals and units, also of a posterior with more than 10,000"
    )
    erasures: bool = Field(False, description="also what the agent knows to be erased")
    brief: bool = Field(False, description="for a display: some marginals, rounded; no units")
    secret: bool = Field(
        False, description="also the secret that opens the commitment to this sum in a certificate"
    )
    marginals: bool = Field(
        True, description="false: without marginals; a reader can compute them from the units"
    )
    units: bool = Field(True, description="false: without the units")


class EraseRequest(Nothing):
    whole: bool = Field(False, description="everything of this agent")
    keys: list[str | int] | None = Field(None, description="or the records with these keys")
    missing_ok: bool = Field(
        False, description="keys that the data do not have are erased for the future, too"
    )
    request: RequestId | None = Field(
        None, description="the id of an earlier request that is repeated; default: a new id"
    )
    at_once: bool = Field(
        False, description="do not wait for a batch; what waits at this agent goes along"
    )

    @model_validator(mode="after")
    def _one_scope(self) -> EraseRequest:
        if self.whole == (self.keys is not None):
            raise ValueError('give either "whole": true or "keys"')
        if self.keys == []:
            raise ValueError('"keys" names no record. Fix: give at least one key')
        return self


class PreviewRequest(Nothing):
    keys: list[str | int] = Field(min_length=1, description="the records with these keys")
    missing_ok: bool = Field(False, description="as of an erasure")


class ErasureQuery(Nothing):
    request: RequestId = Field(description="the id that the erasure's request answered")


class InfluenceRequest(Nothing):
    publish: bool = Field(
        True, description="false: compute it for the operator, and tell no other agent"
    )


class VoteRequest(Nothing):
    agent: str = Field(description="the name of the agent that has departed, or has lied")
    request: RequestId | None = Field(None, description="the id of the votes before this one")
    lying: bool = Field(False, description="the agent has lied: vote it out although it is heard")


class WaitQuery(Nothing):
    timeout: float = Field(5.0, ge=0.0, le=30.0, description="seconds")


class ChangesQuery(Nothing):
    timeout: float = Field(5.0, ge=0.0, le=300.0, description="seconds")
    collect: float = Field(
        0.0,
        ge=0.0,
        le=1.0,
        description="seconds between the first news and the answer, with what comes in them",
    )
    follow: bool = Field(
        False, description="go on: one answer a line, until the connection or the agent ends"
    )
    every: float = Field(0.0, ge=0.0, le=300.0, description="seconds between two lines, at least")
    run: str = Field("", max_length=64, description="the process of the last answer")
    after: int = Field(0, ge=0, description="the number of the last answer")


# ------------------------------------------------------------------------------------- answers


class Answer(TypedDict):
    """No values."""

    __pydantic_config__ = ConfigDict(extra="forbid")  # type: ignore[misc]


class Other(Answer):
    """What an agent knows of another one."""

    address: str | None
    neighbour: bool
    heard_seconds_ago: float | None
    suspect: bool
    revision: int
    attested: bool
    erased: bool
    departed: bool
    erasures: int
    influence: float | None


class Dropped(Answer):
    """The records that are left out for a missing value, and the missing values by column."""

    records: int
    columns: dict[str, int]


class WaitingChanges(Answer):
    """Changes of this agent's records that wait for a batch, and the date by which they go."""

    requests: int
    data: bool
    records: int
    by: float | None


class PrivacyBudget(Answer):
    """Differential privacy: what is promised for each record, how many values this agent has given,
    how many it may still give, and how many of its records lie outside of the declared bounds."""

    epsilon: float
    delta: float
    given: int
    left: int
    clipped_records: int


class PrivateRound(Answer):
    """The private round: how many agents take part, how many a sum needs, whether a sum is
    published, and the agents that the round waits for, by what they have not done yet."""

    agents: int
    least: int
    published: bool
    not_enrolled: list[str]
    not_given: list[str]
    not_attested: list[str]


class Status(Answer):
    """The state of an agent. Before its store is open, only the required values. While `facts` is
    the same, the status and the posterior are, too, but for stamps, times and counts."""

    name: str
    address: str | None
    pid: int
    supervisor: int | None
    phase: str
    up_seconds: float
    replaced: bool
    memory_holds_erased: str | None
    counts: dict[str, int]
    refused: dict[str, int]
    facts: str
    notice: NotRequired[str | None]
    confirmed: NotRequired[bool]
    epoch: NotRequired[int]
    hop: NotRequired[int]
    revision: NotRequired[int]
    included: NotRequired[list[str]]
    stays_out: NotRequired[str | None]
    data_problem: NotRequired[str | None]
    concern: NotRequired[str | None]
    dropped_records: NotRequired[Dropped | None]
    missing: NotRequired[list[str]]
    complete: NotRequired[bool]
    privacy_budget: NotRequired[PrivacyBudget | None]
    private_round: NotRequired[PrivateRound | None]
    waiting: NotRequired[WaitingChanges | None]
    commitment: NotRequired[str | None]
    erased: NotRequired[list[str]]
    departed: NotRequired[list[str]]
    erasures: NotRequired[int]
    erased_records: NotRequired[int]
    pending: NotRequired[list[str]]
    parked: NotRequired[str | None]
    attested: NotRequired[int]
    parked_stamp: NotRequired[list[Integer] | None]
    suspects: NotRequired[list[str]]
    mismatches: NotRequired[list[str]]
    lies: NotRequired[dict[str, str]]
    others: NotRequired[dict[str, Other]]
    votes: NotRequired[dict[str, list[str]]]
    departed_requests: NotRequired[dict[str, str]]


class LoggedEvent(Answer):
    """A line of the agent's log; `at` in seconds since 1970."""

    number: int
    at: float
    level: Literal["info", "warning", "error"]
    what: str
    facts: dict[str, Any]


class Changes(Answer):
    """The agent in short, and what is newer than the last answer. `run` names the process, `number`
    its last event; `visits` are those of the token as [seconds since 1970, epoch, hop]. `shown` is
    the stamp of the sum that the agent shows; `inside`: it includes this agent. `sent`: the tokens
    that this process has sent. `facts` is that of the status."""

    run: str
    number: int
    visits: list[tuple[float, int, int]]
    events: list[LoggedEvent]
    phase: str
    sent: int
    epoch: NotRequired[int]
    hop: NotRequired[int]
    revision: NotRequired[int]
    shown: NotRequired[list[Integer] | None]
    inside: NotRequired[bool]
    parked: NotRequired[str | None]
    attested: NotRequired[int]
    facts: str


class ReceiptRow(Answer):
    """A change of the token by this agent: at which hop, from which revision of its factor to which
    (0: none), and for which request, if any."""

    epoch: int
    hop: int
    before: int
    after: int
    request: str | None


class ReceiptsAnswer(Answer):
    receipts: list[ReceiptRow]


class MarginalRow(Answer):
    """One quantity of the posterior; a moment that does not exist is null."""

    name: str
    mean: float | None
    sd: float | None
    low: float | None
    high: float | None


class KnownErasures(Answer):
    """What is known to be erased of one agent: request ids, or all of it (`out`)."""

    ids: list[str]
    out: bool


class ErasureKnowledge(Answer):
    """What the agent knows to be erased, and what the sum that it shows has carried out."""

    known: dict[str, KnownErasures]
    retrain_epoch: list[str]
    carried_out: dict[str, list[str]]
    carried_out_retrain_epoch: list[str]


class PosteriorReport(Answer):
    """The posterior as this agent knows it. `units` are the natural parameters on the grid. With
    differential privacy, `noise` is the variance of the noise in them, `marginals` know of it, and
    `remark` says where it leaves nearly nothing of the data."""

    state: Literal["departed", "audit_failed", "unknown", "incomplete", "unconfirmed", "complete"]
    why: NotRequired[str]
    asked: NotRequired[dict[str, str]]
    erasures: NotRequired[ErasureKnowledge]
    missing: NotRequired[list[str]]
    included: NotRequired[list[str]]
    stamp: NotRequired[list[Integer]]
    digest: NotRequired[str]
    secret: NotRequired[str]
    units: NotRequired[list[Integer]]
    units_total: NotRequired[int]
    model: NotRequired[str]
    settings: NotRequired[dict[str, Any]]
    fitting: NotRequired[int | None]
    noise: NotRequired[list[float]]
    remark: NotRequired[str]
    marginals: NotRequired[list[MarginalRow]]
    marginals_total: NotRequired[int]


class ErasureReport(Answer):
    """How far an erasure is. `certificate` is the evidence, as `unweave verify` reads it. `by` is
    the date, in seconds since 1970, by which a request that waits for a batch is carried out."""

    state: Literal["starting", "unknown", "waiting", "asked", "voting", "removed", "certified"]
    agent: NotRequired[str]
    by: NotRequired[float]
    votes: NotRequired[int]
    quorum: NotRequired[int]
    waiting_for: NotRequired[list[str]]
    suspects: NotRequired[list[str]]
    certificate: NotRequired[dict[str, Any]]


class StatusAnswer(Answer):
    status: Status


class PosteriorAnswer(Answer):
    posterior: PosteriorReport


class Forgotten(Answer):
    """Agents that are out as a whole, and the commitments of own records that may not be used."""

    out: list[str]
    erased: bool
    records: list[str]


class ForgottenAnswer(Answer):
    forgotten: Forgotten


class BackupAnswer(Answer):
    """A copy of the store, base64."""

    store: str


class InfluenceAnswer(Answer):
    """KL divergences by agent; null: infinite."""

    influence: dict[str, float | None]


class EraseAnswer(Answer):
    """`before`: how many of the records an earlier request names already."""

    request: str
    before: int


class PreviewAnswer(Answer):
    """How many records the keys name, how many of them an earlier request names already, and how
    many keys the data do not have."""

    records: int
    before: int
    absent: int


class ErasureAnswer(Answer):
    erasure: ErasureReport


class VoteAnswer(Answer):
    request: str
    votes: int
    quorum: int


class WakeAnswer(Answer):
    """`before`: the stamp of the attestation that the new one replaces."""

    before: list[Integer] | None


class LearnAnswer(Answer):
    """`by`: the date, in seconds since 1970, until which new data wait for a batch at most."""

    changed: bool
    by: NotRequired[float]


class ChangesAnswer(Answer):
    changes: Changes


class WaitAnswer(Answer):
    """`news`: whether something changed before the time was over."""

    news: bool


class Failure(Answer):
    """`exit_code`: 1 refused, 2 bad input, as of the command line."""

    kind: str
    message: str
    fix: str | None
    exit_code: int


class FailureAnswer(Answer):
    error: Failure


# -------------------------------------------------------------------------------------- the table


class Route(NamedTuple):
    """One request: GET takes its parameters from path and query, POST from a JSON body."""

    name: str
    method: Literal["GET", "POST"]
    path: str
    summary: str
    takes: type[Nothing]
    answers: Any

    def place(self, given: dict[str, Any]) -> str:
        """The path with its parameters, which are removed from `given`."""
        return "/".join(
            str(given.pop(part[1:-1])) if part.startswith("{") else part
            for part in self.path.split("/")
        )


ROUTES = {
    route.name: route
    for route in (
        Route("status", "GET", "/status", "The agent's state.", Nothing, StatusAnswer),
        Route(
            "posterior",
            "GET",
            "/posterior",
            "The posterior as the agent knows it.",
            PosteriorQuery,
            PosteriorAnswer,
        ),
        Route(
            "forgotten",
            "GET",
            "/forgotten",
            "Which agents and which of its own records the agent may not use.",
            Nothing,
            ForgottenAnswer,
        ),
        Route(
            "influence",
            "POST",
            "/influence",
            "Publish this agent's influence; answers the influences that it knows.",
            InfluenceRequest,
            InfluenceAnswer,
        ),
        Route(
            "erase",
            "POST",
            "/erasures",
            "Ask for an erasure of this agent's data. It may be repeated.",
            EraseRequest,
            EraseAnswer,
        ),
        Route(
            "preview",
            "POST",
            "/erasures/preview",
            "What an erasure of these records would name. Nothing is requested or recorded.",
            PreviewRequest,
            PreviewAnswer,
        ),
        Route(
            "erasure",
            "GET",
            "/erasures/{request}",
            "How far an erasure is, and its certificate.",
            ErasureQuery,
            ErasureAnswer,
        ),
        Route(
            "vote",
            "POST",
            "/votes",
            "Vote that another agent has departed.",
            VoteRequest,
            VoteAnswer,
        ),
        Route(
            "wake",
            "POST",
            "/wake",
            "Wake the token: the agents attest and audit the sum again.",
            Nothing,
            WakeAnswer,
        ),
        Route(
            "learn",
            "POST",
            "/learn",
            "Look at the data; if they changed, a new revision is published.",
            Nothing,
            LearnAnswer,
        ),
        Route(
            "backup",
            "GET",
            "/backup",
            "A copy of the store, taken while the agent runs.",
            Nothing,
            BackupAnswer,
        ),
        Route(
            "wait",
            "GET",
            "/wait",
            "Answer at the next change of the token or of an erasure.",
            WaitQuery,
            WaitAnswer,
        ),
        Route(
            "changes",
            "GET",
            "/changes",
            "The agent in short, and what is new; waits if nothing is.",
            ChangesQuery,
            ChangesAnswer,
        ),
        Route(
            "receipts",
            "GET",
            "/receipts",
            "The latest receipts of this agent, the newest first.",
            Nothing,
            ReceiptsAnswer,
        ),
        Route("stop", "POST", "/stop", "Stop the agent's process.", Nothing, Answer),
    )
}


def openapi() -> dict[str, Any]:
    """The table as an OpenAPI 3.1 document."""
    schemas: dict[str, Any] = {}

    def schema(kind: Any) -> dict[str, Any]:
        found = TypeAdapter(kind).json_schema(ref_template="#/components/schemas/{model}")
        schemas.update(found.pop("$defs", {}))
        return found

    def body(kind: Any, description: str) -> dict[str, Any]:
        return {"description": description, "content": {"application/json": {"schema": kind}}}

    failure = schema(FailureAnswer)
    failures = {"400": "bad input", "409": "refused", "413": "too large", "500": "a fault"}
    paths: dict[str, Any] = {}
    for route in ROUTES.values():
        operation: dict[str, Any] = {"operationId": route.name, "summary": route.summary}
        taken = schema(route.takes)
        if route.method == "POST" and route.takes is not Nothing:
            operation["requestBody"] = {"required": True, **body(taken, "JSON")}
        elif taken.get("properties"):
            operation["parameters"] = [
                {
                    "name": name,
                    "in": "path" if f"{{{name}}}" in route.path else "query",
                    "required": name in taken.get("required", ()),
                    "description": one.pop("description", ""),
                    "schema": one,
                }
                for name, one in taken["properties"].items()
            ]
        operation["responses"] = {"200": body(schema(route.answers), "done")} | {
            code: body(failure, why) for code, why in failures.items()
        }
        paths.setdefault(route.path, {})[route.method.lower()] = operation
    for path, what in (
        ("/metrics", "Counters and gauges in Prometheus' text format."),
        ("/healthz", "The phase; 503 while the agent starts, or after a failed audit."),
        ("/openapi.json", "This document."),
    ):
        done = {"200": {"description": "done"}}
        paths[path] = {"get": {"operationId": path[1:], "summary": what, "responses": done}}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "unweave agent",
            "version": version("unweave"),
            "description": (
                "The operator's API of one agent, on the Unix socket agent.sock in its folder. "
                f"Integers beyond ±{SAFE} are strings."
            ),
        },
        "servers": [{"url": "http://agent"}],
        "paths": paths,
        "components": {"schemas": schemas},
    }
