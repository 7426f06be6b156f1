"""What can happen to an agent, and what it wants done. Both are plain, frozen values.

Work is asked for and answered by name: the answer to a `Work` is a `Done` with the same `key`. A
visit that needs an answer stops and starts again from its first line when the answer is there, so
nothing that happened in between can be overlooked: an answer whose key is no longer asked for is
dropped.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from unweave.grid import Ints
from unweave.protocol.messages import Message

__all__ = [
    "UNKNOWN",
    "Again",
    "Appraise",
    "CertificateKept",
    "Certified",
    "Continue",
    "DataChanged",
    "Detach",
    "Done",
    "Effect",
    "EraseRequested",
    "Event",
    "Freeze",
    "InfluenceMeasured",
    "Judge",
    "KeepCertificate",
    "Key",
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

# ---------------------------------------------------------------------------------------- events


class Received(NamedTuple):
    """A neighbour's message; the driver has checked who it is from and every signature in it."""

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
    """The time `deadline(state)` has come. Early or repeated ticks are harmless."""

    now: float


class EraseRequested(NamedTuple):
    """The owner asks: erase me (`whole`), or the rows behind these commitments."""

    request: bytes  # 16 random bytes
    whole: bool
    rows: frozenset[bytes]
    now: float
    remembered: int = 0  # of the rows: those that the data did not have when the owner asked


class VoteCast(NamedTuple):
    """The operator of this agent says that `target` is gone for good. The driver has called it just
    before, if it is a neighbour: after a start, that nobody was heard means nothing."""

    target: int
    request: bytes
    now: float


class DataChanged(NamedTuple):
    """The rows behind this agent are not what they were."""

    now: float


class WakeRequested(NamedTuple):
    """The operator wants a new cover: a token at rest walks once more and is attested again."""

    now: float


class CertificateKept(NamedTuple):
    """A certificate is on the disk for good; these are the requests that it proves."""

    requests: frozenset[bytes]
    now: float


class InfluenceMeasured(NamedTuple):
    """This agent's influence on the token that rests; None: nothing proper is left without it."""

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
    | WakeRequested
    | CertificateKept
    | InfluenceMeasured
)

# --------------------------------------------------------------------------------------- effects


class Send(NamedTuple):
    """To a neighbour, after the commit. May be lost; the protocol repeats what matters."""

    to: int
    message: Message


class Again(NamedTuple):
    """Feed `Continue` back."""


class Refused(NamedTuple):
    """Something was asked that cannot be done; `why` is for a person."""

    why: str


class StaysOut(NamedTuple):
    """This agent's factor cannot be in the token as the others' are now; `why` is for a person."""

    why: str


class Detach(NamedTuple):
    """Erase the link to the data (whole agent), or what is cached of the rows that were dropped."""

    whole: bool


class Certified(NamedTuple):
    """A cover was completed: the evidence for every erasure up to here."""

    certificate: bytes


class KeepCertificate(NamedTuple):
    """This certificate proves what was asked here: keep it for good, then feed `Kept` back. Asked
    again, with this certificate or a later one, until that has happened."""

    certificate: bytes


class Opened(NamedTuple):
    """A new epoch, and why. For logs and counters."""

    why: str


class SolveResult(NamedTuple):
    """A solver's answer: a factor; None with keep (the current one is good enough), or None
    without: there is no q to start from, with the own factor or without it (stay out, or, if that
    does not change by itself, say nothing)."""

    units: Ints | None
    keep: bool = False
    failed: bool = False  # the solver could not do its work, for a reason that may pass


class Unknown(NamedTuple):
    """The answer to `Freeze` where the vector does not exist: the certificate then estimates
    nothing."""


UNKNOWN = Unknown()


class Solve(NamedTuple):
    """Find the wanted factor for this cavity (None: the model is conjugate)."""

    key: Key
    epoch: int
    hop: int
    cavity: Ints | None
    current: Ints | None
    dropped: frozenset[bytes]


class Judge(NamedTuple):
    """May the token go from `before` to `after`? Answer: True, or False: outside the domain, or so
    far away that everybody should start from zero."""

    key: Key
    before: Ints
    after: Ints


class Freeze(NamedTuple):
    """The additive vector that this agent contributes to the certificate's estimate at `eta`."""

    key: Key
    eta: Ints
    factor: Ints
    dropped: frozenset[bytes]


class Appraise(NamedTuple):
    """What the certificate may say about eta, given the sum of the frozen vectors."""

    key: Key
    eta: Ints
    frozen: Ints


Work = Solve | Judge | Freeze | Appraise
Effect = (
    Send
    | Again
    | Refused
    | StaysOut
    | Detach
    | Certified
    | KeepCertificate
    | Opened
    | Solve
    | Judge
    | Freeze
    | Appraise
)
