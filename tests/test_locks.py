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
    "docs": GROUPS["docs"],
    "reference": [*BASE, "unweave[node]", *GROUPS["build"], *GROUPS["reference"]],
}


@pytest.mark.parametrize("lock", WANTED)
def test_every_dependency_is_locked(lock):
    missing = names(WANTED[lock]) - pins(lock).keys()
    assert not missing, f"run `make lock`: requirements/{lock}.lock lacks {sorted(missing)}"


@pytest.mark.parametrize(
    ("first", "then"), [("product", "dev"), ("product", "docs"), ("dev", "docs")]
)
def test_what_is_added_changes_nothing(first, then):
    """The product, the tests and the site are installed into one environment."""
    version = re.compile(r"==\S+")
    before, added = pins(first), pins(then)
    for name in before.keys() & added.keys():
        both = [{version.search(pin)[0] for pin in found[name]} for found in (before, added)]
        assert both[1] <= both[0], name


def test_the_product_needs_no_tools():
    product = pins("product")
    assert not product.keys() & {"pytest", "hypothesis", "mypy", "ruff", "numpyro", "atheris"}
