"""The whole paper by one command."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time

from benchmarks.harness import benchmark


@benchmark("`unweave paper all` (wall time)", target=90.0, unit="s", at_most=True)
def paper_all() -> float:
    """A fresh process, with everything a user waits for; on a busy machine this takes longer."""
    command = "from unweave.cli import main; main()"
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        arguments = ["paper", "all", "--out", folder, "--json"]
        subprocess.run(
            [sys.executable, "-c", command, *arguments], check=True, stdout=subprocess.DEVNULL
        )
        return time.perf_counter() - start
