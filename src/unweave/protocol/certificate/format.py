"""The format of a certificate: the file, the statements and records inside it, the constants.

Every field is a JSON key. The models are strict: exactly these keys, exactly these types, one form
for every byte string. `write` fills them, `read` parses into them, and `json_schema` publishes them
as docs/reference/certificate.schema.json. Errors are found in the order of the fields, so the
fields that name the kind of a document come first.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic.json_schema import GenerateJsonSchema, models_json_schema
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from unweave.protocol.statements import COMMITMENT_BYTES, Receipt, Tombstone, Vote
from unweave.protocol.token import ID_BYTES

__all__ = [
    "ATTESTATION",
    "CLOSING",
    "FORMAT",
    "FORMS",
    "MOST_BYTES",
    "PAYLOAD_TYPE",
    "STATEMENT",
    "Attestation",
    "AttestationEnvelope",
    "AttestationStatement",
    "AttestedErasures",
    "By",
    "Certificate",
    "Claim",
    "Closing",
    "ClosingEnvelope",
    "ClosingStatement",
    "CompactedRequests",
    "Envelope",
    "Kind",
    "ReceiptBody",
    "RecordBody",
    "Scope",
    "Signature",
    "Statement",
    "Strict",
    "Subject",
    "SubjectDigest",
    "TombstoneBody",
    "TombstoneEnvelope",
    "VoteBody",
    "VoteEnvelope",
    "json_schema",
]

FORMAT = "unweave certificate 3"
MOST_BYTES = 32 << 20  # of a file: the evidence of a network is bounded, too (requests.UNPROVED)
PAYLOAD_TYPE = "application/vnd.in-toto+json"
STATEMENT = "https://in-toto.io/Statement/v1"
ATTESTATION = "urn:unweave:attestation:v3"
CLOSING = "urn:unweave:erasure:v3"

# ------------------------------------------------------------------------------------- values

_SHA256 = r"^[0-9a-f]{64}$"
_REQUEST = rf"^[0-9a-f]{{{2 * ID_BYTES}}}$"
_COMMITMENT = rf"^[0-9a-f]{{{2 * COMMITMENT_BYTES}}}$"
_HEX = r"^(?:[0-9a-f]{2})*$"
_REVISION = r"^[1-9][0-9]{0,19}\.(?:0|[1-9][0-9]{0,19})$"
# The last character of an incomplete group has bits that encode nothing: they must be zero.
_BASE64 = (
    r"^(?:[A-Za-z0-9+/]{4})*"
    r"(?:[A-Za-z0-9+/][AQgw]==|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)?$"
)

FORMS = {
    _SHA256: "64 lower-case hex digits",
    _REQUEST: f"{2 * ID_BYTES} lower-case hex digits",
    _COMMITMENT: f"{2 * COMMITMENT_BYTES} lower-case hex digits",
    _HEX: "lower-case hex digits, two per byte",
    _REVISION: "a revision (counter.incarnation)",
    _BASE64: "canonical base64",
}
"""What each pattern asks for, in words: for error messages and the schema's descriptions."""

Number = Annotated[int, Field(ge=0, lt=2**64)]
Name = Annotated[str, Field(max_length=64)]
Sha256 = Annotated[str, Field(pattern=_SHA256, description=FORMS[_SHA256])]
Request = Annotated[str, Field(pattern=_REQUEST, description=FORMS[_REQUEST])]
Commitment = Annotated[str, Field(pattern=_COMMITMENT, description=FORMS[_COMMITMENT])]
Hex = Annotated[str, Field(pattern=_HEX, description=FORMS[_HEX])]
Revision = Annotated[str, Field(pattern=_REVISION, description=FORMS[_REVISION])]
Base64 = Annotated[str, Field(pattern=_BASE64, description=FORMS[_BASE64])]

Scope = Literal["agent", "records"]
Kind = Literal["exact", "exact_before_noise", "refined", "retrained"]
By = Literal["owner", "quorum"]


