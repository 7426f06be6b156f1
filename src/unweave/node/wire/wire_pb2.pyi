from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Stamp(_message.Message):
    __slots__ = ("epoch", "initiator", "incarnation", "hop", "sender")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    INITIATOR_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    HOP_FIELD_NUMBER: _ClassVar[int]
    SENDER_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    initiator: int
    incarnation: int
    hop: int
    sender: int
    def __init__(self, epoch: _Optional[int] = ..., initiator: _Optional[int] = ..., incarnation: _Optional[int] = ..., hop: _Optional[int] = ..., sender: _Optional[int] = ...) -> None: ...

class Tomb(_message.Message):
    __slots__ = ("agent", "ids", "whole", "departed", "compacted")
    AGENT_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    WHOLE_FIELD_NUMBER: _ClassVar[int]
    DEPARTED_FIELD_NUMBER: _ClassVar[int]
    COMPACTED_FIELD_NUMBER: _ClassVar[int]
    agent: int
    ids: bytes
    whole: bool
    departed: bool
    compacted: bytes
    def __init__(self, agent: _Optional[int] = ..., ids: _Optional[bytes] = ..., whole: _Optional[bool] = ..., departed: _Optional[bool] = ..., compacted: _Optional[bytes] = ...) -> None: ...

class Tombs(_message.Message):
    __slots__ = ("tombs",)
    TOMBS_FIELD_NUMBER: _ClassVar[int]
    tombs: _containers.RepeatedCompositeFieldContainer[Tomb]
    def __init__(self, tombs: _Optional[_Iterable[_Union[Tomb, _Mapping]]] = ...) -> None: ...

class Signature(_message.Message):
    __slots__ = ("agent", "signature")
    AGENT_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    agent: int
    signature: bytes
    def __init__(self, agent: _Optional[int] = ..., signature: _Optional[bytes] = ...) -> None: ...

class AttestationRound(_message.Message):
    __slots__ = ("agents", "statement", "signatures", "converged", "unknown", "secret")
    AGENTS_FIELD_NUMBER: _ClassVar[int]
    STATEMENT_FIELD_NUMBER: _ClassVar[int]
    SIGNATURES_FIELD_NUMBER: _ClassVar[int]
    CONVERGED_FIELD_NUMBER: _ClassVar[int]
    UNKNOWN_FIELD_NUMBER: _ClassVar[int]
    SECRET_FIELD_NUMBER: _ClassVar[int]
    agents: bytes
    statement: bytes
    signatures: _containers.RepeatedCompositeFieldContainer[Signature]
    converged: bool
    unknown: bool
    secret: bytes
    def __init__(self, agents: _Optional[bytes] = ..., statement: _Optional[bytes] = ..., signatures: _Optional[_Iterable[_Union[Signature, _Mapping]]] = ..., converged: _Optional[bool] = ..., unknown: _Optional[bool] = ..., secret: _Optional[bytes] = ...) -> None: ...

class MaskedRound(_message.Message):
    __slots__ = ("keys", "spare", "step", "rested", "base")
    KEYS_FIELD_NUMBER: _ClassVar[int]
    SPARE_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    RESTED_FIELD_NUMBER: _ClassVar[int]
    BASE_FIELD_NUMBER: _ClassVar[int]
    keys: _containers.RepeatedCompositeFieldContainer[Statement]
    spare: _containers.RepeatedCompositeFieldContainer[Statement]
    step: int
    rested: bool
    base: bytes
    def __init__(self, keys: _Optional[_Iterable[_Union[Statement, _Mapping]]] = ..., spare: _Optional[_Iterable[_Union[Statement, _Mapping]]] = ..., step: _Optional[int] = ..., rested: _Optional[bool] = ..., base: _Optional[bytes] = ...) -> None: ...

