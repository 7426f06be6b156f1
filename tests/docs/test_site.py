"""The site is built without a warning, every page is in it, and nothing is loaded from outside."""

import importlib.util
import json
import re
import shutil
import subprocess
import sys
import tomllib

import pytest
from tests.support.pages import ROOT, pages

CONFIG = tomllib.loads((ROOT / "docs" / "zensical.toml").read_text(encoding="utf-8"))["project"]
# Pages beside docs/ that the site has under another name, as docs/build.py says.
BESIDE = {
    "development/contributing.md",
    "development/changes.md",
    "development/vulnerabilities.md",
}


def listed(entries):
    for entry in entries:
        if isinstance(entry, str):
            yield entry
        else:
            for inner in entry.values():
                yield from listed([inner] if isinstance(inner, str) else inner)


def test_every_page_is_in_the_navigation_once():
    shown = list(listed(CONFIG["nav"]))
    written = {page.removeprefix("docs/") for page in pages() if page.startswith("docs/")}
    assert len(shown) == len(set(shown))
    assert set(shown) == written | BESIDE


def test_the_theme_loads_nothing_from_outside():
    assert CONFIG["theme"]["font"] is False
    for file in (ROOT / "docs" / "theme").rglob("*"):
        if file.is_file():
            assert "//" not in re.sub(r"^\s*//.*$", "", file.read_text(), flags=re.MULTILINE), file


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    if importlib.util.find_spec("zensical") is None:
        pytest.skip("the tools for the site are not installed: make setup")
    folder = tmp_path_factory.mktemp("site") / "site"
    done = subprocess.run(
        [sys.executable, ROOT / "docs" / "build.py", folder],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder


def test_the_site_is_built_strictly(site):
    """docs/build.py checks links, anchors and loads; here: that it saw something."""
    assert len(list(site.rglob("*.html"))) > 60
    method = (site / "explanation" / "method.html").read_text(encoding="utf-8")
    assert method.count("<math ") > 50
    assert "$`" not in method
    assert "source/src/unweave/protocol/visit.py.html#__codelineno-0-" in method
    python = (site / "reference" / "python.html").read_text(encoding="utf-8")
    assert 'id="unweave.federation.federation.Federation.forget"' in python
    protocol = (site / "explanation" / "protocol.html").read_text(encoding="utf-8")
    assert "<svg" in protocol


def test_the_search_knows_the_pages(site):
    """The index is a script, which a browser also loads from a folder."""
    text = (site / "search.js").read_text(encoding="utf-8")
    index = json.loads(text.removeprefix("var __index = ").rstrip().rstrip(";"))
    found = {entry["location"].partition("#")[0] for entry in index["items"]}
    assert {"tutorial/first-network.html", "reference/cli.html", "explanation/exact.html"} <= found
    assert not any(location.startswith("source/") for location in found)
    worker = (site / "assets" / "file-worker.js").read_text(encoding="utf-8")
    assert "file:" in worker


PROBE = """<script>
function everything(root = document) {
  const within = e => (e.shadowRoot ? everything(e.shadowRoot) : [])
  return [...root.querySelectorAll("*")].flatMap(e => [e, ...within(e)])
}
setTimeout(() => document.querySelector("label[for=__search]").click(), 500)
function type(keys) {
  const field = everything().find(e => e.tagName === "INPUT" && /^(text|search)$/.test(e.type))
  field.value += keys
  field.dispatchEvent(new Event("input", { bubbles: true }))
}
setTimeout(() => type("tomb"), 1500)
setTimeout(() => type("stone"), 2500)
setTimeout(() => {
  const links = everything().filter(e => e.tagName === "A" && e.getRootNode() !== document)
  document.body.dataset.found = links.map(e => e.href).join(" ")
}, 4000)
</script></body>"""


def test_the_search_finds_a_word_without_server_and_network(site):
    """In a browser, from the folder: the theme's own worker could not be loaded there. The word is
    typed in two parts: an answer to the first leaves it in the field."""
    browser = shutil.which("chromium")
    if browser is None:
        pytest.skip("there is no chromium: apt-get install chromium")
    page = site / "probe.html"
    page.write_text((site / "index.html").read_text(encoding="utf-8").replace("</body>", PROBE))
    done = subprocess.run(
        [browser, "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=9000",
         "--host-resolver-rules=MAP * ~NOTFOUND", "--dump-dom", page.as_uri()],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    page.unlink()
    found = re.search(r'data-found="([^"]*)"', done.stdout)
    assert found, done.stderr
    assert f"{site.as_uri()}/explanation/protocol.html#" in found[1]


def test_what_a_broken_page_leads_to(site, tmp_path):
    """The check of the HTML finds what it is for."""
    spec = importlib.util.spec_from_file_location("site_build", ROOT / "docs" / "build.py")
    build = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(build)
    broken = tmp_path / "site"
    shutil.copytree(site / "assets", broken / "assets")
    (broken / "page.html").write_text(
        '<img src="https://elsewhere.example/x.png"><a href="none.html">a</a>'
        '<a href="#none">b</a><h1 id="some">c</h1><a href="#some">d</a>'
    )
    found = list(build.problems(broken))
    assert len(found) == 3
    assert "loads https://elsewhere.example" in found[0]
