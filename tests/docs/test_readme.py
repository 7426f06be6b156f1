"""The code in the pages runs, prints what the page says, and the commands work."""

import contextlib
import io
import os
import re
import subprocess
import sys
import time
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


def test_the_commands_for_real_agents_work_as_written(tmp_path):
    """The shell block, line by line; what needs agents that run is tried until it works."""
    (block,) = [code for code in blocks("README.md", "sh") if "unweave init" in code]
    rows = [f"p{i},{int(i % 3 == 0)}" for i in range(200)]
    (tmp_path / "visits.csv").write_text("\n".join(["id,x", *rows]), encoding="utf-8")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "COLUMNS": "120"}
    background = None
    try:
        for line in block.splitlines():
            command = line.split("#")[0].strip()
            assert command.startswith("unweave ")
            if command.endswith("&"):
                background = subprocess.Popen(
                    ["bash", "-c", f"exec {command.rstrip('& ')}"], cwd=tmp_path, env=env
                )
                continue
            end = time.monotonic() + (120 if background else 0)
            while True:
                done = subprocess.run(
                    ["bash", "-c", command], cwd=tmp_path, env=env, capture_output=True, text=True
                )
                if done.returncode == 0 or time.monotonic() > end:
                    break
                time.sleep(0.5)
            assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        assert "The certificate is valid" in done.stdout
    finally:
        if background is not None:
            background.terminate()
            background.wait(30)


def test_make_targets_that_the_readme_names_exist():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for target in re.findall(r"^make ([\w-]+)", text, re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_pictures_are_small_and_links_lead_somewhere():
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]:
        text = BLOCK.sub("", page.read_text(encoding="utf-8"))
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
            if re.match(r"[a-z]+:", target):
                continue
            path = page.parent / target
            assert path.exists(), f"{page.name}: {target}"
            if path.suffix == ".png":
                assert path.stat().st_size <= 150_000, f"{target} is larger than 150 kB"
