"""`unweave init`: who the agents are, who talks to whom, and where each of them listens."""

from __future__ import annotations

import re
from pathlib import Path

from unweave.errors import ConfigError
from unweave.graph import graphs
from unweave.operations.create import free_ports

__all__ = ["addresses_of", "check_number", "graph_of"]


_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.IGNORECASE)
_MOST = 2000  # agents: each folder has all certificates, which makes 3 GB of so many


def graph_of(
    agents: str | None, graph: str | None, edges: Path | None
) -> tuple[list[str], list[tuple[str, str]] | None]:
    """The agents' names, and the edges if there is a file of them."""
    if edges is None:
        return _names("5" if agents is None else agents), None
    if graph is not None:
        raise ConfigError(f"--graph {graph} and --edges {edges} name two graphs: give one of them")
    topology = graphs.from_edges(edges)
    found = list(topology.agents)
    if agents is not None:
        names = _names(agents)
        if agents.isdecimal() and len(names) != len(found):
            raise ConfigError(
                f"--agents {agents}, but {edges} has {len(found)} agents: leave --agents out"
            )
        if not agents.isdecimal():
            for one in sorted(set(names) ^ set(found)):
                where = (edges, "--agents") if one in found else ("--agents", edges)
                raise ConfigError(
                    f"{where[0]} names {one!r}, {where[1]} does not: leave --agents out to take "
                    "the names of the file"
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
            f"--agents {agents}: give a whole number above 0 (a1, a2, …), or names: "
            "north,east,south"
        )
    return names


def check_number(agents: int) -> None:
    if agents > _MOST:
        raise ConfigError(
            f"{agents} agents: a network on disk has at most {_MOST}, because every agent's folder "
            "holds the certificates of all; rehearse larger ones with `unweave simulate`"
        )


def addresses_of(hosts: str | None, count: int) -> list[str]:
    if hosts is None:
        return [f"127.0.0.1:{port}" for port in free_ports(count)]
    path = Path(hosts)
    try:
        lines = path.read_text("utf-8-sig").split("\n") if path.is_file() else hosts.split(",")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--hosts {hosts}: cannot be read: {error}") from None
    found = [text for line in lines if (text := line.partition("#")[0].strip())]
    if len(found) != count:
        raise ConfigError(f"--hosts: {len(found)} addresses for {count} agents; give one for each")
    return found
