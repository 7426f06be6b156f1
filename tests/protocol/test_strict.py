"""Strict reading: one reading or none, and the place where it went wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from unweave.errors import NotCertified
from unweave.protocol.certificate.read import Node, load_json


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
    ],
)
def test_documents_with_no_single_meaning_are_refused(raw: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        load_json(raw)
    with pytest.raises(NotCertified, match="here: not JSON"):
        Node.parse(raw, "here")


def read(method: str, *arguments: Any) -> Callable[[Any], Any]:
    return lambda value: getattr(Node(value, "here"), method)(*arguments)


@pytest.mark.parametrize(
    ("reader", "good", "bad"),
    [
        (read("number"), [0, 7], [-1, True, 1.0, "1", None]),
        (read("flag"), [True, False], [0, 1, "true", None]),
        (read("text"), ["", "x"], [1, None, ["x"]]),
        (read("numbers", 2), [[1, 2]], [[1], [1, 2, 3], [1, -2], [1, True], "12", {"1": 2}]),
        (read("hex", 2), ["00ff"], ["00FF", "0ff", "00 ff", "00f", "00ffaa", "xxxx", 7]),
        (read("hex"), ["", "ab"], ["a", "AB", " ab"]),
        (read("hexes", 1), [[], ["00", "01"]], [["01", "00"], ["00", "00"], ["000"], "00"]),
        (read("base64"), ["", "QQ==", "QUI="], ["QR==", "QQ", "QQ=", "Q Q==", "QQ==\n", "-_==", 1]),
        (read("table", "a"), [{"a": 1}], [{}, {"a": 1, "b": 2}, {"b": 1}, [], None]),
        (read("items"), [[], [1]], [{}, "x", None]),
        (read("entries"), [{}, {"x": 1}], [[], "x", None]),
        (read("equal", 1, "no"), [1], [True, 1.0, "1", 2, None]),
    ],
)
def test_values_have_exactly_their_type_and_form(
    reader: Callable[[Any], Any], good: list[Any], bad: list[Any]
) -> None:
    for value in good:
        reader(value)
    for value in bad:
        with pytest.raises(NotCertified, match=r"^here"):
            reader(value)


def test_a_refusal_names_its_place() -> None:
    node = Node({"a": [{"b": "x"}]}, "top")
    inner = node.table("a")["a"].items()[0].table("b")["b"]
    with pytest.raises(NotCertified, match=r"^top\.a\[0\]\.b: a whole number was expected$"):
        inner.number()
