"""Names are text: no command obeys, hides or loses what somebody wrote into one."""

import io
import json
import shlex
import unicodedata
from itertools import pairwise

import pytest
import tomli_w
from hypothesis import example, given
from hypothesis import strategies as st
from rich.console import Group
from rich.table import Table
from tests.support.page import Page
from tests.support.processes import Processes

from unweave.cli import common
from unweave.cli.common import fail, live_text, styled
from unweave.errors import UnweaveError
from unweave.json_form import error_report
from unweave.node.log import Log
from unweave.text import quote, visible

# What the manifest allows in the name of an agent.
NAMES = (
    "weight [kg]", "[x]", "[bold]b", "[red]c", "[]", "[link=file:etc]l", "[@click=x]", ":smile:",
    "'r'", "$(s)", "`t`", "u;v", "{w}", "%s", "x|y", "*z*", "\U0001f98a", "é" * 32, "حسن",
)  # fmt: skip
# What it refuses, as nobody sees it, or sees something else.
UNSEEN = (
    "d\u202ee", "f\u2066g\u2069", "h\u200bi", "j\x9b31mk", "l\x85m", "n\u2028o", "p\ufeffq",
    "north\xa0west", "a\u2003b", "a\u200db", "soft\xadhyphen", "\u3164", "x\ufe0f", "y\u2800z",
    "tag\U000e0061", "\u061cx", "cafe\u0301", "\u212b",
)  # fmt: skip
# What a file system allows in the name of a folder.
FOLDER = "[b] \x1b[31m\u202e'x'\n$(y)"
# What a file of records allows in the name of a column.
COLUMN, KEY = "weight [kg]\x1b[31m\u202e", "[/id]\n\u2066"


def plain(text):
    """Nothing that a terminal obeys, hides or reorders: such a character is not printable."""
    assert not [c for c in text if c != "\n" and not c.isprintable()], ascii(text)
    return text


@pytest.fixture(scope="module")
def say(unweave):
    """Runs a command for people and for machines; its text holds nothing but printable lines."""

    def say(*words, code, json=True, both=True):
        done = unweave(*words, width=4000)
        assert done.code == code, (words, done)
        plain(done.out + done.err)
        if json:
            other = unweave(*words, "--json", width=4000)
            if both:
                assert other.code == code, (words, other)
            plain(other.out + other.err)
            assert isinstance(other.json, dict)
        return done.out + done.err

    return say


@pytest.fixture(scope="module")
def net(say, tmp_path_factory):
    place = tmp_path_factory.mktemp("hostile") / FOLDER
    place.mkdir()
    table = place / "[t]\x1b.ndjson"
    rows = [{KEY: f"p{k}", COLUMN: k % 2} for k in range(12 * len(NAMES))]
    table.write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ("--agents", ",".join(NAMES), "--data", table, "--key", KEY, "--column", f"x={COLUMN}")
    text = say("init", place / "[net]", *words, code=0, json=False)
    assert f"unweave up {visible(quote(place / '[net]'))}" in text
    return place / "[net]"


def test_every_command_without_a_network(say, net, tmp_path):
    text = say("check", net, code=0)
    for name in NAMES:
        assert visible(name) in text
    home = net / "agents" / "[x]"
    assert visible(quote(home)) in say("check", home, code=0)
    for words in (("status",), ("posterior",), ("influence",), ("learn",), ("audit",)):
        for folder in (net, home):
            text = say(*words, folder, code=1)
            assert visible(quote(folder)) in text
    assert "[x]" in say("status", net, code=1)
    for agent in NAMES:
        text = say("forget", net, agent, code=1)
        assert visible(f"{agent} does not run") in text
    say("forget", net, "[x]", "--departed", code=1)
    say("forget", net, "[/y]\x1b", code=2)
    say("vote", home, "[/y]\x1b", code=1)
    say("vote", net, "[/y]", code=2)
    say("simulate", net, "--hops", "30", code=0)
    say("simulate", net, "--faults", "[/z]\x1b", code=2)
    say("init", net, code=2)
    say("up", net / "nowhere", code=2)
    say("agent", net / "nowhere", code=2, json=False)
    say("report", net, "--out", tmp_path / "\x1b[r]\u202e.html", code=0)
    Page((tmp_path / "\x1b[r]\u202e.html").read_bytes())
    say("report", net / "[/z]\x1b.json", code=2)
    say("paper", "[/fig]\x1b", code=2)
    say("demo", "--out", net / "network.toml", code=2)
    edges = tmp_path / "[e]\u202e.csv"
    edges.write_text("".join(f"{a},{b}\n" for a, b in pairwise(NAMES)))
    text = say("plan", "--edges", edges, "--agent", "[x]", "--replicas", "2", code=0)
    assert "reach [x]" in text
    assert visible(edges.name) in text
    say("plan", "--edges", edges, "--agent", "[/y]\x1b", code=2)
    say("plan", "--graph", "[/g]\x1b", "--agents", "3", code=2)
    say("[/nothing]\x1b", code=2)
    say("plan", "--[/nothing]\x1b", code=2)