class Token(_message.Message):
    __slots__ = ("head", "included", "receipts", "seen", "stack", "tombs", "retrain_epoch", "round", "masked")
    HEAD_FIELD_NUMBER: _ClassVar[int]
    INCLUDED_FIELD_NUMBER: _ClassVar[int]
    RECEIPTS_FIELD_NUMBER: _ClassVar[int]
    SEEN_FIELD_NUMBER: _ClassVar[int]
    STACK_FIELD_NUMBER: _ClassVar[int]
    TOMBS_FIELD_NUMBER: _ClassVar[int]
    RETRAIN_EPOCH_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    MASKED_FIELD_NUMBER: _ClassVar[int]
    head: bytes
    included: bytes
    receipts: bytes
    seen: bytes
    stack: _containers.RepeatedScalarFieldContainer[int]
    tombs: _containers.RepeatedCompositeFieldContainer[Tomb]
    retrain_epoch: bytes
    round: AttestationRound
    masked: MaskedRound
    def __init__(self, head: _Optional[bytes] = ..., included: _Optional[bytes] = ..., receipts: _Optional[bytes] = ..., seen: _Optional[bytes] = ..., stack: _Optional[_Iterable[int]] = ..., tombs: _Optional[_Iterable[_Union[Tomb, _Mapping]]] = ..., retrain_epoch: _Optional[bytes] = ..., round: _Optional[_Union[AttestationRound, _Mapping]] = ..., masked: _Optional[_Union[MaskedRound, _Mapping]] = ...) -> None: ...

class Statement(_message.Message):
    __slots__ = ("raw", "author", "signature")
    RAW_FIELD_NUMBER: _ClassVar[int]
    AUTHOR_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    raw: bytes
    author: int
    signature: bytes
    def __init__(self, raw: _Optional[bytes] = ..., author: _Optional[int] = ..., signature: _Optional[bytes] = ...) -> None: ...

class ParkNotice(_message.Message):
    __slots__ = ("stamp", "holder", "included", "attested", "tombs", "certificate", "masked", "enrolled")
    STAMP_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    INCLUDED_FIELD_NUMBER: _ClassVar[int]
    ATTESTED_FIELD_NUMBER: _ClassVar[int]
    TOMBS_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    MASKED_FIELD_NUMBER: _ClassVar[int]
    ENROLLED_FIELD_NUMBER: _ClassVar[int]
    stamp: Stamp
    holder: int
    included: bytes
    attested: bytes
    tombs: _containers.RepeatedCompositeFieldContainer[Tomb]
    certificate: bytes
    masked: bytes
    enrolled: _containers.RepeatedCompositeFieldContainer[Enrolled]
    def __init__(self, stamp: _Optional[_Union[Stamp, _Mapping]] = ..., holder: _Optional[int] = ..., included: _Optional[bytes] = ..., attested: _Optional[bytes] = ..., tombs: _Optional[_Iterable[_Union[Tomb, _Mapping]]] = ..., certificate: _Optional[bytes] = ..., masked: _Optional[bytes] = ..., enrolled: _Optional[_Iterable[_Union[Enrolled, _Mapping]]] = ...) -> None: ...

class Enrolled(_message.Message):
    __slots__ = ("agent", "incarnation")
    AGENT_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    agent: int
    incarnation: int
    def __init__(self, agent: _Optional[int] = ..., incarnation: _Optional[int] = ...) -> None: ...

class Compacted(_message.Message):
    __slots__ = ("compacted",)
    COMPACTED_FIELD_NUMBER: _ClassVar[int]
    compacted: _containers.RepeatedCompositeFieldContainer[Statement]
    def __init__(self, compacted: _Optional[_Iterable[_Union[Statement, _Mapping]]] = ...) -> None: ...

class Erasures(_message.Message):
    __slots__ = ("tombs", "retrain_epoch", "tombstones", "votes")
    TOMBS_FIELD_NUMBER: _ClassVar[int]
    RETRAIN_EPOCH_FIELD_NUMBER: _ClassVar[int]
    TOMBSTONES_FIELD_NUMBER: _ClassVar[int]
    VOTES_FIELD_NUMBER: _ClassVar[int]
    tombs: _containers.RepeatedCompositeFieldContainer[Tomb]
    retrain_epoch: bytes
    tombstones: _containers.RepeatedCompositeFieldContainer[Statement]
    votes: _containers.RepeatedCompositeFieldContainer[Statement]
    def __init__(self, tombs: _Optional[_Iterable[_Union[Tomb, _Mapping]]] = ..., retrain_epoch: _Optional[bytes] = ..., tombstones: _Optional[_Iterable[_Union[Statement, _Mapping]]] = ..., votes: _Optional[_Iterable[_Union[Statement, _Mapping]]] = ...) -> None: ...

