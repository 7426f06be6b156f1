"""What the page shows, as one JSON value: the view.

A source keeps a view up to date. The server sends it once (`snapshot`) and afterwards only what has
changed, as JSON merge patches (RFC 7396): an object holds what changed in it, null removes a key, a
list or a plain value replaces the old one. So everything that changes one by one is an object with
ids as keys: agents, waits, erasures, timeline. A value that is not known is absent.

    GET  /events                        server-sent events: `snapshot` (the view), then `change`
                                        (a merge patch), each with an id; a viewer that comes back
                                        with Last-Event-ID gets the changes that it missed, or a
                                        snapshot. `points` carries new points of the series.
                                        `heartbeat` comes if there was nothing else for 15 s:
                                        the clock of a network, which messages that were missed
                                        have of earlier.
    GET  /curves?name=…&name=…&moment=… densities of at most 12 parameters: `CurvesAnswer`
    GET  /moments/{id}                  intervals at an earlier moment: `MomentAnswer`
    GET  /agents/{name}                 details of one agent: `AgentDetails`
    GET  /certificates/{request}        the certificate, as a file
    GET  /report                        the report of `unweave report`, as a file
    POST /verify                        body: a certificate. Answers `Verification`
    GET  /session                       {"operator": …}: whether this browser has a session
    POST /session                       {"code": …}: the operator's access code. Sets the cookie,
                                        and answers {"operator": true, "proof": …}
    POST /erasures/preview              `ErasureWish`. Answers `ErasurePreview`; needs a
                                        session if it names records
    POST /erasures                      `ErasureWish`. Answers {"request": …}; needs a session
    POST /controls                      `Control`: play, pause, step, speed, a fault; simulations
                                        only, and needs a session if a code was set

A POST is JSON, and says so (Content-Type: application/json; /verify also takes
application/octet-stream). An error is answered as {"error": {"kind", "message", "fix"}} with status
400, 401, 403, 404, 405, 408, 409, 413, 415, 421, 500 or 503. Where the code is needed for reading,
too, only the page and /session answer without a session: the cookie, and the proof in the header
x-unweave-proof (of /events in the address: ?proof=…).
"""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired

from pydantic import ConfigDict, Field
from typing_extensions import TypedDict

__all__ = [
    "KEPT_POINTS",
    "VISITS",
    "AgentDetails",
    "AgentState",
    "AgentView",
    "Control",
    "Controls",
    "Curve",
    "CurvesAnswer",
    "Entry",
    "ErasurePreview",
    "ErasureView",
    "ErasureWish",
    "GraphView",
    "Moment",
    "MomentAnswer",
    "ParameterView",
    "Points",
    "PosteriorView",
    "Series",
    "SessionWish",
    "Summary",
    "TokenView",
    "Verification",
    "View",
    "Wait",
]

VISITS = 64  # of the token, in a view
KEPT_POINTS = 2000  # of one series; the server and the page drop the oldest beyond them

# in: its current factor is in the sum. pending: it is not, or not yet again. solving: it computes
# its factor now. down: it does not answer. erased: all its data are forgotten. departed: it was
# voted out.
AgentState = Literal["in", "pending", "solving", "down", "erased", "departed"]


class AgentView(TypedDict):
    """One agent. `why` is one sentence, with the remedy, for every state that is not final."""

    index: int  # its place in `graph`
    state: AgentState
    why: NotRequired[str]
    attested: bool
    revision: NotRequired[int]  # of its factor; never in private rounds of other agents
    posterior: NotRequired[str]  # the version it shows: "epoch 3, hop 12"
    posterior_at: NotRequired[float]  # when this version was made, if known; seconds of `clock`
    remote: NotRequired[bool]  # on another machine: known from the agents here


class GraphView(TypedDict):
    """The graph: agents by index, edges as pairs of indices, places in the unit square."""

    names: list[str]
    edges: list[tuple[int, int]]
    places: list[tuple[float, float]]