def _ascending(items: list[str]) -> list[str]:
    if any(one >= other for one, other in pairwise(items)):
        raise PydanticCustomError("order", "expected ascending order without repetitions")
    return items


_Ascending = AfterValidator(_ascending)
_UNIQUE = Field(json_schema_extra={"uniqueItems": True})
Requests = Annotated[list[Request], _Ascending, _UNIQUE]
Epoch = Annotated[list[Number], Field(min_length=3, max_length=3)]
StampParts = Annotated[list[Number], Field(min_length=5, max_length=5)]
RevisionParts = Annotated[list[Number], Field(min_length=2, max_length=2)]


class _Exactly:
    """One permitted text: a Literal whose value is a constant of the program."""

    def __init__(self, value: str) -> None:
        self._value = value

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> CoreSchema:
        return core_schema.literal_schema([self._value])


def _content(media_type: str, body: str, **more: str) -> Any:
    """The schema's note on the JSON document inside a text."""
    schema: Any = {"contentMediaType": media_type, "contentSchema": {"$ref": f"#/$defs/{body}"}}
    return Field(json_schema_extra={**schema, **more})


class Strict(BaseModel):
    """Exactly the declared keys, exactly the declared types."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


# ---------------------------------------------------------------------------------- statements


class SubjectDigest(Strict):
    """The keyed digest of the sum: HMAC-SHA256 of its little-endian 64-bit integers, under the
    secret of the attestation round, which is not in the file."""

    hmac_sha256: Sha256


class Subject(Strict):
    """What a statement is about: the sum eta."""

    digest: SubjectDigest
    name: Annotated[str, _Exactly("eta")]


class CompactedRequests(Strict):
    """Requests that earlier certificates proved: their number, and SHA-256 of their sorted ids."""

    count: Number
    sha256: Sha256


class AttestedErasures(Strict):
    """What everybody attests about the erasures of one agent; `requests` are those to be proved."""

    compacted: CompactedRequests
    departed: bool
    requests: Requests
    whole: bool


class NoiseStatement(Strict):
    """The noise that every agent says it has added to its value, and what it promises. Sensitivity
    is of the statistics of a record; variances are those of an agent's share, in squared steps of
    the grid; `rho` is the cost of one given value (zCDP). That the noise was drawn like this cannot
    be verified."""

    colluders: Number
    delta: float
    epsilon: float
    honest_shares: Number
    mechanism: str
    neighbours: str
    releases: Number
    rho: float
    sensitivity: float
    share_variances: list[Annotated[int, Field(ge=0)]]


class Attestation(Strict):
    """Predicate of the statement that every agent signs; `included` and `tombstones` by agent."""

    epoch: Epoch
    retrain_epoch: Requests
    included: dict[Name, Revision]
    manifest: Sha256
    noise: NoiseStatement | None  # in the sum, if the manifest asks for differential privacy
    receipts: Sha256
    round: Sha256 | None  # the private round whose sum this is
    tombstones: dict[Name, AttestedErasures]


class Claim(Strict):
    """What the closing agent claims about one erasure."""

    agent: Name
    by: By
    kind: Kind
    scope: Scope


class Closing(Strict):
    """Predicate of the statement that the closing agent signs; `erasures` by request."""

    attestation: Sha256
    audit: Annotated[str, _Exactly("equal")]
    closed_by: Name
    converged: bool
    erasures: Annotated[
        dict[Request, Claim], Field(json_schema_extra={"additionalProperties": False})
    ]
    estimate: dict[str, Any] | None
    evidence: list[Sha256]
    manifest: Sha256
    not_attested: list[Name]
    stamp: StampParts


class Statement(Strict):
    """An in-toto statement about the sum of one network."""

    type_: Annotated[str, _Exactly(STATEMENT)] = Field(alias="_type")
    predicateType: str
    subject: Annotated[list[Subject], Field(min_length=1, max_length=1)]
    predicate: Attestation | Closing

    @property
    def commitment(self) -> str:
        return self.subject[0].digest.hmac_sha256

    @property
    def network_id(self) -> str:
        return self.predicate.manifest


class AttestationStatement(Statement):
    """What every agent that has not departed signs: a function of the token alone."""

    predicateType: Annotated[str, _Exactly(ATTESTATION)]
    predicate: Attestation


class ClosingStatement(Statement):
    """What the agent that completes the attestation round signs."""

    predicateType: Annotated[str, _Exactly(CLOSING)]
    predicate: Closing


# ------------------------------------------------------------------------------------- records


class ReceiptBody(Strict):
    """The visit that removed what was asked; `before` and `after` are revisions (0, 0: none). A
    visit writes one receipt for each request that it carries out."""

    after: RevisionParts
    agent: Number
    before: RevisionParts
    previous: Sha256
    request: Request
    network_id: Sha256
    stamp: StampParts


class RecordBody(Strict):
    """What a signed record is about: one agent, by its number and name in the manifest `run`."""

    agent: Number
    name: Name
    request: Request
    network_id: Sha256


class TombstoneBody(RecordBody):
    """The owner's word that an erasure was carried out; `rows` are commitments to records, and
    empty if the agent erased itself as a whole."""

    receipt: Annotated[str, _content(Receipt.kind, "ReceiptBody")]
    receipt_signature: Hex
    remembered: Number
    retrain: bool
    rows: Annotated[list[Commitment], _Ascending, _UNIQUE]
    whole: bool


class VoteBody(RecordBody):
    """One agent's vote that another agent has departed."""


