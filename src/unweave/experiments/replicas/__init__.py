"""Thousands of independent runs (replicas) of one federation, on arrays."""

from __future__ import annotations

from unweave.experiments.replicas.batch import simulate
from unweave.experiments.replicas.inputs import Forget, PerReplica
from unweave.experiments.replicas.result import Curves, Replicas

__all__ = ["Curves", "Forget", "PerReplica", "Replicas", "simulate"]
