"""One-time keys for private rounds. They exist in the memory of one process and nowhere else.

A key masks one value, and is gone afterwards. The secrecy of a round rests on that, so it is
enforced here, below the protocol: whatever the state machine asks, after whatever crash, restore or
fork, two different values never leave under one mask.

    mask_k = Σ_j sign(j − k) · stream_kj  mod 2^64       so  Σ_k mask_k = 0

`stream_kj` is an AES-256-CTR keystream under a key that agents k and j derive from their one-time
X25519 keys and the name of the round. The sum and the audit have streams of their own: with one
mask for both, a mask that does not cancel would be in both sums, and the audit would say "equal".
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from unweave.errors import MissingExtra
from unweave.grid import Ints

try:
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF
except ImportError:
    raise MissingExtra("cryptography", "verify", "private rounds") from None

__all__ = ["KEY_BYTES", "Keyring", "Release", "is_usable_key", "partners"]


KEY_BYTES = 32

_UNUSED = 4  # keys that wait for a round; an older one is dropped, and its agent enrols again
_BLOCK = 1 << 16  # words of keystream at a time: stays in the processor's cache


class Release(Protocol):
    """What happens to a value before it is masked: differential privacy. Without one, nothing."""

    @property
    def given(self) -> int:
        """How many values have left, or were paid for."""

    def observe(self, given: int, vouched: bool) -> None:
        """Durably count at least so many given values: others remember them. `vouched`: all who
        can have got a value do. Otherwise an account that may have forgotten some is spent."""

    def pays_for(self, values: int) -> bool:
        """Whether so many more values may leave."""

    def release(self, key: bytes, units: Ints) -> Ints | None:
        """The value that leaves under this key; None: the budget does not pay for it. The budget is
        charged, durably, before this returns."""


class Keyring:
    """The unused one-time keys of this process. `entropy(n)` gives n random bytes."""

    def __init__(
        self,
        entropy: Callable[[int], bytes] = os.urandom,
        release: Release | None = None,
        degree: int = 0,
    ) -> None:
        self._entropy = entropy
        self._release = release
        self._degree = degree
        self._keys: dict[bytes, X25519PrivateKey] = {}

    @property
    def given(self) -> int:
        """How many values have left with noise; 0 without differential privacy."""
        return 0 if self._release is None else self._release.given

    def enrol(self, seen: int = 0, ahead: int = 0, vouched: bool = False) -> bytes:
        """The public half of a new key; empty: no value may leave under it. `seen`: how many values
        this agent has given, by signed evidence, for which all neighbours have `vouched`; `ahead`:
        how many come before this key's."""
        if self._release is not None:
            self._release.observe(seen, vouched)
            if not self._release.pays_for(ahead + 1):
                return b""
        key = X25519PrivateKey.from_private_bytes(self._entropy(KEY_BYTES))
        public = key.public_key().public_bytes_raw()
        self._keys[public] = key
        while len(self._keys) > _UNUSED:
            del self._keys[next(iter(self._keys))]
        return public

    def mask(
        self, me: int, name: bytes, keys: Mapping[int, bytes], units: Ints
    ) -> tuple[Ints, Ints] | None:
        """`units` under the mask of the sum and under that of the audit; None: the key is gone, the
        privacy budget is, or another agent's key is none (it is refused where it arrives)."""
        key = self._keys.pop(keys.get(me, b""), None)  # before anything can fail
        if key is None:
            return None
        if self._release is not None:
            # Once: the sum and the audit hold the same noise.
            released = self._release.release(keys[me], units)
            if released is None:
                return None
            units = released
        total = units.astype(np.uint64), units.astype(np.uint64)
        for peer in partners(me, name, sorted(keys), self._degree):
            try:
                shared = key.exchange(X25519PublicKey.from_public_bytes(keys[peer]))
            except ValueError:
                return None
            pair = b"%d,%d" % (min(me, peer), max(me, peer))
            derive = HKDF(hashes.SHA256(), 2 * KEY_BYTES, name, b"unweave mask v1 " + pair)
            secret = derive.derive(shared)
            combine = np.add if me < peer else np.subtract
            for value, at in zip(total, (0, KEY_BYTES), strict=True):
                _combine(combine, value, secret[at : at + KEY_BYTES])
        return total[0].view(np.int64), total[1].view(np.int64)


def _combine(combine: np.ufunc, value: NDArray[np.uint64], key: bytes) -> None:
    """Add the keystream to `value`, or subtract it. The key is used once, so the counter starts at
    zero. A block at a time, so that the stream is never in main memory."""
    cipher = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()
    zeros = bytes(8 * min(_BLOCK, value.size))
    for start in range(0, value.size, _BLOCK):
        part = value[start : start + _BLOCK]
        stream = np.frombuffer(cipher.update(zeros[: 8 * part.size]), dtype="<u8")
        combine(part, stream, out=part)


def partners(me: int, name: bytes, roster: Sequence[int], degree: int) -> list[int]:
    """The agents with which `me` shares masks: all of them, or the `degree` nearest on a ring in an
    order that the round's name draws, so that no agent can choose its partners (Bell et al. 2020).
    """
    if not degree or degree >= len(roster) - 1:
        return [k for k in roster if k != me]
    ring = sorted(roster, key=lambda k: hashlib.sha256(name + b"%d" % k).digest())
    at, half = ring.index(me), (degree + 1) // 2
    near = (*range(-half, 0), *range(1, half + 1))
    return sorted({ring[(at + away) % len(ring)] for away in near} - {me})


@lru_cache(maxsize=1 << 12)  # a token shows the same keys at every hop of a round
def is_usable_key(public: bytes) -> bool:
    """Whether these bytes are an X25519 key. A key of low order gives everybody the same secret:
    its agent lies."""
    if len(public) != KEY_BYTES:
        return False
    try:
        _PROBE.exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError:
        return False
    return True


_PROBE = X25519PrivateKey.generate()