# ---------------------------------------------------------------------------- envelopes, the file


class Signature(Strict):
    """One signature over DSSE's pre-authentication encoding, by the key of this id."""

    keyid: Name
    sig: Base64


_One = Annotated[list[Signature], Field(min_length=1, max_length=1)]


class Envelope(Strict):
    """A DSSE envelope."""

    payloadType: Name
    payload: Base64
    signatures: list[Signature]


class AttestationEnvelope(Envelope):
    """One signature per agent that has not departed, in the manifest's order."""

    payloadType: Annotated[str, _Exactly(PAYLOAD_TYPE)]
    payload: Annotated[
        Base64, _content(PAYLOAD_TYPE, "AttestationStatement", contentEncoding="base64")
    ]


class ClosingEnvelope(Envelope):
    """Signed by the closing agent."""

    payloadType: Annotated[str, _Exactly(PAYLOAD_TYPE)]
    payload: Annotated[Base64, _content(PAYLOAD_TYPE, "ClosingStatement", contentEncoding="base64")]
    signatures: _One


class TombstoneEnvelope(Envelope):
    """Signed by the owner."""

    payloadType: Annotated[str, _Exactly(Tombstone.kind)]
    payload: Annotated[Base64, _content(Tombstone.kind, "TombstoneBody", contentEncoding="base64")]
    signatures: _One


class VoteEnvelope(Envelope):
    """Signed by the voter."""

    payloadType: Annotated[str, _Exactly(Vote.kind)]
    payload: Annotated[Base64, _content(Vote.kind, "VoteBody", contentEncoding="base64")]
    signatures: _One


class Certificate(Strict):
    """The file: tombstones ordered by agent and request, votes by target and voter."""

    format: Annotated[str, _Exactly(FORMAT)]
    attestation: AttestationEnvelope
    closing: ClosingEnvelope
    tombstones: list[TombstoneEnvelope]
    votes: list[VoteEnvelope]


# -------------------------------------------------------------------------------------- schema


class _WithoutTitles(GenerateJsonSchema):
    def field_title_should_be_set(self, schema: Any) -> bool:
        return False  # a title would only repeat the key


def json_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of the file and of every document inside its payloads."""
    bodies = (AttestationStatement, ClosingStatement, TombstoneBody, ReceiptBody, VoteBody)
    _, schema = models_json_schema(
        [(model, "validation") for model in (Certificate, *bodies)],
        schema_generator=_WithoutTitles,
    )
    return {
        "$schema": GenerateJsonSchema.schema_dialect,
        "$id": "urn:unweave:certificate:v3",
        "title": FORMAT,
        "$ref": "#/$defs/Certificate",
        **schema,
    }
