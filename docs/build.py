"""Builds the site: `python docs/build.py [FOLDER]` (`make docs`) writes site/, or FOLDER.

The pages are copied into a folder of their own, and changed there where plain Markdown and a site
differ: equations become MathML, links out of docs/ lead to copies inside the site, and names such
as `grid.py: Grid.units` become links to the line of the source. Zensical then builds the site in
strict mode. At the end the HTML is read again: every link and anchor leads somewhere, and nothing
is loaded from outside the folder.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from importlib.resources import as_file, files
from pathlib import Path
from urllib.parse import unquote, urlsplit

from latex2mathml.converter import convert

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
SOURCE = ROOT / "src" / "unweave"
FONT = "STIXTwoMath-Regular.ttf"

# Pages beside docs/, with their place in the site.
OTHERS = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "development/contributing.md",
    "CHANGELOG.md": "development/changes.md",
    "SECURITY.md": "development/vulnerabilities.md",
}

FENCE = re.compile(r"^( *)(`{3,})(.*?)\n(.*?)^\1\2 *$", re.MULTILINE | re.DOTALL)
EQUATION = re.compile(r"\$`([^`]+)`\$")
LINK = re.compile(r"(\]\()([^)\s]+)(\))")
DRAWING = re.compile(r"^!\[[^\]]*\]\(([^)\s]+\.svg)\)$", re.MULTILINE)
CODE = re.compile(r"(?<!\[)`([\w/]+\.py): ([\w.]+)`(?!\])")
COLOUR = re.compile(r"\x1b\[[\d;]*m")


# ----------------------------------------------------------------------------------------- stage


def stage(into: Path) -> None:
    """Copy everything that the site is made of into a folder."""
    shutil.copy(DOCS / "zensical.toml", into)
    shutil.copytree(DOCS / "theme", into / "theme")
    shutil.copytree(ROOT / "src", into / "src", ignore=shutil.ignore_patterns("__pycache__"))
    with as_file(files("ziamath") / "fonts" / FONT) as font:
        shutil.copy(font, into / "theme" / "assets" / FONT)
    pages = {page: page.relative_to(DOCS) for page in sorted(DOCS.rglob("*.md"))}
    pages |= {ROOT / name: Path(place) for name, place in OTHERS.items() if place != "index.md"}
    for folder in ("images", "reference"):
        for file in (DOCS / folder).iterdir():
            if file.suffix != ".md":
                _write(into / "docs" / folder / file.name, file.read_bytes())
    shown: set[Path] = set()
    for page, place in pages.items():
        text = _page(page.read_text(encoding="utf-8"), page, place, shown)
        _write(into / "docs" / place, text.encode())
    for file in sorted(shown):
        _write(into / "docs" / _place(file), _shown(file).encode())


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def _place(file: Path) -> Path:
    """Where the site shows a file of the repository."""
    return Path("source") / file.relative_to(ROOT).with_name(f"{file.name}.md")


def _page(text: str, page: Path, place: Path, shown: set[Path]) -> str:
    """The text of a page as the site needs it; adds to `shown` the files that it leads to."""
    parts, end = [], 0
    for fence in FENCE.finditer(text):
        parts.append(_prose(text[end : fence.start()], page, place, shown))
        parts.append(_block(fence, page, place, shown))
        end = fence.end()
    parts.append(_prose(text[end:], page, place, shown))
    return "".join(parts)


def _block(fence: re.Match[str], page: Path, place: Path, shown: set[Path]) -> str:
    """A fenced block. The words behind its language are for the tests."""
    indent, ticks, info, text = fence.groups()
    language, *words = info.split() or [""]
    if language == "math":
        return convert(text, display="block")
    if "source" in words:  # an excerpt: its first line, a comment, names the function
        name, _, text = text.removeprefix("# ").partition("\n")
        text = textwrap.dedent(text)
        return f"{_prose(f'`{name}`', page, place, shown)}\n\n{ticks}{language}\n{text}{ticks}"
    return f"{indent}{ticks}{language}\n{text}{indent}{ticks}"


def _prose(text: str, page: Path, place: Path, shown: set[Path]) -> str:
    def leads(target: Path) -> str:
        return os.path.relpath(target, place.parent)

    def link(found: re.Match[str]) -> str:
        target, hash_, anchor = found[2].partition("#")
        if not target or re.match(r"[a-z]+:", target):
            return found[0]
        path = Path(os.path.normpath(page.parent / target))
        if path.is_relative_to(DOCS):
            new = path.relative_to(DOCS)
        elif path.relative_to(ROOT).as_posix() in OTHERS:
            new = Path(OTHERS[path.relative_to(ROOT).as_posix()])
        else:
            shown.add(path)
            new = _place(path)
        return f"{found[1]}{leads(new)}{hash_}{anchor}{found[3]}"

    def code(found: re.Match[str]) -> str:
        file = SOURCE / found[1] if (SOURCE / found[1]).exists() else ROOT / found[1]
        shown.add(file)
        line = definitions(file)[found[2]]
        return f"[{found[0]}]({leads(_place(file))}#__codelineno-0-{line})"

    # Inside a span, because Markdown takes a line that begins with <math> for a paragraph.
    text = EQUATION.sub(lambda found: f"<span>{convert(found[1])}</span>", text)
    # A drawing inside the page takes its colours from the page, light or dark.
    text = DRAWING.sub(lambda found: _drawing(page.parent / found[1]), text)
    return CODE.sub(code, LINK.sub(link, text))


def _drawing(path: Path) -> str:
    return re.sub(r"<style>.*?</style>\n?", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)


@cache
def definitions(path: Path) -> dict[str, int]:
    """The line of each class and function at module level, and of each method as Class.method."""
    lines: dict[str, int] = {}
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            lines[node.name] = node.lineno
        if isinstance(node, ast.ClassDef):
            for one in node.body:
                if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef):
                    lines[f"{node.name}.{one.name}"] = one.lineno
    return lines


def _shown(file: Path) -> str:
    """A page with the text of a file."""
    name = file.relative_to(ROOT).as_posix()
    language = {".py": "python", ".cff": "yaml", ".toml": "toml"}.get(file.suffix, "text")
    text = file.read_text(encoding="utf-8")
    head = f"---\ntitle: {file.name}\nsearch:\n  exclude: true\nhide:\n  - toc\n---\n\n# `{name}`\n"
    return f'{head}\n`````{language} linenums="1"\n{text}`````\n'


# ----------------------------------------------------------------------------------------- check


class _Reader(HTMLParser):
    """The anchors of a page, where its links lead, and what it loads."""

    LOADS = frozenset({"audio", "embed", "iframe", "img", "script", "source", "video"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {key: value or "" for key, value in attrs}
        self.anchors |= {values[key] for key in ("id", "name") if key in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        elif tag == "link" and values.get("rel") not in ("canonical", "next", "prev"):
            self.loads.append(values["href"])
        elif tag in self.LOADS and "src" in values:
            self.loads.append(values["src"])


def problems(site: Path) -> Iterator[str]:
    """Links and anchors that lead nowhere, and everything that is loaded from outside."""
    pages = {page: _Reader(page.read_text(encoding="utf-8")) for page in site.rglob("*.html")}
    for page, read in sorted(pages.items()):
        name = page.relative_to(site)
        if name.name == "404.html":  # its links are those of a server's root
            continue
        for target in read.loads:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                yield f"{name}: loads {target}"
            elif not (page.parent / unquote(parts.path)).exists():
                yield f"{name}: {target} does not exist"
        for target in read.links:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                continue
            path = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            if not path.is_file() or not path.is_relative_to(site.resolve()):
                yield f"{name}: {target} does not exist"
            elif parts.fragment and unquote(parts.fragment) not in _anchors(path, pages):
                yield f"{name}: {target} has no such anchor"
    for sheet in sorted(site.rglob("*.css")):
        for target in re.findall(r"url\(['\"]?([a-z]+:[^)]*)", sheet.read_text(encoding="utf-8")):
            if not target.startswith("data:"):
                yield f"{sheet.relative_to(site)}: loads {target}"


def _anchors(path: Path, pages: dict[Path, _Reader]) -> set[str]:
    return pages[path].anchors if path in pages else set()


# ------------------------------------------------------------------------------------------ main


def build(out: Path) -> int:
    """Stage, build and check; the site replaces what was at `out`."""
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder).resolve()
        stage(work)
        command = [sys.executable, "-m", "zensical", "build", "--strict"]
        done = subprocess.run(command, cwd=work, text=True, capture_output=True, check=False)
        if done.returncode or "No issues found" not in done.stdout + done.stderr:
            sys.stderr.write(COLOUR.sub("", done.stdout + done.stderr))
            return 1
        found = list(problems(work / "site"))
        if found:
            sys.stderr.write("\n".join(found) + "\n")
            return 1
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(work / "site", out)
    return 0


if __name__ == "__main__":
    sys.exit(build(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "site"))
