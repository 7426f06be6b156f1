"""Every parser of others' bytes: it accepts an input, or refuses it with its own error.

Each runs in a process of its own, under limits on memory and on CPU time per input.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.parsers import TARGETS

ROOT = Path(__file__).parents[1]
COUNTS = [1_000, pytest.param(100_000, marks=pytest.mark.slow)]


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("target", TARGETS)
def test_altered_inputs_are_read_or_refused(target, count):
    command = [sys.executable, "-m", "tests.support.parsers", target, "--count", str(count)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]
    found = re.fullmatch(r"(\d+) inputs, (\d+) accepted\n", done.stdout)
    assert found is not None
    assert int(found[1]) == count
    # Inputs that are all refused at the first byte, or all accepted, would test nothing.
    assert 0.01 * count < int(found[2]) < 0.95 * count
