"""What a fitted model says about rows of a table: draws, predictions and checks, column by column.

A table is a mapping from a column's name to its values, one per row; so it can become a data frame,
a CSV file or a Parquet file.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unweave.arguments import whole_number
from unweave.errors import ConfigError, DataError
from unweave.models.columns import Column, real

if TYPE_CHECKING:
    from unweave.models.base import Model
    from unweave.models.fitted.posterior import Posterior

__all__ = [
    "Check",
    "NoPrediction",
    "check_table",
    "draws_table",
    "predictions",
    "record_densities",
    "used_columns",
]

Floats = NDArray[np.float64]
Statistic = Callable[[Floats], float]


class NoPrediction(ConfigError):
    """The model's predictive can only be sampled."""


STATISTICS: dict[str, Statistic] = {
    "mean": lambda x: float(np.mean(x)),
    "sd": lambda x: float(np.std(x)),
    "min": lambda x: float(np.min(x)),
    "max": lambda x: float(np.max(x)),
}


def draws_table(posterior: Posterior, n: int, seed: int) -> dict[str, Floats]:
    """n draws, one column per number: a variable with several entries has columns `name[label]`."""
    axes = posterior.model.coordinates
    table: dict[str, Floats] = {}
    for name, values in posterior.sample(n, seed).items():
        flat = values.reshape(len(values), -1)
        if values.ndim == 1:
            table[name] = flat[:, 0]
            continue
        labels = list(axes.get(name, {}).values())
        if [len(one) for one in labels] != list(values.shape[1:]):
            labels = [range(size) for size in values.shape[1:]]
        for j, place in enumerate(product(*labels)):
            table[f"{name}[{','.join(map(str, place))}]"] = flat[:, j]
    return table


def predictions(posterior: Posterior, rows: Mapping[str, Any], p: float) -> dict[str, NDArray[Any]]:
    """Mean, sd and central interval of a new record for each row of a table, and the probability of
    each class where classes are predicted.

    The predictive's arguments are columns of the table: `x` stands for the features of a
    regression, any other one (`trials`, `exposure`, `group`) for the column of its name, or of the
    name that the model's settings give it.
    """
    from unweave.models.gamma import GammaEvents

    model = posterior.model
    size = max((len(values) for values in rows.values()), default=0)
    if not size:
        raise DataError("predict: the table has no rows. Fix: give at least one")
    chosen, inner = _arguments(model), _of_one_group(model)
    by_name = {q.name: _column_of(model, q.name) for q in chosen}
    for q in chosen:
        if q.default is q.empty and q.name != "x" and by_name[q.name] not in rows:
            raise DataError(f"predict: the table lacks the column {by_name[q.name]!r}. Fix: add it")
        if q.name == "trials" and getattr(inner, "trials", None) is None and "trials" not in rows:
            warnings.warn(
                f"{model.name}: the rows have no trials (column 'trials'), and 1 is assumed",
                stacklevel=3,
            )
    if isinstance(inner, GammaEvents) and "exposure" not in rows:
        warnings.warn(
            f"{model.name}: without an exposure (column 'exposure'), a prediction is the exposure "
            "until the next event (Lomax), not a number of events",
            stacklevel=3,
        )
    given = {q.name: np.asarray(rows[by_name[q.name]], dtype=object) for q in chosen
             if q.name != "x" and by_name[q.name] in rows}  # fmt: skip
    if any(q.name == "x" for q in chosen):
        more = {name: np.asarray(values, dtype=np.float64) for name, values in given.items()}
        return _columns(posterior.predict(rows, **more), size, p)
    parts = list(zip(*given.values(), strict=True)) if given else [()] * size
    found = {
        place: _columns(
            posterior.predict(**dict(zip(given, map(_argument, place), strict=True))), 1, p
        )
        for place in dict.fromkeys(parts)
    }
    names = next(iter(found.values()))
    return {name: np.concatenate([found[place][name] for place in parts]) for name in names}


def _arguments(model: Model) -> list[inspect.Parameter]:
    """The arguments of the predictive, without eta; with those of a group's model."""
    parameters = list(inspect.signature(model.predictive).parameters.values())[1:]
    found = [q for q in parameters if q.kind is q.POSITIONAL_OR_KEYWORD]
    inner = _of_one_group(model)
    return found if inner is model else found + _arguments(inner)


def _of_one_group(model: Model) -> Model:
    """The model of each group, or the model itself."""
    from unweave.models.grouped import Grouped

    return model.model if isinstance(model, Grouped) else model


def used_columns(model: Model) -> tuple[Column, ...]:
    """The columns of a table that `predictions` reads, if the table has them."""
    names = {q.name: _column_of(model, q.name) for q in _arguments(model)}
    features = model.schema[: len(getattr(model, "feature_names", ()))] if "x" in names else ()
    others = [name for argument, name in names.items() if argument != "x"]
    known = {column.given: column for column in model.schema}
    return (*features, *(known.get(name, real(name)) for name in others))


