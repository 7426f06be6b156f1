"""`unweave check`: find a network's problems before it runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.text import Text

__all__ = ["check"]


def check(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="A network's folder, or one agent's.")
    ],
    json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Check a network before it runs: manifest, model, graph, keys, addresses, data, hosts.

    Every problem is shown with its place and its fix. Exit code 1 if there is any. A neighbour
    whose host cannot be found is a problem; a neighbour that does not answer yet is only noted.

    Example:

        unweave check clinics
    """
    from unweave.cli.common import console, emit_json, errors, styled
    from unweave.cli.neighbours import look_at_hosts, look_at_neighbours
    from unweave.cli.preflight import (
        Factors,
        look_at_agent,
        look_at_manifests,
        look_at_network,
    )
    from unweave.cli.reaching import host_problem
    from unweave.node.config import agent_name, find_agents

    host_problem.cache_clear()
    results: list[dict[str, Any]] = []
    factors: Factors = {}
    homes = find_agents(folder)
    if homes != [folder]:
        results += look_at_manifests(folder)
    other = {r["agent"] for r in results}
    with errors.status("checking …") as bar:
        for home in homes:
            bar.update(styled(f"checking {agent_name(home)} …"))
            if agent_name(home) not in other:
                results += look_at_agent(home, factors)
        bar.update("checking the hosts …")
        if homes == [folder]:
            results += look_at_neighbours(folder)
        else:
            told = {r["agent"] for r in results if r["problem"] and r["what"] == "address"}
            results += look_at_hosts(folder, told)
    if homes != [folder]:
        results += look_at_network(folder, factors)
    problems = [r for r in results if r["problem"] is not None]
    if json:
        emit_json({"ok": not problems, "checks": results})
    else:
        _show(console, folder, results, problems)
    if problems:
        raise typer.Exit(1)


def _show(
    console: Any, folder: Path, results: list[dict[str, Any]], problems: list[dict[str, Any]]
) -> None:
    from rich.table import Table

    from unweave.cli.common import command, quote, styled

    what = ["settings", "key", "address", "data"]
    if any(r["what"] == "neighbours" for r in results):
        what.append("neighbours")
    table = Table()
    for name in ("agent", *what):
        table.add_column(name, overflow="fold")
    for agent in dict.fromkeys(r["agent"] for r in results):
        cells = {r["what"]: _cell(r) for r in results if r["agent"] == agent}
        table.add_row(agent, *(cells.get(name, "") for name in what))
    console.print(table)
    for r in results:
        if r["warning"]:
            said = styled(("!", "yellow"), f" {r['agent']}, {r['warning']}")
            console.print(said, soft_wrap=True)
    if not problems:
        console.print("No problems.", style="green")
        if all(r["note"].endswith("running") for r in results if r["what"] == "address"):
            command(f"unweave status {quote(folder)}")
        elif (folder / "agents").is_dir():
            command(f"unweave up {quote(folder)}")
        else:
            command(f"unweave agent {quote(folder)}")
        return
    console.print(f"{len(problems)} problem{'s' if len(problems) > 1 else ''}", style="red")
    for r in problems:
        said = styled(("✗", "red"), f" {r['agent']}, {r['what']}: {r['problem']}")
        console.print(said, soft_wrap=True)
        if r["fix"]:
            console.print(f"  fix: {r['fix']}", soft_wrap=True)


def _cell(result: dict[str, Any]) -> Text | str:
    from unweave.cli.common import styled

    return styled(("✗", "red")) if result["problem"] else result["note"] or "ok"