class TokenView(TypedDict):
    """Where the token is. `visits` are the last hops as [agent index, seconds of `clock`], the
    newest last, at most 64, so that the page can show every hop of a batch."""

    state: Literal["none", "moving", "solving", "parked"]
    at: NotRequired[int]  # index of the agent that holds it
    epoch: NotRequired[int]
    hop: NotRequired[int]
    visits: NotRequired[list[tuple[int, float]]]


class Wait(TypedDict):
    """Something that waits: what, why, and what to do about it, one sentence each."""

    what: str
    why: str
    fix: NotRequired[str]
    agents: NotRequired[list[str]]
    more: NotRequired[int]  # agents beyond those


class Summary(TypedDict):
    """The state of the network in one sentence."""

    state: Literal["starting", "learning", "rest", "waiting", "failed", "down", "done"]
    text: str
    agents: dict[str, int]  # number of agents by state
    inside: NotRequired[int]  # agents in the sum; absent: those that are in or solve
    hops: int
    epoch: NotRequired[int]
    attested: NotRequired[int]


class ParameterView(TypedDict):
    """One quantity in the user's units. A moment that does not exist is absent."""

    name: str
    mean: NotRequired[float]
    sd: NotRequired[float]
    low: NotRequired[float]  # 95% interval
    high: NotRequired[float]
    prior_mean: NotRequired[float]
    prior_sd: NotRequired[float]
    prior_low: NotRequired[float]
    prior_high: NotRequired[float]


class Moment(TypedDict):
    """An earlier posterior to compare with; only in simulations and in the demonstration."""

    id: str
    label: str  # "before a3 was forgotten", "hop 40"


class PosteriorView(TypedDict):
    """The posterior now; without one, `why` says why not and what to do."""

    state: Literal["none", "incomplete", "unconfirmed", "complete"]
    why: NotRequired[str]
    version: NotRequired[str]  # "epoch 3, hop 12": changes whenever the sum does
    at: NotRequired[float]
    total: NotRequired[int]  # parameters of the model; `parameters` holds the first 200
    parameters: NotRequired[list[ParameterView]]
    moments: NotRequired[list[Moment]]


class Series(TypedDict):
    """One line over time. `x` is "time" (seconds of `clock`) or "hop". Points come in the snapshot
    and then in `points` events; a live network holds them in the server's memory alone. `log`: the
    y-axis is logarithmic; a value of 0 lies on its lower edge."""

    title: str
    x: Literal["time", "hop"]
    unit: NotRequired[str]
    log: NotRequired[bool]
    empty: str  # what the page says while there are no points
    points: list[tuple[float, float]]
    chart: NotRequired[str]  # the series in whose chart this line is drawn; absent: its own
    part: NotRequired[Literal["line", "low", "high"]]  # "low", "high": the ends of a shaded band


Points = dict[str, list[tuple[float, float]]]  # by series: new points


class ErasureView(TypedDict):
    """One erasure. `change` is the change of mean and sd of the first parameters, to two digits:
    nothing more about single agents is kept in a live network."""

    agent: str
    scope: str  # "everything", "3 records"
    state: Literal["waiting", "asked", "voting", "removed", "certified"]
    text: str  # one sentence: how far it is, what it waits for
    asked_at: NotRequired[float]
    done_at: NotRequired[float]
    kind: NotRequired[str]  # exact, refined, retrained
    certificate: bool  # GET /certificates/{request} answers
    change: NotRequired[list[tuple[str, float, float]]]


class Entry(TypedDict):
    """One line of the timeline: a plain sentence. Events that repeat, or that several agents tell
    of themselves, are one line: `times` says how often, `until` when last."""

    at: float
    text: str
    level: Literal["info", "good", "warning", "failure"]
    agent: NotRequired[str]
    times: NotRequired[int]
    until: NotRequired[float]


