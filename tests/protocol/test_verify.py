"""Altered, incomplete and dishonest certificates: each is refused, with the reason."""

from __future__ import annotations

import base64
import copy
import hashlib
import json
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import utils
from hypothesis import assume, example, given
from hypothesis import strategies as st
from tests.support.certificates import OTHER, Bench, fixed_identity, fixed_request
from typer.testing import CliRunner

from unweave.cli import app
from unweave.errors import NotACertificate, NotCertified
from unweave.keys import verifier
from unweave.manifest import Manifest
from unweave.node.identity import Identity
from unweave.protocol.certificate.format import PAYLOAD_TYPE
from unweave.protocol.certificate.verify import Account, verify
from unweave.protocol.statements import Receipt, Tombstone, Vote, pae

Json = Any


@cache
def bench() -> tuple[Bench, bytes]:
    """a, b, …: records erased, a whole agent erased, and a departed one."""
    made = Bench("abcde")
    made.erase("b", "whole")
    made.erase("c", "records", [0, 3])
    if made.world.parked == 4:  # the holder must live to let the token go
        made.erase("a", "elsewhere", [1])
    return made, made.declare_departed("e", "departed")


@cache
def refined() -> tuple[Bench, bytes]:
    made = Bench("abc", model=OTHER)
    return made, made.erase("b", "one")


@cache
def check() -> Callable[[int, bytes, bytes], bool]:
    return verifier(bench()[0].manifest.pems())


def file() -> Json:
    return json.loads(bench()[1])


def judge(value: Json) -> Account:
    raw = value if isinstance(value, bytes) else json.dumps(value).encode()
    return verify(raw, bench()[0].terms, check())


def refuse(value: Json, *reasons: str) -> None:
    with pytest.raises(NotCertified) as caught:
        judge(value)
    for reason in reasons:
        assert reason in str(caught.value)


# ------------------------------------------------------------------------------- every part counts


def leaves(value: Json, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(inner, (*path, key))
    elif isinstance(value, list):
        for k, inner in enumerate(value):
            yield from leaves(inner, (*path, k))
        if not value:
            yield path
    else:
        yield path


def parent(value: Json, path: tuple[Any, ...]) -> Json:
    for step in path[:-1]:
        value = value[step]
    return value


def others(value: Json) -> list[Json]:
    """Values that a leaf could be replaced by."""
    if isinstance(value, bool):
        return [not value, int(value), None]
    if isinstance(value, int):
        return [value + 1, -value - 1, float(value), str(value), None]
    if isinstance(value, str):
        flipped = [value[:k] + chr(ord(value[k]) ^ 1) + value[k + 1 :] for k in (0, -1) if value]
        return [*flipped, value[:-1], value + "A", value.upper() + " ", "", None, 7]
    return ["x", 0, [None]]


def test_as_it_is_it_holds() -> None:
    found = judge(file())
    assert {e.kind for e in found.erasures} == {"exact"}
    assert {(e.scope, e.by) for e in found.erasures} == {
        ("agent", "owner"),
        ("records", "owner"),
        ("agent", "quorum"),
    }


def test_spaces_and_the_order_of_keys_mean_nothing() -> None:
    pretty = json.dumps(dict(reversed(file().items())), indent=2).encode()
    assert judge(pretty) == judge(file())


@pytest.mark.parametrize("path", list(leaves(file())), ids=lambda p: ".".join(map(str, p)))
def test_no_leaf_can_be_altered(path: tuple[Any, ...]) -> None:
    for other in others(parent(file(), path)[path[-1]]):
        altered = file()
        parent(altered, path)[path[-1]] = other
        refuse(altered)


@pytest.mark.parametrize("path", list(leaves(file())), ids=lambda p: ".".join(map(str, p)))
def test_no_part_can_be_removed_or_repeated(path: tuple[Any, ...]) -> None:
    for depth in range(1, len(path) + 1):
        removed = file()
        del parent(removed, path[:depth])[path[depth - 1]]
        with pytest.raises((NotCertified, NotACertificate)):
            judge(removed)
        repeated = file()
        inside = parent(repeated, path[:depth])
        if isinstance(inside, list):
            inside.append(copy.deepcopy(inside[path[depth - 1]]))
        else:
            inside["more"] = 1
        refuse(repeated)


@given(st.data())
def test_no_byte_can_be_altered(data: st.DataObject) -> None:
    raw = bench()[1]
    at = data.draw(st.integers(0, len(raw) - 1))
    byte = data.draw(st.integers(0, 255).filter(lambda b: b != raw[at]))
    with pytest.raises((NotCertified, NotACertificate)):
        judge(raw[:at] + bytes([byte]) + raw[at + 1 :])


@given(st.data())
def test_no_bit_of_a_signed_payload_or_signature_can_be_altered(data: st.DataObject) -> None:
    altered = file()
    envelopes = [altered["attestation"], altered["closing"], *altered["tombstones"]]
    envelope = data.draw(st.sampled_from(envelopes + altered["votes"]))
    spot = data.draw(st.sampled_from(["payload", *range(len(envelope["signatures"]))]))
    place, key = (
        (envelope, "payload")
        if spot == "payload"
        else (
            envelope["signatures"][spot],
            "sig",
        )
    )
    raw = bytearray(base64.b64decode(place[key]))
    bit = data.draw(st.integers(0, 8 * len(raw) - 1))
    raw[bit // 8] ^= 1 << bit % 8
    place[key] = base64.b64encode(raw).decode()
    refuse(altered)


@given(st.binary(max_size=40) | st.text(max_size=40).map(str.encode))
def test_other_files_are_no_certificates(raw: bytes) -> None:
    assume(not raw.startswith(b'{"attestation":'))  # how a damaged one begins
    with pytest.raises(NotACertificate):
        judge(raw)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["attestation", "closing", "format", "payload", "signatures"]),
                inner,
                max_size=4,
            )
        ),
        max_leaves=12,
    )
)
def test_any_json_is_refused_without_an_accident(value: Json) -> None:
    with pytest.raises((NotCertified, NotACertificate)):
        judge(value)


