"""The neural network of examples/: ten agents with one digit each, and a digit forgotten."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.reference]
pytest.importorskip("jax", reason="JAX is not installed: run `make test-slow`")
pytest.importorskip("sklearn", reason="scikit-learn is not installed: run `make test-slow`")
EXAMPLE = Path(__file__).parents[2] / "examples" / "digits_network.py"


def test_a_network_learns_from_one_digit_per_agent_and_forgets_one():
    found = subprocess.run(
        [sys.executable, EXAMPLE], capture_output=True, text=True, check=False, timeout=600
    )
    assert found.returncode == 0, found.stderr
    lines = [line for line in found.stdout.splitlines() if line]
    learned, central = (float(re.search(r"0\.\d+", line)[0]) for line in lines[:2])
    others, gone = zip(
        *([float(n) for n in re.findall(r"\d\.\d+", s)] for s in lines[2:]), strict=True
    )
    subtracted, refined, retrained = others
    assert central > 0.95
    assert learned >= central - 0.015
    assert subtracted < 0.9  # refining is not optional
    assert refined >= retrained - 0.02
    assert gone == (0.0, 0.0, 0.0)
