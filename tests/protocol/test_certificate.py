"""Certificates of networks that really ran: what they say, and that other tools can read them."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from random import Random
from typing import Any

import pytest
from securesystemslib.dsse import Envelope
from securesystemslib.exceptions import VerificationError
from securesystemslib.signer import SSlibKey
from tests.support.certificates import OTHER, Bench, fixed_identity, fixed_request
from tests.support.tally import Tally, draw_erasure, tally_terms

from unweave.graph.random_graphs import erdos_renyi
from unweave.keys import verifier
from unweave.protocol.certificate.verify import Account, verify
from unweave.protocol.certificate.write import attestation
from unweave.protocol.events import Certified, Effect, Refused, Send
from unweave.protocol.messages import Pass, Share
from unweave.protocol.state import State
from unweave.protocol.terms import Timeouts
from unweave.simulator.faults import PROFILES, RandomFaults
from unweave.simulator.invariants import Checker
from unweave.simulator.workload import run_workload
from unweave.simulator.world import World
from unweave.testing.values import small_terms
from unweave.testing.values import token as draw_token

SECRET = bytes(range(32))


def account(bench: Bench, raw: bytes) -> Account:
    return verify(raw, bench.terms, verifier(bench.manifest.pems()))


def kinds(found: Account) -> list[tuple[str, str, str, str]]:
    return [(e.agent, e.scope, e.kind, e.by) for e in found.erasures]


def payload(envelope: dict[str, Any]) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(base64.b64decode(envelope["payload"]))
    return value


@cache
def whole_agent() -> tuple[Bench, bytes]:
    bench = Bench()
    return bench, bench.erase("b", "one")


@cache
def gone_agent() -> tuple[Bench, bytes]:
    bench = Bench("abcde")
    parked = bench.world.parked
    assert parked is not None
    return bench, bench.declare_departed("abcde"[(parked + 2) % 5], "departed")


def test_a_network_without_erasures_certifies_nothing() -> None:
    assert Bench().certificates == []


def test_a_whole_agent() -> None:
    bench, raw = whole_agent()
    found = account(bench, raw)
    assert kinds(found) == [("b", "agent", "exact", "owner")]
    assert found.attested == ("a", "b", "c", "d")  # erased is not departed: b attests too
    assert found.included == ("a", "c", "d")
    assert found.converged
    assert found.estimate is None
    assert found.manifest == hashlib.sha256(bench.manifest.raw).hexdigest()


def test_the_certified_sum_is_the_one_of_a_network_that_never_had_the_agent() -> None:
    bench, raw = whole_agent()
    certified = account(bench, raw).commitment
    factors = [bench.world.state(k).own.factors for k in range(4)]
    assert factors[1] == ()
    eta = bench.terms.eta0 + sum(f[0].units for f in factors if f)
    (secret,) = {bench.world.state(k).token.copy.round.secret for k in range(4)}
    assert certified == hmac.digest(secret, eta.astype("<i8").tobytes(), "sha256").hex()


def test_single_records() -> None:
    bench = Bench()
    found = account(bench, bench.erase("c", "two", [0, 3]))
    assert kinds(found) == [("c", "records", "exact", "owner")]
    assert found.erasures[0].rows == 2
    assert found.included == ("a", "b", "c", "d")


def test_all_records_of_an_agent_leave_it_out_of_the_sum() -> None:
    bench = Bench()
    found = account(bench, bench.erase("c", "two", range(8)))
    assert found.included == ("a", "b", "d")


def test_several_erasures_at_once_share_a_certificate() -> None:
    bench = Bench()
    bench.request("b", "one")
    bench.request("c", "two", [1])
    bench.request("c", "three", [2, 3])
    bench.settle()
    assert len(bench.certificates) == 1
    assert sorted(kinds(account(bench, bench.certificates[0]))) == [
        ("b", "agent", "exact", "owner"),
        ("c", "records", "exact", "owner"),
        ("c", "records", "exact", "owner"),
    ]


def test_later_certificates_repeat_earlier_erasures() -> None:
    bench = Bench()
    first = account(bench, bench.erase("b", "one"))
    second = account(bench, bench.erase("c", "two", [5]))
    assert set(first.erasures) < set(second.erasures)


def test_records_and_then_the_whole_agent() -> None:
    bench = Bench()
    bench.erase("b", "records", [1])
    found = account(bench, bench.erase("b", "all"))
    assert sorted(kinds(found)) == [
        ("b", "agent", "exact", "owner"),
        ("b", "records", "exact", "owner"),
    ]


def test_a_departed_agent() -> None:
    bench, raw = gone_agent()
    found = account(bench, raw)
    gone = found.not_attested[0]
    assert kinds(found) == [(gone, "agent", "exact", "quorum")]
    assert found.erasures[0].request == fixed_request("departed").hex()
    assert gone not in found.attested
    assert gone not in found.included
    assert len(found.attested) == 4


def test_records_erased_by_an_agent_that_departs_later() -> None:
    bench = Bench("abcde")
    bench.erase("b", "records", [1])
    if bench.world.parked == 1:  # the holder must live to let the token go
        bench.erase("d", "elsewhere", [1])
    found = account(bench, bench.declare_departed("b", "departed"))
    of_b = sorted(k for k in kinds(found) if k[0] == "b")
    assert of_b == [("b", "agent", "exact", "quorum"), ("b", "records", "exact", "owner")]


def test_a_network_that_refines() -> None:
    bench = Bench(model=OTHER)
    found = account(bench, bench.erase("b", "one"))
    assert kinds(found) == [("b", "agent", "refined", "owner")]
    assert found.estimate is not None
    assert found.estimate["bound"] is None


def test_a_network_that_retrains() -> None:
    bench = Bench(model=OTHER, judgement=False)
    found = account(bench, bench.erase("b", "one"))
    assert kinds(found) == [("b", "agent", "retrained", "owner")]
    assert found.epoch == 2


def test_passes_that_ran_out_are_confessed() -> None:
    bench = Bench(model=OTHER, max_passes=1)
    assert not account(bench, bench.erase("b", "one")).converged


def test_nobody_believes_an_erasure_without_the_evidence() -> None:
    """Request ids ride on the token, the signed records beside it. A token that comes without them
    is refused: one lying neighbour must not be able to take anybody out."""
    bench = Bench()
    perform = bench.world._perform
    refused: list[str] = []

    def stripped(k: int, effect: Any) -> None:
        if isinstance(effect, Refused):
            refused.append(effect.why)
        if isinstance(effect, Send) and isinstance(effect.message, Pass):
            effect = effect._replace(message=effect.message._replace(gossip=None))  # ids alone
        if isinstance(effect, Send) and isinstance(effect.message, Share):
            said = effect.message.gossip.erasures
            if said is not None and said.tombstones:
                return
        perform(k, effect)

    bench.world._perform = stripped  # type: ignore[method-assign]
    bench.request("b", "one")
    bench.settle()
    assert any("without its signed tombstone" in why for why in refused)
    assert bench.certificates == []
    knowing = [k for k in range(4) if bench.world.state(k).known.tombs]
    assert knowing == [1]


class Clerk:
    """Collects the certificates of a fault run."""

    def __init__(self) -> None:
        self.certificates: list[bytes] = []

    def after(self, agent: int, before: State, after: State, effects: Sequence[Effect]) -> None:
        self.certificates += [e.certificate for e in effects if isinstance(e, Certified)]


@pytest.mark.parametrize("profile", ["lossy", "crashes", "disks", "departed"])
def test_under_faults_every_certificate_holds(profile: str) -> None:
    """Drops, crashes, restored backups, agents gone for good: nothing is certified that a third
    party could not verify."""
    written = 0
    for seed in range(6):
        size = 3 + seed % 3
        people = [fixed_identity(f"a{k + 1}") for k in range(size)]
        terms = tally_terms(
            erdos_renyi(size, 0.6, seed=seed),
            seed,
            conjugate=bool(seed % 2),
            max_passes=8,
            timeouts=Timeouts(welcome=2.0, resend=0.5, ack=3.0, alive=1.0, loss=10.0),
            keyids=tuple(one.keyid for one in people),
        )
        faults, checker, clerk = (
            RandomFaults(PROFILES[profile], size, seed),
            Checker(terms),
            Clerk(),
        )
        world = World(
            terms,
            [Tally(k, terms.conjugate) for k in range(size)],
            seed=seed,
            faults=faults,
            signers=[one.sign for one in people],
            observers=[checker, clerk],
        )
        run_workload(world, faults, checker, draw_erasure, events=200)
        check = verifier([one.public_pem for one in people])
        for raw in clerk.certificates:
            verify(raw, terms, check)
        written += len(clerk.certificates)
    assert written >= 4


# ----------------------------------------------------------- a second opinion: securesystemslib


def sslib_keys(bench: Bench) -> list[SSlibKey]:
    return [
        SSlibKey(i.keyid, "ecdsa", "ecdsa-sha2-nistp256", {"public": i.public_pem})
        for i in bench.identities
    ]


@pytest.mark.parametrize("case", [whole_agent, gone_agent])
def test_other_tools_accept_every_envelope(case: Any) -> None:
    bench, raw = case()
    keys = sslib_keys(bench)
    file = json.loads(raw)
    attesters = [k for k in keys if k.keyid in str(file["attestation"]["signatures"])]
    accepted = Envelope.from_dict(file["attestation"]).verify(attesters, len(attesters))
    assert len(accepted) == 4
    assert len(Envelope.from_dict(file["closing"]).verify(keys, 1)) == 1
    for record in file["tombstones"] + file["votes"]:
        assert len(Envelope.from_dict(record).verify(keys, 1)) == 1


def test_other_tools_refuse_other_bytes() -> None:
    bench, raw = whole_agent()
    envelope = Envelope.from_dict(json.loads(raw)["attestation"])
    envelope.payload = envelope.payload.replace(b'"departed":false', b'"departed":true')
    with pytest.raises(VerificationError):
        envelope.verify(sslib_keys(bench), 1)


def test_payloads_are_in_toto_statements() -> None:
    file = json.loads(whole_agent()[1])
    for part, kind in (
        ("attestation", "urn:unweave:attestation:v3"),
        ("closing", "urn:unweave:erasure:v3"),
    ):
        assert file[part]["payloadType"] == "application/vnd.in-toto+json"
        statement = payload(file[part])
        assert statement["_type"] == "https://in-toto.io/Statement/v1"
        assert statement["predicateType"] == kind
        assert set(statement["subject"][0]["digest"]) == {"hmac_sha256"}


def test_a_statement_that_was_written_before_is_about_this_very_token() -> None:
    """One process writes it once per cover; a token that differs in anything gets another one."""
    terms, draw = small_terms(), Random(3)
    token, other = draw_token(draw, terms), draw_token(draw, terms)
    open_requests = frozenset(r for tomb in token.tombs.values() for r in tomb.open)
    other = other._replace(retrain_epoch=open_requests)
    first = attestation(terms, token, SECRET)
    assert attestation(terms, token._replace(passes=7), SECRET) is first
    assert attestation(terms, token, bytes(32)) != first
    for name in ("eta", "included", "tombs", "retrain_epoch", "receipts", "stamp"):
        changed = token._replace(**{name: getattr(other, name)})
        assert attestation(terms, changed, SECRET) == attestation(replace(terms), changed, SECRET)
        assert attestation(terms, changed, SECRET) != first
        assert attestation(terms, token, SECRET) == first