class Controls(TypedDict):
    """The state of a simulation's controls."""

    playing: bool
    speed: float  # simulated seconds per second; of the paper's walks: hops per second
    faults: dict[str, str]  # fault → what its button says: "crash", "partition", "lose", …
    of_agent: NotRequired[list[str]]  # faults that strike one agent: their control names it
    finished: NotRequired[str]  # why it cannot go on
    repeat: NotRequired[str]  # the command that repeats this run
    chapters: NotRequired[dict[str, str]]  # experiments of the paper, by id
    chapter: NotRequired[str]
    may_forget: NotRequired[list[str]]  # agents that "forget" may name; absent: nobody
    story: NotRequired[str]  # what this chapter shows now, in a few sentences


class View(TypedDict):
    """Everything that the page shows."""

    title: str
    kind: Literal["network", "simulation", "paper"]
    clock: float  # seconds: since 1970 in a network, simulated in a simulation; the paper: hops
    model: str
    settings: dict[str, str]  # for people: "prior" → "Beta(1, 1)"
    privacy: Literal["plain", "masked"]
    seen: str  # what neighbours see in this mode, one sentence
    may_erase: list[str]  # agents whose erasure this page's operator may request
    summary: Summary
    graph: GraphView
    agents: dict[str, AgentView]
    token: TokenView
    waits: dict[str, Wait]
    posterior: PosteriorView
    series: dict[str, Series]  # "progress" (KL or free energy), "residual", "rate"
    erasures: dict[str, ErasureView]  # by request, the newest last
    timeline: dict[str, Entry]  # by number, ascending; at most 500
    controls: NotRequired[Controls]


# ------------------------------------------------------------------------- answers and requests


class Curve(TypedDict):
    """A density on a grid, or its interval if the quantity has none."""

    label: str  # "posterior", "prior", or a moment's label
    x: list[float]
    y: list[float]


class CurvesAnswer(TypedDict):
    """Densities by parameter: the posterior, the prior, and the moments that were asked for."""

    version: str
    curves: dict[str, list[Curve]]


class MomentAnswer(TypedDict):
    """The quantities at an earlier moment, as those of `PosteriorView`."""

    label: str
    parameters: list[ParameterView]


class AgentDetails(TypedDict):
    """Details of one agent, as label → text, its events and receipts with the newest
    first, and its influence in plain mode."""

    name: str
    facts: dict[str, str]
    receipts: list[Entry]
    influence: NotRequired[float]
    influence_text: str  # what it means, or why it is not shown


class Wish(TypedDict):
    """A request: an unknown key or a value of another type is refused."""

    __pydantic_config__ = ConfigDict(extra="forbid", strict=True)  # type: ignore[misc]


Short = Annotated[str, Field(max_length=200)]


class SessionWish(Wish):
    """The operator's access code."""

    code: Short


class ErasureWish(Wish):
    """What to erase: all data of an agent, or the records with these keys."""

    agent: Short
    keys: NotRequired[Annotated[list[str], Field(min_length=1, max_length=100_000)]]
    missing_ok: NotRequired[bool]
    now: NotRequired[bool]
    departed: NotRequired[bool]


class ErasurePreview(TypedDict):
    """What happens and what others will be able to compute, before anything is requested."""

    what: str
    steps: list[str]
    shown: list[str]
    irreversible: str
    batched: NotRequired[bool]  # it waits for a batch with others, unless `now` is wished


class Verification(TypedDict):
    """What a certificate proves, or why it does not."""

    valid: bool
    text: str
    erasures: list[dict[str, str]]
    proves: list[str]
    does_not_prove: list[str]


class Control(Wish):
    """One press of a button of a simulation. `value`: the speed, the fault, the chapter, or the
    seed of a restart (absent: the same one). `agent`: whom a fault of `of_agent` strikes, and who
    is forgotten. A step goes to the next hop."""

    do: Literal["play", "pause", "step", "speed", "fault", "restart", "chapter", "forget"]
    value: NotRequired[Short]
    agent: NotRequired[Short]