# ---------------------------------------------------------------------------------- signatures


def test_a_missing_signature_is_named() -> None:
    altered = file()
    del altered["attestation"]["signatures"][1]
    refuse(altered, "attestation: agent b has not signed")


def test_enough_signatures_are_not_the_right_ones() -> None:
    altered = file()
    signatures = altered["attestation"]["signatures"]
    signatures[1] = signatures[0]
    refuse(altered, "signatures repeat")


def test_a_foreign_signature_is_refused_even_beside_all_others() -> None:
    altered = file()
    stranger = Identity.create("stranger")
    signed = pae(PAYLOAD_TYPE, base64.b64decode(altered["attestation"]["payload"]))
    entry = {"keyid": stranger.keyid, "sig": base64.b64encode(stranger.sign(signed)).decode()}
    altered["attestation"]["signatures"].append(entry)
    refuse(altered, "attestation: the manifest pins no key", stranger.keyid)


def test_the_right_key_id_with_another_key() -> None:
    altered = file()
    signed = pae(PAYLOAD_TYPE, base64.b64decode(altered["attestation"]["payload"]))
    forged = Identity.create("b").sign(signed)
    altered["attestation"]["signatures"][1]["sig"] = base64.b64encode(forged).decode()
    refuse(altered, "attestation: the signature of agent b does not hold")


def test_swapped_key_ids() -> None:
    altered = file()
    one, two = altered["attestation"]["signatures"][:2]
    one["sig"], two["sig"] = two["sig"], one["sig"]
    refuse(altered, "the signature of agent a does not hold")


def test_reordered_signatures_and_records() -> None:
    for part in ("tombstones", "votes"):
        altered = file()
        altered[part].reverse()
        refuse(altered, part, "order")
    altered = file()
    altered["attestation"]["signatures"].reverse()
    refuse(altered, "attestation", "order")


def test_the_other_valid_form_of_a_signature_is_refused() -> None:
    """(r, n − s) verifies wherever (r, s) does, unless somebody looks."""
    order = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
    altered = file()
    entry = altered["attestation"]["signatures"][0]
    r, s = utils.decode_dss_signature(base64.b64decode(entry["sig"]))
    other = utils.encode_dss_signature(r, order - s)
    entry["sig"] = base64.b64encode(other).decode()
    refuse(altered, "the signature of agent a does not hold")


