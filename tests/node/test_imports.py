"""An agent's process loads what an agent needs: nothing of the simulator, the operators' side or
the experiments."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from tests.support.processes import Processes

FOREIGN = ("simulator", "operations", "experiments", "federation", "cli", "demo", "testing")


def loaded(net: Processes, code: str) -> set[str]:
    listing = net.root / "modules.json"
    text = code.replace("LISTING", repr(str(listing)))
    with subprocess.Popen([sys.executable, "-c", text, str(net.folder("a1"))]) as agent:
        try:
            net.wait("to start", lambda: [] if net.statuses("a1") else ["a1"])
            net.ask("a1", "posterior")
            net.ask("a1", "stop")
            assert agent.wait(60.0) == 0
        finally:
            agent.kill()
    return set(json.loads(listing.read_text()))


PLAIN = """
import json, sys
from unweave.node.__main__ import main
code = main(sys.argv[1])
with open(LISTING, "w") as file:
    json.dump(sorted(sys.modules), file)
raise SystemExit(code)
"""

PRELOADED = PLAIN.replace("import json, sys", "import json, sys\nimport unweave.node.preload")


@pytest.mark.parametrize("code", [PLAIN, PRELOADED], ids=["alone", "forked"])
def test_an_agent_loads_nothing_of_others(tmp_path, code):
    net = Processes(tmp_path / "net", agents=1)
    modules = loaded(net, code)
    assert "unweave.node.agent" in modules
    foreign = {f"unweave.{name}" for name in FOREIGN}
    found = {m for m in modules if ".".join(m.split(".")[:2]) in foreign}
    assert not found, sorted(found)
    heavy = {"typer", "rich", "matplotlib", "pandas", "networkx", "numba", "arviz"}
    assert not modules & heavy


FORK = """
import os, sys
import unweave.node.preload
assert "grpc" in sys.modules and "starlette" in sys.modules
print(len(os.listdir("/proc/self/task")), [f for f in os.listdir("/proc/self/fd") if int(f) > 2])
"""


def test_the_fork_server_shares_modules_and_nothing_else():
    """One thread and no descriptor: gRPC, which starts threads, is not initialised."""
    found = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True)
    threads, _, handles = found.stdout.partition(" ")
    assert int(threads) == 1, found.stderr
    assert len(handles.split(",")) == 1  # the listing's own