class News(_message.Message):
    __slots__ = ("intents", "mismatches", "influences", "wake", "proofs")
    INTENTS_FIELD_NUMBER: _ClassVar[int]
    MISMATCHES_FIELD_NUMBER: _ClassVar[int]
    INFLUENCES_FIELD_NUMBER: _ClassVar[int]
    WAKE_FIELD_NUMBER: _ClassVar[int]
    PROOFS_FIELD_NUMBER: _ClassVar[int]
    intents: _containers.RepeatedCompositeFieldContainer[Statement]
    mismatches: _containers.RepeatedCompositeFieldContainer[Statement]
    influences: _containers.RepeatedCompositeFieldContainer[Statement]
    wake: Stamp
    proofs: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, intents: _Optional[_Iterable[_Union[Statement, _Mapping]]] = ..., mismatches: _Optional[_Iterable[_Union[Statement, _Mapping]]] = ..., influences: _Optional[_Iterable[_Union[Statement, _Mapping]]] = ..., wake: _Optional[_Union[Stamp, _Mapping]] = ..., proofs: _Optional[_Iterable[bytes]] = ...) -> None: ...

class Openings(_message.Message):
    __slots__ = ("openings",)
    OPENINGS_FIELD_NUMBER: _ClassVar[int]
    openings: _containers.RepeatedCompositeFieldContainer[Statement]
    def __init__(self, openings: _Optional[_Iterable[_Union[Statement, _Mapping]]] = ...) -> None: ...

class Digests(_message.Message):
    __slots__ = ("compacted", "erasures", "parked", "news", "openings")
    COMPACTED_FIELD_NUMBER: _ClassVar[int]
    ERASURES_FIELD_NUMBER: _ClassVar[int]
    PARKED_FIELD_NUMBER: _ClassVar[int]
    NEWS_FIELD_NUMBER: _ClassVar[int]
    OPENINGS_FIELD_NUMBER: _ClassVar[int]
    compacted: bytes
    erasures: bytes
    parked: bytes
    news: bytes
    openings: bytes
    def __init__(self, compacted: _Optional[bytes] = ..., erasures: _Optional[bytes] = ..., parked: _Optional[bytes] = ..., news: _Optional[bytes] = ..., openings: _Optional[bytes] = ...) -> None: ...

class Gossip(_message.Message):
    __slots__ = ("digests", "compacted", "erasures", "parked", "news", "openings")
    DIGESTS_FIELD_NUMBER: _ClassVar[int]
    COMPACTED_FIELD_NUMBER: _ClassVar[int]
    ERASURES_FIELD_NUMBER: _ClassVar[int]
    PARKED_FIELD_NUMBER: _ClassVar[int]
    NEWS_FIELD_NUMBER: _ClassVar[int]
    OPENINGS_FIELD_NUMBER: _ClassVar[int]
    digests: Digests
    compacted: Compacted
    erasures: Erasures
    parked: ParkNotice
    news: News
    openings: Openings
    def __init__(self, digests: _Optional[_Union[Digests, _Mapping]] = ..., compacted: _Optional[_Union[Compacted, _Mapping]] = ..., erasures: _Optional[_Union[Erasures, _Mapping]] = ..., parked: _Optional[_Union[ParkNotice, _Mapping]] = ..., news: _Optional[_Union[News, _Mapping]] = ..., openings: _Optional[_Union[Openings, _Mapping]] = ...) -> None: ...

