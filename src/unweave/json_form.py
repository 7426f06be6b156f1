"""The JSON that unweave writes: for commands with --json, for the operator's API, and to files that
users read again (`read_saved`).

Integers beyond ±(2⁵³ − 1) are strings, as in protobuf's JSON: readers that store numbers as doubles
would round them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from unweave.errors import ConfigError, UnweaveError

__all__ = ["SAFE", "as_json", "error_report", "read_saved"]

T = TypeVar("T")

SAFE = 2**53 - 1


def as_json(value: object, indent: int | None = None) -> str:
    """`value` as JSON in printable ASCII. Integers that a reader could round are written as
    strings."""
    # JSON permits the character DEL in a text, a terminal obeys it.
    text = json.dumps(_plain(value), indent=indent, allow_nan=False)
    return text.replace("\x7f", "\\u007f")


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if value is None or isinstance(value, str | bool | float):
        return value
    if isinstance(value, int):
        return int(value) if abs(value) <= SAFE else str(int(value))
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, set | frozenset):
        return [_plain(one) for one in sorted(value)]
    raise TypeError(f"{type(value).__name__} has no JSON form")


def read_saved(path: str | Path, parse: Callable[[bytes], T]) -> T:
    """What `parse` makes of the content of a file; ConfigError with its name if that fails."""
    try:
        raw = Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot be read ({error.strerror}). Fix: check the path"
        ) from None
    try:
        return parse(raw)
    except UnweaveError as error:
        raise ConfigError(f"{path}: {error}") from None


def error_report(error: UnweaveError) -> dict[str, Any]:
    """An error as JSON. `message` is the whole text; `fix` is its last part, after "Fix:", or the
    field `fix` of the error."""
    _, mark, fix = str(error).rpartition("Fix: ")
    kind = next(one for one in type(error).__mro__ if one.__module__ == UnweaveError.__module__)
    return {
        "error": {
            "kind": kind.__name__,
            "message": str(error),
            "fix": getattr(error, "fix", None) or (fix if mark else None),
            "exit_code": error.exit_code,
        }
    }
