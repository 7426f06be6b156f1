"""Bounded reading of files, JSON and TOML that others wrote.

A file is never read beyond its limit. Depth, number of values and length of numbers are checked
before a parser sees the text: a short text can otherwise cost gigabytes, or end in an error of the
interpreter. What is read can be written again: numbers are finite, and integers have few digits.

Every refusal is a ValueError with the reason; the caller adds the place and the fix.
"""

from __future__ import annotations

import json
import math
import re
import tomllib
from pathlib import Path
from typing import Any

__all__ = ["load_json", "load_toml", "read_bytes"]

_DEPTH = 32  # of nested lists and objects
_VALUES = 1_000_000
_NUMBER = 64  # characters
_PARTS = 8  # of a dotted key
_INTEGER = 2**63  # TOML's integers have 64 bits
_TOO_DEEP = f"nested deeper than {_DEPTH} levels"


def read_bytes(path: Path, most: int) -> bytes:
    """The content of a file of at most `most` bytes; OSError if it cannot be read."""
    with path.open("rb") as file:
        raw = file.read(most + 1)
    if len(raw) > most:
        raise ValueError(f"larger than {most} bytes")
    return raw


# The patterns are possessive and match an unfinished text up to the end: each takes linear time.
_JSON_TEXT = re.compile(r'"(?:[^"\\]++|\\(?:.|\Z))*+(?:"|\Z)', re.DOTALL)
_TOML_TEXT = re.compile(
    r'"""(?:[^"\\]++|\\(?:.|\Z)|"(?!""))*+(?:"{3,5}|\Z)'
    r"|'''(?:[^']++|'(?!''))*+(?:'{3,5}|\Z)"
    r'|"(?:[^"\\\n]++|\\(?:.|\Z))*+(?:"|\n|\Z)'
    r"|'[^'\n]*+(?:'|\n|\Z)"
    r"|#[^\n]*+",
    re.DOTALL,
)
_LONG_WORD = re.compile(rf"(?<![\w.+-])[\w.+-]{{{_NUMBER + 1}}}")
_LONG_NUMBER = re.compile(rf"(?<![\w.+-])[+-]?\d[\w.+-]{{{_NUMBER}}}")
_LONG_KEY = re.compile(rf'(?<![\w-])(?:[\w-]++|"")(?:[ \t]*+\.[ \t]*+(?:[\w-]++|"")){{{_PARTS}}}')
_NO_BRACKET = re.compile(r"[^][{}]+")


def _check_shape(bare: str, long_number: re.Pattern[str]) -> None:
    """`bare` is the document without its texts and comments."""
    if sum(map(bare.count, ",=[{")) > _VALUES:
        raise ValueError(f"more than {_VALUES} values")
    depth = 0
    for bracket in _NO_BRACKET.sub("", bare):
        depth += 1 if bracket in "[{" else -1
        if depth > _DEPTH:
            raise ValueError(_TOO_DEEP)
    if long_number.search(bare):
        raise ValueError(f"a number of more than {_NUMBER} digits")


# ---------------------------------------------------------------------------------------- JSON

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def load_json(raw: bytes) -> Any:
    """The value in these bytes; ValueError for anything but one plain JSON document."""
    text = raw.decode()
    _check_shape(_JSON_TEXT.sub('""', text), _LONG_WORD)
    value = json.loads(
        text, object_pairs_hook=_unique, parse_constant=_no_constant, parse_float=_finite
    )
    if _SURROGATE.search(text):  # pairs of them are one character; half a pair is no text
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise ValueError("a text holds half of a surrogate pair") from None
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key occurs twice in one object")
    return found


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


def _finite(text: str) -> float:
    found = float(text)
    if not math.isfinite(found):
        raise ValueError(f"the number {text} is too large")
    return found


# ---------------------------------------------------------------------------------------- TOML


def load_toml(raw: bytes) -> dict[str, Any]:
    """The tables in these bytes; ValueError if they are not TOML."""
    text = raw.decode()
    bare = _TOML_TEXT.sub('""', text)
    _check_shape(bare, _LONG_NUMBER)
    if _LONG_KEY.search(bare):
        raise ValueError(f"a key of more than {_PARTS} parts")
    values = tomllib.loads(text)
    rest: list[tuple[Any, int]] = [(values, 0)]
    while rest:
        value, depth = rest.pop()
        if depth > _DEPTH:  # dotted keys inside inline tables
            raise ValueError(_TOO_DEEP)
        if isinstance(value, dict | list):
            inner = value.values() if isinstance(value, dict) else value
            rest.extend((one, depth + 1) for one in inner)
        elif isinstance(value, int) and not -_INTEGER <= value < _INTEGER:
            raise ValueError(f"the integer {value} does not fit 64 bits")
    return values