def test_envelopes_cannot_change_places() -> None:
    altered = file()
    altered["attestation"], altered["closing"] = altered["closing"], altered["attestation"]
    refuse(altered, "closing.signatures")
    del altered["closing"]["signatures"][1:]
    refuse(altered, "attestation.predicateType: expected 'urn:unweave:attestation:v3'")


def test_parts_of_two_certificates_do_not_mix() -> None:
    made = Bench("abcde")
    first = json.loads(made.erase("b", "whole"))
    second = json.loads(made.erase("c", "records", [0, 3]))
    for part in ("attestation", "closing", "tombstones"):
        mixed = {**second, part: first[part]}
        with pytest.raises(NotCertified):
            verify(json.dumps(mixed).encode(), made.terms, verifier(made.manifest.pems()))


def test_another_manifest() -> None:
    made, raw = bench()
    other = Manifest.parse(made.manifest.raw + b"# one byte more\n")
    with pytest.raises(NotCertified, match="made under another manifest"):
        verify(raw, other.terms(), check())


# ------------------------------------------------- lies that are properly signed by those who lie


def author_of(envelope: Json) -> list[Identity]:
    by_keyid = {i.keyid: i for i in bench()[0].identities}
    return [by_keyid[s["keyid"]] for s in envelope["signatures"]]


def resign(envelope: Json, body: Json, authors: list[Identity] | None = None) -> None:
    """Replace the payload and have the same (or other) agents sign it."""
    payload = json.dumps(body).encode()
    kind = envelope["payloadType"]
    signatures = [
        {"keyid": i.keyid, "sig": base64.b64encode(i.sign(pae(kind, payload))).decode()}
        for i in authors or author_of(envelope)
    ]
    envelope["payload"] = base64.b64encode(payload).decode()
    envelope["signatures"] = signatures


def body_of(envelope: Json) -> Json:
    return json.loads(base64.b64decode(envelope["payload"]))


def lie(part: str, change: Callable[[Json], None], index: int | None = None) -> Json:
    altered = file()
    envelope = altered[part] if index is None else altered[part][index]
    body = body_of(envelope)
    change(body)
    resign(envelope, body)
    # A consistent lie: the closing agent goes along.
    closing = body_of(altered["closing"])
    if part == "attestation":
        closing[P]["attestation"] = digest_of(envelope)
        closing["subject"] = body["subject"]
        resign(altered["closing"], closing)
    elif part != "closing":
        records = altered["tombstones"] + altered["votes"]
        closing[P]["evidence"] = [digest_of(record) for record in records]
        resign(altered["closing"], closing)
    return altered


def digest_of(envelope: Json) -> str:
    return hashlib.sha256(base64.b64decode(envelope["payload"])).hexdigest()


def put(*path: Any, value: Json) -> Callable[[Json], None]:
    def change(body: Json) -> None:
        parent(body, path)[path[-1]] = value

    return change


def request_of(agent: str) -> str:
    return next(e.request for e in judge(file()).erasures if e.agent == agent)


def claim(agent: str, key: str, value: str) -> Json:
    return lie("closing", put("predicate", "erasures", request_of(agent), key, value=value))


