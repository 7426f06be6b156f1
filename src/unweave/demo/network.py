"""The demonstration between real processes: five agents over mutual TLS.

Each hospital has its own folder, key, database and process; they share nothing but the network, and
learn in private rounds: only the sum of all of them can be read.
One process is killed and restarted. The final sum must equal that of the scenario in memory, bit
for bit.
"""

from __future__ import annotations

import csv
import os
import shutil
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from io import TextIOWrapper
from pathlib import Path
from typing import Any

from unweave.demo.scenario import Scenario, Stage
from unweave.errors import ConfigError, UnweaveError
from unweave.keys import verifier
from unweave.manifest import Manifest, load
from unweave.node.storage.atomic import create_private, write_atomic
from unweave.operations.cluster import Cluster, open_cluster, wait_until
from unweave.operations.create import create_network, free_ports
from unweave.operations.erase import audit_and_wait, erase_and_wait
from unweave.operations.reading import ask_posteriors, newest
from unweave.operations.supervisor import Supervisor
from unweave.protocol.certificate.verify import Account, verify

__all__ = ["NetworkRun", "check_place", "regression", "run_network"]


_NAME = "hospitals"

_LIMIT = 60.0  # seconds: timeout of each single wait

Tick = Callable[[str], None]
Watch = Callable[[Supervisor], AbstractContextManager[object]]


@dataclass(frozen=True)
class NetworkRun:
    """The run of the agent processes: digests, certificates and counts."""

    folder: Path
    agents: Mapping[str, int]  # hospital → pid
    killed: str
    learned: str  # digest with all agents included
    forgotten: str  # digest after both erasures
    attested: int
    certificates: Mapping[str, Account]  # file → its verified content
    hops: int
    seconds: float

    def agrees(self, scenario: Scenario) -> bool:
        """Whether the sums before and after equal those in memory, bit for bit, with certificates
        of exact erasure."""
        stage = regression(scenario)
        erasures = [e for account in self.certificates.values() for e in account.erasures]
        return (
            self.learned == stage.before.digest
            and self.forgotten == stage.never.digest
            and self.attested == len(self.agents)
            and all(e.kind == "exact" for e in erasures)
            and {e.agent for e in erasures} == {scenario.forgotten, *scenario.withdrawn}
        )


Linger = Callable[[NetworkRun, Supervisor], None]


def regression(scenario: Scenario) -> Stage:
    """The model that the processes learn."""
    return scenario.stages[-1]


def run_network(
    scenario: Scenario,
    folder: Path,
    tick: Tick,
    *,
    watch: Watch = lambda agents: nullcontext(),
    linger: Linger = lambda run, agents: None,
) -> NetworkRun:
    """Learn, kill −9, forget a hospital and some patients, audit, verify offline.

    `watch` is entered while the agents run, to show them; `linger` is called before they stop."""
    began = time.monotonic()
    manifest = lay_out(scenario, folder)
    homes = [folder / "agents" / name for name in scenario.graph.agents]
    killed = next(
        n for n in scenario.graph.agents if n not in (scenario.forgotten, *scenario.withdrawn)
    )
    with Supervisor(homes) as agents, ExitStack() as shown:
        agents.ready(_LIMIT)
        shown.enter_context(watch(agents))
        pids = {name: child.pid or 0 for name, child in agents.children.items()}
        tick("five processes are up, each with its own key, database and address")
        os.kill(pids[killed], signal.SIGKILL)
        learned = _wait_parked(folder, agents, set(scenario.graph.agents))
        tick(f"learned, although {killed} was killed (kill -9) and restarted")
        with open_cluster(folder) as reached:
            # The demonstration reports its own steps only.
            certificates = _erase(reached, scenario, folder, tick, lambda _: agents.look())
            status = audit_and_wait(reached, _LIMIT, tell=lambda _: agents.look())
            forgotten = _digest(reached)
            hops = sum(s["counts"].get("tokens sent", 0) for s in reached.statuses().values())
        tick("all agents have attested the sum")
        check = verifier(manifest.pems())
        accounts = {
            path.name: verify(path.read_bytes(), manifest.terms(), check) for path in certificates
        }
        tick("the certificates are verified offline")
        run = NetworkRun(
            folder,
            pids,
            killed,
            learned,
            forgotten,
            status["attested"],
            accounts,
            hops,
            time.monotonic() - began,
        )
        linger(run, agents)
    return run


