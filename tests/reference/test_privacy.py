"""OpenDP and dp-accounting still say what tests/golden says, and OpenDP draws what we draw."""

import json
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from tests.reference.privacy import FILE, conversion, opendp_draws
from unweave.models import BetaBernoulli
from unweave.privacy.discrete_gaussian import DiscreteGaussian
from unweave.privacy.mechanism import Mechanism
from unweave.privacy.terms import PrivacyTerms

pytestmark = [
    pytest.mark.reference,
    pytest.mark.filterwarnings("default"),  # the other software's warnings are its own
]
CASES = json.loads(FILE.read_text(encoding="utf-8"))["conversions"]


@pytest.fixture(autouse=True)
def _installed():
    pytest.importorskip("opendp", reason="OpenDP is not installed: run `make test-slow`")
    pytest.importorskip("dp_accounting", reason="not installed: run `make test-slow`")


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c['rho']},{c['delta']}")
def test_conversions_agree_with_the_golden_values(case):
    assert conversion(case["rho"], case["delta"]) == pytest.approx(case, rel=1e-9)


@pytest.mark.parametrize("scale", [0.8, 4.0, 25.0, 300.0])
def test_both_samplers_draw_from_one_distribution(scale):
    """χ² of homogeneity over classes of about equal probability."""
    n = 60_000
    theirs = np.array(opendp_draws(scale, n))
    ours = DiscreteGaussian(Fraction(scale) ** 2).draw(n)
    both = np.concatenate([theirs, ours])
    edges = np.unique(np.quantile(both, np.linspace(0, 1, 31)[1:-1]).astype(int))
    table = [np.bincount(np.digitize(x, edges), minlength=len(edges) + 1) for x in (theirs, ours)]
    assert stats.chi2_contingency(table).pvalue > 1e-4


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 4.0])
def test_dp_accounting_finds_the_promise_kept(epsilon):
    """All releases of a mechanism together, as a composition of Gaussians with their noise."""
    import dp_accounting
    from dp_accounting import pld, rdp

    mechanism = Mechanism.of(BetaBernoulli(), PrivacyTerms(epsilon, 1e-6, 20, 1), 6)
    event = dp_accounting.GaussianDpEvent((2 * mechanism.rho) ** -0.5)
    for accountant in (rdp.RdpAccountant([1 + 1.01**k * 1e-3 for k in range(1800)]),
                       pld.PLDAccountant()):  # fmt: skip
        accountant.compose(event, mechanism.releases)
        assert accountant.get_epsilon(1e-6) <= epsilon * (1 + 1e-4)
