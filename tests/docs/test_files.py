"""docs/reference/configuration.md: its examples are read by the code, and no key is missing."""

import re
import tomllib
from pathlib import Path

from tests.support.pages import blocks, pages

from unweave.manifest import (
    AgentEntry,
    GraphEntry,
    Manifest,
    PrivacyEntry,
    PublishEntry,
    TimeoutsEntry,
)
from unweave.node.config import AgentConfig
from unweave.node.data.source import DataSource

TEXT = (Path(__file__).parents[2] / "docs" / "reference" / "configuration.md").read_text(
    encoding="utf-8"
)
TABLES = (Manifest, AgentEntry, GraphEntry, PrivacyEntry, PublishEntry, TimeoutsEntry)
NETWORK, AGENT = re.findall(r"^```toml\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)


def test_the_examples_are_what_the_code_reads():
    manifest = Manifest.parse(NETWORK.encode())
    assert manifest.terms().size == 3
    assert AgentConfig.model_validate(tomllib.loads(AGENT)).data.columns == {"x": "diagnosis"}


def test_the_fragments_of_other_pages_are_what_the_code_reads():
    found = []
    for page in pages():
        for block in blocks(page) if page != "docs/reference/configuration.md" else ():
            if block.language == "toml":
                for table, values in tomllib.loads(block.text).items():
                    found.append(table)
                    {"data": DataSource, "publish": PublishEntry}[table].model_validate(values)
    assert set(found) == {"data", "publish"}


def test_every_key_is_explained():
    for table in (*TABLES, AgentConfig, DataSource):
        for key in table.model_fields:
            assert re.search(rf"\b{key}\b", TEXT), f"{table.__name__}: {key}"
