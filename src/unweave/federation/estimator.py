"""scikit-learn's estimator protocol: a classifier whose rows belong to agents, who may withdraw.

    classifier = FederatedClassifier(graph="ring").fit(X, y, agents=hospital_of_each_row)
    classifier.predict_proba(X_new)
    classifier.forget("lakeview")           # or forget(rows=[3, 17]), row numbers of fit's X

Two classes are fitted by logistic regression, more by softmax regression. Features are used as they
are: a scaler that is fitted to all data would carry forgotten records on. Give `center` and `scale`
instead, by public constants.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unweave.errors import ConfigError, DataError, MissingExtra
from unweave.federation.federation import Federation
from unweave.models.glm import LogisticRegression, SoftmaxRegression

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError:
    raise MissingExtra("scikit-learn", "sklearn", "FederatedClassifier") from None

__all__ = ["FederatedClassifier"]

Floats = NDArray[np.float64]


class FederatedClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A Bayesian classifier that `n_agents` learn together, each from its own rows.

    `sd` is the prior standard deviation of the coefficients, `center` and `scale` are the public
    units of the features (one number, or one for each), `solver` is "vi" or "ep" (two classes).
    """

    def __init__(
        self,
        n_agents: int = 4,
        graph: Any = "complete",
        sd: float = 1.0,
        intercept: bool = True,
        center: float | Sequence[float] | None = None,
        scale: float | Sequence[float] | None = None,
        solver: str = "vi",
        tol: float = 1e-4,
        seed: int = 0,
    ) -> None:
        self.n_agents = n_agents
        self.graph = graph
        self.sd = sd
        self.intercept = intercept
        self.center = center
        self.scale = scale
        self.solver = solver
        self.tol = tol
        self.seed = seed

    def fit(self, X: ArrayLike, y: ArrayLike, agents: ArrayLike | None = None) -> Self:
        """Learn. `agents` names the owner of each row; without it, rows are dealt at random."""
        rows, labels = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(labels)
        self.classes_, codes = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise DataError(
                "y has one class only, so there is nothing to tell apart. Fix: rows of at least "
                "two classes"
            )
        owners = self._owners(len(rows), agents)
        model = self._model(rows.shape[1])
        self.agents_ = tuple(dict.fromkeys(owners.tolist()))
        self._row_of = {name: np.flatnonzero(owners == name) for name in self.agents_}
        self.federation_ = Federation(
            model,
            {name: (rows[at], codes[at].astype(float)) for name, at in self._row_of.items()},
            self.graph,
            seed=self.seed,
            solver=self.solver,
        ).learn(tol=self.tol, progress=False)
        return self

    def forget(
        self, agents: str | Iterable[str] = (), *, rows: Iterable[int] = (), **how: Any
    ) -> Self:
        """Forget agents, or single rows by their number in `fit`; `how` as in `Federation.forget`
        (method, tol, until)."""
        check_is_fitted(self, "federation_")
        chosen = set(map(int, rows))
        owned = {
            name: np.flatnonzero(np.isin(at, sorted(chosen))) for name, at in self._row_of.items()
        }
        records: Mapping[str, Any] = {name: at for name, at in owned.items() if len(at)}
        if sum(map(len, owned.values())) != len(chosen):
            raise DataError("forget: a row was not in fit's X. Fix: row numbers from 0")
        names = [agents] if isinstance(agents, str) else list(agents)
        self.federation_.forget(
            names, records=records or None, **{"tol": self.tol, "progress": False, **how}
        )
        return self

    def predict_proba(self, X: ArrayLike) -> Floats:
        """The probability of each class for each row, with the coefficients integrated out."""
        check_is_fitted(self, "federation_")
        rows = validate_data(self, X, dtype=np.float64, reset=False)
        return self.federation_.posterior.predict_proba(rows)

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        best = np.argmax(self.predict_proba(X), axis=1)
        found: NDArray[Any] = self.classes_[best]
        return found

    @property
    def posterior_(self) -> Any:
        """The posterior of the coefficients."""
        check_is_fitted(self, "federation_")
        return self.federation_.posterior

    def _owners(self, n: int, agents: ArrayLike | None) -> NDArray[Any]:
        if agents is None:
            count = max(1, min(int(self.n_agents), n))
            dealt = np.random.default_rng(self.seed).permutation(n) % count
            return np.array([f"a{k + 1}" for k in dealt], dtype=object)
        owners = np.asarray(agents)
        if owners.shape != (n,):
            raise DataError(
                f"agents has shape {owners.shape}. Fix: the name of one agent for each of {n} rows"
            )
        return np.array([str(name) for name in owners], dtype=object)

    def _model(self, features: int) -> LogisticRegression | SoftmaxRegression:
        if self.solver not in ("vi", "ep"):
            raise ConfigError(f'solver = {self.solver!r}: unknown. Fix: choose "vi" or "ep"')
        names = [f"x{j}" for j in range(features)]
        units = {
            key: dict(zip(names, np.broadcast_to(value, features).tolist(), strict=True))
            for key, value in (("center", self.center), ("scale", self.scale))
            if value is not None
        }
        settings: dict[str, Any] = {"sd": self.sd, "intercept": self.intercept, **units}
        if len(self.classes_) == 2:
            return LogisticRegression(names, **settings)
        return SoftmaxRegression(names, classes=len(self.classes_), **settings)
