"""A coverage-guided fuzzer over what reads bytes of strangers, for a bounded number of inputs."""

import importlib.util
import json
import subprocess
import sys
from base64 import b64decode
from pathlib import Path
from random import Random

import pytest

from unweave.node.wire.codec import encode
from unweave.testing.values import MESSAGES, small_terms

ROOT = Path(__file__).parents[2]
pytestmark = [
    pytest.mark.reference,
    pytest.mark.skipif(
        importlib.util.find_spec("atheris") is None,
        reason="atheris is not installed: it has wheels for Linux on x86-64 and Python below 3.14",
    ),
]


def decoded(node):
    """An envelope with its payload as text."""
    return node | {"payload": b64decode(node["payload"]).decode()} if "payload" in node else node


def seeds(target):
    """Inputs that are accepted: the fuzzer alters them."""
    certificate = (ROOT / "tests/vectors/certificate.json").read_text()
    if target == "certificate":
        return [certificate.encode()]
    if target == "statements":
        return [json.dumps(json.loads(certificate, object_hook=decoded)).encode()]
    terms = small_terms()
    return [encode(make(Random(k), terms), terms) for make in MESSAGES.values() for k in range(5)]


@pytest.mark.parametrize(
    ("target", "runs"), [("certificate", 20_000), ("statements", 20_000), ("codec", 100_000)]
)
def test_altered_inputs_are_read_or_refused(target, runs, tmp_path):
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    for number, data in enumerate(seeds(target)):
        (corpus / str(number)).write_bytes(data)
    options = [f"-runs={runs}", "-seed=1", "-max_total_time=60", "-max_len=20000", str(corpus)]
    found = subprocess.run(
        [sys.executable, "-m", "tests.reference.fuzz", target, *options],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
    )
    assert found.returncode == 0, found.stderr[-4000:] + found.stdout[-4000:]
    assert "Done " in found.stderr  # libFuzzer's last line: how many inputs it tried
