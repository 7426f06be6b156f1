"""Real data for every GLM, from the data sets that come with scikit-learn.

Features are standardised. The counts of digits are pixels: each is the number of set points in a
block of 4 × 4 of the scanned image. The counts of linnerud are exercises, the target of diabetes is
a whole number, the progression of the disease after a year.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn import datasets

from unweave.models import by_name
from unweave.models.glm import GLM

__all__ = ["REAL", "real_case", "real_data"]

_BINARY = ("breast_cancer", "wine", "diabetes", "digits")
_COUNTS = ("diabetes", "digits", "linnerud")
REAL: dict[str, tuple[str, ...]] = {
    "logistic-regression": _BINARY,
    "probit-regression": _BINARY,
    "poisson-regression": _COUNTS,
    "negative-binomial-regression": _COUNTS,
    "softmax-regression": ("iris", "wine", "digits"),
    "robust-regression": ("diabetes", "linnerud", "iris"),
}


def _standard(x: np.ndarray) -> np.ndarray:
    x = x[:, x.std(axis=0) > 0]
    return np.asarray((x - x.mean(axis=0)) / x.std(axis=0))


def real_data(name: str) -> np.ndarray:
    """Standardised features and a binary target."""
    load: Any = getattr(datasets, f"load_{name}")
    x, y = load(return_X_y=True)
    if name == "diabetes":
        y = y > np.median(y)
    elif name == "digits":
        chosen = (y == 3) | (y == 8)
        x, y = x[chosen], y[chosen] == 8
    else:
        y = y == 1
    return np.column_stack([_standard(x), y])


def _counts(name: str) -> tuple[np.ndarray, np.ndarray]:
    if name == "linnerud":
        found = datasets.load_linnerud()
        return found.target, found.data[:, 0]  # chin-ups by weight, waist and pulse
    if name == "digits":
        x = datasets.load_digits().images[:, 1:7, 1:7].reshape(-1, 36)
        return np.delete(x, 14, axis=1)[:, 7:28:2], x[:, 14]  # a pixel by others around it
    found = datasets.load_diabetes()
    return found.data, found.target


def _reals(name: str) -> tuple[np.ndarray, np.ndarray]:
    if name == "linnerud":
        found = datasets.load_linnerud()
        return found.data, found.target[:, 0]  # weight by exercises
    if name == "iris":
        x = datasets.load_iris().data
        return x[:, :3], x[:, 3]  # a length by three others
    found = datasets.load_diabetes()
    return found.data, found.target


def _classes(name: str) -> tuple[np.ndarray, np.ndarray]:
    if name == "digits":
        found = datasets.load_digits()
        blocks = found.images.reshape(-1, 4, 2, 4, 2).sum(axis=(2, 4))  # 16 numbers instead of 64
        return blocks.reshape(-1, 16), found.target
    load: Any = getattr(datasets, f"load_{name}")
    return load(return_X_y=True)


def real_case(kind: str, name: str, **settings: Any) -> tuple[GLM, np.ndarray]:
    """A model with an intercept and prior sd 1, and its records: standardised features, target."""
    if kind in ("logistic-regression", "probit-regression"):
        rows = real_data(name)
    else:
        x, y = {"softmax-regression": _classes, "robust-regression": _reals}.get(kind, _counts)(
            name
        )
        if kind == "softmax-regression":
            settings["classes"] = int(y.max()) + 1
        if kind == "robust-regression":
            y = (y - y.mean()) / y.std()
            settings["noise"] = 0.5
        if kind == "negative-binomial-regression":
            settings["shape"] = 2.0
        rows = np.column_stack([_standard(x), y])
    model = by_name(kind, features=rows.shape[1] - 1, intercept=True, **settings)
    assert isinstance(model, GLM)
    return model, rows
