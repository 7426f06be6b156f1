"""`unweave init`: a new network on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

__all__ = ["init"]


def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where the network is written.")],
    agents: Annotated[
        str,
        typer.Option("--agents", "-k", help="A number (a1 … aK), or names: north,east,south."),
    ] = "5",
    graph: Annotated[
        str, typer.Option("--graph", "-g", help="ring, star, complete, path, grid, …")
    ] = "ring",
    edges: Annotated[
        Path | None,
        typer.Option("--edges", help='A graph of your own: one edge per line, "a,b" or "a b".'),
    ] = None,
    model: Annotated[
        str, typer.Option("--model", "-m", help="What is learned.")
    ] = "beta-bernoulli",
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="A setting of the model, e.g. --set a=1 --set b=1 (repeatable)."
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            "--data",
            help="A CSV file whose rows are dealt out to the agents (a trial on one machine), or a "
            "folder with one NAME.csv per agent. Without it, put data.csv into each folder.",
        ),
    ] = None,
    split: Annotated[
        str, typer.Option("--split", help="How one file is dealt out: iid, quantity, sorted, …")
    ] = "iid",
    key: Annotated[
        str | None, typer.Option("--key", help="The column that names a record, for erasing it.")
    ] = None,
    column: Annotated[
        list[str] | None,
        typer.Option(
            "--column", help="model column=data column, e.g. --column x=diagnosis (repeatable)."
        ),
    ] = None,
    hosts: Annotated[
        str | None,
        typer.Option(
            "--hosts",
            help="host:port of each agent, comma-separated in order, or a file with one per line. "
            "Default: free ports of this machine's loopback.",
        ),
    ] = None,
    schedule: Annotated[
        str, typer.Option("--schedule", help="sweep (depth first) or metropolis (random walk).")
    ] = "sweep",
    seed: Annotated[int, typer.Option("--seed", help="Seed of all routing draws.")] = 0,
    name: Annotated[str | None, typer.Option("--name", help="Default: the folder's name.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Write a new network: network.toml, and one folder per agent, ready to be copied to its host.

    Each folder holds a private key (mode 0600), a self-signed certificate that network.toml pins,
    and agent.toml. **Neighbours can compute an agent's sufficient statistics** (sums over its
    records) from two tokens in a row; an agent with fewer than `min_records` records (agent.toml,
    default 10) therefore refuses to start.

    Examples:

        unweave init clinics --agents 5 --graph ring --model beta-bernoulli --data visits.csv

        unweave init houses --model linear-regression --set features=size,age --set noise=1.0

        unweave init banks --agents north,east --hosts n.example:7400,e.example:7400
    """
    from unweave.cli.common import console, emit_json
    from unweave.errors import ConfigError, UnweaveError
    from unweave.graph import graphs
    from unweave.models import by_name
    from unweave.node.layout import copy_data, create_network, split_table

    names = _names(agents)
    try:
        chosen = by_name(model, **_settings(settings or []))
    except (TypeError, ValueError) as error:
        if isinstance(error, UnweaveError):
            raise
        raise ConfigError(f"--set: a setting of {model} has the wrong type ({error})") from None
    own_edges = None
    if edges is not None:
        topology = graphs.from_edges(edges)
        missing = sorted(set(topology.agents) - set(names))
        if agents.isdigit() and len(names) == len(topology.agents):
            names = list(topology.agents)
        elif missing:
            raise ConfigError(f"{edges}: names {missing[0]!r}, which --agents does not")
        own_edges = list(topology.edges)
    columns = dict(_pair(item, "--column") for item in column or [])
    for wrong in sorted(set(columns) - set(chosen.columns)):
        raise ConfigError(
            f"--column {wrong}={columns[wrong]}: {chosen.name} has no column {wrong!r}; its "
            f"columns are {', '.join(chosen.columns)}"
        )
    table: dict[str, Any] = {"path": "data.csv"}
    if key:
        table["key"] = key
    if columns:
        table["columns"] = columns
    sources = None
    if data is not None and data.is_dir():
        sources = {agent: data / f"{agent}.csv" for agent in names}
        for agent, source in sources.items():
            if not source.is_file():
                raise ConfigError(f"{source}: there is no data file for {agent!r}; add it")
    elif data is not None and not data.is_file():
        raise ConfigError(f"{data}: no such file")
    manifest = create_network(
        folder,
        name=name or folder.resolve().name,
        model=chosen,
        agents=names,
        addresses=_addresses(hosts, len(names)),
        data=dict.fromkeys(names, table),
        graph=None if own_edges is not None else graph,
        edges=own_edges,
        schedule=schedule,
        seed=seed,
    )
    homes = {agent: folder / "agents" / agent for agent in names}
    counts: dict[str, int] = {}
    if sources is not None:
        copy_data(sources, homes)
    elif data is not None:
        counts = split_table(data, homes, split, seed)
    if json:
        emit_json(
            {
                "network": str(folder / "network.toml"),
                "run": manifest.digest.hex(),
                "agents": {
                    entry.name: {
                        "folder": str(homes[entry.name]),
                        "address": entry.address,
                        "records": counts.get(entry.name),
                    }
                    for entry in manifest.entries
                },
            }
        )
        return
    console.print(f"[green]Wrote[/green] {folder}/network.toml and {len(names)} agent folders.")
    console.print(
        "Neighbours can compute an agent's sufficient statistics from two tokens in a row; see "
        "docs/security.md.",
        highlight=False,
    )
    if data is None:
        console.print("Next: put each agent's data.csv into its folder, then")
    console.print(f"  unweave check {folder}\n  unweave up {folder}", highlight=False)


def _names(agents: str) -> list[str]:
    if agents.isdigit():
        return [f"a{k}" for k in range(1, int(agents) + 1)]
    return [name.strip() for name in agents.split(",") if name.strip()]


def _settings(items: list[str]) -> dict[str, Any]:
    import json as jsonlib

    values: dict[str, Any] = {}
    for item in items:
        key, text = _pair(item, "--set")
        try:
            value = jsonlib.loads(text)
        except ValueError:
            value = text
        if isinstance(value, str) and "," in value:
            value = [part.strip() for part in value.split(",")]
        values[key] = tuple(value) if isinstance(value, list) else value
    return values


def _pair(item: str, option: str) -> tuple[str, str]:
    from unweave.errors import ConfigError

    key, sign, value = item.partition("=")
    if not sign or not key:
        raise ConfigError(f"{option} {item}: expected name=value")
    return key.strip(), value.strip()


def _addresses(hosts: str | None, count: int) -> list[str]:
    from unweave.errors import ConfigError
    from unweave.node.layout import free_ports

    if hosts is None:
        return [f"127.0.0.1:{port}" for port in free_ports(count)]
    path = Path(hosts)
    text = path.read_text() if path.is_file() else hosts.replace(",", "\n")
    found = [line.strip() for line in text.splitlines() if line.strip()]
    if len(found) != count:
        raise ConfigError(f"--hosts: {len(found)} addresses for {count} agents; give one for each")
    return found
