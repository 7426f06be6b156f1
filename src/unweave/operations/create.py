"""Creates a network on disk: `network.toml` and one folder per agent, ready to copy to its host.

`graph_of` and `addresses_of` read the options of `unweave init`: agents, edges, addresses.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import socket
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from unweave.bounded import read_bytes
from unweave.errors import ConfigError
from unweave.graph import graphs
from unweave.manifest import Manifest, PinnedSource
from unweave.manifest.privacy import Mode
from unweave.models import Model
from unweave.node.config import AGENT_FILE
from unweave.node.identity import Identity
from unweave.node.storage.atomic import write_atomic

__all__ = ["addresses_of", "check_number", "create_network", "free_ports", "graph_of"]

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.IGNORECASE)
_MOST_BYTES = 1 << 20  # of a file of addresses: 500 for each agent
_MOST = 2000  # agents: each folder holds all certificates, 3 GB in total for this number
_PORTS = range(10_000, 32_768)  # below the ephemeral ports of Linux, macOS and Windows


def create_network(
    folder: str | Path,
    *,
    name: str,
    model: Model | PinnedSource,
    agents: Sequence[str],
    addresses: Sequence[str],
    data: Mapping[str, Mapping[str, Any]],
    graph: str | dict[str, Any] | None = None,
    edges: Sequence[tuple[str, str]] | None = None,
    metrics: Sequence[str] = (),
    fill: Callable[[str, Path], None] | None = None,
    tell: Callable[[str], None] = lambda name: None,
    **settings: Any,
) -> Manifest:
    """Write DIR/network.toml and DIR/agents/NAME/ with key, certificate, agent.toml and manifest.

    `data` holds the [data] table of each agent. `fill(name, folder)` writes the agent's data file.
    `tell(name)` is called when an agent's folder is complete. The network is created completely or
    not at all. An existing network is never overwritten, because its keys are agents' identities.
    """
    root = Path(folder)
    if (root / "network.toml").exists() or (root / "agents").exists():
        raise ConfigError(
            f"{root}: there is a network already. Fix: choose another folder, or move this one away"
        )
    if root.exists() and not root.is_dir():
        raise ConfigError(f"{root}: there is a file of this name. Fix: choose another folder")
    for agent in agents:
        if agent in (".", ".."):
            raise ConfigError(
                f"agent {agent!r}: this name cannot name a folder. Fix: choose another name"
            )
        if agent.startswith("-"):
            raise ConfigError(
                f"agent {agent!r}: commands would read it as an option. Fix: choose another name"
            )
    entries: list[dict[str, Any]] = [
        {"name": agent, "address": address}
        for agent, address in zip(agents, addresses, strict=True)
    ]
    values = {
        "name": name,
        "model": model,
        "graph": graph,
        "edges": None if edges is None else [list(edge) for edge in edges],
        **settings,
    }
    Manifest.make(agents=entries, **values)  # refuses names that a certificate cannot contain
    identities = [Identity.create(agent) for agent in agents]
    for entry, identity in zip(entries, identities, strict=True):
        entry["certificate"] = identity.certificate_pem
    manifest = Manifest.make(agents=entries, **values)
    manifest.terms()  # refuses terms that cannot run, before any file is written
    with _all_or_nothing(root) as place:
        for k, identity in enumerate(identities):
            home = place / "agents" / identity.name
            home.parent.mkdir(exist_ok=True)
            home.mkdir(mode=0o700)
            identity.save(home)
            write_atomic(home / "network.toml", manifest.raw)
            if isinstance(model, PinnedSource):
                write_atomic(home / model.path.name, model.raw)
            table = dict(data.get(identity.name, {"path": "data.csv"}))
            port = metrics[k] if metrics else ""
            _write_agent_file(home, identity.name, table, port, manifest.privacy.mode)
            if fill is not None:
                fill(identity.name, home)
            tell(identity.name)
        manifest.write(place / "network.toml")
        if isinstance(model, PinnedSource):
            (place / model.path.name).write_bytes(model.raw)
    return manifest


@contextmanager
def _all_or_nothing(root: Path) -> Iterator[Path]:
    """A temporary folder, whose content moves to `root` at the end if nothing fails."""
    try:
        exists = root.is_dir()
        if not exists:
            root.parent.mkdir(parents=True, exist_ok=True)
        # On the same disk, so that a move is a rename; inside `root` if `root` exists.
        beside = root if exists else root.parent
        place = Path(tempfile.mkdtemp(prefix=f".{root.name}-", dir=beside))
        try:
            yield place
            if exists:
                for part in list(place.iterdir()):
                    os.rename(part, root / part.name)
            else:
                place.chmod(0o777 & ~_umask())
                os.rename(place, root)
        finally:
            shutil.rmtree(place, ignore_errors=True)
    except OSError as error:
        raise ConfigError(
            f"{root}: the network cannot be written there ({error.strerror or error}). Fix: choose "
            "another folder, or change its permissions"
        ) from None


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


_HEAD: dict[Mode, str] = {
    "plain": "# One agent. Its neighbours see the tokens it passes on, and from two of them in a\n"
    "# row they can compute its sufficient statistics (sums over its records, never the records).\n"
    "# A shard with fewer than min_records records is refused.\n",
    "masked": "# One agent of a masked network. No other agent sees its sums: only the sum of all\n"
    "# agents can be read. What changes between two published sums can be computed.\n",
}


def _write_agent_file(
    home: Path, name: str, data: Mapping[str, Any], metrics: str, mode: Mode
) -> None:
    import tomli_w

    head = _HEAD[mode]
    values: dict[str, Any] = {"network": "network.toml", "name": name}
    if mode == "plain":
        values["min_records"] = 10
    if metrics:
        values["metrics"] = metrics
    values["data"] = dict(data)
    write_atomic(home / AGENT_FILE, (head + tomli_w.dumps(values)).encode())


def graph_of(
    agents: str | None, graph: str | None, edges: Path | None
) -> tuple[list[str], list[tuple[str, str]] | None]:
    """The agents' names, and the edges if a file lists them."""
    if edges is None:
        return _names("5" if agents is None else agents), None
    if graph is not None:
        raise ConfigError(f"--graph {graph} and --edges {edges}: two graphs. Fix: give one of them")
    topology = graphs.from_edges(edges)
    found = list(topology.agents)
    if agents is not None:
        names = _names(agents)
        if agents.isdecimal() and len(names) != len(found):
            raise ConfigError(
                f"--agents {agents}, but {edges} has {len(found)} agents. Fix: leave --agents out"
            )
        if not agents.isdecimal():
            for one in sorted(set(names) ^ set(found)):
                where = (edges, "--agents") if one in found else ("--agents", edges)
                raise ConfigError(
                    f"{where[0]} names {one!r}, but {where[1]} does not. Fix: leave --agents out "
                    "to take the names of the file"
                )
            found = names
    return found, list(topology.edges)


