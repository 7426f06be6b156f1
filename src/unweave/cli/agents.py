"""`unweave init`: the agents' names, the edges of the graph, and the agents' addresses."""

from __future__ import annotations

import re
from pathlib import Path

from unweave.errors import ConfigError
from unweave.graph import graphs
from unweave.operations.create import free_ports

__all__ = ["addresses_of", "check_number", "graph_of"]


_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.IGNORECASE)
_MOST = 2000  # agents: each folder holds all certificates, 3 GB in total for this number


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
    path = Path(hosts)
    try:
        lines = path.read_text("utf-8-sig").split("\n") if path.is_file() else hosts.split(",")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"--hosts {hosts}: cannot be read ({error}). Fix: give a text file in UTF-8"
        ) from None
    found = [text for line in lines if (text := line.partition("#")[0].strip())]
    if len(found) != count:
        raise ConfigError(
            f"--hosts: {len(found)} addresses for {count} agents. Fix: give one for each agent"
        )
    return found
