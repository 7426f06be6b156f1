"""The README: short, with make targets that exist and the way to the pages."""

import re

from tests.support.pages import ROOT

TEXT = (ROOT / "README.md").read_text(encoding="utf-8")


def test_make_targets_that_the_readme_names_exist():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = re.findall(r"^make ([\w-]+)", TEXT, re.MULTILINE)
    assert targets[:2] == ["demo", "test"]
    for target in targets:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_the_readme_is_a_way_in_and_not_a_manual():
    assert len(TEXT.splitlines()) <= 120
    for folder in ("tutorial", "how-to", "reference", "explanation", "development"):
        for page in (ROOT / "docs" / folder).glob("*.md"):
            assert f"(docs/{folder}/{page.name})" in TEXT, page.name
