"""Every row of the tables of what an insider can do, and of what each party sees in each privacy
mode, names tests that exist."""

import importlib
import inspect
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "explanation" / "security.md").read_text(encoding="utf-8")
SECTION = PAGE.partition("## What an insider can do\n")[2].partition("\n## ")[0]
ROWS = [line.strip("|").split(" | ") for line in SECTION.splitlines() if line.startswith("| ")][1:]
TEST = re.compile(r"`(tests/[a-z_/]+\.py)::(test_[a-z_]+)(?:\[([^\]]+)\])?`")


MODES = PAGE.partition("### By privacy mode\n")[2].partition("\n###")[0]
SEEN = [line.strip("|").split(" | ") for line in MODES.splitlines() if line.startswith("| ")][1:]


def cases(function):
    """The values of the one parameter of a test."""
    (mark,) = [m for m in function.pytestmark if m.name == "parametrize"]
    return set(mark.args[1])


@pytest.mark.parametrize("row", ROWS, ids=[row[0].strip()[:40] for row in ROWS])
def test_each_row_names_tests_that_exist(row):
    attack, result, tests = row
    assert attack.strip()
    assert result.strip()
    assert named(tests), row


@pytest.mark.parametrize("row", SEEN, ids=[row[0].strip()[:40] for row in SEEN])
def test_each_row_of_the_privacy_modes_names_tests_that_exist(row):
    party, plain, masked, noisy, tests = row
    assert all(cell.strip() for cell in (party, plain, masked, noisy))
    assert named(tests) or tests.strip() == "–"


def named(tests):
    """The tests that a cell names, all of which exist."""
    found = TEST.findall(tests)
    assert len(found) == tests.count("::"), tests
    for path, name, case in found:
        module = importlib.import_module(path.removesuffix(".py").replace("/", "."))
        function = getattr(module, name)
        assert inspect.isfunction(function)
        assert not case or case in cases(function), (path, name, case)
    return found


def test_every_kind_of_lie_has_a_row():
    """A new kind of lie is a new thing that an insider can do."""
    from tests.faults.test_lies import LIES, TOKENS

    named = {case for _, _, case in TEST.findall(SECTION)}
    same = {"factor", "removed", "renamed", "revision"}  # other forms of a wrong sum
    assert (LIES.keys() | TOKENS.keys()) - same <= named
