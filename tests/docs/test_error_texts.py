"""Errors in the source are *cause, place. Fix: …*, in at most 40 words."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import unweave
from unweave import errors

ROOT = Path(unweave.__file__).parent
ROOMS = (
    *("arguments.py", "errors.py", "grid.py", "keys.py", "sharding.py"),
    *("models", "families", "solvers", "privacy", "graph", "experiments"),
    *("cli", "operations", "federation", "demo", "report", "datasets", "manifest", "simulator"),
    "node/identity.py",
)

# Texts that another function wrote, behind a place: `f"agent {name}: {error}"`.
_WRAPS = (
    *("{error}", "{DIVERGED}", "{unknown_agent(end, names)}"),
    *("{status['notice']}", "{best['why']}", "{next(iter(why.values()))}", "{child.trouble}"),
    "{self.masked}",
    "{explain(error, values, Manifest)}",
    "{explain(error, values, PrivacyEntry)}",
)


def files() -> list[Path]:
    return sorted(
        file for room in ROOMS for file in ([ROOT / room, *(ROOT / room).rglob("*.py")])
        if file.is_file()
    )  # fmt: skip


def text(node: ast.expr) -> str | None:
    """The text that an expression writes, with `{…}` for each value; None for a computed text."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(
            str(part.value) if isinstance(part, ast.Constant) else f"{{{ast.unparse(part.value)}}}"
            for part in node.values
            if isinstance(part, ast.Constant | ast.FormattedValue)
        )
    return None


def raised(file: Path) -> Iterator[tuple[int, str]]:
    """Line and text of every error of unweave that a file raises with a text of its own."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args:
            name = getattr(node.exc.func, "id", "")
            told = text(node.exc.args[0])
            if name in errors.__all__ and name != "MissingExtra" and told is not None:
                yield node.lineno, told


@pytest.mark.parametrize("file", files(), ids=lambda file: str(file.relative_to(ROOT)))
def test_an_error_names_a_fix_in_few_words(file: Path) -> None:
    for line, told in raised(file):
        place = f"{file.name}:{line}: {told}"
        assert len(told.split()) <= 40, place
        assert ". Fix: " in told or told.endswith(_WRAPS), place


def test_the_errors_of_these_rooms_are_found() -> None:
    assert sum(1 for file in files() for _ in raised(file)) > 120
