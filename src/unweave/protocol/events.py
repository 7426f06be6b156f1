"""Events, which happen to an agent, and effects, which the driver carries out: frozen values.

The answer to a `Work` is a `Done` with the same `key`. A visit that needs an answer stops, and
starts again from its first line when the answer arrives, so it sees everything that happened in
between. An answer whose key is no longer pending is dropped.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from unweave.grid import Ints
from unweave.protocol.messages import Message

__all__ = [
    "UNKNOWN",
    "Advance",
    "Again",
    "Appraise",
    "BatchDue",
    "CertificateKept",
    "Certified",
    "Continue",
    "DataChanged",
    "Detach",
    "Done",
    "Effect",
    "Enrol",
    "EraseRequested",
    "Event",
    "Freeze",
    "InfluenceMeasured",
    "Judge",
    "KeepCertificate",
    "Key",
    "LieProved",
    "Mask",
    "MaskedValue",
    "NewKey",
    "NextPoint",
    "Opened",
    "Received",
    "Refused",
    "Send",
    "Solve",
    "SolveResult",
    "StaysOut",
    "Tick",
    "Unknown",
    "VoteCast",
    "WakeRequested",
    "Work",
]


Key = tuple[Any, ...]

# Events


class Received(NamedTuple):
    """A neighbour's message; the driver has verified its sender and every signature in it."""

    sender: int
    message: Message
    now: float


class Done(NamedTuple):
    """The answer to a `Work` effect."""

    key: Key
    result: Any
    now: float


class Continue(NamedTuple):
    """The next iteration at the same agent (a self-loop, or a new epoch opened here)."""

    now: float


class Tick(NamedTuple):
    """`deadline(state)` has come. Early or repeated ticks are harmless."""

    now: float


class EraseRequested(NamedTuple):
    """The owner asks to erase the whole agent, or the rows behind these commitments."""

    request: bytes  # 16 random bytes
    whole: bool
    rows: frozenset[bytes]
    now: float
    remembered: int = 0  # rows that were not in the data when the owner asked
    date: float = 0.0  # by the wall clock: batches wait for days, over restarts
    at_once: bool = False  # do not wait for a batch


class VoteCast(NamedTuple):
    """The operator of this agent votes that `target` has departed. If `target` is a neighbour, the
    driver has just tried to reach it: shortly after a start, silence proves nothing."""

    target: int
    request: bytes
    now: float
    lying: bool = False  # the target has lied: it may be heard, and the voter be no neighbour


class DataChanged(NamedTuple):
    """The agent's data have changed."""

    now: float
    date: float = 0.0  # by the wall clock
    records: int = 1  # that have changed since the data in the last given value, at least


class BatchDue(NamedTuple):
    """The wall clock has come to `own.waiting.due`. Early or repeated events are harmless."""

    date: float
    now: float


class WakeRequested(NamedTuple):
    """The operator wants a new attestation round: a parked token walks once more."""

    now: float


class CertificateKept(NamedTuple):
    """A certificate that proves these requests is on the disk for good."""

    requests: frozenset[bytes]
    now: float


class InfluenceMeasured(NamedTuple):
    """This agent's influence on the parked token; None: without it no proper posterior remains."""

    influence: float | None
    now: float


Event = (
    Received
    | Done
    | Continue
    | Tick
    | EraseRequested
    | VoteCast
    | DataChanged
    | BatchDue
    | WakeRequested
    | CertificateKept
    | InfluenceMeasured
)

# Effects


class Send(NamedTuple):
    """Send to a neighbour, after the commit. A lost message is repeated by the protocol."""

    to: int
    message: Message


class Again(NamedTuple):
    """Feed `Continue` back to the agent."""


class Refused(NamedTuple):
    """A request or a message was refused; `why` is for the operator."""

    why: str


class LieProved(NamedTuple):
    """An agent has signed a wrong step, and the proof is known: the driver may vote (rule 19)."""

    agent: int
    why: str


