"""Pages that follow from the code are current, and everything is documented."""

import inspect
import re
import subprocess
import sys
import tomllib

import pytest
from tests.support.pages import ROOT, pages

from unweave import errors


def run(*arguments, cwd=ROOT):
    """A process of its own: other tests may have registered models of theirs here."""
    return subprocess.run(
        [sys.executable, *arguments], cwd=cwd, capture_output=True, text=True, check=False
    )


def test_generated_pages_are_current():
    found = run("docs/generate.py", "--check")
    assert found.returncode == 0, found.stderr


def test_the_code_in_contributing_runs(tmp_path):
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 5
    script = tmp_path / "contributing.py"
    script.write_text("\n".join(blocks), encoding="utf-8")
    found = run("-W", "error", script)
    assert found.returncode == 0, found.stderr


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py")), ids=lambda p: p.stem)
def test_examples_run(path, tmp_path):
    """Those with a figure draw it when they are given a name for it."""
    if "import jax" in path.read_text(encoding="utf-8"):
        pytest.importorskip("jax", reason="JAX is not installed: tests/reference runs this example")
    found = run("-W", "error", path, tmp_path / "figure.png", cwd=tmp_path)
    assert found.returncode == 0, found.stderr
    assert found.stdout.strip()
    drawn = (tmp_path / "figure.png").exists()
    assert drawn == ("savefig" in path.read_text(encoding="utf-8"))


def sections(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    parts = re.split(r"^## (.+)$", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_every_error_is_documented_with_its_exit_code():
    documented = sections("docs/reference/errors.md")
    assert set(documented) == set(errors.__all__)
    assert set(errors.__all__) == {
        name
        for name, value in vars(errors).items()
        if inspect.isclass(value) and issubclass(value, errors.UnweaveError | Warning)
    }
    for name, text in documented.items():
        error = getattr(errors, name)
        if issubclass(error, Warning):
            assert "no error" in text
            continue
        assert f"Exit code {error.exit_code}." in text, name
        for base in (ValueError, ArithmeticError, ImportError):
            if issubclass(error, base) and error is not errors.GridOverflow:
                assert re.search(rf"Also an?\s+{base.__name__}", text), name
        assert name in (errors.__doc__ or "")


def test_the_guide_names_every_model():
    from unweave import models

    text = (ROOT / "docs" / "how-to" / "model.md").read_text(encoding="utf-8")
    public = [n for n in models.__all__ if n[0].isupper()]
    for name in public:
        cls = getattr(models, name)
        if "name" in vars(cls):
            assert f"`{name}`" in text, name


def test_files_that_the_pages_name_exist():
    for page in pages():
        text = (ROOT / page).read_text(encoding="utf-8")
        for name in re.findall(
            r"`((?:src|tests|docs|benchmarks|examples|requirements)/[\w./-]+)`", text
        ):
            assert (ROOT / name).exists(), f"{page}: {name}"


def test_the_citation_names_this_version():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {project['version']}\nlicense: {project['license']}\n" in text


def test_every_public_name_can_be_imported():
    import unweave

    for name in unweave.__all__:
        assert getattr(unweave, name) is not None
    assert set(unweave.__all__) <= set(dir(unweave))


def test_every_count_has_a_meaning():
    """docs/reference/metrics.md is written from this table."""
    from unweave.node.api.metrics import COUNTERS

    counted = set()
    for file in (ROOT / "src" / "unweave" / "node").rglob("*.py"):
        counted |= set(
            re.findall(r"""\b_?counts\["([a-z ]+)"\]""", file.read_text(encoding="utf-8"))
        )
    assert counted == COUNTERS.keys()
