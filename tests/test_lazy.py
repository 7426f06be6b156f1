"""Importing the models, and verifying a certificate, imports no SciPy."""

import subprocess
import sys
from pathlib import Path

VECTORS = Path(__file__).parent / "vectors"
VERIFY = """
import sys
from unweave.cli import main

try:
    main()
finally:
    sys.exit("scipy is loaded" if "scipy" in sys.modules else 0)
"""


def test_verifying_a_certificate_imports_no_scipy():
    words = ("verify", VECTORS / "certificate.json", "--network", VECTORS / "network.toml")
    command = [sys.executable, "-c", VERIFY, *words]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "The certificate is valid" in done.stdout
