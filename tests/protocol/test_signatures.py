"""Signatures that are collected one by one."""

import sys

import pytest

from unweave.protocol.audit import SharedSignatures


def test_one_more_is_a_mapping_like_any_other():
    before = {2: b"two", 5: b"five"}
    more = SharedSignatures(SharedSignatures(before, 7, b"seven"), 1, b"one")
    assert more == {1: b"one", 2: b"two", 5: b"five", 7: b"seven"}
    assert dict(more.items()) == dict(more)
    assert len(more) == 4
    assert set(more) == {1, 2, 5, 7}
    assert (more[1], more[2], more[7]) == (b"one", b"two", b"seven")
    with pytest.raises(KeyError):
        more[3]
    assert before == {2: b"two", 5: b"five"}


def test_ten_thousand_of_them_are_no_deep_recursion():
    more = {}
    for agent in range(10 * sys.getrecursionlimit()):
        more = SharedSignatures(more, agent, b"s")
    assert len(dict(more.items())) == len(more)
    del more
