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


def _binary(name: str) -> tuple[np.ndarray, np.ndarray]:
    """A data set by its name; `digits` are 3 and 8, and `digits 1-7` names another pair."""
    name, _, pair = name.partition(" ")
    load: Any = getattr(datasets, f"load_{name}")
    x, y = load(return_X_y=True)
    if name == "diabetes":
        return x, y > np.median(y)
    if name == "digits":
        one, other = (int(digit) for digit in (pair or "3-8").split("-"))
        chosen = (y == one) | (y == other)
        return x[chosen], y[chosen] == other
    return x, y == 1


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


def _classes(name: str, classes: int | None) -> tuple[np.ndarray, np.ndarray]:
    if name == "digits":
        found = datasets.load_digits()
        blocks = found.images.reshape(-1, 4, 2, 4, 2).sum(axis=(2, 4))  # 16 numbers instead of 64
        return blocks.reshape(-1, 16), found.target
    if classes == 2:
        return _binary(name)
    load: Any = getattr(datasets, f"load_{name}")
    x, y = load(return_X_y=True)
    return x, y


def real_case(kind: str, name: str, **settings: Any) -> tuple[GLM, np.ndarray]:
    """A model with an intercept and prior sd 1, and its records: standardised features, target, and
    the exposure, if `settings` name one: the ink of the whole image (digits)."""
    if kind in ("logistic-regression", "probit-regression"):
        x, y = _binary(name)
    elif kind == "softmax-regression":
        x, y = _classes(name, settings.get("classes"))
        settings["classes"] = int(y.max()) + 1
    elif kind == "robust-regression":
        x, y = _reals(name)
        y = (y - y.mean()) / y.std()
        settings = {"noise": 0.5, **settings}
    else:
        x, y = _counts(name)
        if kind == "negative-binomial-regression":
            settings = {"shape": 2.0, **settings}
    rows = np.column_stack([_standard(x), y])
    if settings.get("exposure") is not None:
        assert name == "digits"
        rows = np.column_stack([rows, datasets.load_digits().data.sum(axis=1)])
    features = len(_standard(x)[0])
    model = by_name(kind, **{"features": features, "intercept": True, **settings})
    assert isinstance(model, GLM)
    return model, rows


def real_data(name: str) -> np.ndarray:
    """The records of logistic regression."""
    return real_case("logistic-regression", name)[1]
