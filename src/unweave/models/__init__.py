"""Models: a family, a prior and a likelihood — what a user picks."""

from __future__ import annotations

from unweave.models.base import ConjugateModel, LossModel, Model, by_name, names
from unweave.models.posterior import Posterior
from unweave.models.shards import Shard

__all__ = ["ConjugateModel", "LossModel", "Model", "Posterior", "Shard", "by_name", "names"]
