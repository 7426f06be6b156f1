"""A tree of parameters as one vector: nested dicts, lists, tuples or other pytrees of arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unweave.errors import ConfigError, MissingExtra
from unweave.families.names import Names

__all__ = ["Tree", "jax", "spread"]


Floats = NDArray[np.float64]


def jax() -> Any:
    """The package JAX, which only models of one's own need."""
    try:
        import jax as package
    except ImportError:
        raise MissingExtra("jax", "jax", "CustomModel") from None
    return package


@dataclass(frozen=True)
class Tree:
    """The leaves of a tree: their names (paths in the tree), shapes and values."""

    structure: Any
    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    values: bytes  # float64, in the order of the leaves: equal trees have equal bytes

    @classmethod
    def of(cls, tree: Any, model: str, setting: str) -> Tree:
        """ConfigError if the tree is empty, or a leaf is no array of finite numbers."""
        found, structure = jax().tree_util.tree_flatten_with_path(tree)
        if not found:
            raise ConfigError(f"{model}: {setting} holds no array. Fix: give one for each weight")
        leaves = []
        names = tuple(_name(path) or setting for path, _ in found)
        for name, (_, leaf) in zip(names, found, strict=True):
            try:
                array = np.asarray(leaf, dtype=np.float64)
            except (TypeError, ValueError):
                raise ConfigError(
                    f"{model}: {setting} {name!r} is no array of numbers. Fix: give one"
                ) from None
            if not np.isfinite(array).all() or not array.size:
                raise ConfigError(
                    f"{model}: {setting} {name!r} is empty, or not finite. Fix: finite numbers"
                )
            leaves.append(array)
        values = np.concatenate([leaf.ravel() for leaf in leaves])
        return cls(structure, names, tuple(leaf.shape for leaf in leaves), values.tobytes())

    @cached_property
    def vector(self) -> Floats:
        return np.frombuffer(self.values, dtype=np.float64)

    @cached_property
    def ends(self) -> tuple[int, ...]:
        """Where each leaf ends in the vector."""
        return tuple(int(end) for end in np.cumsum([np.prod(s, dtype=int) for s in self.shapes]))

    def leaves(self, theta: Any) -> list[Any]:
        """The leaves at vectors theta [..., D]: [..., *shape]; NumPy or JAX arrays."""
        starts = (0, *self.ends[:-1])
        return [
            theta[..., start:end].reshape((*theta.shape[:-1], *shape))
            for start, end, shape in zip(starts, self.ends, self.shapes, strict=True)
        ]

    def build(self, theta: Any) -> Any:
        """The tree at vectors theta [..., D]."""
        return jax().tree_util.tree_unflatten(self.structure, self.leaves(theta))

    @cached_property
    def components(self) -> Sequence[str]:
        """The name of each component of the vector, e.g. "layer.weights[0,3]"."""
        return Names(*zip(self.names, self.shapes, strict=True))


def spread(prior: Any, tree: Tree, model: str) -> Floats:
    """The prior's sd of each component [D]: one number, or a tree like the parameters."""
    if np.isscalar(prior):
        sd = np.full(len(tree.vector), prior, dtype=np.float64)
    else:
        found = Tree.of(prior, model, "prior")
        if found.structure != tree.structure:
            raise ConfigError(
                f"{model}: the prior has the leaves {', '.join(found.names)}, but the parameters "
                f"have {', '.join(tree.names)}. Fix: one sd, or a tree like params"
            )
        parts = []
        for name, given, shape in zip(
            tree.names, found.leaves(found.vector), tree.shapes, strict=True
        ):
            try:
                parts.append(np.broadcast_to(given, shape).ravel())
            except ValueError:
                raise ConfigError(
                    f"{model}: the prior of {name!r} has shape {given.shape}, but the parameter "
                    f"has {shape}. Fix: one sd, or one for each entry"
                ) from None
        sd = np.concatenate(parts)
    if not (np.isfinite(sd) & (sd > 0.0)).all():
        raise ConfigError(f"{model}: an sd of the prior is not above 0. Fix: finite, above 0")
    return sd


def _name(path: Any) -> str:
    return str(jax().tree_util.keystr(path, simple=True, separator="."))
