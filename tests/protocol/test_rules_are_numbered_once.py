"""The rules of the protocol are numbered once, and every citation of a rule resolves."""

import re
from pathlib import Path

import unweave.protocol

ROOT = Path(__file__).parents[2]
CITED = re.compile(r"\b[Rr]ules? (\d+(?:(?:–| to |, | and |, and )\d+)*)(\w?)")


def stated(text: str, pattern: str) -> dict[int, str]:
    """Number → text of a list of rules, white space folded."""
    found = re.findall(pattern, text, flags=re.M | re.S)
    return {int(number): " ".join(rule.split()).replace("**", "") for number, rule in found}


def in_the_code() -> dict[int, str]:
    text = (unweave.protocol.__doc__ or "").split("Rules.")[1].split("The driver's duties")[0]
    return stated(text, r"^ {4,5}(\d+)\. (.+?)(?=^ {4,5}\d+\. |\Z)")


def in_the_page() -> dict[int, str]:
    text = (
        (ROOT / "docs/explanation/protocol.md")
        .read_text()
        .split("## The rules\n")[1]
        .split("\n## ")[0]
    )
    return stated(text, r"^(\d+)\. (.+?)(?=^\d+\. |\Z)")


def test_the_page_states_the_rules_of_the_code():
    assert in_the_code() == in_the_page()
    assert list(in_the_code()) == list(range(len(in_the_code())))


def test_every_citation_resolves():
    rules = in_the_code()
    cited = 0
    for folder in ("src/unweave", "tests", "docs"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix not in (".py", ".md", ".toml") or path == Path(__file__):
                continue
            for numbers, letter in CITED.findall(path.read_text()):
                cited += 1
                where = f"{path.relative_to(ROOT)}: rule {numbers}{letter}"
                assert not letter, where
                assert all(int(n) in rules for n in re.findall(r"\d+", numbers)), where
    assert cited > 30
