"""Simulation: thousands of replicas on arrays."""

from __future__ import annotations

from unweave.simulate.batch import simulate
from unweave.simulate.inputs import Forget, PerReplica
from unweave.simulate.result import Curves, Replicas

__all__ = ["Curves", "Forget", "PerReplica", "Replicas", "simulate"]
