"""Every law for every family that can be held to it."""

import pytest

from unweave.testing.families import CASES, FamilyCase, Law, laws_for

PAIRS = [(case, law) for case in CASES for law in laws_for(case)]


@pytest.mark.parametrize(
    ("case", "law"), PAIRS, ids=[f"{case}-{law.__name__}" for case, law in PAIRS]
)
def test_law(case: FamilyCase, law: Law) -> None:
    law(case)
