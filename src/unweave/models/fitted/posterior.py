"""A posterior (a model and a point of its grid), and draws from it by name."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unweave.arguments import floats, shown, whole_number
from unweave.errors import ConfigError, DataError, MissingExtra
from unweave.families import Distribution
from unweave.families.marginals import Marginal
from unweave.grid import Ints, digest
from unweave.json_form import as_json, read_saved
from unweave.models.fitted.calibration import BINS, CalibrationBin, calibration_curve
from unweave.models.fitted.plotting import plot_posterior
from unweave.models.fitted.published import STEP, Published, publish
from unweave.models.fitted.tables import (
    Check,
    check_table,
    draws_table,
    predictions,
    record_densities,
)
from unweave.models.shards import Shard

if TYPE_CHECKING:
    from unweave.models.base import Model

__all__ = ["Posterior"]


Floats = NDArray[np.float64]

_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class Samples(dict[str, Floats]):
    """Name of a variable → its draws, one per row: `samples["dose"]`, `pandas.DataFrame(samples)`.

    A variable with several entries (the classes of a Dirichlet, the columns of a multivariate
    normal) is one array; `Model.coordinates` names its entries. `np.asarray(samples)` is theta, as
    the family draws it.
    """

    def __init__(self, named: Mapping[str, Floats], theta: Floats) -> None:
        super().__init__(named)
        self._theta = theta

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self._theta, dtype=dtype, copy=copy)


class Quantity(NamedTuple):
    """One row of a posterior's table."""

    name: str
    mean: float
    sd: float
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class Posterior:
    """q(theta | eta) of a model, at the grid point `units`; results are in the user's units.

    Equality is equality of bits: the same model settings and the same integers.
    """

    model: Model
    units: Ints

    def __post_init__(self) -> None:
        units = np.asarray(self.units)
        if units.dtype.kind not in "iu":
            raise ConfigError(
                f"a posterior of {self.model.name} consists of whole numbers, its natural "
                "parameter on the grid. Fix: model.grid.encode(eta)"
            )
        units = np.array(units, dtype=np.int64)
        if units.shape != (self.model.grid.dim,):
            raise ConfigError(
                f"a posterior of {self.model.name} has shape {units.shape}. Fix: give "
                f"{self.model.grid.dim} components"
            )
        units.setflags(write=False)
        object.__setattr__(self, "units", units)
        self.model.family.check(self.eta, what=f"posterior of {self.model.name}")

    @cached_property
    def eta(self) -> Floats:
        """The natural parameter as float64."""
        return self.model.decode(self.units)

    @cached_property
    def distribution(self) -> Distribution:
        """The member of the family in the grid's units: those of (x − center)/scale."""
        return Distribution(self.model.family, self.eta)

    @property
    def digest(self) -> str:
        """A digest of the integers: posteriors of one model are equal iff their digests are."""
        return digest(self.units).hex()

    @property
    def params(self) -> dict[str, Floats]:
        """The usual parameters, e.g. a and b of a Beta."""
        params, affine = self.distribution.params, self.model.affine
        return params if affine is None else affine.params(self.model.family, params)

    @cached_property
    def marginals(self) -> tuple[Marginal, ...]:
        """The law of each quantity; a coefficient has the name of its feature."""
        return self.model.marginals(self.eta)

    def table(self, p: float = 0.95) -> list[Quantity]:
        """Name, mean, sd and central interval of every quantity."""
        low, high = (np.atleast_1d(end) for end in self.interval(p))
        return [
            Quantity(law.name, float(law.mean()), float(law.sd()), float(a), float(b))
            for law, a, b in zip(self.marginals, low, high, strict=True)
        ]

    def mean(self) -> Floats:
        return self._stacked([law.mean() for law in self.marginals])

    def sd(self) -> Floats:
        return self._stacked([law.sd() for law in self.marginals])

    def interval(self, p: float = 0.95) -> Any:
        """The central credible interval that holds probability `p`, per marginal."""
        ends = [law.interval(p) for law in self.marginals]
        return self._stacked([low for low, _ in ends]), self._stacked([high for _, high in ends])

    def _stacked(self, values: list[Floats]) -> Floats:
        return (
            np.asarray(values[0])[()] if self.model.family.event_shape == () else np.stack(values)
        )

    def sample(self, n: int, seed: int = 0) -> Samples:
        """n independent draws by name, `sample(n)["dose"]`; the same seed gives the same draws."""
        theta, affine = self.distribution.sample(n, seed), self.model.affine
        if affine is not None:
            theta = affine.outward(theta, self.model.family.event_shape)
        return Samples(self.model.named_samples(theta), theta)

    def draws(self, n: int = 4000, seed: int = 0) -> dict[str, Floats]:
        """n draws as a table: one column per number, `theta[north]` for an entry of a variable."""
        return draws_table(self, n, seed)

    def covariance(self) -> Floats:
        """The covariance matrix of the quantities of `table`, in the user's units."""
        return self.model.covariance_of(self.eta)

    def log_evidence(self, data: Any, columns: Mapping[str, str] | None = None) -> float:
        """log p(data) of a conjugate model, in closed form: A(eta) − A(eta_0) + Σ log h(x_n).

        `data` are all the records behind the posterior: h is no part of a token.
        """
        from unweave.models.base import ConjugateModel

        model = self.model
        if not isinstance(model, ConjugateModel) or model.alpha != 1 or model.reduction != "sum":
            raise ConfigError(
                f"log_evidence: {model.name} has no closed one. Fix: a conjugate model with "
                'alpha = 1 and reduction = "sum"'
            )
        shard = self._records(data, "log_evidence", columns)
        if not np.array_equal(model.grid.add(model.eta0, model.factor(shard)), self.units):
            raise DataError(
                "log_evidence: these are not the records behind the posterior. Fix: give all "
                "records that it has learned, and no others"
            )
        prior = model.decode(model.eta0)
        grown = model.family.log_partition(self.eta) - model.family.log_partition(prior)
        return float(grown) + float(model.log_base(shard.rows).sum())

    def check(
        self,
        data: Any,
        statistics: Mapping[str, Callable[[Floats], float]] | None = None,
        draws: int = 500,
        seed: int = 0,
    ) -> list[Check]:
        """Posterior predictive checks: statistics of `data` (by default mean, sd, min and max)
        beside those of data sets that the fitted model would produce."""
        shard = self._records(data, "check")
        return check_table(self, shard.rows, statistics, draws, seed)

    def log_density(self, data: Any) -> Floats:
        """The log predictive density of each record, given the posterior alone, [N]; of a
        regression, that of its target."""
        shard = self._records(data, "log_density")
        return record_densities(self, shard.rows)

    def score(self, data: Any) -> float:
        """The mean log predictive density of records that were not learned: higher is better."""
        return float(self.log_density(self._records(data, "score")).mean())

    def _records(self, data: Any, what: str, columns: Mapping[str, str] | None = None) -> Shard:
        """Records in any form, as a shard. An error names the method, not an agent."""
        nothing = f"{what}: no records. Fix: give at least one"
        try:
            shard = data if isinstance(data, Shard) else self.model.shard(data, "", columns)
        except DataError as found:
            error = str(found)
            if error.startswith("agent '' has no records."):
                raise DataError(nothing) from None
            raise DataError(f"{what}: " + error.replace("agent ''", "the data", 1)) from None
        if not shard.n and what == "score":
            raise DataError(nothing)
        return shard

    def predict_table(self, rows: Mapping[str, Any], p: float = 0.95) -> dict[str, NDArray[Any]]:
        """A prediction for each row of a table: mean, sd, and the central interval of probability
        p (low, high), or the probability of each class and, for a regression, the central posterior
        interval of that probability."""
        return predictions(self, rows, p)

    def to_json(self) -> str:
        """The posterior as JSON: the model's name and settings, and whole numbers on its grid."""
        return as_json(
            {
                "model": self.model.name,
                "settings": self.model.settings(),
                "units": self.units.tolist(),
                "digest": self.digest,
            }
        )

    @classmethod
    def from_json(cls, text: str | bytes | Mapping[str, Any]) -> Posterior:
        """The posterior that `to_json`, or `unweave posterior --json`, has written."""
        from unweave.models.registry import by_name

        try:
            values = dict(text) if isinstance(text, Mapping) else json.loads(text)
            units = np.array([int(unit) for unit in values["units"]], dtype=np.int64)
            name, settings = str(values["model"]), dict(values["settings"])
        except (KeyError, TypeError, ValueError, OverflowError):
            raise ConfigError(
                "this is no posterior as JSON (model, settings, units). Fix: write one with "
                "to_json(), or `unweave posterior DIR --json`"
            ) from None
        found = cls._from(by_name(name, **settings), units, values)
        if values.get("digest", found.digest) != found.digest:
            raise ConfigError("the posterior is not that of its digest. Fix: write it again")
        return found

    @classmethod
    def _from(cls, model: Model, units: Ints, values: Mapping[str, Any]) -> Posterior:
        if "noise" in values:
            raise ConfigError(
                "this posterior has noise, without which its intervals would be too narrow. Fix: "
                "read it with unweave.privacy.noisy.NoisyPosterior"
            )
        return model.posterior(units)

    def save(self, path: str | Path) -> None:
        """Write `to_json` to a file."""
        Path(path).write_text(self.to_json() + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> Posterior:
        """Read what `save` has written."""
        return read_saved(path, cls.from_json)

    def log_prob(self, theta: Any) -> Floats:
        """The log-density at theta, in the user's units."""
        affine, event = self.model.affine, self.model.family.event_shape
        if affine is None:
            return self.distribution.log_prob(theta)
        points = floats(theta, "log_prob: theta")
        if (
            points.shape[len(points.shape) - len(event) :] == event
        ):  # other shapes are refused below
            points = affine.inward(points, event)
        return self.distribution.log_prob(points) - affine.log_volume

    def kl(self, other: Posterior | Distribution) -> float:
        """KL(self ‖ other); if `other` is a distribution, it is in the grid's units."""
        if isinstance(other, Posterior) and other._units != self._units:
            raise ConfigError(
                "kl: the posteriors have different center or scale. Fix: use one model"
            )
        q = other.distribution if isinstance(other, Posterior) else other
        if not isinstance(q, Distribution):
            raise ConfigError(f"kl of {shown(other)}. Fix: give a posterior or a distribution")
        return float(self.distribution.kl(q))

    @property
    def _units(self) -> tuple[Any, Any]:
        return getattr(self.model, "center", None), getattr(self.model, "scale", None)

    def predict(self, *args: Any, **kwargs: Any) -> Any:
        """The posterior predictive of one new record (for a regression: of the rows X)."""
        signature = inspect.signature(self.model.predictive)
        try:
            signature.bind(self.eta, *args, **kwargs)
        except TypeError as error:
            wanted = [q.name for q in signature.parameters.values() if q.kind not in _VARIADIC]
            takes = f"give {', '.join(wanted[1:])}" if wanted[1:] else "write predict()"
            raise ConfigError(f"predict of {self.model.name}: {error}. Fix: {takes}") from None
        return self.model.predictive(self.eta, *args, **kwargs)

    def predict_proba(self, *args: Any, **kwargs: Any) -> Floats:
        """The probability of each class for each row, [rows, classes]; `predict` also has their
        uncertainty."""
        if not getattr(self.model, "classifies", False):
            raise ConfigError(
                f"predict_proba: {self.model.name} predicts no classes. Fix: use predict"
            )
        proba: Floats = self.predict(*args, **kwargs).proba
        return proba

    def calibration(
        self, data: Any, bins: int = BINS, label: int | None = None
    ) -> list[CalibrationBin]:
        """The calibration curve on records that were not learned: bins of the predicted
        probability, each with the share that came true.

        `label` is the class whose probability is meant; by default class 1 of two, and of more
        classes the predicted one (its probability beside the share of right predictions).
        """
        if not getattr(self.model, "classifies", False):
            raise ConfigError(f"calibration: {self.model.name} predicts no classes. Fix: use check")
        shard = self._records(data, "calibration")
        at = len(getattr(self.model, "feature_names", ()))
        proba, y = self.predict_proba(shard), shard.rows[:, at]
        classes = proba.shape[1]
        if label is None and classes > 2:
            best = proba.argmax(axis=1)
            return calibration_curve(proba.max(axis=1), (y == best).astype(float), bins)
        chosen = 1 if label is None else whole_number(label, "label")
        if not 0 <= chosen < classes:
            raise ConfigError(f"calibration: label = {chosen}. Fix: from 0 to {classes - 1}")
        return calibration_curve(proba[:, chosen], (y == chosen).astype(float), bins)

    def published(self, step: float = STEP) -> Published:
        """This posterior rounded to `step` standard deviations, with a digest of its own; for
        normal posteriors of models that are not conjugate."""
        return publish(self, step)

    def plot(self, p: float = 0.95) -> Any:
        """A matplotlib figure: the density of each quantity with its mean, its central interval
        of probability p, and its prior; `figure.savefig("posterior.png")` writes it."""
        return plot_posterior(self, p)

    def to_arviz(self, draws: int = 1000, chains: int = 4, seed: int = 0) -> Any:
        """Independent draws as an `arviz.InferenceData`, with the model's names as coordinates."""
        try:
            import arviz
        except ImportError:
            raise MissingExtra("arviz", "arviz", "Posterior.to_arviz") from None
        draws, chains = whole_number(draws, "draws", 1), whole_number(chains, "chains", 1)
        samples = self.sample(chains * draws, seed)
        axes = self.model.coordinates
        return arviz.from_dict(
            posterior={
                name: values.reshape(chains, draws, *values.shape[1:])
                for name, values in samples.items()
            },
            coords={dim: list(labels) for one in axes.values() for dim, labels in one.items()},
            dims={name: list(one) for name, one in axes.items()},
            posterior_attrs={"model": self.model.name, "digest": self.digest},
        )

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Posterior)
            and self.model == other.model
            and bool(np.array_equal(self.units, other.units))
        )

    def __hash__(self) -> int:
        return hash((self.model, self.units.tobytes()))

    def __repr__(self) -> str:
        rows = ", ".join(
            f"{m.name} = {float(m.mean()):.4g} ± {float(m.sd()):.2g}" for m in self.marginals[:6]
        )
        more = ", …" if len(self.marginals) > 6 else ""
        return f"{type(self).__name__}({self.model.name}: {rows}{more}; {self.digest[:12]})"
