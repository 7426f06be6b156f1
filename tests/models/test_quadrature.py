"""Few nodes where a predictor is narrow, with the accuracy of many."""

from __future__ import annotations

import numpy as np
import pytest
from tests.support.glm import CASES, GlmCase

from unweave.models.glm.quadrature import expectations


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@pytest.mark.parametrize("share", [1.0, 0.3, 1e-3])
def test_a_narrow_predictor_needs_few_nodes(case: GlmCase, share: float) -> None:
    width, sizes = case.model.width, []
    a = np.linspace(-5.0, 5.0, 41)
    s = share * width / 16.0
    v = np.full(41, s * s)
    y = np.full(41, 1.0)

    def seen(t: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, ...]:
        sizes.append(t.shape[1])
        return case.model.pointwise(t, y)

    few = expectations(seen, a, v, width, y)
    many = expectations(seen, a, v, 4.0 * s, y)  # as if the function were less smooth
    assert sizes[0] < 10
    assert sizes[-1] > 40
    for found, wanted in zip(few, many, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-13, atol=3e-15)
