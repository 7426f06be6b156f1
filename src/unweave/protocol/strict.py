"""Strict reading of JSON that others wrote: exactly these keys, exactly these types.

Whatever is not as it must be is refused with the place where it stands, so that a certificate has
one reading or none.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any

from unweave.errors import NotCertified

__all__ = ["Node", "load_json"]


def load_json(raw: bytes) -> Any:
    """The value in these bytes; ValueError for anything but one plain JSON document."""
    try:
        return json.loads(raw.decode(), object_pairs_hook=_unique, parse_constant=_no_constant)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key occurs twice in one object")
    return found


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


class Node:
    """A JSON value and where it stands."""

    __slots__ = ("place", "value")

    def __init__(self, value: Any, place: str) -> None:
        self.value = value
        self.place = place

    @classmethod
    def parse(cls, raw: bytes, place: str) -> Node:
        try:
            return cls(load_json(raw), place)
        except ValueError as error:
            raise NotCertified(f"{place}: not JSON: {error}") from None

    def refuse(self, why: str) -> NotCertified:
        return NotCertified(f"{self.place}: {why}")

    def _typed(self, wanted: type, what: str) -> Any:
        # `type` and not `isinstance`: true is not the number 1.
        if type(self.value) is not wanted:
            raise self.refuse(f"{what} was expected")
        return self.value

    def table(self, *keys: str) -> dict[str, Node]:
        """An object with exactly these keys."""
        value: Mapping[str, Any] = self._typed(dict, "an object")
        for key in keys:
            if key not in value:
                raise self.refuse(f"{key} is missing")
        for key in value:
            if key not in keys:
                raise self.refuse(f"unknown key {key!r}")
        return {key: Node(value[key], f"{self.place}.{key}") for key in keys}

    def entries(self) -> dict[str, Node]:
        """An object with any keys."""
        value: Mapping[str, Any] = self._typed(dict, "an object")
        return {key: Node(v, f"{self.place}[{key!r}]") for key, v in value.items()}

    def items(self) -> list[Node]:
        value: list[Any] = self._typed(list, "a list")
        return [Node(v, f"{self.place}[{k}]") for k, v in enumerate(value)]

    def text(self) -> str:
        text: str = self._typed(str, "a text")
        return text

    def flag(self) -> bool:
        flag: bool = self._typed(bool, "true or false")
        return flag

    def number(self) -> int:
        number: int = self._typed(int, "a whole number")
        if number < 0:
            raise self.refuse("a number from 0 up was expected")
        return number

    def numbers(self, count: int) -> list[int]:
        found = [item.number() for item in self.items()]
        if len(found) != count:
            raise self.refuse(f"{count} numbers were expected")
        return found

    def hex(self, length: int | None = None) -> bytes:
        """Bytes in lower-case hex."""
        text = self.text()
        try:
            found = bytes.fromhex(text)
        except ValueError:
            found = None
        if found is None or found.hex() != text or length not in (None, len(found)):
            size = "" if length is None else f"{2 * length} "
            raise self.refuse(f"{size}lower-case hex digits were expected")
        return found

    def hexes(self, length: int) -> list[bytes]:
        """A list of distinct byte strings, in order."""
        found = [item.hex(length) for item in self.items()]
        if found != sorted(set(found)):
            raise self.refuse("a list in ascending order, without repetitions, was expected")
        return found

    def base64(self) -> bytes:
        """Bytes in the one base64 form that they have."""
        text = self.text()
        try:
            found = base64.b64decode(text, validate=True)
        except (ValueError, binascii.Error):
            found = None
        if found is None or base64.b64encode(found).decode() != text:
            raise self.refuse("base64 was expected")
        return found

    def equal(self, wanted: object, why: str) -> None:
        """Refuse any other value, or one of another type."""
        if type(self.value) is not type(wanted) or self.value != wanted:
            raise self.refuse(why)