def _column_of(model: Model, argument: str) -> str:
    """The column of a table that holds an argument of the predictive: some have a name in the
    model's settings."""
    setting = {"group": "by", "exposure": "exposure"}.get(argument, "")
    of = model if argument == "group" else _of_one_group(model)
    return str(getattr(of, setting, None) or argument)


def _argument(value: Any) -> Any:
    """A cell as an argument: whole numbers as int, other numbers as float, texts as they are."""
    if isinstance(value, str):
        return value
    return int(value) if float(value).is_integer() else float(value)


def _columns(law: Any, size: int, p: float) -> dict[str, NDArray[Any]]:
    table: dict[str, NDArray[Any]] = {}
    proba = getattr(law, "proba", getattr(law, "probabilities", None))
    if proba is not None:
        labels = getattr(law, "labels", ()) or range(np.shape(proba)[-1])
        each = np.broadcast_to(proba, (size, len(labels)))
        table = {f"p[{label}]": each[:, j] for j, label in enumerate(labels)}
        if hasattr(law, "probability_interval"):
            ends = zip(("low", "high"), law.probability_interval(p), strict=True)
            for name, end in ends:  # [rows] of class 1, or [rows, classes]
                columns = {1: end} if end.ndim == 1 else dict(enumerate(end.T))
                table |= {f"{name}[{labels[j]}]": values for j, values in columns.items()}
        return table
    if not hasattr(law, "mean"):
        raise NoPrediction(
            "predict: this predictive has no moments. Fix: sample it with posterior.predict()"
        )
    low, high = law.interval(p)
    for name, values in {"mean": law.mean(), "sd": law.sd(), "low": low, "high": high}.items():
        one = np.asarray(values, dtype=np.float64)
        if one.ndim and one.shape != (size,):  # several columns in one record
            for j, value in enumerate(one.reshape(-1)):
                table[f"{name}[{j}]"] = np.full(size, value)
        else:
            table[name] = np.broadcast_to(one, (size,))
    return table


def record_densities(posterior: Posterior, rows: Floats) -> Floats:
    """log p(record | posterior) [N]. A conjugate model has it in closed form,
    A(eta + t(x)) − A(eta) + log h(x), as the evidence of one more record. Its weight is 1 in any
    model: alpha and reduction weigh what is learned, not what is predicted."""
    from unweave.models.base import ConjugateModel

    model = posterior.model
    if hasattr(model, "log_density"):
        found: Floats = model.log_density(posterior.eta, rows)
    elif isinstance(model, ConjugateModel):
        more = [model.statistics(row[None]) for row in rows]
        eta = model.decode(np.stack([model.grid.add(posterior.units, one) for one in more]))
        grown = model.family.log_partition(eta) - model.family.log_partition(posterior.eta)
        found = grown + model.log_base(rows)
    else:
        try:
            found = posterior.predict().log_prob(rows)
        except (ConfigError, AttributeError):
            raise ConfigError(
                f"{model.name} has no density per record. Fix: compare with draws of "
                "posterior.predict()"
            ) from None
    return np.asarray(found)


class Check(NamedTuple):
    """One statistic of the records, and of records that the fitted model would produce. `p` is the
    share of replicated data sets whose statistic is at least the observed one (half for ties)."""

    name: str
    observed: float
    mean: float
    sd: float
    p: float


def check_table(
    posterior: Posterior,
    rows: Floats,
    statistics: Mapping[str, Statistic] | None,
    draws: int,
    seed: int,
) -> list[Check]:
    """Posterior predictive checks: theta is drawn, and a data set of the same size given theta."""
    model = posterior.model
    chosen = STATISTICS if statistics is None else dict(statistics)
    rng = np.random.default_rng(whole_number(seed, "seed", 0))
    thetas = np.asarray(posterior.sample(whole_number(draws, "draws", 2), seed))
    columns = model.outcomes_of(rows).shape[1]
    values = np.array(
        [_statistics(chosen, model.outcomes_of(model.replicate(one, rows, rng))) for one in thetas]
    )
    seen = _statistics(chosen, model.outcomes_of(rows))
    places = [""] if columns == 1 else [f"[{j}]" for j in range(columns)]
    names = [f"{name}{place}" for name in chosen for place in places]
    return [
        Check(name, float(at), float(one.mean()), float(one.std()),
              float((one > at).mean() + 0.5 * (one == at).mean()))
        for name, at, one in zip(names, seen, values.T, strict=True)
    ]  # fmt: skip


def _statistics(chosen: Mapping[str, Statistic], rows: Floats) -> list[float]:
    return [float(f(rows[:, j])) for f in chosen.values() for j in range(rows.shape[1])]
