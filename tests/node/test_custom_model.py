"""A user's model by `module:object`: its file is pinned by the manifest and comes from the agent's
own folder."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from tests.support.commands import run_command
from tests.support.processes import Processes, erase

from unweave import Federation
from unweave.errors import ConfigError
from unweave.manifest import Manifest, PinnedSource, load
from unweave.models import BetaBernoulli, by_name

SOURCE = '''
"""Times until failure, log-normal."""

import numpy as np

from unweave import StagedAtomModel


def log_likelihood(theta, record):
    z = (np.log(record["t"]) - theta["mu"]) / theta["sigma"]
    return -0.5 * z * z - np.log(theta["sigma"]) - np.log(record["t"])


def make(atoms=256):
    params = {"mu": "normal(0, 2)", "sigma": "lognormal(0, 1)"}
    return StagedAtomModel(log_likelihood, params, {"t": "positive"}, atoms=atoms, stages=5)


model = make()
'''


@dataclass(frozen=True)
class Times(PinnedSource):
    columns: ClassVar = ("t",)


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "failures.py"
    path.write_text(SOURCE)
    return path


def written(folder, table):
    lines = "\n".join(f"{key} = {value!r}" for key, value in table.items())
    path = folder / "network.toml"
    path.write_text(f'name = "n"\ngraph = "ring"\nagents = 3\n[model]\n{lines}\n'.replace("'", '"'))
    return load(path)


def test_real_agents_run_it_and_forget_exactly(tmp_path, source):
    def draw(rng, n):
        return rng.lognormal(0.5, 0.7, n)

    pinned = Times(source, "model")
    with Processes(tmp_path / "net", agents=3, rows=20, model=pinned, draw=draw) as net:
        assert all((net.folder(name) / "failures.py").exists() for name in net.names)
        net.start()
        net.settled()
        gone = list(net.rows["a2"])[:2]
        erase(net, "a2", gone)
        rest = {
            name: np.array([value for key, value in rows.items() if key not in gone])
            for name, rows in net.rows.items()
        }
        model = load(net.root / "network.toml").build_model()
        assert net.settled() == {Federation(model, rest, "path").learn().posterior.digest}


def test_functions_take_the_settings_of_the_table(tmp_path, source):
    table = {**PinnedSource(source, "make").table(), "atoms": 300}
    assert written(tmp_path, table).build_model().layout.atoms == 300
    with pytest.raises(ConfigError, match="takes no settings"):
        written(tmp_path, {**PinnedSource(source, "model").table(), "atoms": 300}).build_model()


def test_a_file_that_is_not_the_pinned_one_is_never_executed(tmp_path, source):
    manifest = Manifest.make(name="n", graph="ring", agents=3, model=PinnedSource(source, "model"))
    manifest.terms()
    source.write_text(SOURCE + f"\nopen({str(tmp_path / 'ran')!r}, 'w')\n")
    with pytest.raises(ConfigError, match=r"failures\.py: its SHA-256 is .*not the source"):
        manifest.build_model()
    with pytest.raises(ConfigError, match="not the source"):
        written(tmp_path, {"name": "failures:model"}).build_model()
    assert not (tmp_path / "ran").exists()
    source.unlink()
    with pytest.raises(ConfigError, match=r"cannot be read.*copy the file"):
        manifest.build_model()


def test_objects_that_are_no_model_and_files_with_errors_are_explained(tmp_path, source):
    table = PinnedSource(source, "np").table()
    with pytest.raises(ConfigError, match="np is no model"):
        written(tmp_path, table).build_model()
    source.write_text("x = 1\ny = 1 / 0\n")
    with pytest.raises(ConfigError, match=r"failures\.py, line 2: ZeroDivisionError"):
        written(tmp_path, PinnedSource(source, "x").table()).build_model()
    for name in ("../failures:model", "a.b:model", "failures:a:b"):
        with pytest.raises(ConfigError, match="unknown model"):
            written(tmp_path, {"name": name, "source": "0" * 64}).build_model()


def test_its_classes_do_not_replace_models_of_the_library(tmp_path, source):
    source.write_text(
        "from unweave import BetaBernoulli\n"
        "class Mine(BetaBernoulli):\n    name = 'beta-bernoulli'\n"
        "model = Mine(a=7, b=7)\n"
    )
    assert (
        hashlib.sha256(source.read_bytes()).hexdigest()
        in PinnedSource(source, "m").table().values()
    )
    assert written(tmp_path, PinnedSource(source, "model").table()).build_model().a == 7
    assert type(by_name("beta-bernoulli")) is BetaBernoulli


@pytest.mark.parametrize("command", ["verify", "simulate", "evaluate"])
def test_commands_on_a_foreign_manifest_do_not_run_its_program(tmp_path, command):
    """Whoever verifies a certificate may have both files from somebody else."""
    program = tmp_path / "trap.py"
    program.write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\n")
    written(tmp_path, PinnedSource(program, "model").table())
    (tmp_path / "c.json").write_text("{}")
    words = ["verify", tmp_path / "c.json", "-n"] if command == "verify" else [command]
    done = run_command(*words, tmp_path / "network.toml")
    assert done.code == 2
    assert "Fix: read it, and add --run-model" in done.err
    assert not (tmp_path / "ran").exists()
    run_command(*words, tmp_path / "network.toml", "--run-model")
    assert (tmp_path / "ran").exists()


def test_init_pins_a_model_of_ones_own(tmp_path, source, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = tmp_path / "times.csv"
    rows.write_text("t\n" + "\n".join(f"{0.5 + k / 50}" for k in range(60)) + "\n")
    words = ("--agents", "2", "--data", rows, "--set", "atoms=300", "--json")
    for place, name in (("one", str(source) + ":make"), ("two", "failures:make")):
        done = run_command("init", tmp_path / place, "--model", name, *words)
        assert done.code == 0, done.err
        manifest = load(tmp_path / place / "network.toml")
        assert manifest.model.name == "failures:make"
        assert manifest.build_model().atoms == 300
        for agent in manifest.topology.agents:
            home = tmp_path / place / "agents" / agent
            assert (home / "failures.py").read_bytes() == source.read_bytes()
            assert load(home / "network.toml").build_model().atoms == 300
        assert run_command("check", tmp_path / place).code == 0
    for name, more, why in (
        ("failures:nothing", (), "nothing is no model"),
        ("absent:model", (), "cannot be read"),
        ("failures:model", ("--set", "atoms=3"), "takes no settings"),
        ("failures:model", ("--scale", "t=2"), "has no --scale"),
    ):
        done = run_command("init", tmp_path / "three", "--model", name, "--agents", "2", *more)
        assert done.code == 2, name
        assert why in done.err
    assert not (tmp_path / "three").exists()
