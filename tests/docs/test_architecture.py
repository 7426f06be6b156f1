"""The architecture page: its picture shows the layers, and its walks name code that exists."""

import re
import tomllib

import pytest
from tests.support.pages import ROOT, definitions

SOURCE = ROOT / "src" / "unweave"
TEXT = (ROOT / "docs" / "development" / "architecture.md").read_text(encoding="utf-8")
STEP = re.compile(r"`([\w/]+\.py): ([\w.]+)`")


def section(title: str) -> str:
    return TEXT.split(f"## {title}", 1)[1].split("\n## ", 1)[0]


def test_the_picture_shows_the_layers_of_the_import_contract():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (contract,) = [c for c in project["tool"]["importlinter"]["contracts"] if c["type"] == "layers"]
    picture = section("The rooms").split("```text\n", 1)[1].split("```", 1)[0]
    drawn = []
    for box in re.split(r"^[┌├└].*\n", picture, flags=re.MULTILINE)[1:-1]:
        text = " ".join(line.split("│")[1] for line in box.splitlines())
        drawn.append([name.strip() for name in text.split(":")])
    layers = [re.split(r"\s*[:|]\s*", layer) for layer in contract["layers"]]
    assert drawn == [[name.removeprefix("unweave.") for name in layer] for layer in layers]


def test_every_room_has_a_line():
    table = section("The rooms")
    for folder in sorted(path.parent for path in SOURCE.glob("*/__init__.py")):
        assert f"`{folder.name}/`" in table, folder.name


@pytest.mark.parametrize("walk", ["Walk 1", "Walk 2", "Walk 3"])
def test_the_walks_name_code_that_exists(walk):
    steps = STEP.findall(section(walk))
    assert len(steps) == section(walk).count(".py") >= 10  # none in another form
    for file, name in steps:
        path = SOURCE / file
        assert path.is_file(), f"{walk}: there is no {file}"
        assert name in definitions(path), f"{walk}: {file} does not define {name}"


def test_every_other_file_that_is_named_exists():
    for name in re.findall(r"`((?:\w+/)+(?:\w+\.py)?)`", TEXT):
        assert (ROOT / name).exists() or (SOURCE / name).exists(), name


def test_the_glossary_is_in_order_and_linked():
    text = (ROOT / "docs" / "reference" / "glossary.md").read_text(encoding="utf-8")
    terms = [t.rstrip(".").casefold() for t in re.findall(r"^\*\*(.+?)\*\*", text, re.MULTILINE)]
    assert terms == sorted(terms)
    assert len(terms) == len(set(terms)) > 50
    for page in ("README.md", "docs/index.md"):
        assert "glossary.md)" in (ROOT / page).read_text(encoding="utf-8"), page
