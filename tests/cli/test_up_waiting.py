"""Whom `up` waits for."""

from unweave.cli.up import _missing


def known(**changes):
    here = {"rest": [1], "resting": "a1", "complete": True, "attested": 2, "left": ["a3"]}
    return here | changes


def test_nobody_waits_for_one_who_is_gone():
    found = {"a1": known(), "a2": known()}
    assert _missing(found, ["a3"]) == ""
    assert _missing({**found, "a3": known(resting=None)}, []) == ""
    assert _missing({**found, "a2": known(resting=None)}, ["a3"]) == "a2"
    assert _missing({"a1": known(left=[]), "a2": known(left=[])}, ["a3"]) == "a3"
