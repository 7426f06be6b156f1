"""Calibration of predicted classes: of the records with probability p, a share p should be so."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from unweave.arguments import whole_number
from unweave.errors import DataError

__all__ = ["BINS", "CalibrationBin", "calibration_curve", "calibration_error"]

Floats = NDArray[np.float64]

BINS = 15


class CalibrationBin(NamedTuple):
    """The records whose probability lies in [low, high): how many, its mean, the share that is 1,
    and the sd that this share has if the probabilities are right, √Σp(1 − p)/n."""

    low: float
    high: float
    records: int
    predicted: float
    observed: float
    sd: float


def calibration_curve(p: Floats, y: Floats, bins: int = BINS) -> list[CalibrationBin]:
    """Bins of equal width that hold a record, from probabilities p and outcomes y (0 or 1)."""
    whole_number(bins, "bins", 1)
    if p.shape != y.shape or p.ndim != 1:
        raise DataError(
            f"calibration: {p.shape} probabilities and {y.shape} outcomes. Fix: one of each per row"
        )
    place = np.minimum((p * bins).astype(int), bins - 1)
    found = []
    for b in np.unique(place).tolist():
        inside = place == b
        n = int(inside.sum())
        found.append(
            CalibrationBin(
                b / bins,
                (b + 1) / bins,
                n,
                float(p[inside].mean()),
                float(y[inside].mean()),
                float(np.sqrt((p[inside] * (1.0 - p[inside])).sum()) / n),
            )
        )
    return found


def calibration_error(curve: list[CalibrationBin]) -> float:
    """Expected calibration error: Σ_b (n_b/N) |observed − predicted|."""
    total = sum(one.records for one in curve)
    return sum(one.records * abs(one.observed - one.predicted) for one in curve) / total
