"""`CustomModel(…, posterior="atoms")`: a log-likelihood in JAX at staged atoms.

The tree may have up to six numbers. No derivative is needed, and the posterior is the exact one up
to the hold-out estimate, whatever its shape; forgetting is exact.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unweave.errors import ConfigError
from unweave.models.atoms.base import COLUMNS, MOST_PARAMETERS, name_of
from unweave.models.atoms.likelihood import Named
from unweave.models.atoms.staged import StagedAtomModel
from unweave.models.custom.autodiff import Autodiff, places
from unweave.models.custom.tree import Tree, spread

__all__ = ["CustomAtoms", "custom_atoms"]


Floats = NDArray[np.float64]


@dataclass(frozen=True)
class AtomLikelihood:
    """A user's log_likelihood(params, record) in the form of atoms: parameters by name [1, M] and
    columns by name [B, 1] → [B, M]."""

    function: Any
    tree: Tree
    records: Any

    @cached_property
    def autodiff(self) -> Autodiff:
        return Autodiff(self.function, self.tree, places(self.records), double=True)

    def __call__(self, theta: Named, record: Named) -> Floats:
        at = np.stack([theta[name][0] for name in self.tree.components], axis=1)
        rows = np.concatenate(list(record.values()), axis=1)
        return self.autodiff.values(at, rows).T


@dataclass(frozen=True)
class CustomAtoms(StagedAtomModel, registered=False):
    """Staged atoms whose parameters are the leaves of a tree."""

    name: ClassVar[str] = "custom"

    @property
    def tree(self) -> Tree:
        return cast(AtomLikelihood, self.likelihood).tree

    def check_settings(self) -> None:
        super().check_settings()
        cast(AtomLikelihood, self.likelihood).autodiff.check(self.name, len(self.schema))

    def settings(self) -> dict[str, Any]:
        """With the digest of the user's function."""
        return {**super().settings(), "likelihood": name_of(self.likelihood.function)}

    def named_samples(self, theta: Floats) -> dict[str, Floats]:
        columns = theta[:, None] if theta.ndim == 1 else theta
        return dict(zip(self.tree.names, self.tree.leaves(columns), strict=True))

    def build(self, theta: ArrayLike) -> Any:
        """The tree of parameters at a vector theta [D], or at many."""
        return self.tree.build(np.asarray(theta, dtype=np.float64))


def custom_atoms(
    likelihood: Any, params: Any, prior: Any, records: Mapping[str, Any], **settings: Any
) -> CustomAtoms:
    """The model. Its parameters are named by their places in the tree, such as "w[0]"."""
    if not callable(likelihood):
        raise ConfigError("custom: log_likelihood is no function. Fix: give one")
    tree = Tree.of(params, "custom", "params")
    if len(tree.vector) > MOST_PARAMETERS:
        raise ConfigError(
            f"custom: {len(tree.vector)} parameters at atoms. Fix: at most {MOST_PARAMETERS}, or "
            'posterior = "full" or "diagonal"'
        )
    moments = zip(tree.components, tree.vector, spread(prior, tree, "custom"), strict=True)
    laws = {name: f"normal({float(mean)!r}, {float(sd)!r})" for name, mean, sd in moments}
    columns: dict[str, str] = {}
    for name, kind in records.items():
        columns |= {name: kind} if isinstance(kind, str) else dict.fromkeys(kind, "real")
    assert set(columns.values()) <= set(COLUMNS)
    return CustomAtoms(AtomLikelihood(likelihood, tree, records), laws, columns, **settings)
