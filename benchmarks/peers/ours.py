"""Our durable hop with a vector of a given length; run by our own environment.

python -m benchmarks.peers.ours LENGTH HOPS     seconds per hop, as JSON
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.support.processes import Processes

from unweave.models import DirichletCategorical

__all__ = ["hop"]

_LIMIT = 40.0  # seconds, for both walkers together


def hop(length: int, hops: int) -> float:
    """Two agents as processes on loopback; each says how long a hop took."""
    with tempfile.TemporaryDirectory() as folder:
        net = Processes(
            Path(folder) / "net",
            agents=2,
            graph="path",
            model=DirichletCategorical(classes=length),
            rows=10,
        )
        walkers = [
            subprocess.Popen(
                [sys.executable, "-m", "benchmarks.node", str(net.folder(name)), str(hops)],
                stdout=subprocess.PIPE,
                text=True,
            )
            for name in net.names
        ]
        try:
            end = time.monotonic() + _LIMIT
            return statistics.mean(
                float(walker.communicate(timeout=max(0.0, end - time.monotonic()))[0])
                for walker in walkers
            )
        finally:
            for walker in walkers:
                walker.kill()
                walker.wait()


if __name__ == "__main__":
    print(json.dumps(hop(int(sys.argv[1]), int(sys.argv[2]))))