def _names(agents: str) -> list[str]:
    if agents.isdecimal():
        check_number(int(agents[:9]) if len(agents) > 9 else int(agents))
        names = [f"a{k}" for k in range(1, int(agents) + 1)]
    else:
        names = [name.strip() for name in agents.split(",") if name.strip()]
    meant = len(names) == 1 and not agents.isdecimal() and _NUMBER.fullmatch(names[0])
    if not names or meant:
        raise ConfigError(
            f"--agents {agents}: no agents. Fix: give a whole number above 0 (a1, a2, …), or "
            "names: north,east,south"
        )
    return names


def check_number(agents: int) -> None:
    if agents > _MOST:
        raise ConfigError(
            f"{agents} agents: a network on disk has at most {_MOST}, because every folder holds "
            "all certificates. Fix: give fewer agents, or use `unweave simulate`"
        )


def addresses_of(hosts: str | None, count: int) -> list[str]:
    if hosts is None:
        return [f"127.0.0.1:{port}" for port in free_ports(count)]
    try:
        # os.path: a long list of addresses is no valid path, for which Path.is_file raises.
        if os.path.isfile(hosts):
            lines = read_bytes(Path(hosts), _MOST_BYTES).decode("utf-8-sig").split("\n")
        else:
            lines = hosts.split(",")
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"--hosts {hosts}: cannot be read ({error}). Fix: give a text file in UTF-8 with one "
            "address per line"
        ) from None
    found = [text for line in lines if (text := line.partition("#")[0].strip())]
    if len(found) != count:
        raise ConfigError(
            f"--hosts: {len(found)} addresses for {count} agents. Fix: give one for each agent"
        )
    return found


def free_ports(count: int, but: Collection[int] = ()) -> list[int]:
    """`count` different ports that are free on loopback now, without those in `but`.

    The ports are below the ephemeral range, so the system does not assign them before the agents
    start. They are random, so another network is unlikely to choose the same ports.
    """
    drawn = iter(random.SystemRandom().sample(_PORTS, len(_PORTS)))
    ports: dict[int, None] = {}
    misses = 0
    while len(ports) < count:
        with socket.socket() as probe:
            try:
                # After all candidates, port 0 lets the system choose a port.
                probe.bind(("127.0.0.1", next(drawn, 0)))
            except OSError:
                continue
            port = int(probe.getsockname()[1])
        if port not in ports and port not in but:
            ports[port] = None
        elif (misses := misses + 1) > 1000:
            raise ConfigError(
                f"this machine has not {count} free ports. Fix: give addresses (--hosts)"
            )
    return list(ports)