class StaysOut(NamedTuple):
    """The agent's factor does not fit the token's grid; `why` is for the operator."""

    why: str


class Detach(NamedTuple):
    """Erase the link to the data (`whole`), or everything cached of the dropped rows."""

    whole: bool


class Certified(NamedTuple):
    """An attestation round closed with this certificate of every open erasure."""

    certificate: bytes


class KeepCertificate(NamedTuple):
    """This certificate proves a request of this agent: keep it for good, then feed
    `CertificateKept` back. Repeated, with this certificate or a later one, until that happens."""

    certificate: bytes


class Opened(NamedTuple):
    """A new epoch was opened. For logs and counters."""

    why: str


class SolveResult(NamedTuple):
    """A solver's answer: a factor, or None. None with `keep`: the current factor is good enough.
    None without `keep`: there is no distribution to start from, with or without the own factor."""

    units: Ints | None
    keep: bool = False
    failed: bool = False  # the solver failed for a temporary reason
    no_point: bool = False  # the bytes of the private round are no point of the model


class Unknown(NamedTuple):
    """The answer to `Freeze` if the vector does not exist: the certificate holds no estimate."""


UNKNOWN = Unknown()


class Solve(NamedTuple):
    """Find the wanted factor for this cavity (None: the model is conjugate)."""

    key: Key
    epoch: int
    hop: int
    cavity: Ints | None
    current: Ints | None
    dropped: frozenset[bytes]
    share: float = 1.0  # of the agents, this one counted, whose factors the next sum has
    passes: int = 0  # complete passes since the last change from outside, for steps that decay
    point: bytes | None = None  # of a private round: where the factor is computed


class Judge(NamedTuple):
    """May the token go from `before` to `after`? False: `after` is outside the domain, or so far
    away that all agents should start from zero. A private round shows neither sum: the question is
    then whether learning may go on from the last point."""

    key: Key
    before: Ints | None
    after: Ints | None


class Freeze(NamedTuple):
    """Compute the agent's term of the certificate's estimate at `eta`; the terms are added."""

    key: Key
    eta: Ints
    factor: Ints
    dropped: frozenset[bytes]


class Appraise(NamedTuple):
    """Compute the certificate's estimate at `eta` from the sum of the frozen vectors, or from the
    point of a private round."""

    key: Key
    eta: Ints
    frozen: Ints | None
    point: bytes = b""


class Advance(NamedTuple):
    """The point of the next private round, from the point and the sum of this one; without a sum,
    the point from which learning starts again after a change. Answer: `NextPoint`."""

    key: Key
    point: bytes
    eta: Ints | None


class NextPoint(NamedTuple):
    """None: the sum is final, unless `failed`: this agent could not find out."""

    point: bytes | None
    failed: bool = False


class Enrol(NamedTuple):
    """Make a one-time key. Answer: `NewKey`. `seen` is the number of values that this agent has
    given by signed evidence, `ahead` the number that it will give before it uses this key.
    `vouched`: all neighbours remember a number of its values."""

    key: Key
    seen: int = 0
    ahead: int = 0
    vouched: bool = False


class NewKey(NamedTuple):
    """The public half; empty: there is none. `given`: how many values the agent will have given
    before it uses the key, with noise. `spent`: its budget pays for no other value."""

    public: bytes
    given: int = 0
    spent: bool = False


class Mask(NamedTuple):
    """Mask these units for this round. Answer: `MaskedValue`."""

    key: Key
    round: bytes
    keys: Mapping[int, bytes]
    units: Ints


class MaskedValue(NamedTuple):
    """The units under the mask of the sum and under the mask of the audit; None: the one-time key
    is gone."""

    units: Ints | None
    audit: Ints | None


Work = Solve | Judge | Freeze | Appraise | Advance | Enrol | Mask
Effect = (
    Send
    | Again
    | Refused
    | LieProved
    | StaysOut
    | Detach
    | Certified
    | KeepCertificate
    | Opened
    | Solve
    | Judge
    | Freeze
    | Appraise
    | Advance
    | Enrol
    | Mask
)