def test_certificates_that_somebody_made_up(say, net, tmp_path):
    for k, text in enumerate(
        (
            "\x1b[31m[/x]",
            json.dumps({"closing": 1, "\x1b[31m[/x]": 2}, ensure_ascii=False),
            json.dumps({"attestation": {}, "closing": {}, "format": "\u202e[/x]",
                        "tombstones": [], "votes": []}, ensure_ascii=False),
        )
    ):  # fmt: skip
        file = tmp_path / f"[c{k}]\x1b.json"
        file.write_text(text)
        say("verify", file, "-n", net, code=2 if k == 0 else 1)
    say("verify", tmp_path / "none\x1b", "-n", net, code=2)


def test_manifests_that_somebody_made_up(say, net, tmp_path):
    text = (net / "network.toml").read_text()
    for old, new in (
        ("[model]", '"\\u001b[/x]" = 1\n[model]'),
        ('name = "beta-bernoulli"', 'name = "\\u001b[/x]"'),
        ('name = ":smile:"', 'name = "\\u001b[/x]"'),
        ('name = ":smile:"', 'name = "[x]\\u202e"'),
        ("[model]", "\x1b[/x]"),
    ):
        assert old in text
        (tmp_path / "network.toml").write_text(text.replace(old, new))
        say("simulate", tmp_path, code=2)


def test_files_whose_columns_are_wrong(say, tmp_path):
    table = tmp_path / "t.csv"
    table.write_text('"[/a]\x1b[31m","b\nc\u202e"\n1,2\n')
    say("init", tmp_path / "net", "--data", table, code=2)
    say("init", tmp_path / "net", "--data", table, "--column", "x=[/a]\x1b", code=2)
    say("init", tmp_path / "net", "--column", "[/a]\x1b=y", code=2)
    say("init", tmp_path / "net", "--set", "[/a]\x1b=y", code=2)
    say("init", tmp_path / "net", "--model", "[/a]\x1b", code=2)
    shards = tmp_path / "shards"
    shards.mkdir()
    for name in ("one\x1b[a].csv", "two.csv"):
        (shards / name).write_text(table.read_text())
    text = say("init", tmp_path / "net", "--data", shards, code=2)
    assert len(text.splitlines()) == 3  # one, and one for each file
    (shards / "two.csv").unlink()
    say("init", tmp_path / "net", "--data", shards, code=2)


def test_a_network_that_runs(say, unweave, tmp_path):
    names = ["[x]", "weight [kg]:smile:", "$(c)"]
    with Processes(tmp_path / "[net]", names, graph="path") as net:
        net.start()
        assert net.settled() == {net.expected()}
        for command in ("status", "posterior", "influence", "learn", "audit"):
            say(command, net.root, code=0)
        assert "[x]" in say("status", net.folder("$(c)"), code=0)
        assert "weight [kg]:smile:" in say("influence", net.root, code=0)
        text = say("vote", net.folder("[x]"), names[1], code=1)
        assert "weight [kg]:smile:" in text
        assert "weight [kg]:smile:" in say("up", net.root, code=1)
        keys = tmp_path / "[keys]"
        keys.write_text("[x]-1\n")
        text = say("forget", net.root, "[x]", "--records", keys, code=0)
        assert "1 of 1 key found" in text
        (command,) = (line for line in text.splitlines() if line.startswith("  unweave"))
        assert shlex.split(command)[:2] == ["unweave", "verify"]
        done = unweave(*shlex.split(command)[1:], width=4000)
        assert done.code == 0
        assert "Attested by [x], weight [kg]:smile:, $(c); closed by" in plain(done.out)
        for name in names:
            assert visible(name) in plain((net.folder(name) / "agent.log").read_text())


