"""Sums of a user's log-likelihood and its derivatives over records, by JAX.

Rows are evaluated in blocks of few different sizes, padded by repeating a record, because JAX
compiles a function for each shape. A padded row has weight 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unweave.errors import ConfigError, SolverError
from unweave.models.custom.tree import Tree, jax

__all__ = ["Autodiff", "places"]


Floats = NDArray[np.float64]

_CELLS = 1 << 22  # of the gradients of one block
_LEAST_ROWS = 32


class Autodiff:
    """`likelihood(params, record)` with its derivatives. `fields` maps each entry of a record to
    its places among the columns: a number, or several for a vector. `double`: in float64, for
    solvers that compare free energies."""

    def __init__(
        self,
        likelihood: Callable[[Any, Any], Any],
        tree: Tree,
        fields: Mapping[str, int | Sequence[int]],
        double: bool,
    ) -> None:
        self._likelihood = likelihood
        self._tree = tree
        self._fields = {k: v if isinstance(v, int) else np.array(v) for k, v in fields.items()}
        self._double = double
        self._jax = jax()

    def check(self, model: str, columns: int) -> None:
        """ConfigError if the log-likelihood does not give one number per record."""
        rows = np.zeros((3, columns))
        dtype = np.float64 if self._double else np.float32
        theta = self._jax.ShapeDtypeStruct((len(self._tree.vector),), dtype)
        block = self._jax.ShapeDtypeStruct(rows.shape, dtype)
        with self._precision():
            try:
                found = self._jax.eval_shape(self._values, theta, block)
            except Exception as error:
                raise ConfigError(
                    f"{model}: log_likelihood fails: {_first_line(error)}. Fix: "
                    "log_likelihood(params, record) in jax.numpy"
                ) from None
        if getattr(found, "shape", None) != (3,):
            shape = getattr(found, "shape", type(found).__name__)
            raise ConfigError(
                f"{model}: for 3 records, log_likelihood gives {shape}. Fix: return one number per "
                "record, shape (3,)"
            )

    # -- sums -------------------------------------------------------------------------------------

    def values(self, theta: Floats, rows: Floats) -> Floats:
        """log p(record | theta), [S, N] for theta [S, D]."""
        parts = [
            np.asarray(self._run(self._all_values, theta, block), dtype=np.float64)[:, :n]
            for block, n in self._blocks(rows, len(theta))
        ]
        return np.concatenate(parts, axis=1) if parts else np.empty((len(theta), 0))

    def diagonal(self, theta: Floats, rows: Floats) -> tuple[float, Floats, Floats]:
        """Averages over theta [S, D] of Σ loss, Σ gradient and Σ squared gradient of a record."""
        return self._summed(self._diagonal, theta, rows, self._tree.vector.size)

    def full(self, theta: Floats, rows: Floats) -> tuple[float, Floats, Floats]:
        """Averages over theta [S, D] of Σ loss, its gradient [D] and its Hessian [D, D]."""
        return self._summed(self._full, theta, rows, self._tree.vector.size)

    def _summed(
        self, function: Any, theta: Floats, rows: Floats, width: int
    ) -> tuple[float, Floats, Floats]:
        total: list[Any] = []
        for block, n in self._blocks(rows, width):
            weight = np.zeros(len(block))
            weight[:n] = 1.0
            found = self._run(function, theta, block, weight)
            parts = [np.asarray(part, dtype=np.float64) for part in found]
            total = parts if not total else [a + b for a, b in zip(total, parts, strict=True)]
        loss, gradient, curvature = total
        if np.isnan(loss) or not np.isfinite(gradient).all() or not np.isfinite(curvature).all():
            self._explain(theta, rows)
        return float(loss), gradient, curvature

    def _explain(self, theta: Floats, rows: Floats) -> None:
        """SolverError that names the first record whose log-likelihood is not finite."""
        values = self.values(theta, rows)
        bad = ~np.isfinite(values)
        if bad.any():
            draw, row = (int(i) for i in np.argwhere(bad)[0])
            what = "not a number" if np.isnan(values[draw, row]) else "infinite"
            raise SolverError(
                f"record {row}: the log-likelihood is {what} at a draw from q. Fix: make it finite "
                "for all real parameters, or scale the columns"
            )
        raise SolverError(
            "a derivative of the log-likelihood is not finite. Fix: avoid functions like sqrt at "
            "0, also in the branches that jnp.where leaves out"
        )

    # -- functions that JAX compiles --------------------------------------------------------------

    def _record(self, rows: Any) -> dict[str, Any]:
        return {name: rows[:, place] for name, place in self._fields.items()}

    def _values(self, theta: Any, rows: Any) -> Any:
        return self._likelihood(self._tree.build(theta), self._record(rows))

    @cached_property
    def _all_values(self) -> Any:
        return self._jax.jit(self._jax.vmap(self._values, (0, None)))

    @cached_property
    def _diagonal(self) -> Any:
        package = self._jax

        def loss(theta: Any, row: Any) -> Any:
            return -self._values(theta, row[None])[0]

        records = package.vmap(package.value_and_grad(loss), (None, 0))

        def sums(theta: Any, rows: Any, weight: Any) -> Any:
            def one(at: Any) -> Any:
                value, gradient = records(at, rows)
                return weight @ value, weight @ gradient, weight @ gradient**2

            return [part.mean(0) for part in package.lax.map(one, theta)]

        return package.jit(sums)

    @cached_property
    def _full(self) -> Any:
        package = self._jax

        def sums(theta: Any, rows: Any, weight: Any) -> Any:
            def loss(at: Any) -> Any:
                return -(weight @ self._values(at, rows))

            def one(at: Any) -> Any:
                value, gradient = package.value_and_grad(loss)(at)
                return value, gradient, package.hessian(loss)(at)

            return [part.mean(0) for part in package.lax.map(one, theta)]

        return package.jit(sums)

    # -- arrays -----------------------------------------------------------------------------------

    def _precision(self) -> AbstractContextManager[Any]:
        package = self._jax
        home = package if hasattr(package, "enable_x64") else package.experimental  # before 0.8
        found: AbstractContextManager[Any] = home.enable_x64(self._double)
        return found

    def _run(self, function: Any, *arrays: Floats) -> Any:
        dtype = np.float64 if self._double else np.float32
        with self._precision():
            return function(*(array.astype(dtype) for array in arrays))

    def _blocks(self, rows: Floats, width: int) -> Iterator[tuple[Floats, int]]:
        """Blocks of rows, each with the number of rows that are not padding."""
        most = max(_LEAST_ROWS, 1 << max(0, (_CELLS // max(1, width)).bit_length() - 1))
        for start in range(0, len(rows), most):
            block = rows[start : start + most]
            n = len(block)
            size = max(_LEAST_ROWS, 1 << (n - 1).bit_length())
            size -= (size // 4) * int(n <= size * 3 // 4)
            yield np.concatenate([block, np.repeat(block[:1], max(0, size - n), axis=0)]), n


def places(records: Mapping[str, Any]) -> dict[str, int | Sequence[int]]:
    """The places of each entry of a record among the columns."""
    found: dict[str, int | Sequence[int]] = {}
    at = 0
    for name, kind in records.items():
        n = 1 if isinstance(kind, str) else len(kind)
        found[name] = at if isinstance(kind, str) else range(at, at + n)
        at += n
    return found


def _first_line(error: Exception) -> str:
    text = str(error).strip().splitlines()
    return (text[0] if text else type(error).__name__)[:160].rstrip(".")
