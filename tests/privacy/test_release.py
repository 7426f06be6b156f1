"""A value is paid for, then drawn, once; a ledger that fails ends in no key and no unpaid value."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from unweave.errors import StoreError
from unweave.keyring import Keyring
from unweave.models import BetaBernoulli
from unweave.node.storage.ledger import SqliteLedger
from unweave.privacy.ledger import MemoryLedger
from unweave.privacy.mechanism import Mechanism
from unweave.privacy.release import NoisyRelease
from unweave.privacy.terms import PrivacyTerms
from unweave.testing.values import small_terms

ROOT = Path(__file__).parents[2]
MECHANISM = Mechanism.of(BetaBernoulli(), PrivacyTerms(1.0, 1e-6, 3), 4)
ZERO = np.zeros(2, np.int64)


def source(size: int) -> bytes:
    return np.random.default_rng(size).bytes(size)


class Failing(MemoryLedger):
    broken = False

    def charge(self, key: bytes, rho: float) -> None:
        if self.broken:
            raise StoreError("the disk is full. Fix: make room")
        super().charge(key, rho)


def test_the_value_is_the_factor_and_the_noise_that_was_drawn():
    seen = {}
    release = NoisyRelease(MECHANISM, MemoryLedger(MECHANISM.budget), on_noise=seen.__setitem__)
    value = release.release(b"key", ZERO + 5)
    assert np.array_equal(value, seen[b"key"] + 5)
    assert (np.abs(seen[b"key"]) <= MECHANISM.reach).all()
    assert release.given == 1
    assert release.left == 2


def test_it_is_paid_for_before_it_is_drawn():
    ledger = MemoryLedger(MECHANISM.budget)

    def crash(size: int) -> bytes:
        raise KeyboardInterrupt  # the process ends in the draw

    with pytest.raises(KeyboardInterrupt):
        NoisyRelease(MECHANISM, ledger, crash).release(b"key", ZERO)
    assert ledger.given == 1
    with pytest.raises(StoreError, match="charged before"):  # and the key pays for nothing else
        NoisyRelease(MECHANISM, ledger, source).release(b"key", ZERO)


def test_the_budget_ends_in_no_value():
    release = NoisyRelease(MECHANISM, MemoryLedger(MECHANISM.budget), source)
    for n in range(3):
        assert release.pays_for(3 - n)
        assert not release.pays_for(4 - n)
        assert release.release(bytes([n]), ZERO) is not None
    assert release.release(b"more", ZERO) is None
    assert release.given == 3


def test_what_a_ledger_has_forgotten_is_charged_and_told():
    told = []
    release = NoisyRelease(MECHANISM, MemoryLedger(MECHANISM.budget), on_missing=told.append)
    release.observe(2, True)
    release.observe(1, True)
    release.observe(2, True)
    assert told == [2]
    assert release.left == 1


@pytest.mark.parametrize("how", ["restored", "lacking"])
def test_what_nobody_can_vouch_for_counts_as_spent(how):
    charged = []
    for vouched in (True, False):
        ledger = MemoryLedger(MECHANISM.budget)
        release = NoisyRelease(MECHANISM, ledger, source, on_unsure=charged.append)
        if how == "restored":
            ledger.doubt()
        release.begin(1)
        assert release.left == 2  # nobody was asked yet
        release.observe(1, vouched)
        assert ledger.in_doubt is not vouched
        assert release.left == (2 if vouched else 0)
        release.observe(1, True)  # too late
        assert release.left == (2 if vouched else 0)
        assert (release.release(b"key", ZERO) is not None) is vouched
    assert charged == [2]


def test_an_account_without_doubt_needs_nobody():
    release = NoisyRelease(MECHANISM, MemoryLedger(MECHANISM.budget), source)
    release.begin(0)
    release.observe(0, False)
    assert release.left == 3


def test_a_ledger_that_fails_gives_no_more_keys_until_the_agent_starts_again():
    """Rounds that break off again and again would cost the other agents their budgets."""
    ledger = Failing(MECHANISM.budget)
    release = NoisyRelease(MECHANISM, ledger, source)
    ring, other = Keyring(release=release), Keyring().enrol()
    key = ring.enrol()
    ledger.broken = True
    with pytest.raises(StoreError):
        ring.mask(0, bytes(32), {0: key, 1: other}, ZERO)
    with pytest.raises(StoreError):
        ring.enrol()
    assert ledger.given == 0
    ledger.broken = False
    release.begin(0)
    key = ring.enrol()
    assert ring.mask(0, bytes(32), {0: key, 1: other}, ZERO) is not None
    assert ledger.given == 1


KILLED = """
import os, signal, sys
import numpy as np
from tests.privacy.test_release import MECHANISM
from unweave.node.storage.ledger import SqliteLedger
from unweave.privacy.release import NoisyRelease
from unweave.testing.values import small_terms

def kill(size):
    os.kill(os.getpid(), signal.SIGKILL)

ledger = SqliteLedger.open(sys.argv[1], small_terms(agents=3), 1, MECHANISM.budget)
NoisyRelease(MECHANISM, ledger, kill).release(b"key", np.zeros(2, np.int64))
"""


def test_a_process_that_is_killed_after_the_charge_has_spent_it(tmp_path):
    path = tmp_path / "ledger.db"
    for _ in range(2):  # the second process finds the charge of the first, and is refused the key
        run = [sys.executable, "-c", KILLED, str(path)]
        ended = subprocess.run(run, cwd=ROOT, capture_output=True, text=True, check=False)
        ledger = SqliteLedger.open(path, small_terms(agents=3), 1, MECHANISM.budget)
        assert ledger.given == 1
        ledger.close()
    assert "was charged before" in ended.stderr
