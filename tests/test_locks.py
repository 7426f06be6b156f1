"""The lock files hold what pyproject.toml asks for, pinned by hashes: `make lock` writes them."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
EXTRAS = PROJECT["project"]["optional-dependencies"]
GROUPS = PROJECT["dependency-groups"]


def names(requirements):
    """The packages that these requirements name, with those of our own extras."""
    found = set()
    for requirement in requirements:
        name, extras = re.match(r"([\w.-]+)(?:\[([\w,-]+)\])?", requirement).groups()
        if name == "unweave":
            found |= names([one for extra in extras.split(",") for one in EXTRAS[extra]])
        else:
            found.add(re.sub(r"[-_.]+", "-", name).lower())
    return found


def pins(lock):
    """Package → its pins, each with its marker if it has one."""
    text = (ROOT / "requirements" / f"{lock}.lock").read_text(encoding="utf-8")
    assert "://" not in text  # no address of an index
    found = {}
    for entry in re.split(r"\n(?=\S)", text.strip()):
        pin, *hashes = re.split(r"\s*\\\n\s*", entry)
        assert hashes, pin
        assert all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", one) for one in hashes), pin
        name = re.match(r"([\w.-]+)==", pin)[1]
        found.setdefault(name, set()).add(pin)
    return found


BASE = PROJECT["project"]["dependencies"]
WANTED = {
    "product": [*BASE, "unweave[all]", *GROUPS["build"]],
    "dev": GROUPS["dev"],
    "reference": [*BASE, "unweave[node]", *GROUPS["build"], *GROUPS["reference"]],
}


@pytest.mark.parametrize("lock", WANTED)
def test_every_dependency_is_locked(lock):
    missing = names(WANTED[lock]) - pins(lock).keys()
    assert not missing, f"run `make lock`: requirements/{lock}.lock lacks {sorted(missing)}"


def test_the_tests_do_not_change_the_product():
    """Both are installed into one environment."""
    product, dev = pins("product"), pins("dev")
    version = re.compile(r"==\S+")
    for name in product.keys() & dev.keys():
        both = [{version.search(pin)[0] for pin in found[name]} for found in (product, dev)]
        assert both[1] <= both[0], name
    assert not product.keys() & {"pytest", "hypothesis", "mypy", "ruff", "numpyro", "atheris"}
