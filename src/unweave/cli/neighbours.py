"""`unweave check`: whether the hosts of the neighbours can be found from this machine."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from unweave.cli.findings import Result, found, well
from unweave.cli.preflight import certificate_problem
from unweave.cli.reaching import host_of, reach

__all__ = ["look_at_hosts", "look_at_neighbours"]

_SHOWN = 6  # neighbours by name


def look_at_neighbours(home: Path) -> list[Result]:
    """A problem for each neighbour whose host cannot be found; else a note on which answer."""
    from unweave.errors import UnweaveError
    from unweave.node.config import AgentFolder

    try:
        agent = AgentFolder.read(home)
    except UnweaveError:
        return []  # another check reports this
    topology, me = agent.manifest.topology, agent.config.name
    given = {name: agent.manifest.agent(name).address for name in topology.neighbours(me)}
    wanted = {name: address for name, address in given.items() if address is not None}
    reached = reach(wanted.values())
    results = [
        found(me, "neighbours", *problem)
        for name in given
        if (problem := certificate_problem(agent.manifest, name))
    ]
    results += [
        _unfound(me, name, address, reached[address].problem)
        for name, address in wanted.items()
        if reached[address].problem
    ]
    if results or not wanted:
        return results
    silent = [name for name in wanted if not reached[wanted[name]].answers]
    said = [f"{name} answers" for name in wanted if name not in silent]
    said += [f"{name} does not answer yet" for name in silent]
    more = f", … ({len(silent)} of {len(wanted)} do not answer yet)" if len(said) > _SHOWN else ""
    return [well(me, "neighbours", ", ".join(said[:_SHOWN]) + more)]


def look_at_hosts(folder: Path, told: Collection[str]) -> list[Result]:
    """A problem for each host of the network that cannot be found, except those of the agents
    `told`, which have one already; and a note on whether agents without a folder in DIR answer."""
    from unweave.manifest import load
    from unweave.node.config import agent_name

    here = {agent_name(home) for home in folder.glob("agents/*") if home.is_dir()}
    entries = {e.name: e.address for e in load(folder / "network.toml").entries if e.address}
    # One address of each host is enough where the agents are here; what runs is told elsewhere.
    hosts = {host_of(address): address for address in entries.values()}
    away = {name: address for name, address in entries.items() if name not in here}
    reached = reach([*hosts.values(), *away.values()])
    results, known = [], set()
    for name, address in entries.items():
        host = host_of(address)
        problem = reached[hosts[host]].problem
        if problem and name not in told and host not in known:
            results.append(_unfound(name, name, address, problem))
        elif not problem and name in away:
            said = "answers" if reached[address].answers else "does not answer yet"
            results.append(well(name, "neighbours", said))
        known.add(host)
    return results


def _unfound(agent: str, neighbour: str, address: str, why: str) -> Result:
    return found(
        agent,
        "neighbours",
        f"{neighbour} at {address}: the host cannot be found ({why})",
        "add the name to DNS or /etc/hosts; if it is wrong, correct the address in network.toml "
        "in every agent's folder",
    )