P = "predicate"
OTHER_DIGEST = "00" * 32


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            put("subject", 0, "digest", "hmac_sha256", value=OTHER_DIGEST),
            "eta is not the attested one",
        ),
        (put("subject", 0, "name", value="mu"), "expected 'eta'"),
        (put("subject", value=[]), "subject: expected a list of 1"),
        (
            put("_type", value="https://in-toto.io/Statement/v0.1"),
            "closing._type: expected 'https://in-toto.io/Statement/v1'",
        ),
        (put("predicateType", value="urn:unweave:attestation:v3"), "predicateType"),
        (put(P, "manifest", value=OTHER_DIGEST), "another manifest"),
        (put(P, "attestation", value=OTHER_DIGEST), "another attestation"),
        (put(P, "audit", value="unequal"), "closing.audit: expected 'equal'"),
        (put(P, "closed_by", value="a"), "must have signed"),
        (put(P, "closed_by", value="zoe"), "has no agent 'zoe'"),
        (put(P, "not_attested", value=[]), "departed agents"),
        (put(P, "not_attested", value=["a", "e"]), "departed agents"),
        (put(P, "erasures", value={}), "is missing"),
        (put(P, "stamp", value=[99, 0, 0, 1, 0]), "another epoch"),
        (put(P, "stamp", value=[1, 2]), "stamp: expected a list of 5"),
        (put(P, "estimate", value={"estimate": 0.0}), "must be null for a conjugate model"),
        (put(P, "converged", value=1), "closing.converged: expected true or false"),
        (put(P, "remark", value="trust me"), "unknown key 'remark'"),
    ],
)
def test_a_closing_that_lies(change: Callable[[Json], None], reason: str) -> None:
    # Whoever closes signs; if that is the agent the lie names, the lie would be true: rename it.
    closer = body_of(file()["closing"])[P]["closed_by"]
    altered = lie("closing", change)
    if closer == "a" and reason == "must have signed":
        altered = lie("closing", put(P, "closed_by", value="c"))
    refuse(altered, "closing", reason)


def test_a_closing_that_claims_more_than_was_earned() -> None:
    refuse(claim("c", "kind", "retrained"), "evidence shows 'exact'")
    refuse(claim("c", "scope", "agent"), "evidence shows 'records'")
    refuse(claim("e", "by", "owner"), "evidence shows 'quorum'")
    refuse(claim("c", "agent", "d"), "evidence shows 'c'")
    invented = {"agent": "c", "by": "owner", "kind": "exact", "scope": "agent"}
    altered = lie("closing", put(P, "erasures", "ab" * 16, value=invented))
    refuse(altered, f"closing.erasures.{'ab' * 16}: the attestation does not list this erasure")


def test_a_closing_by_somebody_else() -> None:
    altered = file()
    body = body_of(altered["closing"])
    others_ = [i for i in bench()[0].identities if i.name != body[P]["closed_by"]]
    resign(altered["closing"], body, [others_[0]])
    refuse(altered, "must have signed it, but")
    body[P]["closed_by"] = "e"
    resign(altered["closing"], body, [fixed_identity("e")])
    refuse(altered, "closing: agent e closed it, but has not attested")
    resign(altered["closing"], body_of(file()["closing"]), bench()[0].identities[:2])
    refuse(altered, "closing.signatures: expected a list of 1")


def tomb_of(request: str) -> Json:
    filed = {"count": 0, "sha256": "00" * 32}
    return {"requests": [request], "whole": False, "departed": False, "compacted": filed}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (put(P, "included", "b", value="1.5"), 'agent b is erased as a whole, but still included'),
        (put(P, "included", "e", value="1.5"), 'agent e is erased as a whole, but still included'),
        (put(P, "included", "zoe", value="1.5"), "has no agent 'zoe'"),
        (put(P, "included", "a", value="0.5"), "attestation.included.a: expected a revision"),
        (put(P, "included", "a", value=1), "attestation.included.a: expected a text"),
        (put(P, "tombstones", "b", "whole", value=False), "as a whole"),
        (put(P, "tombstones", "c", "whole", value=True), "as a whole"),
        (put(P, "tombstones", "c", "departed", value=True), "holds 0 votes"),
        (put(P, "tombstones", "e", "departed", value=False),
         "agent e: the certificate holds a vote, but the attestation does not list e as departed"),
        (put(P, "tombstones", "c", "requests", value=[]), "does not list this request"),
        (put(P, "tombstones", "a", value=tomb_of("ab" * 16)),
         "agent a: the certificate holds no tombstone for"),
        (put(P, "tombstones", "c", "compacted", "count", value=-1),
         "attestation.tombstones.c.compacted.count: expected a number from 0 up"),
        (put(P, "tombstones", "c", "compacted", "sha256", value="12"), "hex digits"),
        (put(P, "retrain_epoch", value=["ab" * 16]), "attestation.retrain_epoch: no agent has"),
        (put(P, "epoch", value=[7, 7, 7]), "another epoch"),
        (put(P, "manifest", value=OTHER_DIGEST), "another manifest"),
        (put(P, "receipts", value="xyz"), "hex digits"),
    ],
)  # fmt: skip
def test_an_attestation_that_everybody_signed_and_is_still_wrong(
    change: Callable[[Json], None], reason: str
) -> None:
    refuse(lie("attestation", change), reason)


