"""A certificate gives no sum away: the attack that found one in every Beta-Bernoulli certificate.

The attacker has the certificate and the manifest. The model has two counts, so it can compute every
sum that up to RECORDS records can have, and compare what it gets with every digest in the file. It
found the sums and the erased bit in less than a second while certificates held SHA-256 of sums.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import itertools
import json
import re
from collections.abc import Iterator
from functools import cache

import numpy as np
import pytest
from tests.support.certificates import Bench

from unweave.grid import digest
from unweave.keys import verifier
from unweave.protocol.certificate import write
from unweave.protocol.certificate.unchecked import unchecked_payloads
from unweave.protocol.certificate.verify import verify
from unweave.protocol.token import Token

RECORDS = 473  # 112,575 sums: as many as in the attack that worked
SOME = 60  # more than there are: for many keys


@cache
def sums(manifest: bytes, records: int = RECORDS) -> dict[bytes, tuple[int, int]]:
    """Every sum of up to so many records, as bytes, and its counts. Beta(2, 2): the manifest."""
    assert b"beta-bernoulli" in manifest
    counts = [(a, n - a) for n in range(records + 1) for a in range(n + 1)]
    units = (np.array(counts, dtype="<i8") + 2) << 24
    return dict(zip((row.tobytes() for row in units), counts, strict=True))


def shown(raw: bytes) -> set[str]:
    """Every digest in the file: in the documents, and in the receipts inside tombstones."""
    text = b"\n".join(unchecked_payloads(raw)).decode()
    return set(re.findall("[0-9a-f]{64}", text))


def keys_in(raw: bytes, manifest: bytes) -> Iterator[bytes]:
    """What could be a key, if it were in the file or easy to guess."""
    yield from (b"", bytes(32), *(hashlib.sha256(file).digest() for file in (manifest, raw)))
    yield from (bytes.fromhex(one) for one in shown(raw))
    file = json.loads(raw)
    for envelope in (file["attestation"], file["closing"], *file["tombstones"]):
        signature = base64.b64decode(envelope["signatures"][0]["sig"])
        yield from (signature, hashlib.sha256(signature).digest())


def attack(raw: bytes, manifest: bytes, *keys: bytes) -> set[tuple[int, int]]:
    """The sums whose digest is in the file: plain, or under one of these keys."""
    wanted, found = shown(raw), set()
    for units, counts in sums(manifest).items():
        if hashlib.sha256(units).hexdigest() in wanted:
            found.add(counts)
    for key, (units, counts) in itertools.product(keys, sums(manifest, SOME).items()):
        if hmac.digest(key, units, "sha256").hex() in wanted:
            found.add(counts)
    return found


def one_record() -> tuple[Bench, bytes, Token]:
    """32 records of four agents, of which one is forgotten: 0 of agent c."""
    bench = Bench()
    raw = bench.erase("c", "one bit", [0])
    token = bench.world.state(0).token.copy
    assert token is not None
    return bench, raw, token


def counts_of(token: Token) -> tuple[int, int]:
    a, b = (token.eta >> 24) - 2
    return int(a), int(b)


def test_the_sum_cannot_be_guessed_and_can_be_opened() -> None:
    bench, raw, token = one_record()
    manifest = bench.manifest.raw
    assert attack(raw, manifest, *keys_in(raw, manifest)) == set()
    assert attack(raw, manifest, token.round.secret) == {counts_of(token)} == {(11, 20)}
    account = verify(raw, bench.terms, verifier(bench.manifest.pems()))
    assert account.opens(token.round.secret, token.eta)
    assert not account.opens(token.round.secret, token.eta + 1)
    assert not account.opens(bytes(32), token.eta)
    assert not account.opens(token.round.secret + b"\0", token.eta)  # HMAC pads keys with zeros


def test_the_attack_finds_a_plain_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the test above would prove nothing."""
    monkeypatch.setattr(write, "keyed_digest", lambda secret, units: digest(units))
    bench, raw, token = one_record()
    assert attack(raw, bench.manifest.raw) == {counts_of(token)}


def test_every_round_has_a_secret_of_its_own_on_tokens_alone() -> None:
    bench, _, token = one_record()
    again = bench.erase("c", "another bit", [1])
    later = bench.world.state(0).token.copy
    assert later is not None
    assert later.round.secret != token.round.secret
    for k in range(4):
        s = bench.world.state(k)
        held = [t for t in (s.token.held, s.token.copy) if t is not None]
        assert {t.round.secret for t in held} == {later.round.secret}  # the old one is nowhere
    manifest = bench.manifest.raw
    assert attack(again, manifest, token.round.secret) == set()  # nor does it open another sum
    assert attack(again, manifest, later.round.secret) == {counts_of(later)}


def test_nothing_that_stays_names_a_sum() -> None:
    """Receipts, tombstones and votes are kept by every agent, also when the sum has gone."""
    bench, _, _ = one_record()
    bench.declare_departed("d", "gone")
    known = {hashlib.sha256(units).hexdigest() for units in sums(bench.manifest.raw)}
    for k in range(3):
        s = bench.world.state(k)
        statements = [*s.own.receipts, *s.known.tombstones.values(), *s.known.votes.values()]
        assert statements
        text = b"\n".join(one.raw for one in statements).decode()
        assert not known.intersection(re.findall("[0-9a-f]{64}", text))


@pytest.mark.parametrize(
    ("value", "stated"),
    [(3.14159e-7, 4e-7), (0.001, 0.001), (9.7, 10.0), (0.0, 0.0), (float("inf"), None)],
)
def test_an_estimate_has_one_digit_and_a_bound_stays_a_bound(
    value: float, stated: float | None
) -> None:
    said = {"kl_to_optimum": value, "bound": [value], "degree": 4, "method": "m"}
    wanted = {"kl_to_optimum": stated, "bound": [stated], "degree": 4, "method": "m"}
    assert write._coarse(said) == wanted
