"""One-time keys: masks cancel, one key masks one value, and a masked value tells nothing."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from unweave.grid import Ints
from unweave.keyring import Keyring, is_usable_key, partners

NAME = bytes(range(32))


def ring_of(k: int, degree: int = 0) -> Keyring:
    return Keyring(random.Random(k).randbytes, degree=degree)


def masked_values(values: Sequence[Ints], degree: int = 0) -> list[tuple[Ints, Ints]]:
    """Every agent's value under its masks."""
    rings = [ring_of(k, degree) for k in range(len(values))]
    keys = {k: ring.enrol() for k, ring in enumerate(rings)}
    found = [ring.mask(k, NAME, keys, values[k]) for k, ring in enumerate(rings)]
    assert None not in found
    return [one for one in found if one is not None]


@given(
    st.integers(2, 9),
    st.integers(1, 40),
    st.integers(0, 2**32),
    st.sampled_from([0, 2, 4]),
)
def test_masks_cancel_in_the_sum_and_in_the_audit(
    agents: int, dim: int, seed: int, degree: int
) -> None:
    rng = np.random.default_rng(seed)
    values = [rng.integers(-(2**40), 2**40, dim) for _ in range(agents)]
    masked = masked_values(values, degree)
    for which in (0, 1):
        total = np.sum([one[which] for one in masked], axis=0)  # modulo 2^64
        assert np.array_equal(total, np.sum(values, axis=0))
    for one, value in zip(masked, values, strict=True):
        assert not np.array_equal(one[0], value)
        assert not np.array_equal(one[0], one[1])


def test_long_vectors_use_several_blocks() -> None:
    values = [np.full(200_001, k, dtype=np.int64) for k in range(3)]
    masked = masked_values(values)
    total = masked[0][0] + masked[1][0] + masked[2][0]
    assert np.array_equal(total, np.full(200_001, 3))
    assert len(np.unique(masked[0][0])) == 200_001


def test_a_key_masks_one_value() -> None:
    rings = [ring_of(k) for k in range(3)]
    keys = {k: ring.enrol() for k, ring in enumerate(rings)}
    assert rings[0].mask(0, NAME, keys, np.zeros(2, dtype=np.int64)) is not None
    assert rings[0].mask(0, NAME, keys, np.zeros(2, dtype=np.int64)) is None
    assert rings[0].mask(0, bytes(32), keys, np.ones(2, dtype=np.int64)) is None


def test_a_failing_round_uses_the_key_up() -> None:
    """The key is gone before anything can fail: an attacker cannot provoke a second value."""
    ring = ring_of(0)
    keys = {0: ring.enrol(), 1: bytes(32)}  # of low order
    assert ring.mask(0, NAME, keys, np.zeros(2, dtype=np.int64)) is None
    keys[1] = ring_of(1).enrol()
    assert ring.mask(0, NAME, keys, np.zeros(2, dtype=np.int64)) is None


def test_only_the_latest_unused_keys_are_kept() -> None:
    ring = ring_of(0)
    made = [ring.enrol() for _ in range(6)]
    other = ring_of(1).enrol()
    zeros = np.zeros(1, dtype=np.int64)
    assert ring.mask(0, NAME, {0: made[0], 1: other}, zeros) is None
    assert ring.mask(0, NAME, {0: made[-1], 1: other}, zeros) is not None


def test_another_round_has_other_masks() -> None:
    def first(name: bytes) -> Ints:
        rings = [ring_of(k) for k in range(2)]
        keys = {k: ring.enrol() for k, ring in enumerate(rings)}
        found = rings[0].mask(0, name, keys, np.zeros(4, dtype=np.int64))
        assert found is not None
        return found[0]

    assert np.array_equal(first(NAME), first(NAME))
    assert not np.array_equal(first(NAME), first(bytes(32)))


def test_keys_of_low_order_or_wrong_length_are_refused() -> None:
    one = (1).to_bytes(32, "little")
    order_eight = bytes.fromhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800")
    for key in (bytes(32), one, order_eight, b"", bytes(31), bytes(33)):
        assert not is_usable_key(key)
    assert is_usable_key(X25519PrivateKey.generate().public_key().public_bytes_raw())


def test_masked_values_are_uniform_and_independent_of_the_data() -> None:
    """χ² over the bytes of 3,000 masked values of agents with very different data, and the
    correlation of each bit count with the data."""
    rng = np.random.default_rng(0)
    sizes = [0, 1, 2**20, 2**40]
    bytes_seen = np.zeros(256)
    data, bits = [], []
    for seed in range(750):
        values = [np.full(8, size, dtype=np.int64) for size in rng.permutation(sizes)]
        rings = [Keyring(random.Random(f"{seed} {k}").randbytes) for k in range(4)]
        keys = {k: ring.enrol() for k, ring in enumerate(rings)}
        for k, ring in enumerate(rings):
            found = ring.mask(k, seed.to_bytes(32, "big"), keys, values[k])
            assert found is not None
            bytes_seen += np.bincount(found[0].view(np.uint8), minlength=256)
            data.append(float(values[k][0]))
            bits.append(np.unpackbits(found[0].view(np.uint8)).sum())
    assert stats.chisquare(bytes_seen).pvalue > 1e-4
    assert stats.spearmanr(data, bits).pvalue > 1e-4


