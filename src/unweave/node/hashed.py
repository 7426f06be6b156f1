"""Signing what is too large to be written down a second time."""

from __future__ import annotations

import hashlib

__all__ = ["Hashed"]


class Hashed(bytes):
    """The SHA-256 of what is signed, in its place: the signature is the same."""

    __slots__ = ()

    @classmethod
    def of(cls, *parts: bytes | memoryview) -> Hashed:
        h = hashlib.sha256()
        for part in parts:
            h.update(part)
        return cls(h.digest())
