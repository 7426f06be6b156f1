"""Every code block of every page runs, in the order of the page, and prints what the page says.

The blocks of one page share a folder, a shell and a Python: names and files of one block are there
in the next. A block that cannot run is marked behind its language, and the reason is listed here.
"""

import json
import tomllib

import pytest
from tests.support.pages import ROOT, Block, Reader, blocks, pages

RUN = ("python", "console", "sh")
NOT_CODE = ("text", "math", "mermaid")

# The word behind the language of a block that does not run here → why.
NOT_RUN = {
    "jax": "needs JAX, which is not in this environment: tests/reference/test_custom.py runs it",
    "setup": "installs the software, or runs these tests",
    "hosts": "needs machines with other names: tests/node/test_namespaces.py plays several hosts",
    "root": "changes the machine: it needs root and systemd",
    "part": "a fragment of a file: tests/docs/test_files.py reads it inside a whole one",
    "source": "an excerpt from the source: tests/docs/test_method.py compares it",
}
# Pages whose blocks other tests run.
ELSEWHERE = {
    "CONTRIBUTING.md": "tests/docs/test_pages.py",
    "docs/reference/cli.md": "tests/docs/test_examples.py",
    "docs/reference/configuration.md": "tests/docs/test_files.py",
}
# Pages that assume a running network.
NETWORK = """\
unweave init clinics --agents 3 --data visits.csv --column x=ill --key patient
unweave up clinics &
unweave posterior clinics --wait 60
"""
ASSUMED = {"docs/reference/http-api.md": Block("", 0, "sh", (), NETWORK)}


def visits(folder):
    """A table as the pages assume it: a key, a yes or no, a number."""
    rows = [f"p{i:03},{int(i % 3 == 0)},{20 + i % 60}" for i in range(200)]
    text = "\n".join(["patient,ill,age", *rows]) + "\n"
    (folder / "visits.csv").write_text(text, encoding="utf-8")


PAGES = [page for page in pages() if page not in ELSEWHERE and blocks(page)]


@pytest.mark.parametrize("page", PAGES)
def test_the_blocks_of_a_page_run_in_order(page, tmp_path):
    visits(tmp_path)
    with Reader(tmp_path) as reader:
        for block in (*([ASSUMED[page]] if page in ASSUMED else []), *blocks(page)):
            if set(block.words) & NOT_RUN.keys():
                continue
            if block.language in RUN:
                reader.run(block)
            elif block.language == "json":
                json.loads(block.text)
            elif block.language == "toml":
                tomllib.loads(block.text)
            else:
                assert block.language in NOT_CODE, block.place


def test_every_mark_and_every_exception_is_used():
    """The lists above hold no reason that no block has any more."""
    marks = {word for page in pages() for block in blocks(page) for word in block.words}
    assert marks == NOT_RUN.keys()
    for page in ELSEWHERE:
        assert blocks(page), page


def test_every_page_is_read():
    assert len(PAGES) >= 15
    assert (ROOT / "docs" / "tutorial" / "first-network.md").exists()
