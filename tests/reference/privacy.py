"""Conversions from zCDP to (ε, δ) by OpenDP and by dp-accounting."""

from __future__ import annotations

from importlib.metadata import version
from math import sqrt
from pathlib import Path
from typing import Any

__all__ = ["FILE", "conversion", "opendp_draws", "privacy_references"]

FILE = Path(__file__).parents[1] / "golden" / "privacy.json"

POINTS = [(rho, d) for rho in (1e-4, 0.0243559, 0.1, 0.5, 3.0) for d in (1e-3, 1e-6, 1e-10)]


def _opendp() -> Any:
    import opendp.prelude as dp

    dp.enable_features("contrib", "honest-but-curious")
    return dp


def conversion(rho: float, delta: float) -> dict[str, float]:
    """ε of a Gaussian mechanism that costs ρ."""
    import dp_accounting
    from dp_accounting import pld, rdp

    dp, scale = _opendp(), 1 / sqrt(2 * rho)
    space = dp.atom_domain(T=int), dp.absolute_distance(T=float)
    curve = dp.c.make_zCDP_to_approxDP(dp.m.make_gaussian(*space, scale=scale)).map(1.0)
    # The best order grows with √(log(1/δ)/ρ).
    orders = [1 + 1.01**k * 1e-3 for k in range(1800)]
    event = dp_accounting.GaussianDpEvent(scale)
    renyi, exact = rdp.RdpAccountant(orders), pld.PLDAccountant()
    renyi.compose(event)
    exact.compose(event)
    return {
        "rho": rho,
        "delta": delta,
        "opendp": float(curve.epsilon(delta)),
        "dp_accounting": float(renyi.get_epsilon(delta)),
        "dp_accounting_pld": float(exact.get_epsilon(delta)),
    }


def opendp_draws(scale: float, count: int) -> list[int]:
    """Draws of OpenDP's discrete Gaussian."""
    dp = _opendp()
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.l2_distance(T=float)
    found: list[int] = dp.m.make_gaussian(*space, scale=scale)([0] * count)
    return found


def privacy_references() -> dict[str, Any]:
    """The values of tests/golden/privacy.json."""
    return {
        "software": {name: version(name) for name in ("opendp", "dp-accounting")},
        "conversions": [conversion(rho, delta) for rho, delta in POINTS],
    }
