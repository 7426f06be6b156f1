"""Every example of every command's help runs, on the files and networks that the examples name.

The examples are those of docs/reference/cli.md, which is written from the commands' own help. A
command that ends is run in this process; one that serves a page, or runs agents, is a process of
its own, which is asked and then stopped.
"""

import contextlib
import glob
import json
import re
import shlex
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.docs.test_blocks import visits
from tests.support.commands import run_command
from tests.support.pages import ROOT

from unweave.node.api.client import AgentDown, Operator
from unweave.node.config import find_agents
from unweave.testing.transport import free_ports

# Where the examples of a command run.
SCENES = {
    "files": ("plan", "models", "init", "check", "simulate", "evaluate", "predict"),
    "agents": ("up", "status", "influence", "learn", "dashboard", "forget", "posterior", "verify",
               "audit", "backup", "vote", "report", "restore", "agent"),
    "long": ("demo", "paper"),
}  # fmt: skip
# Examples of a scene that run with another one.
LONG = {"unweave report demo-out/report.json"}
HOST = {"unweave dashboard clinics --listen 192.0.2.7:8760"}
_LIMIT = 120.0


def examples() -> dict[str, list[str]]:
    """The examples by command."""
    text = (ROOT / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")
    parts = re.split(r"^## unweave (\w+)$", text, flags=re.MULTILINE)
    return {
        name: [
            line
            for block in re.findall(r"^```sh\n(.*?)^```", part, re.MULTILINE | re.DOTALL)
            for line in block.splitlines()
        ]
        for name, part in zip(parts[1::2], parts[2::2], strict=True)
    }


EXAMPLES = examples()


def of(*commands: str) -> Iterator[str]:
    for command in commands:
        yield from (line for line in EXAMPLES[command] if line not in LONG | HOST)


def test_every_command_has_examples_and_a_scene():
    assert {name for scene in SCENES.values() for name in scene} == EXAMPLES.keys()
    for name, lines in EXAMPLES.items():
        assert lines, name
        assert all(line.startswith(f"unweave {name}") for line in lines), name
    assert {line for lines in EXAMPLES.values() for line in lines} >= LONG | HOST


# -------------------------------------------------------------------------------------- typing


def words(line: str) -> list[str]:
    """As a shell splits it, without the command's name."""
    found = []
    for word in shlex.split(line)[1:]:
        matches = sorted(glob.glob(word)) if "*" in word else []
        found += matches or [word]
    return found


def run(line: str) -> str:
    """An example that ends; what it prints."""
    done = run_command(*words(line))
    assert done.code == 0, f"{line}: {done.out}{done.err}"
    assert done.out + done.err, line
    if "--json" in line:
        json.loads(done.out)
    return done.out


@contextlib.contextmanager
def started(line: str, *before: str) -> Iterator[subprocess.Popen[str]]:
    """An example that runs until it is stopped, which is no error."""
    command = [*before, sys.executable, "-m", "unweave", *words(line)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.terminate()
            process.communicate(timeout=_LIMIT)
    assert process.returncode == 0, line


def serve(line: str) -> None:
    """An example with a page: the page can be read at the address that is printed."""
    with started(line.replace("--port 9000", f"--port {free_ports(1)[0]}")) as process:
        assert process.stdout is not None
        for told in process.stdout:
            if link := re.search(r"The page is at (http://[^\s#]+)", told):
                with urllib.request.urlopen(link[1], timeout=_LIMIT) as page:
                    assert b"<title>" in page.read(), line
                if line.startswith("unweave demo"):  # outside of a terminal it ends by itself
                    process.wait(_LIMIT)
                return
    pytest.fail(f"{line} prints no address")


def until(ask, what: str) -> None:
    end = time.monotonic() + _LIMIT
    while not ask():
        assert time.monotonic() < end, what
        time.sleep(0.2)


def phase(folder: Path) -> str | None:
    with contextlib.suppress(AgentDown), Operator(folder, 5.0) as operator:
        found: str = operator.ask("status")["status"]["phase"]
        return None if found == "starting" else found
    return None


# ------------------------------------------------------------------------------------- scenes


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """What the examples assume: tables, a graph, and shards by agent."""
    monkeypatch.chdir(tmp_path)
    visits(tmp_path)
    Path("rows.csv").write_text("age\n30\n55\n")
    stays = [f"{x:.2f}" for x in np.random.default_rng(3).exponential(4.0, 100)]
    Path("stays.csv").write_text("\n".join(["x", *stays]))
    names = [f"hospital-{k}" for k in range(1, 5)]
    ring = zip(names, [*names[1:], names[0]], strict=True)
    Path("consortium.csv").write_text("".join(f"{a},{b}\n" for a, b in ring))
    Path("shards").mkdir()
    for name in names:
        shutil.copy("visits.csv", Path("shards", f"{name}.csv"))
    return tmp_path


def test_examples_on_files(folder):
    todo = [line for line in of(*SCENES["files"]) if not line.startswith("unweave init")]
    for line in EXAMPLES["init"]:
        target = Path(words(line)[1])
        run(line)
        assert list(target.glob("agents/*/agent.toml")), line
        shutil.rmtree(target)
    run(EXAMPLES["init"][0])
    (risk,) = (line for line in EXAMPLES["init"] if "init risk" in line)
    run(f"{risk} --data visits.csv --scale auto")
    run("unweave up risk --until parked")
    for line in todo:
        serve(line) if "--dashboard" in line else run(line)
    assert Path("f.png").read_bytes().startswith(b"\x89PNG")
    assert Path("predicted.parquet").read_bytes().startswith(b"PAR1")


@pytest.fixture
def clinics(folder):
    """Five agents that have learned, as processes."""
    run(EXAMPLES["init"][0])
    keys = Path("clinics/agents/a1/data.csv").read_text().splitlines()[1:4]
    Path("ids.txt").write_text("\n".join(row.split(",")[0] for row in keys))
    with started("unweave up clinics"):
        until(lambda: all(map(phase, find_agents(folder / "clinics"))), "no agents")
        run("unweave posterior clinics --wait 60")
        yield folder / "clinics"


def test_examples_on_running_agents(clinics):
    for line in of("status", "influence", "learn", "audit", "backup"):
        run(line)
    for line in of("dashboard"):
        serve(line)
    records, agent, departed = of("forget")
    run(records)
    shutil.copy(next(clinics.glob("certificate-a1-*.json")), "c.json")
    shutil.copy("c.json", "certificate.json")
    for line in of("posterior", "verify"):
        run(line)
    assert Path("draws.parquet").read_bytes().startswith(b"PAR1")
    run(agent)
    run(f"unweave posterior clinics --wait {_LIMIT:g}")
    with Operator(clinics / "agents" / "a4", 30.0) as operator:
        operator.ask("stop")
    (vote,) = of("vote")
    until(lambda: run_command(*words(vote)).code == 0, "a5 still hears a4")
    run(departed)
    for line in of("report"):
        run(line)
    assert all(
        name in Path("report.html").read_text() for name in ("certificate-a3", "certificate-a4")
    )


@pytest.mark.parametrize("line", sorted(HOST))
def test_examples_on_another_address(folder, line):
    """The address exists in a network namespace of its own, where only this page can be seen."""
    address = re.search(r"--listen ([\d.]+):", line)[1]
    alone = f'ip link set lo up && ip address add {address}/32 dev lo && exec "$@"'
    before = ("unshare", "--map-root-user", "--net", "sh", "-c", alone, "sh")
    if not shutil.which("ip") or subprocess.run([*before, "true"], capture_output=True).returncode:
        pytest.skip("no network namespaces here: they need iproute2 and user namespaces")
    run(EXAMPLES["init"][0])
    with started(line, *before) as process:
        told = [process.stdout.readline() for _ in range(3)]
    assert f"The page is at https://{address}" in told[0]
    assert "Access code" in told[1]
    assert "fingerprint of its certificate" in told[2]


def test_examples_that_start_agents(folder):
    run(EXAMPLES["init"][0])
    for line in of("up"):
        if "--dashboard" in line:
            serve(line)
        elif "--until" in line:
            done = run_command(*words(line))
            assert done.code == 0, done.out
            last = json.loads(done.out.splitlines()[-1])
            assert all(one["parked"] for one in last["agents"].values())
        else:
            with started(line):
                until(lambda: all(map(phase, find_agents(folder / "clinics"))), line)
    run(*of("backup"))
    shutil.rmtree("clinics/agents/a1")
    run(*of("restore"))
    for line in of("agent"):
        with started(line):
            until(lambda: phase(folder / "clinics" / "agents" / "a1"), line)


@pytest.mark.slow
def test_long_examples(folder):
    for line in (*of(*SCENES["long"]), *LONG):
        serve(line) if "--dashboard" in line else run(line)
    assert list(Path("paper-out").glob("*.pdf"))
    assert Path("somewhere/report.html").exists()
