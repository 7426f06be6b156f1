"""What differential privacy costs, and how wide its noise is against the records that are here.

For operators who have the records: the comparison without noise is theirs to see, and is shown
nowhere else.
"""

from __future__ import annotations

import numpy as np

from unweave.errors import DomainError
from unweave.grid import LIMIT, Ints
from unweave.models.resolution import Measured
from unweave.privacy.mechanism import Mechanism
from unweave.text import count

__all__ = ["costs", "with_noise", "within_share"]

_SHOWN = 4  # quantities by name


def costs(mechanism: Mechanism) -> str:
    """What one value costs, and what the budget pays for."""
    terms = mechanism.terms
    return (
        f"epsilon {terms.epsilon:g}, delta {terms.delta:g} for each record: every round takes one "
        f"of {mechanism.releases} values of each agent (rho {mechanism.rho:.3g} of "
        f"{mechanism.budget:.3g}), {_colluders(terms.colluders)}; erasing refunds nothing"
    )


def _colluders(number: int) -> str:
    return "if no agents collude" if not number else f"if at most {count(number, 'agent')} collude"


def with_noise(mechanism: Mechanism, sums: Measured, shares: int) -> tuple[str, str]:
    """How wide the posterior of these sums would be with the noise of so many agents, and without;
    and a warning if the noise leaves nearly nothing."""
    units = np.array([int(u) for u in sums.units], dtype=np.int64)
    total: Ints = mechanism.model.eta0 + units
    noisy = mechanism.posterior(total, shares)
    try:
        exact = mechanism.stated.posterior(total).marginals
    except DomainError:  # no records
        return "", ""
    widths = [
        f"{law.name} ± {float(law.sd()):.2g} (without noise ± {float(before.sd()):.2g})"
        for law, before in zip(noisy.marginals, exact, strict=True)
    ]
    more = ", …" if len(widths) > _SHOWN else ""
    return ", ".join(widths[:_SHOWN]) + more, noisy.remark or ""


def within_share(mechanism: Mechanism | None, sums: Measured) -> list[int]:
    """The largest value that an agent with these sums may give, in grid units."""
    reach = [0] * len(sums.units) if mechanism is None else mechanism.reach.tolist()
    return [
        min(abs(int(unit)) + far, LIMIT) * (1 if unit >= 0 else -1)
        for unit, far in zip(sums.units, reach, strict=True)
    ]