@pytest.mark.parametrize(
    ("agent", "reason"),
    [("a", "not signed by the owner, agent a"), ("d", "two agents have the request")],
)
def test_one_request_cannot_name_two_agents(agent: str, reason: str) -> None:
    tomb = tomb_of(request_of("c"))
    refuse(lie("attestation", put(P, "tombstones", agent, value=tomb)), reason)


def tombstone_of(agent: str) -> int:
    bodies = [body_of(t) for t in file()["tombstones"]]
    return next(k for k, body in enumerate(bodies) if body["name"] == agent)


def with_receipt(who: str, **changes: Json) -> Callable[[Json], None]:
    def change(body: Json) -> None:
        receipt = json.loads(body["receipt"]) | changes
        raw = json.dumps(receipt)
        body["receipt"] = raw
        body["receipt_signature"] = fixed_identity(who).sign(pae(Receipt.kind, raw.encode())).hex()

    return change


@pytest.mark.parametrize(
    ("agent", "change", "reason"),
    [
        ("b", put("name", value="a"), "is named 'b'"),
        ("b", put("agent", value=0), "is named 'a'"),
        ("b", put("agent", value=17), "has 5 agents"),
        ("b", put("network_id", value=OTHER_DIGEST), "another manifest"),
        ("b", put("request", value="ab" * 16), "not the tombstone's request"),
        ("b", put("whole", value=False), "rows: expected at least one row"),
        ("b", put("rows", value=["ab" * 16]), "rows: expected no row beside the whole agent"),
        ("c", put("whole", value=True), "rows: expected no row beside the whole agent"),
        ("c", put("rows", value=[]), "rows: expected at least one row"),
        ("c", put("rows", value=[""]), "rows[0]: expected 32 lower-case hex digits"),
        ("c", put("rows", value=["ab" * 16, "ab" * 17]), "rows[1]: expected 32 lower-case hex"),
        ("c", put("rows", value=["AB" * 16]), "rows[0]: expected 32 lower-case hex digits"),
        ("c", lambda body: body["rows"].insert(0, body["rows"][0][:2]), "rows[0]: expected 32"),
        ("c", put("retrain", value=True), "did not take the agent out"),
        ("b", put("retrain", value=True), "asked for retraining"),
        ("c", put("remembered", value=3), "remembered: more than the 2 erased rows"),
        ("c", put("remembered", value=-1), "remembered: expected a number from 0 up"),
        ("c", put("remembered", value=True), "remembered: expected a whole number"),
        ("c", lambda body: body.pop("remembered"), "remembered is missing"),
        ("c", lambda body: body["rows"].append(body["rows"][0]), "rows: expected ascending order"),
        ("b", put("receipt", value="{}"), "receipt: the signature"),
        ("b", put("receipt", value="\ud800"), "half of a surrogate pair"),
        ("b", put("receipt_signature", value=""), "receipt: the signature"),
        ("b", with_receipt("a"), "receipt: the signature"),
        ("b", with_receipt("b", agent=0), "about another agent"),
        ("b", with_receipt("b", network_id=OTHER_DIGEST), "another network"),
        ("b", with_receipt("b", after=[3, 3]), "did not take the agent out"),
        ("b", with_receipt("b", request="00" * 16), "not the tombstone's request"),
        ("b", with_receipt("b", stamp=[1]), "stamp: expected a list of 5"),
        ("b", with_receipt("b", note="x"), "unknown key"),
    ],
)
def test_a_tombstone_that_lies(agent: str, change: Callable[[Json], None], reason: str) -> None:
    refuse(lie("tombstones", change, tombstone_of(agent)), "tombstones", reason)


