"""The demonstration as it happens between real processes: five agents over mutual TLS.

Each hospital has a folder, a key, a database and a process of its own; they share nothing but the
network. One of them is killed on the way. What they end with must be, bit for bit, what the story
in memory ends with.
"""

from __future__ import annotations

import csv
import os
import shutil
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unweave.demo.story import Stage, Story
from unweave.errors import ConfigError, UnweaveError
from unweave.keys import verifier
from unweave.manifest import Manifest, load
from unweave.operations.cluster import Cluster, open_cluster, wait_until
from unweave.operations.create import create_network, free_ports
from unweave.operations.erase import audit_and_wait, erase_and_wait
from unweave.operations.supervisor import Supervisor
from unweave.protocol.certificate.verify import Account, verify

__all__ = ["NetworkRun", "check_place", "run_network"]


_NAME = "hospitals"

_LIMIT = 60.0  # seconds that any single wait may take

Tick = Callable[[str], None]


@dataclass(frozen=True)
class NetworkRun:
    """What the processes did, and what they ended with."""

    folder: Path
    agents: Mapping[str, int]  # hospital → pid
    killed: str
    learned: str  # digest with everybody in
    forgotten: str  # digest after both erasures
    attested: int
    certificates: Mapping[str, Account]  # file → what it proves
    hops: int
    seconds: float

    def agrees(self, story: Story) -> bool:
        """Bit for bit what the story in memory had, before and after, and certified."""
        chapter = _regression(story)
        erasures = [e for account in self.certificates.values() for e in account.erasures]
        return (
            self.learned == chapter.before.digest
            and self.forgotten == chapter.never.digest
            and self.attested == len(self.agents)
            and all(e.kind == "exact" for e in erasures)
            and {e.agent for e in erasures} == {story.forgotten, *story.withdrawn}
        )


def _regression(story: Story) -> Stage:
    """The model that the processes learn."""
    return story.chapters[-1]


def run_network(story: Story, folder: Path, tick: Tick) -> NetworkRun:
    """Learn, kill −9, forget a hospital and some patients, audit, verify offline."""
    began = time.monotonic()
    manifest = lay_out(story, folder)
    homes = [folder / "agents" / name for name in story.graph.agents]
    killed = next(n for n in story.graph.agents if n not in (story.forgotten, *story.withdrawn))
    with Supervisor(homes) as agents:
        agents.ready(_LIMIT)
        pids = {name: child.pid or 0 for name, child in agents.children.items()}
        tick("five processes are up, each with its own key, database and address")
        os.kill(pids[killed], signal.SIGKILL)
        learned = _rest(folder, agents, set(story.graph.agents))
        tick(f"learned, though {killed} was killed (kill -9) and had to come back")
        with open_cluster(folder) as reached:
            certificates = _erase(reached, story, folder, tick)
            status = audit_and_wait(reached, _LIMIT, tell=_quietly)
            hops = sum(s["counts"].get("tokens sent", 0) for s in reached.statuses().values())
        tick("everybody has attested the sum")
    check = verifier(manifest.pems())
    accounts = {
        path.name: verify(path.read_bytes(), manifest.terms(), check) for path in certificates
    }
    tick("the certificates hold, offline")
    return NetworkRun(
        folder,
        pids,
        killed,
        learned,
        status["digest"],
        status["attested"],
        accounts,
        hops,
        time.monotonic() - began,
    )


def check_place(folder: Path) -> None:
    """Only an earlier run of the demonstration is replaced: anything else is somebody's network."""
    file = folder / "network.toml"
    if not file.exists() and not (folder / "agents").exists():
        return
    try:
        name = load(file).name
    except UnweaveError:
        name = ""
    if name != _NAME:
        raise ConfigError(
            f"--out {folder}: there is a network already, and not the demonstration's: choose "
            "another folder"
        )


def lay_out(story: Story, folder: Path) -> Manifest:
    """A network's folder with the hospitals' private files; replaces that of an earlier run."""
    check_place(folder)
    for old in (folder / "agents", folder / "network.toml"):
        if old.is_dir():
            shutil.rmtree(old)
        elif old.exists():
            old.unlink()
    for old in folder.glob("certificate-*.json"):
        old.unlink()
    names = story.graph.agents
    manifest = create_network(
        folder,
        name=_NAME,
        model=_regression(story).before.model,
        agents=names,
        addresses=[f"127.0.0.1:{port}" for port in free_ports(len(names))],
        data={name: {"path": "patients.csv", "key": "id"} for name in names},
        edges=list(story.graph.edges),
        seed=story.seed,
    )
    for name in names:
        columns = story.files[name]
        target = folder / "agents" / name / "patients.csv"
        with target.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(columns)
            # repr writes the shortest text that reads back as the same number.
            writer.writerows(
                [repr(cell.item()) for cell in row] for row in zip(*columns.values(), strict=True)
            )
    return manifest


def _rest(folder: Path, agents: Supervisor, wanted: set[str]) -> str:
    """Wait until everybody knows that the token rests with all of `wanted` in it."""
    found: dict[str, dict[str, Any]] = {}
    for _ in wait_until(_LIMIT):
        agents.look()
        with open_cluster(folder) as reached:
            found = reached.statuses()
        digests = {s.get("digest") for s in found.values()}
        if (
            len(found) == len(agents.children)
            and len(digests) == 1
            and all(s.get("resting") and set(s["included"]) == wanted for s in found.values())
        ):
            return str(digests.pop())
    phases = ", ".join(f"{name} {s['phase']}" for name, s in found.items()) or "nobody answers"
    raise UnweaveError(f"the network did not come to rest within {_LIMIT:g} s: {phases}")


def _erase(reached: Cluster, story: Story, folder: Path, tick: Tick) -> list[Path]:
    """The owners ask; each erasure leaves a certificate."""
    files = []
    asked: list[tuple[str, list[str] | None]] = [(story.forgotten, None)]
    asked += [(owner, [str(i) for i in ids]) for owner, ids in story.withdrawn.items()]
    for owner, keys in asked:
        raw, erased = erase_and_wait(
            reached, owner, keys=keys, gone=False, timeout=_LIMIT, tell=_quietly
        )
        path = folder / f"certificate-{owner.replace(' ', '-')}-{erased.request[8:16]}.json"
        path.write_bytes(raw)
        files.append(path)
        what = "everything" if keys is None else f"{len(keys)} patients"
        tick(f"{owner}: {what} forgotten, and certified")
    return files


def _quietly(text: str) -> None:
    """The demonstration tells milestones only."""
