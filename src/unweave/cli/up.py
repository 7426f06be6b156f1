"""`unweave up`: run all agents of a network's folder, each as its own process."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group

from unweave.cli.common import check_timeout, console, quote, say, stop_on_sigterm, styled
from unweave.cli.dashboard import PageOptions, serving
from unweave.cli.output import DroppingOutput, dropping_output
from unweave.errors import ConfigError, UnweaveError
from unweave.json_form import as_json
from unweave.text import count

if TYPE_CHECKING:
    from unweave.operations.cluster import Cluster
    from unweave.operations.status import Overview
    from unweave.operations.supervisor import Supervisor

__all__ = ["up"]


def up(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The network's folder.")],
    until: Annotated[
        str,
        typer.Option(
            "--until",
            help="forever; or stop all agents when they are ready (all answer) or the token is "
            "parked (learned and attested).",
        ),
    ] = "forever",
    timeout: Annotated[
        float, typer.Option("--timeout", help="Seconds to wait with --until.")
    ] = 120.0,
    restart: Annotated[
        bool, typer.Option("--restart/--no-restart", help="Restart agents whose process ends.")
    ] = True,
    dashboard: Annotated[
        bool,
        typer.Option("--dashboard", help="Also serve the page of `unweave dashboard`."),
    ] = False,
    port: Annotated[
        int | None,
        typer.Option("--port", help="With --dashboard: its port; default: 8760 or the next free."),
    ] = None,
    browser: Annotated[
        bool,
        typer.Option(
            "--browser/--no-browser",
            help="With --dashboard: open the page, if there is a browser.",
        ),
    ] = True,
    json: Annotated[
        bool,
        typer.Option(
            "--json", help="One JSON object per update, one per line, instead of the live view."
        ),
    ] = False,
) -> None:
    """Run every agent of DIR as its own process, with a live view. Ctrl-C stops them all.

    Each agent writes its log to agent.log in its folder. The agents share nothing but the network.
    In the background (`unweave up clinics &`) and in a pipe, changes are printed line by line. The
    agents never wait for the reader: updates that it does not take are left out, and `dropped` in
    the next JSON line counts them. With `--until` the agents are stopped at that point; the next
    `up` continues from there.

    With `--dashboard` a page in a browser shows the network, on loopback; its address and the
    access code for erasures are printed first.

    Examples:

        unweave up clinics

        unweave up clinics --dashboard

        unweave up clinics --until parked --json
    """
    import os

    from unweave.node.config import find_agents
    from unweave.operations.cluster import LOOK, TimedOut, open_cluster
    from unweave.operations.supervisor import Supervisor

    check_timeout(timeout)
    if port is not None and not dashboard:
        raise ConfigError("--port: no page is served. Fix: add --dashboard, or leave --port out")
    options = PageOptions(port, browser=browser, json=json)
    if until not in ("forever", "ready", "parked"):
        raise ConfigError(f"--until {until}: no such state. Fix: choose forever, ready or parked")

    with open_cluster(folder, LOOK) as running:
        if here := list(running.agents):
            pids = _pids(running.statuses(), running.silent)
            raise UnweaveError(
                f"{', '.join(here)} of {folder} already run (see `unweave status "
                f"{quote(folder)}`). Fix: stop them first: kill {pids}"
            )
    homes = find_agents(folder)
    try:
        stop_on_sigterm()
        with dropping_output() as output:
            if not json:
                how = "Ctrl-C stops them" if _in_front() else f"kill {os.getpid()} stops them"
                console.print(f"Starting {count(len(homes), 'agent')}; {how}.")
            with Supervisor(homes, restart=restart) as agents:
                limit = max(30.0, 2.0 * len(agents.children))
                agents.ready(limit if until == "forever" else min(limit, timeout))
                missing = ""
                if until != "ready":
                    end = time.monotonic() + timeout if until == "parked" else None
                    with _page(folder, agents, options) if dashboard else nullcontext():
                        missing = _watch(folder, agents, end, json, output)
    except KeyboardInterrupt:
        if not json:
            console.print(f"Stopped {count(len(homes), 'agent')}.")
        return
    if not missing:
        _report_stopped(homes, until, json)
        return
    raise TimedOut(f"the token was not parked within {timeout:g} s: {missing}")


def _page(folder: Path, agents: Supervisor, options: PageOptions) -> AbstractContextManager[object]:
    from unweave.web.live.network import NetworkSource

    return serving(NetworkSource(folder, troubles=agents.troubles), folder, options)


def _report_stopped(homes: list[Path], until: str, json: bool) -> None:
    """Say that the agents were stopped: after `--until ready` a user may expect them to run."""
    import sys

    from unweave.node.config import agent_name

    if json:
        if until == "ready":  # with `parked`, the last update of _watch has all facts
            report = {"ready": [agent_name(home) for home in homes], "stopped": True}
            sys.stdout.write(as_json(report) + "\n")
        return
    reached = "All agents answered" if until == "ready" else "The token is parked"
    stopped = count(len(homes), "agent")
    say(f"{reached}. Stopped {stopped}; without --until {until} they continue to run.")


def _pids(found: dict[str, dict[str, Any]], silent: dict[str, int | None]) -> str:
    """The processes to stop: an agent's supervisor, which would restart it, or else the agent. A
    frozen agent cannot name its supervisor."""
    pids = [status.get("supervisor") or status["pid"] for status in found.values()]
    pids += [pid for pid in silent.values() if pid is not None]
    return " ".join(map(str, dict.fromkeys(pids)))


def _in_front() -> bool:
    """Whether this process is in the terminal's foreground: in the background (`… &`) a live view
    would overwrite the output of other commands."""
    import os
    import sys

    try:
        return sys.stdout.isatty() and os.tcgetpgrp(sys.stdout.fileno()) == os.getpgrp()
    except OSError:
        return False


def _watch(
    folder: Path,
    agents: Supervisor,
    end: float | None,
    json: bool,
    output: DroppingOutput | None,
) -> str:
    """Show the network until the token is parked, then return ""; at `end` return the missing
    agents. Without `end`, show it forever."""
    import sys
    from contextlib import ExitStack

    from rich.live import Live

    from unweave.node.config import AgentFolder
    from unweave.operations.cluster import open_cluster
    from unweave.operations.status import Overview

    previous: tuple[float, int] | None = None
    home = next(iter(agents.children.values())).folder
    everybody = AgentFolder.read(home).manifest.topology.agents
    look = Overview({}, list(agents.children), everybody)
    missing, last = "all agents", ""
    with ExitStack() as stack:
        live = None
        if not json and _in_front():
            live = stack.enter_context(Live(console=console, auto_refresh=False))
        while end is None or time.monotonic() < end:
            agents.look()
            # Agents that replace their process wait for the next look: do not wait for them.
            with open_cluster(folder, timeout=2.0, patient=False) as reached:
                found, down = reached.statuses(), reached.down
                posterior = {} if live is None else _posterior(reached)
            look = Overview(found, down, everybody, agents.troubles(down) | reached.frozen())
            sent = sum(s["counts"].get("tokens sent", 0) for s in found.values())
            now = time.monotonic()
            speed = 0.0 if previous is None else (sent - previous[1]) / (now - previous[0])
            previous = (now, sent)
            missing = look.missing()
            if json:
                report = {
                    "agents": found,
                    "down": down,
                    "troubles": look.troubles,
                    "hops_per_second": round(speed, 1),
                    "dropped": 0 if output is None else output.dropped,
                }
                sys.stdout.write(as_json(report) + "\n")
                sys.stdout.flush()
            elif live is not None:
                if _in_front():  # the user may have moved it to the background (Ctrl-Z, bg)
                    live.update(_view(look, posterior, speed), refresh=True)
            elif (line := look.line()) != last:
                say(line)
                last = line
            if console.quiet:  # the reader of the pipe has closed it: stop the agents
                raise BrokenPipeError
            if end is not None and not missing:
                break
            time.sleep(0.5 if end is None else 0.1)
    return "" if not missing else look.why(missing)


def _posterior(reached: Cluster) -> dict[str, Any]:
    from unweave.operations.reading import ask_posteriors, newest

    return newest(ask_posteriors(reached, 2.0, brief=True))


def _view(look: Overview, posterior: dict[str, Any], speed: float) -> Group:
    from unweave.cli.status import status_table
    from unweave.operations.status import data_problems, notices, restarts_due, staying_out

    lines = [styled((f"{speed:.0f} hops/s · Ctrl-C stops all agents", "dim"))]
    lines += [
        styled((line, "yellow"))
        for line in (
            *notices(look.found),
            *staying_out(look.found),
            *data_problems(look.found),
            *restarts_due(look.found),
            *look.absent(),
        )
    ]
    for row in posterior.get("marginals", [])[:6]:
        if row["mean"] is not None and row["sd"] is not None:
            lines.append(styled(f"{row['name']} = {row['mean']:.5g} ± {row['sd']:.2g}"))
    return Group(status_table(look.found, look.down), *lines)
