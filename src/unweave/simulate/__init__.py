"""Simulation: thousands of replicas on arrays, and whole networks on a fake wire.

The room is also callable, so that `from unweave import simulate` gives the function whatever has
been imported before: `simulate(model, shards, graph, replicas=1000)`.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from unweave.simulate.batch import simulate
from unweave.simulate.inputs import Forget, PerReplica
from unweave.simulate.result import Curves, Replicas

__all__ = ["Curves", "Forget", "PerReplica", "Replicas", "simulate"]


class _Room(ModuleType):
    def __call__(self, *args: Any, **kwargs: Any) -> Replicas:
        return simulate(*args, **kwargs)


sys.modules[__name__].__class__ = _Room