@pytest.mark.parametrize("name", UNSEEN)
def test_a_name_that_is_not_what_it_looks_like(say, tmp_path, name):
    """Of an agent, and of the network; at `init`, and in a manifest of somebody else."""
    for words in (("--agents", f"a,{name}"), ("--agents", "a,b", "--name", name)):
        text = say("init", tmp_path / "net", *words, code=2)
        assert "Fix:" in text
        assert not (tmp_path / "net").exists()
    model = {"name": "beta-bernoulli"}
    for network, agent in (("n", name), (name, "a")):
        manifest = {"name": network, "model": model, "agents": [{"name": agent}]}
        (tmp_path / "network.toml").write_text(tomli_w.dumps(manifest))
        assert "Fix:" in say("simulate", tmp_path, code=2)


@pytest.mark.parametrize(
    "names", ["north,North", "a b,a  b", "a1,\uff411", "straße,STRASSE", "ﬁn,fin"]
)
def test_two_names_that_look_alike(say, tmp_path, names):
    text = say("init", tmp_path / "net", "--agents", names, code=2)
    assert "two agents look like" in text


def test_the_default_name_of_a_network_is_the_folders_in_one_spelling(unweave, tmp_path):
    """Some file systems spell names in another normal form."""
    made = unweave("init", tmp_path / "cafe\u0301", "--agents", "2")
    assert made.code == 0, made.err
    assert 'name = "caf\xe9"' in (tmp_path / "cafe\u0301" / "network.toml").read_text()


@pytest.mark.parametrize("name", ["é" * 33, "x" * 65])
def test_an_agent_whose_name_no_certificate_can_hold(unweave, tmp_path, name):
    done = unweave("init", tmp_path / "net", "--agents", f"a,{name}")
    assert (done.code, (tmp_path / "net").exists()) == (2, False)
    assert f"{len(name.encode())} bytes in UTF-8, and a certificate holds 64" in done.err


# ------------------------------------------------------------------------------- the one function

TEXT = st.text(max_size=40) | st.lists(
    st.sampled_from([*NAMES, *UNSEEN, "\x1b[2J", "\n", "\\"])
).map("".join)


@given(TEXT)
@example("\\[x]")
@example("[/")
def test_whatever_is_printed_is_printed_as_it_is(text):
    shown = visible(text)
    assert plain(shown) == shown
    assert not [c for c in shown if unicodedata.bidirectional(c) in _BIDI]
    if text.isascii() and text.isprintable():
        assert shown == text
    table = Table(title=text)
    table.add_column(text, no_wrap=True)
    table.add_row(text)
    table.add_row(styled(text, (text, "red")))
    for what in (text, styled((text, "bold"), text), table, Group(text, styled(text))):
        file = io.StringIO()
        console = type(common.console)(file=file, width=4000, color_system=None)
        console.print(what)
        printed = plain(file.getvalue())
        if shown.strip() == shown and shown:
            assert shown in printed
    file = io.StringIO()
    Log("a", stream=file).error(text, why=text)
    assert plain(file.getvalue()).partition(" a")[2].count("  ") == 2  # no text looks like a field


_BIDI = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}


def test_a_terminal_obeys_no_name(monkeypatch):
    """Progress and spinners in a terminal have escapes of their own, but none out of a name."""
    name = "[/x]\x1b[31mred:smile:\u202e"
    file = io.StringIO()
    console = type(common.errors)(file=file, force_terminal=True, width=200)
    monkeypatch.setattr(common, "errors", console)
    with live_text(name) as tell:
        tell(name)
    with console.status(name) as bar:
        bar.update(styled(name))
    fail(UnweaveError(name))
    text = file.getvalue()
    assert text.count(visible(name)) >= 3
    assert "\x1b[31mred" not in text
    assert "\u202e" not in text


def test_an_error_in_json_holds_the_name_as_it_is():
    assert error_report(UnweaveError("\x1b[/x]"))["error"]["message"] == "\x1b[/x]"
