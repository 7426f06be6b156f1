"""Bounded reading: hostile files cost little and are refused, honest ones are read."""

from __future__ import annotations

import json
import tomllib
import tracemalloc
from pathlib import Path

import pytest
import tomli_w
from hypothesis import given
from hypothesis import strategies as st

from unweave.bounded import load_json, load_toml, read_bytes
from unweave.cli.forget import read_keys
from unweave.errors import ConfigError
from unweave.manifest import Manifest, load
from unweave.node.config import AgentFolder, agent_name

SMALL = 'name = "n"\nagents = 2\ngraph = "ring"\n'
BETA = '[model]\nname = "beta-bernoulli"\n'


def model(text: str) -> str:
    return f"{SMALL}[model]\n{text}\n"


HOSTILE = {
    "nested lists": ("x = " + "[" * 100_000, "nested deeper than 32"),
    "nested tables": ("x = " + "{a = " * 100_000, "nested deeper than 32"),
    "dotted tables": ("x = " + "{a.a.a.a.a.a.a = " * 20 + "1" + "}" * 20, "nested deeper than 32"),
    "digits": (f"{SMALL}seed = {'9' * 5000}\n{BETA}", "more than 64 digits"),
    "hex digits": (f"{SMALL}seed = 0x{'f' * 100_000}\n{BETA}", "more than 64 digits"),
    "large integer": (f"{SMALL}seed = 0x{'f' * 60}\n{BETA}", "does not fit 64 bits"),
    "parts of a key": (".".join("a" * 50_000) + " = 1", "a key of more than 8 parts"),
    "quoted parts": (".".join(['"a"'] * 50_000) + " = 1", "a key of more than 8 parts"),
    "parts of a table": (f"[{'.'.join('a' * 50_000)}]", "a key of more than 8 parts"),
    "values": (f"x = [{'[],' * 600_000}]", "more than 1000000 values"),
    "features": (model('name = "linear-regression"\nfeatures = 2000000000'), "Fix: choose fewer"),
    "classes": (model('name = "dirichlet-categorical"\nclasses = 2000000000'), "Fix: choose fewer"),
    "dim": (model('name = "multivariate-normal"\ndim = 2000000000'), "Fix: choose fewer"),
    "agents": (f'name = "n"\nagents = 2000000000\ngraph = "ring"\n{BETA}', "agents cannot be read"),
    "graph": (f'name = "n"\nagents = 100000\ngraph = "complete"\n{BETA}', "sparse graph"),
    "k": (f"{SMALL.replace('graph', 'x')}{BETA}", "unknown key"),
    "a long key": (f"{'k' * 1_000_000} = 1\n{SMALL}{BETA}", "unknown key"),
    "a long text": (f'name = "{"n" * 1_000_000}"\n{BETA}', "name: string should have at most"),
    "many wrong agents": (f'name = "n"\nagents = [{"1, " * 100_000}]\n{BETA}', "agent number 1"),
    "an open text": ('name = """' + '\\"' * 500_000, "not TOML"),
    "no UTF-8": ("name = '\udcff'", "not TOML"),
}


@pytest.mark.parametrize(("text", "why"), HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_manifest(text: str, why: str) -> None:
    raw = text.encode("utf-8", "surrogateescape")
    tracemalloc.start()
    try:
        with pytest.raises(ConfigError) as caught:
            Manifest.parse(raw).terms()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert why in str(caught.value)
    assert str(caught.value).startswith("network.toml: ")
    assert len(str(caught.value)) < 600
    assert peak < 40 * len(raw) + (256 << 20)


@pytest.mark.parametrize("text", ["x = " + "[" * 100_000, "a." * 50_000, "x = " + "9" * 5000])
def test_a_hostile_agent_toml(text: str, tmp_path: Path) -> None:
    (tmp_path / "agent.toml").write_text(text)
    with pytest.raises(ConfigError, match=r"agent\.toml: not TOML: .*; correct that line"):
        AgentFolder.read(tmp_path)
    assert agent_name(tmp_path) == tmp_path.name


def test_a_file_is_not_read_beyond_its_limit(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"12345")
    assert read_bytes(file, 5) == b"12345"
    with pytest.raises(ValueError, match="larger than 4 bytes"):
        read_bytes(file, 4)
    endless = Path("/dev/zero")
    with pytest.raises(ConfigError, match=r"larger than 33554432 bytes\. Fix: give the network's"):
        load(endless)
    with pytest.raises(ConfigError, match=r"larger than 8388608 bytes\. Fix: give a file with one"):
        read_keys(endless)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**60), 10**60)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(json_values)
def test_json_is_read_as_it_was_written(value: object) -> None:
    for raw in (json.dumps(value), json.dumps(value, ensure_ascii=False, indent=1)):
        assert load_json(raw.encode()) == value


toml_values = st.recursive(
    st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text()
    | st.datetimes()
    | st.dates(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(st.text(), toml_values, max_size=5), st.booleans())
def test_toml_is_read_as_it_was_written(values: dict[str, object], lines: bool) -> None:
    text = tomli_w.dumps(values, multiline_strings=lines)
    assert load_toml(text.encode()) == tomllib.loads(text)


def test_quotes_and_comments_do_not_hide_or_feign_depth() -> None:
    brackets = "[" * 100
    for text in (
        f'a = "{brackets}"',
        f"a = '{brackets}'",
        f'a = """\n{brackets}\\""" "" {brackets}"""',
        f"a = '''\n{brackets}' '' {brackets}'''",
        f"a = 1 # {brackets} \" '''\nb = 2",
    ):
        assert load_toml(text.encode())
        with pytest.raises(ValueError, match="deeper"):
            load_toml(f"{text}\nc = {brackets}".encode())
    assert load_json(json.dumps({"a": brackets + '"\\'}).encode())
    with pytest.raises(ValueError, match="deeper"):
        load_json(f'["\\"", "\\\\", {brackets}'.encode())
