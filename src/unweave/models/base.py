"""The base classes of models: a family, a prior, and the rule that turns a shard into a factor.

A model is a frozen dataclass. Its fields are its settings, so two models are equal when their
settings are equal, and `by_name(model.name, **model.settings())` gives the same model again. A
subclass defines its name, its prior, its columns, and

* a `ConjugateModel`: the exact sum of its record statistics on the grid (`sums`),
* a `LossModel`: its loss; a solver computes the factor from the loss and the cavity.

Factors are added on the token in the *carrier*: a vector of integers on `grid`. It is eta itself,
unless a model names other components (`carrier_names`, `carrier_prior`) and maps their sum to the
eta of q (`decode`). A sum of curvatures or of log-likelihoods at fixed points are such carriers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, fields
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unweave.errors import ConfigError, DomainError
from unweave.families import Distribution, Family
from unweave.families.marginals import Marginal
from unweave.grid import Grid, Ints
from unweave.models.columns import Column
from unweave.models.data import Data, chunks
from unweave.models.fitted.posterior import Posterior
from unweave.models.settings import read_settings
from unweave.models.shards import MissingRule, RowProblem, Shard, read
from unweave.models.units import Affine

__all__ = ["REGISTRY", "ConjugateModel", "LossModel", "Model", "Reduction"]


Floats = NDArray[np.float64]
Reduction = Literal["sum", "mean"]

# All defined models, by name.
REGISTRY: dict[str, type[Model]] = {}

# A prior that rounding to the grid moves by more than this (in KL) is refused.
_PRIOR_MOVED = 1e-4

_BITS_SHOWN = 12


@dataclass(frozen=True)
class Model(ABC):
    """A family, a prior and a likelihood.

    `alpha` is the temperature: every factor carries 1/alpha. `reduction` says whether an agent's
    loss is the sum over its records ("sum": the conventional posterior at alpha = 1) or their mean
    ("mean": a tempered posterior in which every agent counts alike). `bits` overrides the
    fractional bits of the grid, one number for all components or one per component.
    """

    name: ClassVar[str]
    conjugate: ClassVar[bool]
    # The factors depend on the cavity until they settle; then the sum is a function of the set of
    # records alone, so erasing is exact.
    settles: ClassVar[bool] = False

    _: KW_ONLY
    alpha: float = 1.0
    reduction: Reduction = "sum"
    bits: int | Sequence[int] | None = None

    def __init_subclass__(cls, registered: bool = True, **kwargs: Any) -> None:
        """`registered=False`: a file cannot name the model, because it needs a function."""
        super().__init_subclass__(**kwargs)
        if registered and "name" in cls.__dict__:
            REGISTRY[cls.name] = cls

    def __post_init__(self) -> None:
        read_settings(self)
        if not self.alpha > 0:
            raise ConfigError(f"{self.name}: alpha = {self.alpha}. Fix: a temperature above 0")
        if self.reduction not in ("sum", "mean"):
            raise ConfigError(
                f'{self.name}: reduction = {self.reduction!r}. Fix: choose "sum" or "mean"'
            )
        self.check_settings()
        # The resolved resolution is a setting too: a network's manifest must fix it.
        object.__setattr__(self, "bits", ComponentBits(self.grid.bits))
        self._check_prior()

    # -- defined by subclasses --------------------------------------------------------------------

    def check_settings(self) -> None:
        """ConfigError for invalid values of settings; their types have been checked before."""
        return None

    @property
    @abstractmethod
    def prior(self) -> Distribution:
        """The prior that the settings state, in the units of the grid."""

    @property
    @abstractmethod
    def schema(self) -> tuple[Column, ...]:
        """The columns of a record."""

    @property
    def carrier_names(self) -> Sequence[str]:
        """The components of the carrier; by default, those of eta."""
        return self.family.component_names

    @property
    def carrier_prior(self) -> Floats:
        """The prior in the carrier; `eta0` is its nearest grid point."""
        return self._stated_prior.eta

    def decode(self, units: Ints) -> Floats:
        """The eta [..., D] of q at points [..., C] of the carrier.

        A sum that stands for no q has an eta outside the domain (`inside` is False), not an error.
        """
        return self.grid.decode(units)

    def default_bits(self) -> Sequence[int]:
        """Fractional bits per component: 24 leaves room for 5e11 records."""
        return (24,) * len(self.carrier_names)

    def row_problem(self, rows: Floats) -> RowProblem | None:
        """The rows that break a rule between columns: (rows, column, problem, expected)."""
        return None

    def predictive(self, eta: ArrayLike, *args: Any, **kwargs: Any) -> Any:
        """The distribution of one new record."""
        raise ConfigError(
            f"{self.name} has no posterior predictive. Fix: draw theta with posterior.sample(n), "
            "and records given theta"
        )

    @property
    def quantities(self) -> Sequence[str]:
        """The names of the quantities of the posterior, one for each marginal."""
        return self.family.theta_names

    @property
    def affine(self) -> Affine | None:
        """The map of theta from the grid's units to the user's units; None if they are equal."""
        return None

    @property
    def resolution(self) -> tuple[float, ...]:
        """The step to which each column of a record is rounded; 0 if it is not rounded."""
        return (0.0,) * len(self.schema)

    def named_samples(self, theta: Floats) -> dict[str, Floats]:
        """Samples by variable name, for other tools; theta is [n, ...], in the user's units."""
        return {"theta": theta}

    @property
    def coordinates(self) -> dict[str, dict[str, Sequence[Any]]]:
        """For each variable with several entries: the names and the labels of its axes."""
        return {}

    # -- private rounds ---------------------------------------------------------------------------

    # A round publishes eta0 + Σ_k factor_k, where all agents compute their factors at the same
    # public point. `advance` finds the next point from the sum, until a sum is final.

    @property
    def iterates(self) -> bool:
        """Whether learning takes several private rounds, each at a point of its own."""
        return False

    @abstractmethod
    def in_rounds(self, agents: int) -> Model:
        """This model as private rounds of `agents` agents learn it; ConfigError if they cannot."""

    def first_point(self) -> bytes:
        """The point at which learning starts."""
        return b""

    @abstractmethod
    def factor_at(self, point: bytes, data: Data) -> Ints:
        """The agent's factor at a point. WireError: a peer's bytes are no point of this model."""

    def advance(self, point: bytes, total: Ints, tol: float = 1e-4) -> bytes | None:
        """The next point, from the complete sum at this one; None: the sum is final. `tol` is the
        KL to the optimum that a final sum may have. WireError as above."""
        return None

    def restart(self, point: bytes) -> bytes:
        """The point from which learning goes on with other data; `first_point()` retrains."""
        return self.first_point()

    # -- derived ----------------------------------------------------------------------------------

    @cached_property
    def family(self) -> Family:
        return self._stated_prior.family

    @cached_property
    def _stated_prior(self) -> Distribution:
        try:
            return self.prior
        except DomainError as error:
            raise DomainError(f"{self.name}: impossible prior: {error}") from None

    @cached_property
    def grid(self) -> Grid:
        """The grid of the carrier."""
        names = self.carrier_names
        bits = self.default_bits() if self.bits is None else self.bits
        if isinstance(bits, int):
            bits = self.uniform_bits(bits)
        if len(bits) != len(names):
            raise ConfigError(
                f"{self.name}: bits has {len(bits)} numbers. Fix: give one, or one for each of "
                f"{', '.join(names)}"
            )
        return Grid(tuple(map(int, bits)), names)

    def uniform_bits(self, bits: int) -> tuple[int, ...]:
        """The bits of each component if the setting is one number."""
        return (bits,) * len(self.carrier_names)

    @property
    def frozen_grid(self) -> Grid:
        """The grid of the vectors that the agents of a model with a solver add up for the estimate
        in a certificate (`LossModel.freeze`)."""
        return self.grid

    @cached_property
    def eta0(self) -> Ints:
        """The prior in the carrier, on the grid."""
        units = self.grid.encode(self.carrier_prior)
        units.setflags(write=False)
        return units

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.schema)

    @property
    def inputs(self) -> tuple[str, ...]:
        """The columns of the data; several columns may be coded from one of them."""
        return tuple(dict.fromkeys(column.given for column in self.schema))

    def shard(
        self,
        data: Any,
        agent: str = "data",
        columns: Mapping[str, str] | None = None,
        missing: MissingRule = "refuse",
    ) -> Shard:
        """Validate an agent's data: arrays, lists, a tuple of columns, a mapping or data frame.

        A table may have more columns than the model. `columns` maps a column of the model to its
        name in the table. Records with a missing value are refused, or (`missing="drop"`) left out.
        """
        return read(data, self.schema, agent, self.row_problem, columns, missing)

    def weight(self, n: int) -> Fraction:
        """The factor on an agent's summed statistics: 1/alpha, or 1/(alpha·N_k)."""
        weight = 1 / Fraction(self.alpha)
        return weight / n if self.reduction == "mean" and n else weight

    def check_agents(self, agents: int) -> None:
        """Refuse a network so large that rounding could use up the prior (ConfigError).

        By default, there is nothing to check: counts are whole numbers, and adding them moves eta
        away from the boundary of the domain.
        """
        return None

    def min_records(self) -> int:
        """The fewest records of an agent whose factor may be seen by others; see `disclosure`."""
        return 1

    def disclosure(self) -> str:
        """What neighbours can learn from the factor of an agent with fewer than `min_records`."""
        return "its neighbours can see the sum of its statistics, which tells much about so few"

    @property
    def retrain_above(self) -> float:
        """A removal that moves q by more (in KL) makes all agents start from zero: from there,
        refining takes as many passes as learning. In many dimensions every removal moves q more."""
        return 3.0 * max(1.0, len(self.quantities) / 31)

    def inside(self, units: Ints) -> NDArray[np.bool_]:
        """Whether q exists at units [..., C] and the loss has an expectation under q; [...]."""
        result: NDArray[np.bool_] = self.family.margin(self.decode(units)) > 0.0
        return result

    def why_improper(self, units: Ints) -> str:
        """Why the sum at these units is no posterior."""
        return "the sum is not a proper posterior yet"

    def moved(self, after: Ints, before: Ints) -> float:
        """How far q has moved from `before` to `after`, for the rules that stop: a KL."""
        return float(self.family.kl(self.decode(after), self.decode(before)))

    def influence(self, units: Ints, factor: Ints) -> float:
        """KL(q ‖ q without the factor); infinite if q without the factor is improper."""
        without = self.decode(self.grid.subtract(units, factor))
        if not self.family.margin(without) > 0.0:
            return float("inf")
        return float(self.family.kl(self.decode(units), without))

    def marginals(self, eta: Floats) -> tuple[Marginal, ...]:
        """The law of each quantity in the user's units, under its name in this model."""
        family, affine = self.family, self.affine
        laws = family.marginals(eta) if affine is None else affine.marginals(family, eta)
        named = zip(laws, self.quantities, strict=True)
        return tuple(law.renamed(name) for law, name in named)

    def covariance_of(self, eta: Floats) -> Floats:
        """The covariance [Q, Q] of the quantities, in the user's units."""
        found, affine = self.family.covariance(eta), self.affine
        if affine is None:
            return found
        moved = affine.matrix[np.ix_(affine.rows, affine.rows)]
        return np.asarray(moved @ found @ moved.T)

    def outcomes_of(self, rows: Floats) -> Floats:
        """The columns of records that the model explains; by default, the last one."""
        return rows[:, -1:]

    def replicate(self, theta: Floats, rows: Floats, rng: np.random.Generator) -> Floats:
        """New records of the same sizes (trials, exposures, features, …) given theta, which is in
        the user's units."""
        raise ConfigError(
            f"{self.name} cannot replicate records. Fix: compare with draws of posterior.predict()"
        )

    def posterior(self, eta: Ints) -> Posterior:
        return Posterior(self, eta)

    def settings(self) -> dict[str, Any]:
        """Every setting as a JSON value; `by_name` makes the same model from them."""
        chosen = {f.name: getattr(self, f.name) for f in fields(self)}
        return {key: _plain(value) for key, value in chosen.items() if value is not None}

    @property
    def _prior_fix(self) -> str:
        return f"use more bits than {max(self.grid.bits)} (bits=…)"

    def _check_prior(self) -> None:
        """The rounded prior must be inside the domain and close to the stated prior."""
        stated = self._stated_prior
        rounded = self.decode(self.eta0)
        if np.array_equal(rounded, stated.eta):
            return
        if not self.family.margin(rounded) > 0.0:
            raise ConfigError(
                f"{self.name}: the prior rounded to the grid is outside the domain: "
                f"{self.family.violation(rounded)}. Fix: {self._prior_fix}"
            )
        if not float(self.family.kl(stated.eta, rounded)) <= _PRIOR_MOVED:
            before, after = stated.params, self.family.to_params(rounded)
            changes = "; ".join(
                f"{key} from {np.array2string(np.asarray(before[key]), precision=6)} to "
                f"{np.array2string(np.asarray(after[key]), precision=6)}"
                for key in before
                if not np.allclose(before[key], after[key], rtol=1e-6, atol=0)
            )
            raise ConfigError(
                f"{self.name}: rounding to the grid would move the prior ({changes}). Fix: "
                f"{self._prior_fix}"
            )


