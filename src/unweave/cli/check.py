"""`unweave check`: find a network's problems before it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer
from rich.table import Table
from rich.text import Text

from unweave.cli.common import Folder, Json, command, console, emit_json, errors, quote, say, styled
from unweave.text import count

__all__ = ["check"]


def check(
    folder: Folder,
    json: Json = False,
) -> None:
    """Check a network before it runs: manifest, model, graph, keys, addresses, data, hosts.

    Every problem is shown with its place and its fix. Exit code 1 if there is any. A neighbour
    whose host cannot be found is a problem; a neighbour that does not answer yet is only noted.

    Example:

        unweave check clinics
    """
    from unweave.operations.preflight import check_folder

    with errors.status("checking …") as bar:
        results = check_folder(folder, lambda step: bar.update(styled(step)))
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
    what = ["settings", "key", "address", "data"]
    if any(r["what"] == "neighbours" for r in results):
        what.append("neighbours")
    notes = ("noise", "assumption")  # of the network, not of an agent
    table = Table()
    for name in ("agent", *what):
        table.add_column(name, overflow="fold")
    for agent in dict.fromkeys(r["agent"] for r in results if r["what"] not in notes):
        cells = {r["what"]: _cell(r) for r in results if r["agent"] == agent}
        table.add_row(agent, *(cells.get(name, "") for name in what))
    console.print(table)
    say(*(f"Differential privacy: {r['note']}." for r in results if r["what"] == "noise"))
    say(*(f"{r['note']}." for r in results if r["what"] == "assumption"))
    for r in results:
        if r["warning"]:
            said = styled(("!", "yellow"), f" {r['agent']}, {r['warning']}")
            say(said)
    if not problems:
        console.print("No problems.", style="green")
        if all(r["note"].endswith("running") for r in results if r["what"] == "address"):
            command(f"unweave status {quote(folder)}")
        elif (folder / "agents").is_dir():
            command(f"unweave up {quote(folder)}")
        else:
            command(f"unweave agent {quote(folder)}")
        return
    console.print(count(len(problems), "problem"), style="red")
    for r in problems:
        said = styled(("✗", "red"), f" {r['agent']}, {r['what']}: {r['problem']}")
        say(said, *(f"  {line}" for line in r["details"]))
        if r["fix"]:
            say(f"  fix: {r['fix']}")


def _cell(result: dict[str, Any]) -> Text | str:
    return styled(("✗", "red")) if result["problem"] else result["note"] or "ok"
