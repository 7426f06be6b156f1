"""Names that are made when they are read are those that a tuple would hold."""

from __future__ import annotations

import pytest

from unweave.families import DiagonalNormalFamily
from unweave.families.names import Names

PARTS = ("w", (2, 3)), ("b", ()), ("c", (2,))
ALL = ("w[0,0]", "w[0,1]", "w[0,2]", "w[1,0]", "w[1,1]", "w[1,2]", "b", "c[0]", "c[1]")


def test_every_way_to_read_them_gives_the_same() -> None:
    names = Names(*PARTS)
    assert tuple(names) == ALL
    assert [names[j] for j in range(len(names))] == list(ALL)
    assert [names[j] for j in range(-len(names), 0)] == list(ALL)
    assert names[4:8:2] == ALL[4:8:2]
    assert "b" in names
    assert "d" not in names
    with pytest.raises(IndexError):
        names[9]


def test_they_equal_their_tuple() -> None:
    names = Names(*PARTS)
    assert names == ALL
    assert names == ALL
    assert hash(names) == hash(ALL)
    assert names == Names(("w", (2, 3)), ("b", ()), ("c[0]", ()), ("c[1]", ()))
    assert names != Names(("w", (2, 3)), ("b", ()), ("c", (3,)))
    assert names != [*ALL]


def test_a_million_names_take_no_room() -> None:
    family = DiagonalNormalFamily(1_000_000)
    assert len(family.component_names) == 2_000_000
    assert family.component_names[1_000_007] == "P[7]"
    assert family.theta_names[-1] == "theta[999999]"