def what_colluders_compute(secrets: Sequence[Ints], seed: int) -> tuple[Ints, Ints]:
    """The values of agents 0 and 1, for the sum and for the audit, without the streams that they
    share with agents 2 to 5, who know their own keys: [2 agents, components]."""

    def ring(k: int) -> Keyring:  # a second ring of a colluder has the same keys
        return Keyring(random.Random(f"{seed} {k}").randbytes)

    name, zeros = seed.to_bytes(32, "big"), np.zeros_like(secrets[0])
    rings = [ring(k) for k in range(6)]
    keys = {k: one.enrol() for k, one in enumerate(rings)}
    found = [np.empty((2, len(zeros)), dtype=np.int64) for _ in range(2)]
    for honest in (0, 1):
        given = rings[honest].mask(honest, name, keys, secrets[honest])
        assert given is not None
        for which in (0, 1):
            found[which][honest] = given[which]
        for k in range(2, 6):
            copy = ring(k)
            copy.enrol()
            pair = copy.mask(k, name, {k: keys[k], honest: keys[honest]}, zeros)
            assert pair is not None
            for which in (0, 1):
                found[which][honest] += pair[which]
    return found[0], found[1]


def uniform(words: Ints) -> bool:
    """Whether 64-bit words look uniform: by χ² over their bytes, and by size."""
    counts = np.bincount(np.ascontiguousarray(words).view(np.uint8).ravel(), minlength=256)
    by_size = stats.kstest(words.view(np.uint64).ravel() / 2.0**64, "uniform")
    return bool(stats.chisquare(counts).pvalue > 1e-5 and by_size.pvalue > 1e-5)


def test_all_but_two_agents_learn_the_sum_of_those_two_and_no_more() -> None:
    """K − 2 colluders take their own streams out. What is left of the two honest values adds up to
    their sum; given that sum, one of them determines the other, and it is uniform, whichever way
    the sum is split. So are its differences between the two accumulators, between components and
    between rounds: no stream is used twice."""
    total = np.array([4, 9, -3, 2**41], dtype=np.int64)
    splits = [np.array([5, 7, 0, 1]), np.array([-(2**40), 2**20, 1, 2**41])]
    seen = []
    for number, first in enumerate(splits):
        rounds = range(300 * number, 300 * (number + 1))  # fresh keys in each
        views = [what_colluders_compute([first, total - first], seed) for seed in rounds]
        for summed, audited in views:
            assert np.array_equal(summed.sum(axis=0), total)
            assert np.array_equal(audited.sum(axis=0), total)
        left, audit = (np.array([view[which][0] for view in views]) for which in (0, 1))
        for words in (left, audit, left - audit, np.diff(left, axis=1), np.diff(left, axis=0)):
            assert uniform(words)
        seen.append(left)
    for j in range(len(total)):
        one, other = (
            left[:, j].view(np.uint64) / 2.0**64 for left in map(np.ascontiguousarray, seen)
        )
        assert stats.ks_2samp(one, other).pvalue > 1e-5


def test_a_ring_of_partners_is_symmetric_and_drawn_by_the_round() -> None:
    roster = list(range(30))
    for name in (NAME, bytes(32)):
        pairs = {(k, j) for k in roster for j in partners(k, name, roster, 6)}
        assert pairs == {(j, k) for k, j in pairs}
        assert {len(partners(k, name, roster, 6)) for k in roster} == {6}
    assert partners(0, NAME, roster, 6) != partners(0, bytes(32), roster, 6)
    assert partners(0, NAME, [0, 1, 2], 6) == [1, 2]


def test_a_spent_budget_gives_no_key() -> None:
    class Spent:
        given, seen, left = 7, 0, 1

        def observe(self, given: int, vouched: bool) -> None:
            self.seen = given

        def pays_for(self, values: int) -> bool:
            return values <= self.left

        def release(self, key: bytes, units: Ints) -> Ints | None:
            return None

    spent = Spent()
    ring = Keyring(release=spent)
    assert ring.enrol(seen=9, ahead=1) == b""
    assert (spent.seen, ring.given) == (9, 7)
    key = ring.enrol()
    assert key
    # The budget was spent meanwhile: the key is gone with it, and nothing leaves.
    for _ in range(2):
        assert ring.mask(0, NAME, {0: key, 1: Keyring().enrol()}, np.zeros(2, np.int64)) is None


def test_noise_is_drawn_once_for_the_sum_and_the_audit() -> None:
    class Noisy:
        given, calls = 0, 0

        def observe(self, given: int, vouched: bool) -> None: ...

        def pays_for(self, values: int) -> bool:
            return True

        def release(self, key: bytes, units: Ints) -> Ints:
            assert key == keys[0]
            self.calls += 1
            return units + 1000

    noisy = Noisy()
    rings = [Keyring(release=noisy), Keyring()]
    keys = {k: ring.enrol() for k, ring in enumerate(rings)}
    found = [ring.mask(k, NAME, keys, np.zeros(2, np.int64)) for k, ring in enumerate(rings)]
    assert noisy.calls == 1
    for which in (0, 1):
        total = sum((one[which] for one in found if one is not None), np.zeros(2, np.int64))
        assert np.array_equal(total, [1000, 1000])
