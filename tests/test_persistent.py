"""Containers that share structure behave like the plain ones, and share."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unweave.persistent import NOBODY, Bitmap, Stack, Vector

SIZES = st.one_of(st.integers(0, 40), st.sampled_from([31, 32, 33, 1023, 1024, 1025, 40_000]))


@given(SIZES, st.data())
def test_a_vector_is_a_list_whose_old_versions_stay(size, data):
    plain = list(range(size))
    vector, versions = Vector(plain), []
    places = st.integers(0, max(size - 1, 0))
    for place in data.draw(st.lists(places, max_size=8)) if size else ():
        versions.append((vector, tuple(plain)))
        assert vector.set(place, plain[place]) is vector
        vector, plain[place] = vector.set(place, -place), -place
        assert vector[place] == -place
        assert vector[place - size] == -place
    for version, values in [*versions, (vector, tuple(plain))]:
        assert tuple(version) == values
        assert len(version) == size
        assert version == Vector(values)
        assert hash(version) == hash(Vector(values))
        assert version[1:5] == values[1:5]
    for place in (size, -size - 1):
        with pytest.raises(IndexError):
            vector[place]
    with pytest.raises(IndexError):
        vector.set(size, 0)
    assert vector != Vector([*plain, 0])


def _nodes(vector: Vector[int]) -> set[int]:
    """The identities of a vector's inner nodes."""
    found, level = set(), [vector._root]
    while level:
        found |= set(map(id, level))
        level = [child for node in level for child in node if isinstance(child, tuple)]
    return found


def test_a_changed_vector_shares_all_but_one_path():
    size = 40_000
    before = Vector(range(size))
    for place in (0, 1023, size - 1):
        after = before.set(place, -1)
        new = _nodes(after) - _nodes(before)
        assert len(new) == 4  # 32⁴ > 40,000
        assert len(_nodes(before)) > 1_000


@given(st.sets(st.integers(0, 5_000), max_size=30), st.lists(st.integers(0, 5_000), max_size=12))
def test_a_bitmap_is_a_set_and_an_integer(start, steps):
    bitmap, plain = Bitmap(start), set(start)
    for k in steps:
        before, values = bitmap, set(plain)
        bitmap, plain = (
            (bitmap.minus(k), plain - {k})
            if k in plain
            else (
                bitmap.plus(k),
                plain | {k},
            )
        )
        assert before == values
    bits = sum(1 << k for k in plain)
    assert list(bitmap) == sorted(plain)
    assert bitmap == plain
    assert len(bitmap) == len(plain)
    assert bool(bitmap) == bool(plain)
    assert int(bitmap) == bits
    assert bitmap == Bitmap.of(bits)
    assert hash(bitmap) == hash(Bitmap.of(bits))
    assert all((k in bitmap) == (k in plain) for k in range(-1, 5_100, 7))
    assert bitmap - {*steps} == plain - {*steps}
    assert bitmap | {*steps} == plain | {*steps}
    assert bitmap.plus(9_999) != bitmap
    assert bitmap.minus(9_999) is bitmap


def test_a_bitmap_holds_no_negative_number():
    for make in (lambda: Bitmap([-1]), lambda: Bitmap.of(-1)):
        with pytest.raises(ValueError, match="bitmap"):
            make()
    assert -1 not in Bitmap([0])
    assert not NOBODY


@given(st.lists(st.one_of(st.none(), st.integers(0, 99)), max_size=30))
def test_a_stack_is_a_list_that_grows_at_its_end(steps):
    stack, plain = Stack(), []
    for step in steps:
        before, values = stack, list(plain)
        if step is not None:
            stack, plain = stack.push(step), [*plain, step]
        elif plain:
            stack, plain = stack.pop(), plain[:-1]
        assert list(before) == values
    assert list(stack) == plain
    assert list(reversed(stack)) == plain[::-1]
    assert stack == Stack.of(plain)
    assert hash(stack) == hash(Stack.of(plain))
    assert len(stack) == len(plain)
    assert (stack.root, stack.top) == ((plain[0], plain[-1]) if plain else (None, None))
    assert stack[:2] == tuple(plain[:2])


def test_an_empty_stack_has_no_top_to_remove():
    with pytest.raises(IndexError):
        Stack().pop()


def test_a_high_stack_is_no_deep_recursion():
    stack = Stack.of(range(10 * sys.getrecursionlimit()))
    assert stack == Stack.of(list(stack))
    del stack
