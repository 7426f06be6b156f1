"""The pages name code that exists, and excerpts from the source are in the source."""

import re

import pytest
from tests.support.pages import ROOT, blocks, definitions, pages

SOURCE = ROOT / "src" / "unweave"
NAMED = re.compile(r"`([\w/]+\.py): ([\w.]+)`")
EXCERPTS = [block for page in pages() for block in blocks(page) if "source" in block.words]


@pytest.mark.parametrize("page", pages())
def test_named_code_exists(page):
    for file, name in NAMED.findall((ROOT / page).read_text(encoding="utf-8")):
        assert (SOURCE / file).is_file(), f"{page}: there is no {file}"
        assert name in definitions(SOURCE / file), f"{page}: {file} does not define {name}"


def test_the_method_shows_code_beside_its_equations():
    assert len(EXCERPTS) >= 10
    languages = [block.language for block in blocks("docs/explanation/method.md")]
    assert languages.count("math") >= 10


@pytest.mark.parametrize("block", EXCERPTS, ids=lambda block: block.text.splitlines()[0][2:])
def test_excerpts_are_in_the_source(block):
    """Line by line, in order; `…` stands for lines that are left out."""
    first, *lines = block.text.splitlines()
    file, name = re.fullmatch(r"# ([\w/]+\.py): ([\w.]+)", first).groups()
    rest = iter(definitions(SOURCE / file)[name])
    for line in lines:
        if line != "…":
            assert any(line.strip() == one.strip() for one in rest), f"{first}: {line}"
