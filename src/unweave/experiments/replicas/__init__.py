"""Simulation: thousands of replicas on arrays, and whole networks on a fake wire.

The room is also callable, so that `from unweave import simulate` gives the function whatever has
been imported before: `simulate(model, shards, graph, replicas=1000)`.
"""

from __future__ import annotations

from unweave.experiments.replicas.batch import simulate
from unweave.experiments.replicas.inputs import Forget, PerReplica
from unweave.experiments.replicas.result import Curves, Replicas

__all__ = ["Curves", "Forget", "PerReplica", "Replicas", "simulate"]