def test_the_sum_must_not_hold_the_revision_from_before_the_erasure() -> None:
    body = body_of(file()["attestation"])
    counter, boot = map(int, body[P]["included"]["c"].split("."))
    altered = lie("tombstones", with_receipt("c", before=[counter, boot]), tombstone_of("c"))
    altered_body = body_of(altered["tombstones"][tombstone_of("c")])
    assert json.loads(altered_body["receipt"])["after"] == [counter, boot]
    judge(altered)  # before = after: nothing was removed because nothing had been there
    forged = with_receipt("c", before=[counter, boot], after=[counter + 1, boot])
    refuse(lie("tombstones", forged, tombstone_of("c")), "from before the erasure")


numbers = st.integers(0, 6)
revisions = st.tuples(st.integers(1, 6), numbers)
either = revisions | st.just((0, 0))


@given(revisions, either, either)
@example((2, 1), (3, 2), (4, 2))  # an earlier incarnation made it
@example((3, 2), (2, 2), (4, 2))  # made before the erasure, and not in the sum at its visit
@example((4, 1), (3, 2), (4, 2))
def test_the_sum_holds_the_revision_of_the_removal_or_a_later_one(
    included: tuple[int, int], before: tuple[int, int], after: tuple[int, int]
) -> None:
    altered = lie("attestation", put(P, "included", "c", value="{}.{}".format(*included)))
    envelope = altered["tombstones"][tombstone_of("c")]
    body = body_of(envelope)
    with_receipt("c", before=list(before), after=list(after))(body)
    resign(envelope, body)
    closing = body_of(altered["closing"])
    closing[P]["evidence"] = [digest_of(one) for one in altered["tombstones"] + altered["votes"]]
    resign(altered["closing"], closing)
    if included == after or included[0] > max(before[0], after[0]):
        judge(altered)
    else:
        refuse(altered, "a revision of agent c from before the erasure")


def test_an_owner_that_lost_its_disk_counts_on_from_its_removals() -> None:
    """Its counter starts at zero, but the evidence of the neighbours names what it had counted."""
    made = Bench("abcd")
    for k in range(4):
        made.erase("c", f"earlier {k}", [k])
    made.request("c", "records", [5])
    owner, request = 2, fixed_request("records")
    while request not in made.world.state(owner).known.tombstones:
        assert made.world.step()
    while request not in made.world.state(1).known.tombstones:
        assert made.world.step()
    made.world.crash(owner)
    made.world.wipe(owner)
    made.world.start_agent(owner)
    made.settle()
    account = verify(made.certificates[-1], made.terms, verifier(made.manifest.pems()))
    assert request.hex() in {one.request for one in account.erasures}
    assert "c" in account.included


def test_records_that_two_erasures_name_are_told() -> None:
    made = Bench("abc")
    made.request("b", "one", [0, 1, 2])
    made.request("b", "two", [1, 2, 3])
    made.settle()
    account = verify(made.certificates[-1], made.terms, verifier(made.manifest.pems()))
    assert [one.rows for one in account.erasures] == [3, 3]
    assert [one.repeated for one in account.erasures] == [0, 2]


def test_a_request_for_no_record_is_refused() -> None:
    """Its certificate would prove nothing, and every other one on the token could not be read."""
    made = Bench("abc")
    made.request("b", "nothing", [])
    made.settle()
    assert not made.world.state(1).known.tombs
    assert made.certificates == []


def test_a_tombstone_signed_by_another_agent() -> None:
    altered = file()
    envelope = altered["tombstones"][tombstone_of("b")]
    resign(envelope, body_of(envelope), [fixed_identity("a")])
    refuse(altered, "about agent b, but signed by agent a: only the owner")


def test_a_statement_of_another_type_is_not_a_tombstone() -> None:
    altered = file()
    envelope = altered["tombstones"][0]
    envelope["payloadType"] = Vote.kind
    refuse(altered, f"expected '{Tombstone.kind}'")


def test_a_vote_too_many_cannot_be_taken_away() -> None:
    altered = file()
    del altered["votes"][1]
    refuse(altered, "other tombstones or votes")


