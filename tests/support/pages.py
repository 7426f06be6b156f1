"""Runs the code blocks of a page in order, as a reader would: one folder, one shell, one Python."""

from __future__ import annotations

import ast
import contextlib
import io
import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

__all__ = ["ROOT", "Block", "Reader", "blocks", "commands", "definitions", "pages", "squeezed"]


ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(r"^( *)```([^\n`]*)\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
_LIMIT = 120.0  # seconds until agents that were started must have done what a command asks for


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, the words behind it, its text."""

    page: str
    number: int
    language: str
    words: tuple[str, ...]
    text: str

    @property
    def place(self) -> str:
        return f"{self.page}, block {self.number}"


def pages() -> list[str]:
    """Every page of the repository, by its path."""
    found = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    return sorted(page.relative_to(ROOT).as_posix() for page in found)


def blocks(page: str) -> list[Block]:
    text = (ROOT / page).read_text(encoding="utf-8")
    found = []
    for number, (_, info, code) in enumerate(_BLOCK.findall(text), start=1):
        language, *words = info.split() or [""]
        found.append(Block(page, number, language, tuple(words), code))
    return found


@cache
def definitions(path: Path) -> dict[str, list[str]]:
    """The lines of each class and function at module level, and of each method as Class.method."""
    text = path.read_text(encoding="utf-8")
    lines, found = text.splitlines(), {}
    for node in ast.parse(text).body:
        inner = node.body if isinstance(node, ast.ClassDef) else []
        for one in (node, *inner):
            if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                name = one.name if one is node else f"{node.name}.{one.name}"  # type: ignore[attr-defined]
                found[name] = lines[one.lineno - 1 : one.end_lineno]
    return found


def squeezed(text: str) -> str:
    return re.sub(r"\s+", " ", text)


def commands(block: Block) -> list[tuple[str, list[str]]]:
    """The commands of a block, each with the lines that the page shows below it."""
    found: list[tuple[str, list[str]]] = []
    text = block.text.replace("\\\n", " ")
    for line in text.splitlines():
        if block.language == "sh":
            command = re.sub(r"(^|\s+)#.*", "", line).strip()
            if command:
                found.append((command, []))
        elif line.startswith("$ "):
            found.append((line[2:], []))
        elif line.strip() not in ("", "…"):
            found[-1][1].append(line)
    return found


def own_loopback() -> str:
    """The beginning of loopback addresses that no other process uses: a page names its ports, and
    others may run it on this machine at the same time."""
    high, low = divmod(os.getpid(), 250)
    return f"127.{1 + high % 250}.{1 + low}."


@dataclass
class Reader:
    """A reader who types what a page says."""

    folder: Path
    names: dict[str, Any] = field(default_factory=lambda: {"__name__": "__main__"})
    background: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def run(self, block: Block) -> None:
        if block.language == "python":
            self.run_python(block)
        else:
            for command, shown in commands(block):
                self.type(command, shown, block.place)

    def run_python(self, block: Block) -> None:
        """A block prints nothing that the page does not say."""
        text = squeezed((ROOT / block.page).read_text(encoding="utf-8"))
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.chdir(self.folder):
            exec(compile(block.text, block.place, "exec"), self.names)
        for line in printed.getvalue().splitlines():
            assert squeezed(line) in text, f"{block.place} prints {line!r}"

    def type(self, command: str, shown: list[str], place: str) -> None:
        """Run a command. While agents run in the background, try again until it succeeds."""
        command = command.replace("127.0.0.", own_loopback())
        if command.startswith("kill %"):
            self.stop(int(command.removeprefix("kill %")))
            return
        if command.endswith("&"):
            self.background.append(
                subprocess.Popen(
                    ["bash", "-c", f"exec {command.rstrip('& ')}"],
                    cwd=self.folder, env=self.environment, stdout=subprocess.DEVNULL,
                )
            )  # fmt: skip
            return
        end = time.monotonic() + (_LIMIT if self.background else 0.0)
        while True:
            done = subprocess.run(
                ["bash", "-c", command],
                cwd=self.folder, env=self.environment, capture_output=True, text=True, check=False,
            )  # fmt: skip
            if done.returncode == 0 or time.monotonic() > end:
                break
            time.sleep(0.5)
        assert done.returncode == 0, f"{place}: {command}: {done.stdout}{done.stderr}"
        printed = squeezed(done.stdout + done.stderr)
        for line in shown:
            assert squeezed(line).strip() in printed, f"{place}: {command} prints {printed}"

    @property
    def environment(self) -> dict[str, str]:
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        return {**os.environ, "PATH": path, "COLUMNS": "120"}

    def stop(self, job: int) -> None:
        process = self.background[job - 1]
        process.terminate()
        process.wait(60)

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *error: object) -> None:
        for job, process in enumerate(self.background, start=1):
            if process.poll() is None:
                self.stop(job)