class ConjugateModel(Model):
    """A model whose exact factor is a sum over records, for any cavity:

        eta_k = (1/alpha) Σ_n s(x_n)        (reduction="mean": divided by N_k as well)

    The statistic of each record is rounded to the grid, the integers are summed without rounding,
    and the weight is applied once. So a factor is a function of the set of records alone: row order
    and chunking cannot change a bit of it.
    """

    conjugate: ClassVar[bool] = True

    @abstractmethod
    def sums(self, rows: Floats) -> Sequence[int]:
        """Σ of the rounded record statistics over `rows`, in grid units, as unbounded integers."""

    def log_base(self, rows: Floats) -> Floats:
        """log h(x) of each record in p(x | theta) = h(x) exp(s(x)·statistics of theta), [N], as a
        density in the user's units."""
        return np.zeros(len(rows))

    def rounding(self, rows: Floats) -> Floats:
        """The rounding error of the sums of these rows, [D], not in grid units."""
        return np.zeros(self.grid.dim)

    def clipped(self, rows: Floats) -> int:
        """How many of these rows are summed as if they were within bounds, and are not."""
        return 0

    def statistics(self, rows: Floats, chunk: int | None = None) -> Ints:
        """Σ of the rounded record statistics on the grid, by `chunk` rows; or GridOverflow."""
        totals = [0] * self.grid.dim
        for part in chunks(rows, chunk):
            # Python integers: a partial sum may leave the grid although the total fits.
            totals = [t + int(s) for t, s in zip(totals, self.sums(part), strict=True)]
        return self.grid.units(totals)

    def factor(self, data: Data) -> Ints:
        """The agent's factor; zero without records."""
        return self.finished(self.statistics(data.rows), data.n)

    def finished(self, sums: Sequence[int] | Ints, n: int) -> Ints:
        """The factor that belongs to the sums of n records: their weight, applied once."""
        return self.grid.rescale(sums, self.weight(n))

    # One private round: its sum is that of the plain mode, bit for bit.

    def in_rounds(self, agents: int) -> Model:
        self.check_agents(agents)
        return self

    def factor_at(self, point: bytes, data: Data) -> Ints:
        return self.factor(data)


