"""Strict reading: one reading or none, and the place where it went wrong."""

from __future__ import annotations

import base64
import json
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unweave.bounded import load_json
from unweave.errors import NotCertified
from unweave.protocol.certificate import format as f
from unweave.protocol.certificate.read import parse


class Empty(f.Strict):
    pass


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b'{"a": 1, "a": 1}', "twice"),
        (b'{"b": {"a": 1, "a": 2}}', "twice"),
        (b"[NaN]", "NaN"),
        (b"[-Infinity]", "Infinity"),
        (b"[" * 100_000, "deep"),
        (b"[1] 2", "Extra data"),
        (b"\xff", "utf-8"),
        (b"1" * 5000, "digits"),
        (b"[-1" + b"0" * 64 + b"]", "digits"),
        (b"1e999", "too large"),
        (b"[" + b"[]," * 500_000 + b"[]]", "more than 1000000 values"),
        (b'["\\ud83d"]', "surrogate"),
        (b'{"\\uDE00\\uD83D": 1}', "surrogate"),
    ],
)
def test_documents_with_no_single_meaning_are_refused(raw: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        load_json(raw)
    with pytest.raises(NotCertified, match=r"^here: not JSON"):
        parse(Empty, raw, "here")


@given(st.text())
def test_every_text_is_read_as_it_was_written(text: str) -> None:
    assert load_json(json.dumps([text]).encode()) == [text]


FIELDS = {
    "number": f.Number,
    "flag": bool,
    "text": str,
    "two": f.RevisionParts,
    "digest": f.Sha256,
    "request": f.Request,
    "hex": f.Hex,
    "requests": f.Requests,
    "revision": f.Revision,
    "base64": f.Base64,
    "object": f.SubjectDigest,
    "objects": list[f.SubjectDigest],
    "by_request": dict[f.Request, int],
    "estimate": dict[str, Any] | None,
    "audit": Annotated[str, f.Closing.model_fields["audit"].metadata[0]],
}
A, B, DIGEST = "0a" * 16, "0b" * 16, "00" * 32
NAMED = {"hmac_sha256": DIGEST}  # a sum


@pytest.mark.parametrize(
    ("field", "good", "bad"),
    [
        ("number", [0, 7, 2**64 - 1], [-1, True, 1.0, "1", None, 2**64, 10**30]),
        ("flag", [True, False], [0, 1, "true", None]),
        ("text", ["", "x"], [1, None, ["x"]]),
        ("two", [[1, 2]], [[1], [1, 2, 3], [1, -2], [1, True], "12", {"1": 2}]),
        ("digest", [DIGEST], [DIGEST[1:], DIGEST + "00", DIGEST + "\n", "A0" * 32, "xx" * 32, 7]),
        ("request", [A], [A.upper(), A[:-1] + " ", A[2:], "", None]),
        ("hex", ["", "ab"], ["a", "AB", " ab", "ab\n", 7]),
        ("requests", [[], [A, B]], [[B, A], [A, A], [A[1:]], A]),
        ("revision", ["1.0", "12.34"], ["0.5", "1", "1.", "01.5", "1.05", "1.5\n", "٣.1", 1.5]),
        ("base64", ["", "QQ==", "QUI="], ["QR==", "QQ", "QQ=", "Q Q==", "QQ==\n", "-_==", 1]),
        ("object", [NAMED], [{}, NAMED | {"b": 2}, {"b": 1}, {"sha256": DIGEST}, [], None]),
        ("objects", [[], [NAMED]], [{}, "x", None, [[]]]),
        ("by_request", [{}, {A: 1}], [[], "x", None, {"x": 1}, {A: "1"}]),
        ("estimate", [None, {}, {"x": [1.5]}], [[], "x", 0, False]),
        ("audit", ["equal"], ["unequal", "", True, None, ["equal"]]),
    ],
)
def test_values_have_exactly_their_type_and_form(
    field: str, good: list[Any], bad: list[Any]
) -> None:
    model = type("One", (f.Strict,), {"__annotations__": {"value": FIELDS[field]}})
    for value in good:
        assert parse(model, {"value": value}, "here").model_dump() == {"value": value}
    for value in bad:
        with pytest.raises(NotCertified, match=r"^here\.value"):
            parse(model, {"value": value}, "here")


@given(st.text(alphabet="ABQRgw+/=Aa09-_ \n", max_size=9))
def test_base64_has_one_form(text: str) -> None:
    model = type("One", (f.Strict,), {"__annotations__": {"value": f.Base64}})
    try:
        canonical = base64.b64encode(base64.b64decode(text, validate=True)).decode() == text
    except ValueError:
        canonical = False
    if canonical:
        parse(model, {"value": text}, "here")
    else:
        with pytest.raises(NotCertified, match="canonical base64"):
            parse(model, {"value": text}, "here")


SUBJECT = {"name": "eta", "digest": NAMED}
CLAIM = {"agent": "a", "by": "owner", "kind": "exact", "scope": "agent"}
CLOSING = {
    "attestation": DIGEST,
    "audit": "equal",
    "closed_by": "a",
    "converged": True,
    "erasures": {A: CLAIM},
    "estimate": None,
    "evidence": [],
    "manifest": DIGEST,
    "not_attested": [],
    "stamp": [1, 0, 0, 1, 0],
}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"stamp": [1, 0, 0, "x", 0]}, "closing.stamp[3]: expected a whole number"),
        ({"erasures": {A: {**CLAIM, "by": "me"}}},
         f"closing.erasures.{A}.by: expected 'owner' or 'quorum'"),
        ({"erasures": {"a b": CLAIM}},
         "closing.erasures['a b']: expected 32 lower-case hex digits"),
        ({"remark": 1}, "closing: unknown key 'remark'"),
        ({"erasures": {A: {**CLAIM, "x\n": 1}}}, f"closing.erasures.{A}: unknown key 'x\\n'"),
        ({"evidence": {}}, "closing.evidence: expected a list"),
    ],
)  # fmt: skip
def test_a_refusal_names_its_place(change: dict[str, Any], message: str) -> None:
    statement = {
        "_type": f.STATEMENT,
        "predicateType": f.CLOSING,
        "subject": [SUBJECT],
        "predicate": CLOSING,
    }
    parse(f.ClosingStatement, statement, "closing")
    with pytest.raises(NotCertified) as caught:
        altered = {**statement, "predicate": {**CLOSING, **change}}
        parse(f.ClosingStatement, altered, "closing")
    assert str(caught.value) == message
    del statement["predicate"]
    with pytest.raises(NotCertified, match=r"^closing: predicate is missing$"):
        parse(f.ClosingStatement, statement, "closing")