def test_votes_that_do_not_make_a_quorum() -> None:
    altered = file()
    del altered["votes"][2:]
    refuse(altered, "agent e: the attestation lists it as departed", "2 votes; 3 of 5 are needed")


def test_votes_about_somebody_else_or_by_the_target() -> None:
    refuse(lie("votes", put("name", value="d"), 0), "is named 'e'")
    refuse(lie("votes", put("network_id", value=OTHER_DIGEST), 0), "another manifest")
    altered = file()
    envelope = altered["votes"][3]
    resign(envelope, body_of(envelope), [fixed_identity("e")])
    refuse(altered, "agent e cannot vote about itself")


def test_a_departed_agent_does_not_attest() -> None:
    altered = file()
    envelope = altered["attestation"]
    resign(envelope, body_of(envelope), bench()[0].identities)
    refuse(altered, "agent e signed it, but it lists e as departed")


def test_a_refined_erasure_is_not_exact_and_not_retrained() -> None:
    made, raw = refined()
    closing = json.loads(raw)["closing"]
    body = body_of(closing)
    for kind in ("exact", "retrained"):
        for entry in body[P]["erasures"].values():
            entry["kind"] = kind
        closer = fixed_identity(body[P]["closed_by"])
        altered = json.loads(raw)
        resign(altered["closing"], body, [closer])
        with pytest.raises(NotCertified, match="evidence shows 'refined'"):
            verify(json.dumps(altered).encode(), made.terms, verifier(made.manifest.pems()))


# ------------------------------------------------------------------------------------- the command


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made, raw = bench()
    made.manifest.write(tmp_path / "network.toml")
    (tmp_path / "certificate.json").write_bytes(raw)
    return tmp_path


def run(folder: Path, name: str = "certificate.json", *more: str) -> tuple[int, str]:
    arguments = ["verify", str(folder / name), "--network", str(folder / "network.toml"), *more]
    result = CliRunner().invoke(app, arguments)
    error = result.exception
    code = getattr(error, "exit_code", result.exit_code)
    return code, result.output + str(error or "")


def test_the_command_accounts_for_a_certificate_that_holds(folder: Path) -> None:
    code, text = run(folder)
    assert code == 0
    for word in ("holds", "everything", "2 records", "exact", "a quorum", "not attested: e"):
        assert word in text


def test_the_command_speaks_json(folder: Path) -> None:
    code, text = run(folder, "certificate.json", "--json")
    assert code == 0
    found = json.loads(text)
    assert found["valid"] is True
    assert found["not_attested"] == ["e"]
    assert len(found["erasures"]) == len(judge(file()).erasures)


def test_the_command_refuses_with_the_reason(folder: Path) -> None:
    altered = file()
    del altered["attestation"]["signatures"][1]
    (folder / "altered.json").write_text(json.dumps(altered))
    code, text = run(folder, "altered.json")
    assert code == 1
    assert "altered.json" in text
    assert "agent b has not signed" in text
    code, text = run(folder, "altered.json", "--json")
    assert code == 1
    assert json.loads(text[: text.rindex("}") + 1])["valid"] is False


@pytest.mark.parametrize("raw", [b"", b"{}", b"hello", b"[1]", b"\xff\xfe", b"[" * 5000])
def test_the_command_knows_what_is_no_certificate(folder: Path, raw: bytes) -> None:
    (folder / "other").write_bytes(raw)
    assert run(folder, "other")[0] == 2


def test_the_command_needs_files_and_keys(folder: Path) -> None:
    assert run(folder, "missing.json")[0] == 2
    manifest = 'name = "n"\ngraph = "ring"\nagents = 3\n[model]\nname = "beta-bernoulli"\n'
    (folder / "network.toml").write_text(manifest)
    code, text = run(folder)
    assert code == 2
    assert 'agent "a1" has no certificate' in text
    (folder / "network.toml").unlink()
    assert run(folder)[0] == 2


def test_a_truncated_certificate_is_damaged(folder: Path) -> None:
    (folder / "short.json").write_bytes(bench()[1][:-100])
    code, text = run(folder, "short.json")
    assert code == 1
    assert "damaged" in text
