"""The protocol page says what the code does: events, roles, signed types, certificate keys."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import pytest

from unweave.protocol import machine as agent
from unweave.protocol import state, visit
from unweave.protocol import statements as chapters
from unweave.protocol import statements as records
from unweave.protocol.messages import Message
from unweave.protocol.token import Token

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "explanation" / "protocol.md").read_text()


def section(title: str) -> str:
    return TEXT.split(f"## {title}\n", 1)[1].split("\n## ", 1)[0]


def rows(title: str) -> list[list[str]]:
    lines = [line for line in section(title).splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_the_table_has_every_event_and_no_other() -> None:
    documented = {row[0].strip("`") for row in rows("Transitions")} - {"Event"}
    handled = {kind.__name__ for kind in (*agent._EVENTS, *agent._MESSAGES)} - {"Received"}
    assert documented == handled | {"start"}


def test_the_picture_shows_the_table_of_moves() -> None:
    """`test_generated_pages_are_current` compares it as a whole; here: that it says something."""
    picture = (ROOT / "docs" / "images" / "roles.svg").read_text(encoding="utf-8")
    for role in (*get_args(state.Role), "Quarantine"):
        assert f">{getattr(role, '__name__', role)}</text>" in picture
    arrows = picture.count('marker-end="url(#tip)"')
    assert arrows == 1 + sum(move.before != "Quarantine" for move in agent.MOVES)
    assert "![The roles of an agent" in section("Roles")
    drawn = {tuple(row[:2]) for row in rows("Roles")} - {("from", "to")}
    assert drawn == {(move.before, move.after) for move in agent.MOVES}


def test_every_message_and_every_field_of_the_token_is_named() -> None:
    text = section("What travels")
    for kind in get_args(Message):
        assert f"`{kind.__name__}`" in text
    for field in Token._fields:
        if field != "inside":  # a bitmap of `included`, for speed
            assert f"`{field}`" in text


@pytest.mark.parametrize("module", [chapters, records, visit])
def test_every_signed_type_is_listed(module: Any) -> None:
    for value in vars(module).values():
        if isinstance(value, type) and issubclass(value, records.SignedStatement) and value.kind:
            assert f"`{value.kind}`" in section("What is signed")


def test_the_keys_of_every_signed_record_are_listed() -> None:
    vectors = json.loads((ROOT / "tests" / "vectors" / "signatures.json").read_text())
    listed = {row[1].strip("`"): row[2] for row in rows("What is signed") if len(row) == 5}
    for vector in vectors:
        body = json.loads(vector["payload"])
        if vector["payloadType"] == "application/vnd.in-toto+json":
            text = section("What is signed")
            assert all(f"`{key}`" in text for key in body["predicate"])
        else:
            keys = set(listed[vector["payloadType"]].split(", "))
            assert keys == set(body) - {"given"}  # of an enrolment, with differential privacy
            assert "given" not in body or "`given`" in section("What is signed")
