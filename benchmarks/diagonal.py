"""A diagonal model of a million parameters: its construction, a step on disk, a hop of its token.

python -m benchmarks.diagonal        CPU seconds of a construction, and megabytes beyond its arrays
"""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

import numpy as np

from benchmarks.harness import benchmark, cpu
from benchmarks.store import step_ratio
from benchmarks.transport import message_ratio
from unweave.families import DiagonalNormal, Distribution
from unweave.models import LossModel
from unweave.models.columns import Column, real

_PARAMETERS = 1_000_000
_BYTES = 16 * _PARAMETERS  # of a token: (P m, P) as int64


@dataclass(frozen=True)
class _Diagonal(LossModel, registered=False):
    """As many independent normals. The loss is never asked for."""

    size: int = _PARAMETERS

    name: ClassVar[str] = "diagonal"

    @property
    def prior(self) -> Distribution:
        return DiagonalNormal(mean=np.zeros(self.size), sd=np.ones(self.size))

    @property
    def schema(self) -> tuple[Column, ...]:
        return (real("x"),)

    def loss(self, theta: Any, data: Any) -> Any:
        raise NotImplementedError


def _arrays(root: object) -> Iterator[np.ndarray[Any, Any]]:
    """The arrays that an object of ours holds, each once."""
    seen, left = set[int](), [root]
    while left:
        one = left.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, np.ndarray):
            if one.base is None:
                yield one
        elif type(one).__module__.startswith(("unweave", "benchmarks", "__main__")):
            left.extend(vars(one).values())


def _measure() -> dict[str, float]:
    seconds = cpu(_Diagonal, 7)
    gc.collect()
    tracemalloc.start()
    model = _Diagonal()
    held = tracemalloc.get_traced_memory()[0]
    return {"seconds": seconds, "megabytes": (held - sum(a.nbytes for a in _arrays(model))) / 1e6}


@cache
def _measured() -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.diagonal"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


@benchmark("a diagonal model of 1e6 parameters: construction", target=0.3, unit="s", at_most=True)
def construction() -> float:
    return _measured()["seconds"]


@benchmark("the same: memory beyond its arrays", target=100.0, unit="MB", at_most=True)
def beyond_arrays() -> float:
    return _measured()["megabytes"]


@benchmark("its token: a step on disk, as a share of a bare transaction's speed", target=0.5)
def commit() -> float:
    return 1.0 / step_ratio(2 * _PARAMETERS, steps=12, turns=3)


@benchmark("its token between processes, as a share of bare gRPC streaming", target=0.5)
def move() -> float:
    return 1.0 / message_ratio(b"\x5a" * _BYTES, repeats=1, rounds=9)


if __name__ == "__main__":
    print(json.dumps(_measure()))
