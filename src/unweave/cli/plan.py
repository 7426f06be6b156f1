"""`unweave plan`: the expected iterations of learning, forgetting and retraining."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from unweave.cli.common import Edges, Json, console, emit_json, errors
from unweave.errors import ConfigError
from unweave.text import count

if TYPE_CHECKING:
    from unweave.graph import Topology
    from unweave.graph.cover import Expected
    from unweave.graph.forecast import Forecast
    from unweave.graph.private_rounds import RoundForecast

__all__ = ["plan"]

_MAX_MOVES = 1_000_000  # of a simulated walk; about a minute


def plan(
    graph: Annotated[
        str | None,
        typer.Option(
            "--graph",
            "-g",
            metavar="G",
            help="star (the first agent is the hub), ring, complete, path, grid, erdos-renyi, "
            "watts-strogatz or barabasi-albert.",
            show_default="complete",
        ),
    ] = None,
    agents: Annotated[
        int | None,
        typer.Option("--agents", "-k", metavar="K", help="Number of agents, named a1 … aK."),
    ] = None,
    edges: Edges = None,
    agent: Annotated[
        str | None,
        typer.Option("--agent", metavar="NAME", help="The agent to forget; default: the last."),
    ] = None,
    p: Annotated[
        float | None,
        typer.Option("--p", help="Edge (erdos-renyi) or rewiring (watts-strogatz) probability."),
    ] = None,
    near: Annotated[
        int | None, typer.Option("--near", help="Nearest neighbours each (watts-strogatz), even.")
    ] = None,
    joins: Annotated[
        int | None, typer.Option("--joins", help="Edges of each newcomer (barabasi-albert).")
    ] = None,
    privacy: Annotated[
        str,
        typer.Option(
            "--privacy",
            metavar="MODE",
            help="plain (the paper's walk) or masked (private rounds: every lap until all agents "
            "have attested).",
        ),
    ] = "plain",
    replicas: Annotated[
        int,
        typer.Option(
            "--replicas",
            metavar="N",
            help="Simulated walks and sweeps where no exact value exists (fewer on large graphs).",
        ),
    ] = 1000,
    seed: Annotated[
        int,
        typer.Option("--seed", metavar="S", help="Seed of random graphs and of simulation."),
    ] = 0,
    json: Json = False,
) -> None:
    """Expected iterations to learn from all agents, to reach one agent to forget it, to retrain.

    The start is a uniformly drawn agent and counts as iteration 1; an iteration in which the walk
    stays at its agent counts, too. **metropolis** is the random walk of the paper, **sweep** a
    depth-first traversal, **seek** the shortest path to the agent. Expectations are over the start,
    over the moves of the walk, and over the orders in which a sweep tries neighbours. Retraining is
    forgetting by learning again from zero without the agent, on the graph without it.

    With `--privacy masked` learning takes three laps over all agents: enrol, give, attest. A change
    starts a new round, which gives and attests; so does forgetting, after the shortest path to the
    agent. Nothing is shown before all agents have attested, so those visits count, too.

    Examples:

        unweave plan --graph complete --agents 10

        unweave plan --graph star --agents 20 --agent a1 --json

        unweave plan --edges consortium.csv --agent hospital-3

        unweave plan --graph ring --agents 20 --privacy masked
    """
    from unweave.graph.forecast import forecast, paper_formulas

    if replicas < 2:
        raise ConfigError(f"--replicas {replicas}: too few. Fix: give at least 2")
    topology = _topology(graph, agents, edges, p, near, joins, seed)
    target = topology.index(agent if agent is not None else topology.agents[-1])
    K = len(topology)
    if privacy not in ("plain", "masked"):
        raise ConfigError(f"--privacy {privacy}: unknown. Fix: choose plain or masked")
    found: Mapping[str, Forecast | RoundForecast]
    with errors.status("simulating …"):
        if privacy == "masked":
            from unweave.graph.private_rounds import round_forecast
            from unweave.manifest import PrivacyEntry

            PrivacyEntry(mode="masked").resolved(K)
            found = round_forecast(topology, target, replicas, seed)
        else:
            found = forecast(topology, target, replicas, seed, _MAX_MOVES)
    is_complete = bool((topology.degrees == K - 1).all())
    report: dict[str, Any] = {
        "graph": str(edges) if edges is not None else (graph or "complete"),
        "agents": K,
        "edges": topology.indices.size // 2,
        "agent": topology.agents[target],
        "seed": seed,
        "privacy": privacy,
        "start": "uniform, counts as iteration 1",
        "expectation": "over the start, the moves of metropolis and the orders of sweep",
        "schedules": {name: _entry(one) for name, one in found.items()},
    }
    if is_complete and privacy == "plain":
        report["paper"] = paper_formulas(K)
    if json:
        emit_json(report)
    else:
        console.print(_table(report))
        for line in _remarks(report):
            console.print(line, style="dim")


def _topology(
    graph: str | None,
    agents: int | None,
    edges: Path | None,
    p: float | None,
    near: int | None,
    joins: int | None,
    seed: int,
) -> Topology:
    from unweave.graph import graphs

    if edges is None:
        if agents is None:
            raise ConfigError(
                "no number of agents. Fix: give --agents K, or a graph of your own: --edges FILE"
            )
        return graphs.by_name(graph or "complete", agents, p=p, k=near, m=joins, seed=seed)
    if graph is not None and graph not in ("edges", "edge-list"):
        raise ConfigError(f"--graph {graph} and --edges {edges}: two graphs. Fix: give one of them")
    topology = graphs.from_edges(edges)
    if agents is not None and agents != len(topology):
        raise ConfigError(
            f"--agents {agents}, but {edges} has {len(topology)} agents. Fix: leave --agents out, "
            "or complete the file"
        )
    return topology


def _entry(one: Forecast | RoundForecast) -> dict[str, Any]:
    times: dict[str, Expected | None] = {
        name: getattr(one, name) for name in _HEADINGS["masked"] if hasattr(one, name)
    }
    entry: dict[str, Any] = {
        f"{name}_iterations": time and time.value for name, time in times.items()
    }
    entry["method"] = {name: time and time.method for name, time in times.items()}
    if any(time and time.ci95 for time in times.values()):
        entry["ci95"] = {n: list(t.ci95) if t and t.ci95 else None for n, t in times.items()}
        entry["replicas"] = {name: time and time.replicas for name, time in times.items()}
    if one.note:
        entry["note"] = one.note
    return entry


_HEADINGS = {
    "plain": {"learn": "learn from all", "forget": "reach {agent}", "retrain": "retrain"},
    "masked": {
        "learn": "learn",
        "round": "one more round",
        "change": "change of {agent}",
        "forget": "forget {agent}",
        "retrain": "retrain",
    },
}


def _table(report: dict[str, Any]) -> Any:
    size, privacy = count(report["agents"], "agent"), report["privacy"]
    table = Table(title=f"{report['graph']}, {size}, {privacy}: expected iterations")
    table.add_column("schedule")
    for heading in _HEADINGS[privacy].values():
        table.add_column(heading.format(agent=report["agent"]), justify="right")
    table.add_column("how")
    for name, entry in report["schedules"].items():
        how = sorted({m for m in entry["method"].values() if m})
        ci95 = entry.get("ci95", {})
        table.add_row(
            name,
            *(_cell(entry[f"{t}_iterations"], ci95.get(t)) for t in _HEADINGS[privacy]),
            ", ".join(how),
        )
    return table


def _cell(value: float | None, interval: list[float] | None) -> str:
    if value is None:
        return "–"
    shown = f"{value:,.2f}"
    return shown if interval is None else f"{shown} ± {(interval[1] - interval[0]) / 2:,.2f}"


def _remarks(report: dict[str, Any]) -> list[str]:
    lines = [
        "Expected over a uniform start, which counts as iteration 1, over the walk's moves and the "
        "sweep's orders; ± is a 95% confidence interval.",
        f"Retraining learns from zero without {report['agent']}, on the graph without it.",
    ]
    if report["privacy"] == "masked":
        lines.append(
            "Learning enrols, gives and attests; a change and an erasure give and attest, from the "
            "agent at which the token was parked. An agent that was restarted enrols again: one "
            "lap more. A model that is not conjugate takes several rounds."
        )
    paper = report.get("paper")
    if paper:
        lines.append(
            f"Paper, complete graph: cover (K−1)·H = {paper['cover']:,.2f} steps after the start, "
            f"approximated by (K−1)·log(K−1) = {paper['cover_approximation']:,.2f}; "
            f"unlearning 1/K + K − 1 = {paper['unlearn']:,.2f} iterations; "
            f"retraining without one (K−2)·H = {paper['retrain']:,.2f} steps."
        )
    notes = [entry["note"] for entry in report["schedules"].values() if "note" in entry]
    return [*lines, *dict.fromkeys(notes)]
