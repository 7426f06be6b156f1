"""The code in the pages runs, prints what the page says, and the commands work."""

import contextlib
import io
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "docs/guide.md")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(page, *kinds):
    text = (ROOT / page).read_text(encoding="utf-8")
    return [code for kind, code in BLOCK.findall(text) if kind in kinds]


def squeezed(text):
    return re.sub(r"\s+", " ", text)


@pytest.mark.parametrize("page", PAGES)
def test_python_blocks_run_in_order_and_print_what_they_say(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__main__"}
    text = squeezed((ROOT / page).read_text(encoding="utf-8"))
    found = blocks(page, "python")
    assert found
    for number, code in enumerate(found, start=1):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, f"{page}, block {number}", "exec"), names)
        for line in printed.getvalue().splitlines():
            assert squeezed(line) in text, f"{page}, block {number} prints {line!r}"


def commands(page):
    """(command, the lines that the page shows below it)"""
    found = []
    for block in blocks(page, "console"):
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append((line[2:], []))
            elif line.strip() not in ("", "…"):
                found[-1][1].append(line)
    return found


@pytest.mark.parametrize(
    ("command", "shown"), [c for page in PAGES for c in commands(page)], ids=lambda v: str(v)[:60]
)
def test_commands_work_and_say_what_the_page_shows(command, shown, tmp_path, monkeypatch, capsys):
    from unweave.cli import main

    assert command.startswith("unweave ")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(sys, "argv", command.split())
    with pytest.raises(SystemExit) as stop:
        main()
    assert not stop.value.code
    printed = squeezed(capsys.readouterr().out)
    for line in shown:
        assert squeezed(line) in printed


def test_make_targets_that_the_readme_names_exist():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for target in re.findall(r"^make ([\w-]+)", text, re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_pictures_are_small_and_links_lead_somewhere():
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]:
        text = BLOCK.sub("", page.read_text(encoding="utf-8"))
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
            if re.match(r"[a-z]+:", target):
                continue
            path = page.parent / target
            assert path.exists(), f"{page.name}: {target}"
            if path.suffix == ".png":
                assert path.stat().st_size <= 150_000, f"{target} is larger than 150 kB"