class LossModel(Model):
    """A model with a loss, whose factor a solver finds from the cavity.

    A solver sees the data through `summary`, computed once, or in batches, and q only where
    `margin` is above 0. A model may also offer closed-form gradients, quadrature nodes and more;
    the protocols in `unweave.solvers.base` define these options. `solver_name` is its default.
    """

    conjugate: ClassVar[bool] = False
    solver_name: ClassVar[str] = "natural-gradient"
    # The factor between the certificate's estimate and the true KL that nine of ten erasures on
    # real data kept; None: not measured.
    estimate_within: ClassVar[float | None] = None

    def summary(self, data: Data) -> Floats:
        """The statistics of the data that determine the loss; by default, all records."""
        return data.rows

    @abstractmethod
    def loss(self, theta: Floats, data: Floats) -> Floats:
        """L_k(theta) under the reduction, without 1/alpha (`eq:opt_sol`); data is a `summary`."""

    def margin(self, eta: Floats, moments: int = 1) -> Floats:
        """The margin of eta in the set where E_q[L^moments] exists; above 0 inside."""
        return self.family.margin(eta)

    def inside(self, units: Ints) -> NDArray[np.bool_]:
        eta = self.decode(units)
        result: NDArray[np.bool_] = (self.family.margin(eta) > 0.0) & (self.margin(eta) > 0.0)
        return result

    def needs(self, moments: int) -> str:
        """The condition behind `margin`, for error messages."""
        return f"natural parameters inside the domain of {self.family.name}"

    def flatness(self, data: Iterable[Data]) -> float:
        """Above 0 if the prior is too flat for these data, so that `concern` may find something."""
        return 0.0

    def concern(self, units: Ints, data: Iterable[Data]) -> str | None:
        """Why a converged result for these data says little, with a fix; None if nothing is wrong
        with it."""
        return None

    # -- private rounds ---------------------------------------------------------------------------

    def in_rounds(self, agents: int) -> Model:
        raise ConfigError(
            f"{self.name} has no private rounds: its factors depend on the other agents' factors. "
            'Fix: privacy = "plain", a GLM with covariance = "full", or a model of atoms'
        )

    def factor_at(self, point: bytes, data: Data) -> Ints:
        raise ConfigError(f"{self.name}: no private round. Fix: model.in_rounds(agents)")

    def appraise_round(self, point: bytes, total: Ints) -> dict[str, Any]:
        """The estimate of a final sum, from the point and the sum alone."""
        return {"kl_to_optimum": None, "method": "none: this model has no private rounds"}

    # -- the certificate's estimate ---------------------------------------------------------------

    def freeze(self, units: Ints, factor: Ints, data: Data) -> Floats | None:
        """The agent's term of the estimate, at a sum inside the domain: zero at a fixed point,

            r_k = eta_k + (1/alpha) ∇_mu E_q[L_k]

        None if the model has no closed gradient, and so no estimate.
        """
        exact = getattr(self, "exact_gradient", None)
        if exact is None:
            return None
        gradient: Floats = exact(self.decode(units), self.summary(data))
        return self.grid.decode(factor) + gradient / self.alpha

    def appraise(self, units: Ints, frozen: Floats) -> dict[str, Any]:
        """The estimate from Σ_k r_k: KL to the optimum ≈ ½ ‖Σ_k r_k‖² in the Fisher metric."""
        if getattr(self, "exact_gradient", None) is None:
            return {"kl_to_optimum": None, "method": "none: this model has no exact gradient"}
        kl = 0.5 * float(frozen @ self.family.fisher_dot(self.decode(units), frozen))
        return self.estimate(kl)

    def estimate(self, kl: float) -> dict[str, Any]:
        """What a certificate says of an estimated KL."""
        return {
            "kl_to_optimum": kl,
            "method": "half the squared Fisher norm of Σ r_k",
            "accuracy": "not measured for this model"
            if self.estimate_within is None
            else f"typically within {self.estimate_within:g}×",
            "optimum": f"the best {self.family.name} for the remaining data",
            "bound": "no bound",
        }


class ComponentBits(tuple[int, ...]):
    """The bits of each component; a representation shows one number if they are all the same, and
    the first ones of many."""

    __slots__ = ()

    def __repr__(self) -> str:
        if len(set(self)) == 1:
            return repr(self[0])
        if len(self) <= _BITS_SHOWN:
            return repr(tuple(self))
        first = ", ".join(map(str, self[:_BITS_SHOWN]))
        return f"({first}, … {len(self)} numbers)"


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(v) for v in value]
    if isinstance(value, Model):
        return {"name": value.name, **value.settings()}
    return {k: _plain(v) for k, v in value.items()} if isinstance(value, Mapping) else value
