"""Writing TOML: the part of it that manifests and settings need (the standard library reads it)."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

__all__ = ["write_toml"]


def write_toml(values: Mapping[str, Any]) -> str:
    """`values` as TOML text: plain keys first, then tables, then lists of tables.

    >>> print(write_toml({"seed": 7, "model": {"name": "x", "a": 2.0}}), end="")
    seed = 7
    <BLANKLINE>
    [model]
    name = "x"
    a = 2.0
    """
    plain = [f"{_key(k)} = {_value(v)}\n" for k, v in values.items() if not _is_table(v)]
    parts = ["".join(plain)]
    for key, value in values.items():
        if isinstance(value, Mapping):
            parts.append(f"[{_key(key)}]\n" + _body(value))
        elif _is_table(value):
            parts += [f"[[{_key(key)}]]\n" + _body(entry) for entry in value]
    return "\n".join(part for part in parts if part)


def _is_table(value: object) -> bool:
    if isinstance(value, Mapping):
        return True
    return isinstance(value, list) and bool(value) and isinstance(value[0], Mapping)


def _body(table: Mapping[str, Any]) -> str:
    return "".join(f"{_key(k)} = {_value(v)}\n" for k, v in table.items())


def _key(key: str) -> str:
    bare = key.isascii() and key.replace("_", "").replace("-", "").isalnum()
    return key if bare else _text(key)


def _text(text: str) -> str:
    # JSON's escapes are TOML's, except that TOML has no surrogate pairs and forbids a bare DEL.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        # A PEM block stays readable; anything that would need escapes is written in one line.
        simple = value.isascii() and value.replace("\n", "").isprintable()
        if value.count("\n") > 1 and simple and not {"\\", '"'} & set(value):
            return f'"""\n{value}"""'
        return _text(value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else str(value)
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_value(v) for v in value) + "]"
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(k)} = {_value(v)}" for k, v in value.items()) + " }"
    raise TypeError(f"{type(value).__name__} has no TOML form")
