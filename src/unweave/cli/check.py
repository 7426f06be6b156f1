"""`unweave check`: everything that can be wrong before a network runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from unweave.node.config import AgentFolder

__all__ = ["check"]


def check(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="A network's folder, or one agent's.")
    ],
    json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Look at a network before it runs: manifest, model, graph, keys, addresses, data.

    Every problem is named with its place and its fix. Exit code 1 if there is any.

    Example:

        unweave check clinics
    """
    from rich.markup import escape
    from rich.table import Table

    from unweave.cli.common import console, emit_json
    from unweave.node.config import find_agents

    results: list[dict[str, Any]] = []
    for home in find_agents(folder):
        results += _check_agent(home)
    if (folder / "network.toml").is_file() and (folder / "agents").is_dir():
        results += _check_same(folder)
    problems = [r for r in results if r["problem"] is not None]
    if json:
        emit_json({"ok": not problems, "checks": results})
    else:
        table = Table(title="Preflight")
        for name in ("agent", "what", "result"):
            table.add_column(name, overflow="fold")
        for r in results:
            problem = "" if r["problem"] is None else escape(r["problem"])
            shown = "[green]ok[/green]" if r["problem"] is None else f"[red]{problem}[/red]"
            table.add_row(r["agent"], r["what"], shown + (f" {r['note']}" if r["note"] else ""))
        console.print(table)
    if problems:
        raise typer.Exit(1)


def _check_agent(home: Path) -> list[dict[str, Any]]:
    from unweave.node.config import AgentFolder

    name = home.resolve().name
    results: list[dict[str, Any]] = []
    found: list[AgentFolder] = []

    def settings() -> str:
        found.append(AgentFolder.read(home))
        manifest = found[0].manifest
        return f"{len(manifest.topology.agents)} agents, {manifest.model.name}"

    results.append(_result(name, "settings, manifest, graph, model", settings))
    if not found:
        return results
    agent = found[0]
    results.append(_result(name, "key and certificate", lambda: _identity(agent)))
    results.append(_result(name, "address", lambda: _address(agent)))
    results.append(_result(name, "data", lambda: _data(agent)))
    return results


def _result(agent: str, what: str, probe: Callable[[], str]) -> dict[str, Any]:
    from unweave.errors import UnweaveError

    try:
        note = probe()
    except UnweaveError as error:
        return {"agent": agent, "what": what, "problem": str(error), "note": ""}
    return {"agent": agent, "what": what, "problem": None, "note": note}


def _identity(agent: AgentFolder) -> str:
    from unweave.node.serve import open_identity

    return open_identity(agent).keyid[:16]


def _address(agent: AgentFolder) -> str:
    import socket

    from unweave.errors import ConfigError
    from unweave.node.client import AgentDown, Operator

    listen = agent.config.listen or agent.manifest.agent(agent.config.name).address
    if listen is None:
        raise ConfigError(f'agent "{agent.config.name}" has no address: add it to network.toml')
    try:
        with Operator(agent.path, 2.0):
            return f"{listen}, running"
    except AgentDown:
        pass
    host, _, port = listen.rpartition(":")
    try:
        info = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
    except OSError as error:
        raise ConfigError(f"{listen}: the host cannot be found ({error}); mend the name") from None
    family, kind, proto, _, where = info[0]
    with socket.socket(family, kind, proto) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(where)
        except PermissionError:
            raise ConfigError(f"{listen}: ports below 1024 need root; choose another") from None
        except OSError as error:
            if error.errno == 99:  # the address is another machine's: nothing to try here
                return f"{listen}, on another machine"
            raise ConfigError(
                f"{listen}: something else listens there; stop it or choose another port"
            ) from None
    return f"{listen}, free"


def _data(agent: AgentFolder) -> str:
    from unweave.node.serve import open_data, open_identity

    data = open_data(agent, open_identity(agent))
    data.check()
    data.require(agent.config.min_records)
    return f"{data.count(frozenset())} records"


def _check_same(folder: Path) -> list[dict[str, Any]]:
    """All copies of the manifest must be the same bytes: they name the network."""
    whole = (folder / "network.toml").read_bytes()
    results = []
    for copy in sorted(folder.glob("agents/*/network.toml")):
        if copy.read_bytes() != whole:
            results.append(
                {
                    "agent": copy.parent.name,
                    "what": "same manifest",
                    "problem": f"{copy} differs from {folder / 'network.toml'}: copy it again",
                    "note": "",
                }
            )
    return results
