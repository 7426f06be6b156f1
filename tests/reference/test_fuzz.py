"""A coverage-guided fuzzer over everything that reads bytes of others."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.parsers import TARGETS

ROOT = Path(__file__).parents[2]
RUNS = 100_000
pytestmark = [
    pytest.mark.reference,
    pytest.mark.skipif(
        importlib.util.find_spec("atheris") is None,
        reason="atheris is not installed: it has wheels for Linux on x86-64 and Python below 3.14",
    ),
]


@pytest.mark.parametrize("target", TARGETS)
def test_guided_inputs_are_read_or_refused(target, tmp_path):
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    # Seconds and megabytes of one input are bounds against hanging, not a measure of speed.
    options = [f"-runs={RUNS}", "-seed=1", "-max_len=50000", "-timeout=300", "-rss_limit_mb=4096"]
    found = subprocess.run(
        [sys.executable, "-m", "tests.reference.fuzz", target, str(corpus), *options],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])},
        capture_output=True,
        text=True,
    )
    assert found.returncode == 0, found.stderr[-4000:] + found.stdout[-4000:]
    done = re.search(r"Done (\d+) runs", found.stderr)
    assert done is not None
    assert int(done[1]) >= RUNS
