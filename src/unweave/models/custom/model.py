"""`CustomModel`: any log-likelihood that JAX can differentiate, with a normal prior.

"full"      q has correlations. g and H are averages over common antithetic draws m ± L⁻ᵀz of q: the
            same z at every visit, so a solution is a fixed point and the solver "vi" comes to rest.
            A negative curvature of H is clipped at zero.
"diagonal"  q has independent components, for up to millions of parameters. The curvature is the sum
            of the records' squared gradients, and the solver "diagonal" stops after a fixed number
            of passes.
"atoms"     up to six parameters, exact: `custom_atoms`.

All give records away (docs/explanation/security.md): a diagonal factor of one record is its
gradient, the factors of several visits span the records of a small shard, and so do sums at atoms.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unweave.arguments import shown
from unweave.errors import ConfigError
from unweave.families import DiagonalNormal, Distribution, MultivariateNormal
from unweave.families.point import NormalPoint
from unweave.grid import Ints
from unweave.lazy import special
from unweave.models.atoms.base import COLUMNS, name_of
from unweave.models.base import LossModel
from unweave.models.columns import Column, real
from unweave.models.curvature import CurvatureModel, Sums
from unweave.models.custom.atoms import CustomAtoms, custom_atoms
from unweave.models.custom.autodiff import Autodiff, places
from unweave.models.custom.tree import Tree, spread
from unweave.models.data import Data
from unweave.models.settings import SettingTable
from unweave.rng import Purpose, Stream, derive

__all__ = ["CustomModel", "CustomPredictive"]


Floats = NDArray[np.float64]

_FEWEST_DRAWS = 32
_PREDICTIVE_DRAWS = 200
_MOST_FULL = 1000  # parameters with a full covariance: its carrier has D²/2 numbers


def CustomModel(
    log_likelihood: Callable[[Any, Any], Any],
    params: Any,
    prior: Any = 1.0,
    *,
    records: Mapping[str, Any] | Sequence[str],
    posterior: str = "full",
    **settings: Any,
) -> Custom | CustomAtoms:
    """A model from a log-likelihood in JAX.

    `params` is a tree (dicts, lists, …) of arrays: the prior's mean. `prior` is its sd: a number,
    or a tree of the same structure. `records` maps each entry of a record to its kind ("real",
    "positive", "nonnegative", "count", "binary"), or to several columns of real numbers, which
    become a vector. `log_likelihood(params, record)` gets N records at once, entries [N] or [N, C],
    and returns N numbers.

        CustomModel(
            lambda p, r: norm.logpdf(r["y"], r["x"] @ p["w"] + p["b"], jnp.exp(p["s"])),
            params={"w": jnp.zeros(2), "b": 0.0, "s": 0.0},
            records={"x": ["dose", "age"], "y": "real"},
        )
    """
    if posterior == "atoms":
        return custom_atoms(log_likelihood, params, prior, _records(records, "custom"), **settings)
    kinds: dict[str, type[Custom]] = {"full": FullCustom, "diagonal": DiagonalCustom}
    if posterior not in kinds:
        raise ConfigError(
            f'custom: posterior = {shown(posterior)}. Fix: "full", "diagonal" or "atoms"'
        )
    return kinds[posterior](log_likelihood, params, prior, records, **settings)


@dataclass(frozen=True)
class Custom(LossModel, registered=False):
    """What both kinds of posterior have in common."""

    log_likelihood: Any
    params: Any
    sd: Any
    records: Any
    _: KW_ONLY
    seed: int = 0  # of the common draws

    name: ClassVar[str] = "custom"
    double: ClassVar[bool]

    def check_settings(self) -> None:
        if not callable(self.log_likelihood):
            raise ConfigError(f"{self.name}: log_likelihood is no function. Fix: give one")
        object.__setattr__(self, "records", _records(self.records, self.name))
        tree = self.params
        if not isinstance(tree, Tree):
            tree = Tree.of(tree, self.name, "params")
            object.__setattr__(self, "params", tree)
        sd = tuple(spread(self.sd, tree, self.name).tolist())
        object.__setattr__(self, "sd", sd)
        if not 0 <= self.seed < 2**63:
            raise ConfigError(f"{self.name}: seed = {self.seed}. Fix: a whole number, at least 0")
        self.autodiff.check(self.name, len(self.schema))
        super().check_settings()

    @property
    def tree(self) -> Tree:
        found: Tree = self.params
        return found

    @property
    def size(self) -> int:
        return len(self.tree.vector)

    @cached_property
    def autodiff(self) -> Autodiff:
        return Autodiff(self.log_likelihood, self.tree, places(self.records), self.double)

    @property
    def schema(self) -> tuple[Column, ...]:
        return tuple(
            column
            for name, kind in self.records.items()
            for column in ((COLUMNS[kind](name),) if isinstance(kind, str) else map(real, kind))
        )

    def default_bits(self) -> Sequence[int]:
        return (32,) * len(self.carrier_names)

    @property
    def quantities(self) -> Sequence[str]:
        return self.tree.components

    def settings(self) -> dict[str, Any]:
        """The settings as JSON; functions and arrays by their digests."""
        found = {k: v for k, v in super().settings().items() if k not in ("params", "sd")}
        shapes = zip(self.tree.names, self.tree.shapes, strict=True)
        return found | {
            "log_likelihood": name_of(self.log_likelihood),
            "params": {name: list(shape) for name, shape in shapes},
            "mean": hashlib.sha256(self.tree.values).hexdigest(),
            "sd": hashlib.sha256(np.array(self.sd).tobytes()).hexdigest(),
        }

    # -- the loss ---------------------------------------------------------------------------------

    def loss(self, theta: Floats, data: Floats) -> Floats:
        flat = np.reshape(theta, (-1, self.size))
        values: Floats = -self.autodiff.values(flat, data).sum(axis=1) * self._scale(len(data))
        return values.reshape(theta.shape[:-1])

    def _scale(self, n: int) -> float:
        return 1.0 / n if self.reduction == "mean" and n else 1.0

    # -- results ----------------------------------------------------------------------------------

    def named_samples(self, theta: Floats) -> dict[str, Floats]:
        return dict(zip(self.tree.names, self.tree.leaves(theta), strict=True))

    def build(self, theta: ArrayLike) -> Any:
        """The tree of parameters at a vector theta [D], e.g. `posterior.mean()`; or at many."""
        return self.tree.build(np.asarray(theta, dtype=np.float64))

    def predictive(self, eta: ArrayLike, draws: int = _PREDICTIVE_DRAWS) -> CustomPredictive:
        stream = Stream(derive(self.seed, Purpose.SOLVE, 1))
        q = np.asarray(eta, dtype=np.float64)
        return CustomPredictive(self, self.family.sample(q, stream, (int(draws),)))


class CustomPredictive:
    """New records, theta integrated out."""

    how = "by draws from the posterior"

    def __init__(self, model: Custom, theta: Floats) -> None:
        self._model = model
        self.theta = theta

    def log_prob(self, records: Any) -> Floats:
        """log p(record) of each record, in any form that `model.shard` accepts."""
        rows = self._model.shard(records, "predict").rows
        values = self._model.autodiff.values(self.theta, rows)
        return np.asarray(special.logsumexp(values, axis=0) - np.log(len(values)))


@dataclass(frozen=True)
class FullCustom(Custom, CurvatureModel, registered=False):
    """`draws` is the number of common draws; by default 32, or two for each parameter."""

    draws: int | None = None

    convex: ClassVar[bool] = False
    double: ClassVar[bool] = True

    def check_settings(self) -> None:
        super().check_settings()
        if self.size > _MOST_FULL:
            raise ConfigError(
                f"{self.name}: {self.size} parameters with a full covariance. Fix: at most "
                f'{_MOST_FULL}, or posterior="diagonal"'
            )
        if self.draws is not None and (self.draws < 2 or self.draws % 2):
            raise ConfigError(f"{self.name}: draws = {self.draws}. Fix: an even number, at least 2")

    def prior_moments(self) -> tuple[Floats, Floats]:
        return self.tree.vector, np.diag(1.0 / np.square(self.sd))

    @property
    def prior(self) -> Distribution:
        mean, precision = self.prior_moments()
        return MultivariateNormal(mean=mean, precision=precision)

    @cached_property
    def _z(self) -> Floats:
        """Half of the draws; if they are enough, their covariance is exactly the identity, so that
        expectations of quadratic functions are exact."""
        n = self.draws or max(_FEWEST_DRAWS, 2 * self.size)
        z = Stream(derive(self.seed, Purpose.SOLVE)).standard_normal((n // 2, self.size))
        if n // 2 >= self.size:
            z = np.linalg.qr(z)[0] * np.sqrt(n // 2)
        return z

    def curvature(self, at: NormalPoint | Floats, data: Data) -> Sums:
        if isinstance(at, NormalPoint):
            half = np.linalg.solve(at.factor.T, self._z.T).T
            theta = np.concatenate([at.mean + half, at.mean - half])
        else:
            theta = at[None]
        loss, gradient, hessian = data.reduce(lambda rows: self.autodiff.full(theta, rows))
        spectrum, vectors = np.linalg.eigh(0.5 * (hessian + hessian.T))
        clipped = (vectors * np.maximum(spectrum, 0.0)) @ vectors.T
        scale = self._scale(data.n)
        return loss * scale, gradient * scale, clipped * scale


@dataclass(frozen=True)
class DiagonalCustom(Custom, registered=False):
    """Independent components: eta = (P m, P)."""

    solver_name: ClassVar[str] = "diagonal"
    double: ClassVar[bool] = False

    @property
    def prior(self) -> Distribution:
        return DiagonalNormal(mean=self.tree.vector, sd=np.array(self.sd))

    @property
    def retrain_above(self) -> float:
        """Never by itself: a network that lost a class refines in half the passes."""
        return math.inf

    def disclosure(self) -> str:
        return "from its factors, neighbours can find the directions that its records span"

    def check_agents(self, agents: int) -> None:
        """K factors are each rounded by up to half a step, which must not use up the prior."""
        least = 1.0 / max(self.sd) ** 2
        if not least > agents * 2.0 ** -(min(self.grid.bits) + 1):
            raise ConfigError(
                f"{self.name}: rounding {agents} factors may use up the prior's precision "
                f"{least:.3g}. Fix: a smaller sd, or more bits than {min(self.grid.bits)}"
            )

    def diagonal_curvature(self, theta: Floats, data: Data) -> Sums:
        found = data.reduce(lambda rows: self.autodiff.diagonal(theta, rows))
        loss, gradient, curvature = (part * self._scale(data.n) for part in found)
        return float(loss), gradient, curvature

    def appraise(self, units: Ints, frozen: Floats) -> dict[str, Any]:
        return {
            "kl_to_optimum": None,
            "method": "none: the solver stopped after a fixed number of passes",
        }


def _records(given: Any, model: str) -> SettingTable[Any]:
    """Each entry of a record with its kind or its columns."""
    table = dict.fromkeys(given, "real") if not isinstance(given, Mapping) else dict(given)
    for name, kind in table.items():
        if isinstance(kind, str):
            if kind not in COLUMNS:
                raise ConfigError(
                    f"{model}: records[{name!r}] = {kind!r}. Fix: {', '.join(COLUMNS)}, or a list "
                    "of columns"
                )
        else:
            table[name] = tuple(map(str, kind))
    if not table:
        raise ConfigError(f"{model}: records has no entry. Fix: name the columns of a record")
    return SettingTable(tuple((str(name), kind) for name, kind in table.items()))