def check_place(folder: Path) -> None:
    """Raise unless `folder` has no network, or that of an earlier demonstration: only this one may
    be replaced."""
    file = folder / "network.toml"
    if not file.exists() and not (folder / "agents").exists():
        return
    try:
        name = load(file).name
    except UnweaveError:
        name = ""
    if name != _NAME:
        raise ConfigError(
            f"--out {folder}: the folder holds a network that is not the demonstration's. "
            "Fix: choose another folder"
        )


def lay_out(scenario: Scenario, folder: Path) -> Manifest:
    """Write a network's folder with the hospitals' private files over that of an earlier run."""
    check_place(folder)
    for old in (folder / "agents", folder / "network.toml"):
        if old.is_dir():
            shutil.rmtree(old)
        elif old.exists():
            old.unlink()
    for old in folder.glob("certificate-*.json"):
        old.unlink()
    names = scenario.graph.agents
    manifest = create_network(
        folder,
        name=_NAME,
        model=regression(scenario).before.model,
        agents=names,
        addresses=[f"127.0.0.1:{port}" for port in free_ports(len(names))],
        data={name: {"path": "patients.csv", "key": "id"} for name in names},
        edges=list(scenario.graph.edges),
        seed=scenario.seed,
        privacy="masked",
    )
    for name in names:
        columns = scenario.files[name]
        target = folder / "agents" / name / "patients.csv"
        with TextIOWrapper(create_private(target), encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(columns)
            # repr writes the shortest text that reads back as the same number.
            writer.writerows(
                [repr(cell.item()) for cell in row] for row in zip(*columns.values(), strict=True)
            )
    return manifest


def _wait_parked(folder: Path, agents: Supervisor, wanted: set[str]) -> str:
    """Wait until all agents know that the token is parked and includes all of `wanted`; return the
    digest of its sum."""
    found: dict[str, dict[str, Any]] = {}
    for _ in wait_until(_LIMIT):
        agents.look()
        with open_cluster(folder) as reached:
            found = reached.statuses()
            if (
                len(found) == len(agents.children)
                and len({s.get("commitment") for s in found.values()}) == 1
                and all(s.get("parked") and set(s["included"]) == wanted for s in found.values())
            ):
                return _digest(reached)
    phases = ", ".join(f"{name} {s['phase']}" for name, s in found.items()) or "no agent answers"
    raise UnweaveError(
        f"the token was not parked within {_LIMIT:g} s: {phases}. "
        f"Fix: read agent.log in the folders of {folder / 'agents'}"
    )


def _digest(reached: Cluster) -> str:
    """The digest of the sum that the agents show their operator."""
    return str(newest(ask_posteriors(reached)).get("digest"))


def _erase(
    reached: Cluster, scenario: Scenario, folder: Path, tick: Tick, tell: Callable[[str], None]
) -> list[Path]:
    """Request the erasures from their owners; return the certificates' files."""
    files = []
    requests: list[tuple[str, list[str] | None]] = [(scenario.forgotten, None)]
    requests += [(owner, [str(i) for i in ids]) for owner, ids in scenario.withdrawn.items()]
    for owner, keys in requests:
        raw, erased = erase_and_wait(
            reached, owner, keys=keys, departed=False, timeout=_LIMIT, tell=tell
        )
        path = folder / f"certificate-{owner.replace(' ', '-')}-{erased.request[8:16]}.json"
        write_atomic(path, raw)
        files.append(path)
        what = "everything" if keys is None else f"{len(keys)} patients"
        tick(f"{owner}: {what} forgotten and certified")
    return files
