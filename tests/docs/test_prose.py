"""The pages use one word for one thing: the words that the glossary replaced do not come back."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "SECURITY.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
REPLACED = {
    r"quiet (cover|round|group)": "attestation round",
    r"at rest|comes? to rest|place of rest": "parked",
    r"rous(e|es|ed|ing)": "wake",
    r"chapters?|put away|filed": "compacted erasures",
    r"weather|storms?|hurricanes?": "fault profile",
    r"boot nonces?|boot": "incarnation",
    r"signs? of life": "heartbeat",
    r"seal(s|ed|ing)?": "sign, or MAC",
    r"halt(s|ed)?": "audit failure",
    r"generations?": "retrain epoch",
    r"fleet": "cluster",
    r"gone": "departed",
    r"mend(s|ed)?": "fix",
    r"everybody|nobody|somebody": "the agents that are meant",
}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_replaced_words_stay_out(page):
    text = page.read_text(encoding="utf-8")
    text = re.sub(r"^## The rules\n.*?(?=^## )", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"`[^`]*`", "", text)  # names in the code, in JSON and of options
    for word, instead in REPLACED.items():
        found = re.search(rf"\b({word})\b", text, re.IGNORECASE)
        assert found is None, f"{page.name}: {found[0]!r}; write: {instead}" if found else ""
