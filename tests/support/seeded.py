"""Seeded bugs: the protocol with one rule broken, to prove that the tests can fail.

A bug is a TOML file: its name, the test or fault run that catches it, and for each patch the
function, the old text and the new text. A patch whose old text is not in the function is an error,
so a seeded bug cannot become outdated unnoticed.
"""

from __future__ import annotations

import inspect
import textwrap
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from types import FunctionType
from typing import Any

__all__ = ["read_bug", "seeded"]


_LAZY_ANNOTATIONS = 0x1000000  # __future__.annotations.compiler_flag


def read_bug(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text())


@contextmanager
def seeded(bug: Mapping[str, Any]) -> Iterator[None]:
    """Run with this bug."""
    merged: dict[str, list[tuple[str, str]]] = {}
    for patch in bug["patch"]:
        merged.setdefault(patch["function"], []).append((patch["old"], patch["new"]))
    with ExitStack() as stack:
        for path, changes in merged.items():
            stack.enter_context(_patched(path, changes))
        yield


@contextmanager
def _patched(path: str, changes: list[tuple[str, str]]) -> Iterator[None]:
    """Replace the function's code object, so that every importer runs the new one."""
    function = _find(path)
    source = inspect.getsource(function)
    for old, new in changes:
        if source.count(old) != 1:
            raise LookupError(f"{path}: found {source.count(old)} times: {old!r}")
        source = source.replace(old, new)
    space: dict[str, Any] = {}
    code = compile(textwrap.dedent(source), path, "exec", _LAZY_ANNOTATIONS, True)
    exec(code, function.__globals__, space)
    (mutated,) = space.values()
    before = function.__code__
    function.__code__ = _function(mutated).__code__
    try:
        yield
    finally:
        function.__code__ = before
        function.__dict__.clear()  # state that the bug may have stored there


def _find(path: str) -> FunctionType:
    parts = path.split(".")
    for cut in range(len(parts) - 1, 0, -1):
        try:
            found: Any = import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for part in parts[cut:]:
            found = inspect.getattr_static(found, part)
        return _function(found)
    raise LookupError(path)


def _function(found: Any) -> FunctionType:
    function = found.fget if isinstance(found, property) else found
    assert isinstance(function, FunctionType)
    return function
