"""The sentences claim what is proved, and no more."""

from __future__ import annotations

from typing import get_args

import pytest

from unweave.protocol.certificate.format import Kind
from unweave.report.facts import CertificateFact, ErasureFact, PrivacyFact, plain
from unweave.report.words import (
    GLOSSARY,
    KINDS,
    estimate_words,
    limits,
    network_verdict,
    scope_words,
)

PLAIN = PrivacyFact("plain", "Neighbours can compute sums.")
NOISY = PrivacyFact("masked", "No agent sees another's sums.", 3, 1.0, 1e-6)
NAMES = ("a", "b", "c")


def certified(**more):
    values = {"state": "certified", "by": "owner", "kind": "exact"} | more
    return ErasureFact("b", values.pop("scope", "agent"), **values)


def told(erasures, privacy=PLAIN, **more):
    certificate = CertificateFact("c.json", b"{}", attested=NAMES, included=("a", "c"), **more)
    verdict = network_verdict(erasures, [certificate], privacy)
    return verdict, " ".join(plain(one) for one in verdict.sentences)


def test_with_noise_the_published_model_is_not_called_exact():
    _, text = told([certified(kind="exact_before_noise")], NOISY)
    assert "Before noise, the certified sum is exactly that of a network that never had" in text
    assert "it is not that of such a network bit for bit" in text
    assert "to the last bit" not in text
    assert any("did not add its noise" in plain(one) for one in limits((), NOISY, signed=True))


def test_keys_without_records_removed_nothing():
    verdict, text = told([certified(scope="records", records=0, remembered=2)])
    assert (verdict.level, verdict.headline) == ("open", "Certified, but no record was found")
    assert "2 keys of b named no record in its data: nothing was removed" in text
    _, text = told([certified(scope="records", records=1, remembered=2)])
    assert "1 record of b was removed." in text
    assert scope_words(certified(scope="records", records=1, remembered=2)) == (
        "1 record; 2 keys without a record"
    )


def test_what_did_not_converge_is_said():
    _, text = told([certified(kind="refined")], converged=False, estimate={"method": "none: x"})
    assert "The agents had not finished fitting when they signed" in text
    assert "was not estimated (x)" in text


@pytest.mark.parametrize(
    ("found", "shown"),
    [
        ({"kl_to_optimum": None, "method": "none: no gradient"}, "not estimated (no gradient)"),
        ({"kl_to_optimum": 2e-6, "bound": "no bound"}, "data: KL = 0.000002. Near 0"),
        ({"kl_to_optimum": 0.5, "bound": 20.0}, "KL = 0.5, and at most 20 by a computed bound"),
        ({"kl_to_optimum": 3e-14}, "KL = 3e-14. Near"),
        ({"kl_to_optimum": 0.0}, "KL = 0. Near"),
        (
            {"kl_to_optimum": 0.1, "published": {"identical": "proved: …"}},
            "Rounded for publication",
        ),
        ({}, "was not estimated."),
    ],
)
def test_an_estimate_is_one_agents_claim(found, shown):
    text = estimate_words(found, brief=True)
    assert shown in text
    claimed = "claim; no other agent has checked it" in text
    assert claimed is isinstance(found.get("kl_to_optimum"), float)
    undecided = estimate_words(found | {"published": {"identical": "not decided: …"}})
    assert "Rounded for publication" not in undecided


def test_how_an_estimate_was_made_is_in_the_details():
    found = {"kl_to_optimum": 0.1, "method": "half a norm", "accuracy": "within 3×"}
    assert "(method: half a norm; accuracy: within 3×)" in estimate_words(found)
    assert "half a norm" not in estimate_words(found, brief=True)


def test_many_erasures_are_counted():
    verdict, text = told([certified() for _ in range(7)])
    assert "Earlier erasures, 5 in number, are listed below." in text
    assert len(verdict.sentences) == 5


def test_open_erasures_come_before_what_is_proved():
    waiting = ErasureFact("c", "agent", "asked", by="owner")
    verdict, text = told([certified(), waiting])
    assert (verdict.level, verdict.headline) == ("open", "1 erasure not certified yet")
    assert text.startswith(
        "Everything of c is still in the model: requested, not yet removed. "
        "What follows is about the certified erasures alone. Everything of b was removed"
    )
    elsewhere = ErasureFact("c", "records", "removed", by="owner")
    verdict, text = told([elsewhere])
    assert verdict.headline == "1 erasure without a certificate here"
    assert text.startswith("Records of c were removed from the model, but no certificate")
    assert "agents have still to sign, or" in text
    signed = ErasureFact("c", "records", "removed", by="owner", certified="2026-01-31 12:00 UTC")
    verdict, text = told([signed, waiting])
    assert verdict.headline == "1 erasure not certified yet"
    assert text.startswith(
        "Records of c were removed from the model and, by the agents' logs, certified on "
        "2026-01-31 12:00 UTC. The certificate is not here: its owner's agent keeps the file."
    )


def test_a_stopped_network_is_never_good():
    for wrong in (("The network has stopped", "two audits"), ("An agent has lied", "c has lied")):
        verdict = network_verdict([certified()], [], PLAIN, wrong)
        assert (verdict.level, verdict.headline) == ("bad", wrong[0])


def test_a_request_that_waits_for_a_batch_has_its_date():
    waits = ErasureFact("c", "records", "waiting", by="owner", until="2026-02-01 00:00 UTC")
    verdict, text = told([certified(), waits])
    assert verdict.level == "open"
    assert text.startswith(
        "Records of c are still in the model: the request waits for other changes, until "
        "2026-02-01 00:00 UTC."
    )


def test_what_is_not_proved_is_always_said():
    for privacy in (PLAIN, NOISY):
        for signed in (True, False):
            text = " ".join(plain(one) for one in limits((), privacy, signed=signed))
            for word in ("Physical deletion.", "Truthful data.", "Copies elsewhere."):
                assert word in text


def test_ten_words_are_explained():
    assert len(GLOSSARY) == 10
    assert set(KINDS) >= set(get_args(Kind))
    assert set(KINDS) == {"exact", "exact_before_noise", "refined", "retrained", "subtracted"}
