"""Links between the pages lead to files and headings that exist; pictures are small."""

import re

import pytest
from tests.support.pages import ROOT, pages

FENCE = re.compile(r"^( *)(`{3,})[^\n`]*\n.*?^\1\2 *$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
LARGEST = 150_000  # bytes of a picture


def prose(page):
    return FENCE.sub("", (ROOT / page).read_text(encoding="utf-8"))


def anchors(path):
    """The anchors of the headings, as the site and code hosts make them."""
    found = []
    for heading in re.findall(r"^#+ (.+)$", prose(path), re.MULTILINE):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
        slug = re.sub(r"[^\w\- ]", "", text.lower()).strip()
        found.append(re.sub(r"[-\s]+", "-", slug))
    return {*found, *re.findall(r"^::: (\S+)", prose(path), re.MULTILINE)}


@pytest.mark.parametrize("page", pages())
def test_links_lead_somewhere(page):
    for target in LINK.findall(prose(page)):
        path, _, anchor = target.partition("#")
        if re.match(r"[a-z]+:", target):
            assert target.startswith("https:"), target
            continue
        file = (ROOT / page).parent / path if path else ROOT / page
        assert file.is_file(), f"{page}: {target}"
        if anchor and file.suffix == ".md":
            assert anchor in anchors(file.resolve().relative_to(ROOT)), f"{page}: {target}"
        if file.suffix in (".png", ".svg"):
            assert file.stat().st_size <= LARGEST, f"{target} is larger than {LARGEST} bytes"


def test_headings_of_a_page_differ():
    """Two equal headings have one anchor, and a link may lead to the wrong one."""
    for page in pages():
        if page == "CHANGELOG.md":
            continue
        headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
        assert len(headings) == len(set(headings)), page
