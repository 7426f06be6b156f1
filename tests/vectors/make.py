"""Everything an agent signs, as fixed vectors: `python tests/vectors/make.py` writes them again.

Four agents on a ring. south erases itself, east erases two records, a quorum declares west
departed, north closes the cover. The private keys are published on purpose; they protect nothing.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
from tests.support.certificates import fixed_identity, fixed_request, signed_manifest

from unweave.keyring import Keyring
from unweave.node.identity import Identity
from unweave.node.wire.codec import encode
from unweave.node.wire.envelope import PAYLOAD_TYPE as MESSAGE_TYPE
from unweave.node.wire.envelope import sign_message
from unweave.persistent import Bitmap, Vector
from unweave.protocol.certificate.format import PAYLOAD_TYPE
from unweave.protocol.certificate.write import attestation, certificate, closing, sign_statement
from unweave.protocol.events import EraseRequested, VoteCast
from unweave.protocol.machine import handle
from unweave.protocol.messages import Ack
from unweave.protocol.openings import sign_opening
from unweave.protocol.recovery import empty_token
from unweave.protocol.state import State, Turn
from unweave.protocol.statements import (
    AuditMismatch,
    CompactedErasures,
    Enrolment,
    InfluenceReport,
    SignedStatement,
    pae,
)
from unweave.protocol.steps import TokenStep, write_header
from unweave.protocol.token import (
    OUT,
    SECRET_BYTES,
    AttestationRound,
    Revision,
    Stamp,
    Token,
    Tomb,
    join,
    request_id,
)
from unweave.protocol.visit import carry_out, chain, write_receipts

NAMES = ("north", "east", "south", "west")
NORTH, EAST, SOUTH, WEST = range(4)
FOLDER = Path(__file__).parent
SECRET = bytes(range(SECRET_BYTES))  # of the attestation round


def units(*counts: int) -> Any:
    return np.array(counts, dtype=np.int64) << 24


def build() -> dict[str, bytes]:
    """File name → content."""
    manifest = signed_manifest(NAMES, name="vectors", seed=1)
    terms = manifest.terms()
    people = [fixed_identity(name) for name in NAMES]
    vectors: list[dict[str, str]] = []

    def record(what: str, signer: Identity, kind: str, payload: bytes, signature: bytes) -> None:
        vectors.append(
            {
                "what": what,
                "signer": signer.name,
                "keyid": signer.keyid,
                "payloadType": kind,
                "payload": payload.decode(),
                "pae": pae(kind, payload).hex(),
                "signature": signature.hex(),
            }
        )

    def keep(what: str, one: SignedStatement) -> None:
        record(what, people[one.author], one.kind, one.raw, one.signature)

    s = State(terms, NORTH)
    s.incarnation = 11
    token = empty_token(s, Stamp(1, NORTH, 11, 9, 14))
    token = token._replace(included=(Revision(1, 11), Revision(1, 12), Revision(1, 13), OUT))
    token = token._replace(eta=token.eta + units(9, 6))

    def erase(
        k: int, token: Token, name: str, after: Revision, eta: Any, whole: bool, *rows: str
    ) -> Token:
        """The removal visit of one owner, without the walk around it."""
        owner = State(terms, k)
        owner.incarnation = 11 + k
        commitments = frozenset(people[k].commit(row) for row in rows)
        request = EraseRequested(request_id(k, fixed_request(name)), whole, commitments, 0.0)
        owner, _ = handle(owner, request, people[k].sign)
        intents = owner.own_intents()
        sign = people[k].sign
        receipts = write_receipts(owner, sign, token, token.included[k], after, intents)
        token = carry_out(owner, Turn(0.0, sign), token, intents, receipts, retrain=False)
        for one in intents:
            keep(f"{NAMES[k]} asks for an erasure", one)
        for receipt in receipts:
            keep(f"{NAMES[k]} changes the token", receipt)
        for one in owner.known.tombstones.values():
            keep(f"{NAMES[k]} has carried the erasure out", one)
        s.known.tombstones = {**s.known.tombstones, **owner.known.tombstones}
        included = (*token.included[:k], after, *token.included[k + 1 :])
        hash_ = chain(token.receipts, *receipts)
        return token._replace(eta=eta, included=included, receipts=hash_)

    token = erase(SOUTH, token, "south", OUT, token.eta - units(2, 3), True)
    token = erase(
        EAST, token, "east", Revision(2, 12), token.eta - units(1, 1), False, "row 17", "row 4"
    )
    for k in (NORTH, SOUTH, EAST):  # east is no neighbour of west: it seconds the others
        voter = State(terms, k)
        voter.peers.synced = True
        voter.known.votes = s.known.votes
        cast = VoteCast(WEST, request_id(WEST, fixed_request("west")), 0.0)
        voter, _ = handle(voter, cast, people[k].sign)
        s.known.votes = {**s.known.votes, **voter.known.votes}
        keep(f"{NAMES[k]} votes that west has departed", voter.known.votes[WEST, k])

    s.known.tombs = join(token.tombs, {WEST: Tomb(departed=True)})
    inside = Bitmap(k for k, revision in enumerate(token.included) if revision.counter)
    token = token._replace(tombs=s.known.tombs, inside=inside)
    statement = attestation(terms, token, SECRET)
    signatures = {k: sign_statement(statement, people[k].sign) for k in (NORTH, EAST, SOUTH)}
    for k, signature in signatures.items():
        record(f"{NAMES[k]} attests", people[k], PAYLOAD_TYPE, statement, signature)
    agents = Bitmap(signatures)
    quiet = AttestationRound(
        agents=agents,
        audit=token.eta,
        statement=statement,
        signatures=signatures,
        secret=SECRET,
    )
    token = token._replace(round=quiet)
    closed = closing(s, token, token.stamp.next(s.incarnation), None)
    sign = people[NORTH].sign
    record(
        "north closes the cover", people[NORTH], PAYLOAD_TYPE, closed, sign_statement(closed, sign)
    )
    mismatch = AuditMismatch.write(
        NORTH,
        sign,
        network_id=terms.network_id.hex(),
        stamp=list(token.stamp),
        agent=NORTH,
        departed=[WEST],
    )
    keep("north reports an audit that does not add up", mismatch)

    influence = InfluenceReport.write(
        NORTH,
        sign,
        network_id=terms.network_id.hex(),
        agent=NORTH,
        stamp=list(token.stamp),
        influence=0.25,
    )
    keep("north publishes its influence", influence)

    sign_opening(s, Turn(0.0, sign), token.stamp)
    keep("north opens an epoch", s.known.openings[NORTH])
    given = token._replace(included=Vector(token.included))
    step = TokenStep(None, given.included[NORTH])
    keep("north sends the token", write_header(terms.network_id, NORTH, sign, given, step))

    enrolment = Enrolment.write(
        NORTH,
        sign,
        network_id=terms.network_id.hex(),
        agent=NORTH,
        incarnation=11,
        key=Keyring(lambda n: bytes([NORTH + 1]) * n).enrol().hex(),
    )
    keep("north enrols for a private round", enrolment)
    body = enrolment.body | {"key": "", "given": 20}
    keep("north has spent its privacy budget", Enrolment.write(NORTH, sign, **body))

    # Binary payloads are written in hex.
    own = [one for one in s.known.tombstones.values() if one.agent == EAST]
    chapter = CompactedErasures.write_all(EAST, people[EAST].sign, terms.network_id, own)
    put_away = {
        "what": "east puts its erasure away",
        "signer": "east",
        "keyid": people[EAST].keyid,
        "payloadType": chapter.kind,
        "payload": chapter.raw.hex(),
        "pae": pae(chapter.kind, chapter.raw).hex(),
        "signature": chapter.signature.hex(),
    }
    message = encode(Ack(token.stamp, token.stamp), terms)
    envelope = {
        "what": "north acknowledges a token",
        "signer": "north",
        "keyid": people[NORTH].keyid,
        "payloadType": MESSAGE_TYPE,
        "payload": message.hex(),
        "pae": pae(MESSAGE_TYPE, message).hex(),
        "signature": sign(pae(MESSAGE_TYPE, message)).hex(),
        "envelope": sign_message(message, NORTH, sign).hex(),
    }

    keys = [
        {
            "name": one.name,
            "private": f"{one.key.private_numbers().private_value:064x}",
            "public": one.public_pem,
            "certificate": one.certificate_pem,
            "keyid": one.keyid,
        }
        for one in people
    ]
    return {
        "keys.json": _text(keys),
        "signatures.json": _text(vectors),
        "compacted.json": _text(put_away),
        "masks.json": _text(masks(terms.network_id)),
        "message.json": _text(envelope),
        "network.toml": manifest.raw,
        "certificate.json": certificate(s, token, sign, None),
        "sum.bin": token.eta.astype("<i8").tobytes(),
        "secret.txt": SECRET.hex().encode() + b"\n",
    }


def masks(network_id: bytes) -> dict[str, Any]:
    """A private round of three agents with fixed one-time keys: what each adds, under the mask of
    the sum and under that of the audit. Numbers are 64-bit words in hex."""
    rings = [Keyring(lambda n, k=k: bytes([k + 1]) * n) for k in range(3)]
    keys = {k: ring.enrol() for k, ring in enumerate(rings)}
    name = hashlib.sha256(b"unweave round v1" + network_id).digest()
    agents = []
    for k, ring in enumerate(rings):
        value = ring.mask(k, name, keys, np.array([k, -k, 1000], dtype=np.int64))
        assert value is not None
        agents.append(
            {
                "private": (bytes([k + 1]) * 32).hex(),
                "public": keys[k].hex(),
                "units": [k, -k, 1000],
                "sum": [f"{int(word) % 2**64:016x}" for word in value[0]],
                "audit": [f"{int(word) % 2**64:016x}" for word in value[1]],
            }
        )
    return {"what": "three agents mask their values", "round": name.hex(), "agents": agents}


def _text(value: object) -> bytes:
    return json.dumps(value, indent=1).encode() + b"\n"


if __name__ == "__main__":
    for name, content in build().items():
        (FOLDER / name).write_bytes(content)