class Step(_message.Message):
    __slots__ = ("before", "revision", "removed_salt", "factor_salt")
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    REMOVED_SALT_FIELD_NUMBER: _ClassVar[int]
    FACTOR_SALT_FIELD_NUMBER: _ClassVar[int]
    before: Statement
    revision: bytes
    removed_salt: bytes
    factor_salt: bytes
    def __init__(self, before: _Optional[_Union[Statement, _Mapping]] = ..., revision: _Optional[bytes] = ..., removed_salt: _Optional[bytes] = ..., factor_salt: _Optional[bytes] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("fence", "gossip", "incarnation", "question")
    FENCE_FIELD_NUMBER: _ClassVar[int]
    GOSSIP_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    QUESTION_FIELD_NUMBER: _ClassVar[int]
    fence: Stamp
    gossip: Gossip
    incarnation: int
    question: int
    def __init__(self, fence: _Optional[_Union[Stamp, _Mapping]] = ..., gossip: _Optional[_Union[Gossip, _Mapping]] = ..., incarnation: _Optional[int] = ..., question: _Optional[int] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("fence", "gossip", "incarnation", "asker", "question", "enrolment")
    FENCE_FIELD_NUMBER: _ClassVar[int]
    GOSSIP_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    ASKER_FIELD_NUMBER: _ClassVar[int]
    QUESTION_FIELD_NUMBER: _ClassVar[int]
    ENROLMENT_FIELD_NUMBER: _ClassVar[int]
    fence: Stamp
    gossip: Gossip
    incarnation: int
    asker: int
    question: int
    enrolment: Statement
    def __init__(self, fence: _Optional[_Union[Stamp, _Mapping]] = ..., gossip: _Optional[_Union[Gossip, _Mapping]] = ..., incarnation: _Optional[int] = ..., asker: _Optional[int] = ..., question: _Optional[int] = ..., enrolment: _Optional[_Union[Statement, _Mapping]] = ...) -> None: ...

class Pass(_message.Message):
    __slots__ = ("token", "gossip", "header", "step")
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    GOSSIP_FIELD_NUMBER: _ClassVar[int]
    HEADER_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    token: Token
    gossip: Gossip
    header: Statement
    step: Step
    def __init__(self, token: _Optional[_Union[Token, _Mapping]] = ..., gossip: _Optional[_Union[Gossip, _Mapping]] = ..., header: _Optional[_Union[Statement, _Mapping]] = ..., step: _Optional[_Union[Step, _Mapping]] = ...) -> None: ...

class Ack(_message.Message):
    __slots__ = ("fence", "stamp")
    FENCE_FIELD_NUMBER: _ClassVar[int]
    STAMP_FIELD_NUMBER: _ClassVar[int]
    fence: Stamp
    stamp: Stamp
    def __init__(self, fence: _Optional[_Union[Stamp, _Mapping]] = ..., stamp: _Optional[_Union[Stamp, _Mapping]] = ...) -> None: ...

class Alive(_message.Message):
    __slots__ = ("stamp", "clock")
    STAMP_FIELD_NUMBER: _ClassVar[int]
    CLOCK_FIELD_NUMBER: _ClassVar[int]
    stamp: Stamp
    clock: float
    def __init__(self, stamp: _Optional[_Union[Stamp, _Mapping]] = ..., clock: _Optional[float] = ...) -> None: ...

class Share(_message.Message):
    __slots__ = ("fence", "gossip")
    FENCE_FIELD_NUMBER: _ClassVar[int]
    GOSSIP_FIELD_NUMBER: _ClassVar[int]
    fence: Stamp
    gossip: Gossip
    def __init__(self, fence: _Optional[_Union[Stamp, _Mapping]] = ..., gossip: _Optional[_Union[Gossip, _Mapping]] = ...) -> None: ...

class Heard(_message.Message):
    __slots__ = ("fence", "digests", "incarnation")
    FENCE_FIELD_NUMBER: _ClassVar[int]
    DIGESTS_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    fence: Stamp
    digests: Digests
    incarnation: int
    def __init__(self, fence: _Optional[_Union[Stamp, _Mapping]] = ..., digests: _Optional[_Union[Digests, _Mapping]] = ..., incarnation: _Optional[int] = ...) -> None: ...

class Message(_message.Message):
    __slots__ = ("network_id", "hello", "welcome", "token", "ack", "alive", "share", "heard", "point", "factor_audit", "removed", "factor", "eta", "audit", "frozen")
    NETWORK_ID_FIELD_NUMBER: _ClassVar[int]
    HELLO_FIELD_NUMBER: _ClassVar[int]
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    ACK_FIELD_NUMBER: _ClassVar[int]
    ALIVE_FIELD_NUMBER: _ClassVar[int]
    SHARE_FIELD_NUMBER: _ClassVar[int]
    HEARD_FIELD_NUMBER: _ClassVar[int]
    POINT_FIELD_NUMBER: _ClassVar[int]
    FACTOR_AUDIT_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    FACTOR_FIELD_NUMBER: _ClassVar[int]
    ETA_FIELD_NUMBER: _ClassVar[int]
    AUDIT_FIELD_NUMBER: _ClassVar[int]
    FROZEN_FIELD_NUMBER: _ClassVar[int]
    network_id: bytes
    hello: Hello
    welcome: Welcome
    token: Pass
    ack: Ack
    alive: Alive
    share: Share
    heard: Heard
    point: bytes
    factor_audit: bytes
    removed: bytes
    factor: bytes
    eta: bytes
    audit: bytes
    frozen: bytes
    def __init__(self, network_id: _Optional[bytes] = ..., hello: _Optional[_Union[Hello, _Mapping]] = ..., welcome: _Optional[_Union[Welcome, _Mapping]] = ..., token: _Optional[_Union[Pass, _Mapping]] = ..., ack: _Optional[_Union[Ack, _Mapping]] = ..., alive: _Optional[_Union[Alive, _Mapping]] = ..., share: _Optional[_Union[Share, _Mapping]] = ..., heard: _Optional[_Union[Heard, _Mapping]] = ..., point: _Optional[bytes] = ..., factor_audit: _Optional[bytes] = ..., removed: _Optional[bytes] = ..., factor: _Optional[bytes] = ..., eta: _Optional[bytes] = ..., audit: _Optional[bytes] = ..., frozen: _Optional[bytes] = ...) -> None: ...

class Envelope(_message.Message):
    __slots__ = ("sender", "signature", "payload")
    SENDER_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    sender: int
    signature: bytes
    payload: bytes
    def __init__(self, sender: _Optional[int] = ..., signature: _Optional[bytes] = ..., payload: _Optional[bytes] = ...) -> None: ...

class Chunk(_message.Message):
    __slots__ = ("total", "data")
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    total: int
    data: bytes
    def __init__(self, total: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class Answers(_message.Message):
    __slots__ = ("envelopes",)
    ENVELOPES_FIELD_NUMBER: _ClassVar[int]
    envelopes: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, envelopes: _Optional[_Iterable[bytes]] = ...) -> None: ...

class Set(_message.Message):
    __slots__ = ("members",)
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    members: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, members: _Optional[_Iterable[bytes]] = ...) -> None: ...

class Waiting(_message.Message):
    __slots__ = ("requests", "data", "records", "due", "leaving")
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    DUE_FIELD_NUMBER: _ClassVar[int]
    LEAVING_FIELD_NUMBER: _ClassVar[int]
    requests: _containers.RepeatedCompositeFieldContainer[Statement]
    data: bool
    records: int
    due: float
    leaving: int
    def __init__(self, requests: _Optional[_Iterable[_Union[Statement, _Mapping]]] = ..., data: _Optional[bool] = ..., records: _Optional[int] = ..., due: _Optional[float] = ..., leaving: _Optional[int] = ...) -> None: ...

class Origin(_message.Message):
    __slots__ = ("header", "revision", "salt", "removed")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    SALT_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    header: Statement
    revision: bytes
    salt: bytes
    removed: bytes
    def __init__(self, header: _Optional[_Union[Statement, _Mapping]] = ..., revision: _Optional[bytes] = ..., salt: _Optional[bytes] = ..., removed: _Optional[bytes] = ...) -> None: ...
