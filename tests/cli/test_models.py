"""`unweave models`, and what the shell completes."""

import os
import subprocess
import sys
from inspect import signature

import pytest

from unweave.models import by_name, names
from unweave.models.base import REGISTRY

ALL = [name for name in names() if REGISTRY[name].__module__.startswith("unweave.models.")]


def test_every_model_is_listed_with_columns_and_settings(unweave):
    entries = {entry["name"]: entry for entry in unweave("models", "--json").json["models"]}
    table = unweave("models").out
    for name in ALL:
        entry = entries[name]
        model = by_name(name, **entry["example"])  # the example is a model
        assert [c["name"] for c in entry["columns"]] == list(model.columns)
        assert [s["name"] for s in entry["settings"]] == list(signature(type(model)).parameters)
        assert entry["exact"] == (model.conjugate or model.settles)
        assert name in table
    assert "features (required)" in table
    assert "trials (optional)" in table


@pytest.mark.parametrize("name", ALL)
def test_one_model_in_detail(unweave, name):
    done = unweave("models", name)
    assert done.code == 0, done.err
    detail = unweave("models", name, "--json").json
    assert detail["name"] == name
    assert detail["summary"] + "\n\n" in done.out  # line by line, not with escapes
    for part in (*detail["columns"], *detail["settings"]):
        assert part["name"] in done.out
        assert part["expects"] in done.out


def test_settings_change_what_is_shown(unweave):
    words = ("--set", "features=dose", "--set", "intercept=True", "--json")
    detail = unweave("models", "linear-regression", *words).json
    assert [c["name"] for c in detail["columns"]] == ["dose", "y"]
    assert detail["quantities"] == ["intercept", "dose"]
    for wrong, why in (
        (("nothing",), "unknown model"),
        (("beta-binomal",), "did you mean 'beta-binomial'?"),
        (("beta-binomial", "--set", "tials=2"), "did you mean trials?"),
        (("--set", "a=1"), "unweave models NAME"),
    ):
        done = unweave("models", *wrong)
        assert done.code == 2
        assert why in done.err


def completed(*words: object) -> list[str]:
    """What bash would offer for the last word, from a process of its own."""
    line = [str(word) for word in ("unweave", *words)]
    env = {
        **os.environ,
        "_UNWEAVE_COMPLETE": "complete_bash",
        "COMP_WORDS": " ".join(line),
        "COMP_CWORD": str(len(line) - 1),
    }
    code = "import sys; sys.argv = ['unweave']; from unweave.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert not done.stderr, done.stderr
    return done.stdout.split()


def test_the_shell_completes_commands_models_and_agents(unweave, tmp_path):
    net = tmp_path / "net"
    assert unweave("init", net, "--agents", "north,south,nowhere").code == 0
    assert completed("mod") == ["models"]
    assert completed("models", "gamma") == ["gamma-events", "gamma-exponential", "gamma-poisson"]
    assert completed("init", "x", "--model", "beta-b") == ["beta-bernoulli", "beta-binomial"]
    assert completed("forget", net, "no") == ["north", "nowhere"]
    assert completed("vote", net / "agents" / "north", "s") == ["south"]
    assert completed("forget", tmp_path, "n") == []
    (net / "network.toml").write_text("agents = 3\n")
    assert completed("forget", net, "n") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_script_is_printed(shell):
    env = {**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    code = f"import sys; sys.argv = ['unweave', '--show-completion', '{shell}']; "
    code += "from unweave.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "_UNWEAVE_COMPLETE" in done.stdout
