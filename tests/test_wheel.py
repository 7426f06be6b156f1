"""The wheel, outside the repository: what it holds, what the smallest install can do, and a smoke
test of the library."""

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
VECTORS = ROOT / "tests" / "vectors"
LOCK = ROOT / "requirements" / "product.lock"


def run(*command, cwd, code=0):
    """A process that knows nothing of this repository."""
    hidden = {"PYTHONPATH", "VIRTUAL_ENV"}
    env = {key: value for key, value in os.environ.items() if key not in hidden}
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True)
    if "NewConnectionError" in done.stderr:
        pytest.skip("pip reaches no package index")
    assert done.returncode == code, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def built(folder):
    hatchling = (sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder))
    run(*hatchling, cwd=ROOT)
    (wheel,) = folder.glob("*.whl")
    return wheel


def test_the_wheel_holds_the_package_and_nothing_else(tmp_path):
    with zipfile.ZipFile(built(tmp_path)) as wheel:
        names = set(wheel.namelist())
    source = ROOT / "src"
    files = {
        str(path.relative_to(source))
        for path in (source / "unweave").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    data = ("py.typed", "datasets/breast_cancer.csv", "datasets/README.md", "node/wire/wire.proto")
    assert {f"unweave/{name}" for name in data} <= names
    schema = next(name for name in names if name.endswith("share/unweave/certificate.schema.json"))
    assert {name for name in names if ".dist-info/" not in name} == files | {schema}
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_the_smallest_install_verifies_certificates_and_learns(tmp_path):
    """`unweave[verify]`, with the pins of the product: the library and one package more."""
    wheel, pins = built(tmp_path), tmp_path / "pins.txt"
    pins.write_text("\n".join(re.findall(r"^[^\s#]+==[^\\\n]+", LOCK.read_text(), re.MULTILINE)))
    run(sys.executable, "-m", "venv", "venv", cwd=tmp_path)
    python, unweave = (str(tmp_path / "venv" / "bin" / name) for name in ("python", "unweave"))

    pip = (python, "-m", "pip", "--disable-pip-version-check")
    named = f"unweave[verify] @ {wheel.as_uri()}"
    run(*pip, "install", "-q", "-c", str(pins), named, cwd=tmp_path)
    run(*pip, "check", cwd=tmp_path)
    heavy = ("numba", "matplotlib", "duckdb", "nanoarrow", "grpc", "google.protobuf", "pandas")
    for name in heavy:
        run(python, "-c", f"import {name}", cwd=tmp_path, code=1)
    assert re.fullmatch(r"unweave \d+\.\d+\.\d+\n", run(unweave, "--version", cwd=tmp_path))
    network = ("--network", str(VECTORS / "network.toml"))
    good = VECTORS / "certificate.json"
    assert "The certificate is valid" in run(unweave, "verify", str(good), *network, cwd=tmp_path)
    altered = tmp_path / "altered.json"
    altered.write_text(good.read_text().replace('"sig":"MEUC', '"sig":"MEQC', 1))
    assert altered.read_text() != good.read_text()
    assert "signature" in run(unweave, "verify", str(altered), *network, cwd=tmp_path, code=1)
    assert "--out" in run(unweave, "demo", "--help", cwd=tmp_path)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    block, shown = re.findall(r"^```(?:python|text)\n(.*?)^```", readme, re.MULTILINE | re.DOTALL)[
        :2
    ]
    assert run(python, "-c", block, cwd=tmp_path) == shown
