"""A new network on disk: `network.toml`, and one folder per agent, ready for its host."""

from __future__ import annotations

import csv
import shutil
import socket
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from unweave.data import partition
from unweave.errors import ConfigError
from unweave.manifest import Manifest
from unweave.models import Model
from unweave.node.config import AGENT_FILE
from unweave.node.identity import Identity

__all__ = ["create_network", "free_ports", "read_table", "split_table"]


def create_network(
    folder: str | Path,
    *,
    name: str,
    model: Model,
    agents: Sequence[str],
    addresses: Sequence[str],
    data: Mapping[str, Mapping[str, Any]],
    graph: str | dict[str, Any] | None = None,
    edges: Sequence[tuple[str, str]] | None = None,
    metrics: Sequence[str] = (),
    **settings: Any,
) -> Manifest:
    """Write DIR/network.toml and DIR/agents/NAME/ with key, certificate, agent.toml and manifest.

    `data` holds each agent's [data] table. An existing network is never overwritten: its keys are
    somebody's identity.
    """
    root = Path(folder)
    if (root / "network.toml").exists() or (root / "agents").exists():
        raise ConfigError(
            f"{root}: there is a network already; choose another folder, or move this one away"
        )
    identities = [Identity.create(agent) for agent in agents]
    entries = [
        {"name": agent, "address": address, "certificate": identity.certificate_pem}
        for agent, address, identity in zip(agents, addresses, identities, strict=True)
    ]
    manifest = Manifest.make(
        name=name,
        model=model,
        agents=entries,
        graph=graph,
        edges=None if edges is None else [list(edge) for edge in edges],
        **settings,
    )
    manifest.terms()  # refuse what cannot run before anything is written
    root.mkdir(parents=True, exist_ok=True)
    for k, identity in enumerate(identities):
        home = root / "agents" / identity.name
        home.mkdir(parents=True)
        identity.save(home)
        manifest.write(home / "network.toml")
        table = dict(data.get(identity.name, {"path": "data.csv"}))
        _write_agent_file(home, identity.name, table, metrics[k] if metrics else "")
    manifest.write(root / "network.toml")
    return manifest


def _write_agent_file(home: Path, name: str, data: Mapping[str, Any], metrics: str) -> None:
    from unweave.manifest.toml import write_toml

    head = (
        "# One agent. Its neighbours see the tokens it passes on, and from two of them in a row\n"
        "# they can compute its sufficient statistics (sums over its records, never the records).\n"
        "# A shard with fewer than min_records records is refused.\n"
    )
    values: dict[str, Any] = {"network": "network.toml", "name": name, "min_records": 10}
    if metrics:
        values["metrics"] = metrics
    values["data"] = dict(data)
    (home / AGENT_FILE).write_text(head + write_toml(values))


# ----------------------------------------------------------------------------------------- data


def read_table(path: str | Path) -> tuple[list[str], list[list[str]]]:
    """Header and rows of a CSV file, as text."""
    source = Path(path)
    try:
        with source.open(newline="", encoding="utf-8") as file:
            rows = list(csv.reader(file))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{source}: cannot be read as CSV: {error}") from None
    if len(rows) < 2:
        raise ConfigError(f"{source}: expected a header and at least one row")
    return rows[0], rows[1:]


def split_table(
    path: str | Path, folders: Mapping[str, Path], how: str = "iid", seed: int = 0
) -> dict[str, int]:
    """Deal the rows of one CSV file out to the agents' folders (for a trial on one machine)."""
    header, rows = read_table(path)
    import numpy as np

    shares = partition(np.arange(len(rows)), list(folders), how=how, seed=seed)
    counts = {}
    for agent, home in folders.items():
        chosen = [rows[int(i)] for i in shares[agent]]
        with (home / "data.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(header)
            writer.writerows(chosen)
        counts[agent] = len(chosen)
    return counts


def copy_data(files: Mapping[str, Path], folders: Mapping[str, Path]) -> None:
    """Each agent's own file into its folder."""
    for agent, source in files.items():
        shutil.copyfile(source, folders[agent] / "data.csv")


def free_ports(count: int) -> list[int]:
    """Ports that are free on loopback now, all different."""
    with ExitStack() as stack:
        ports = []
        for _ in range(count):
            probe = stack.enter_context(socket.socket())
            probe.bind(("127.0.0.1", 0))
            ports.append(int(probe.getsockname()[1]))
    return ports
