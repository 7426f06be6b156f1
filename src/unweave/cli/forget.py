"""`unweave forget`: take a contribution out, wait for all attestations, write the evidence."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from unweave.cli.fleet import Fleet

__all__ = ["erase_and_wait", "forget"]


def forget(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="A network's folder, or the owner's agent's.")
    ],
    agent: Annotated[
        str | None,
        typer.Argument(
            metavar="AGENT", help="Whose contribution; default with AGENT_DIR: its own."
        ),
    ] = None,
    records: Annotated[
        Path | None,
        typer.Option("--records", help="Only these records: a file with one key per line."),
    ] = None,
    gone: Annotated[
        bool,
        typer.Option("--gone", help="AGENT is gone for good: collect votes instead of asking it."),
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", help="The certificate's file; default: DIR/certificate-AGENT-….json."
        ),
    ] = None,
    timeout: Annotated[float, typer.Option("--timeout", help="Seconds to wait.")] = 300.0,
    json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Forget an agent, or single records of it, and write a certificate that anybody can verify.

    The owner's agent is asked; it takes its contribution out when the token comes by. The erasure
    is complete when every remaining agent has attested; then the certificate is written. An agent
    that will never come back is taken out by a majority of votes (`--gone`): this command votes for
    every agent whose folder is here, other operators use `unweave vote`.

    Examples:

        unweave forget clinics a3

        unweave forget clinics a1 --records keys.txt

        unweave forget clinics a4 --gone
    """
    from unweave.cli.common import console, emit_json, progress
    from unweave.cli.fleet import fleet
    from unweave.errors import ConfigError

    if gone and records is not None:
        raise ConfigError("--gone takes the whole agent out: leave --records away")
    with fleet(folder) as agents, progress(quiet=json) as bar:
        name = agent or (next(iter(agents.folders)) if len(agents.folders) == 1 else None)
        if name is None:
            raise ConfigError("which agent? unweave forget DIR AGENT")
        task = bar.add_task(f"forgetting {name}", total=None)
        certificate, request = erase_and_wait(
            agents,
            name,
            keys=None if records is None else _keys(records),
            gone=gone,
            timeout=timeout,
            tell=lambda text: bar.update(task, description=text),
        )
    target = out or folder / f"certificate-{name}-{request[:8]}.json"
    target.write_bytes(certificate)
    if json:
        emit_json({"request": request, "agent": name, "certificate": str(target)})
    else:
        console.print(f"[green]Forgotten.[/green] Evidence: {target}", highlight=False)
        console.print(
            f"  unweave verify {target} --network {folder / 'network.toml'}", highlight=False
        )


def erase_and_wait(
    agents: Fleet,
    name: str,
    *,
    keys: list[str] | None,
    gone: bool,
    timeout: float,
    tell: Any,
) -> tuple[bytes, str]:
    """Ask, wait until certified, and return the certificate's bytes and the request's id."""
    import json as jsonlib

    from unweave.cli.fleet import TimedOut, patiently

    if gone:
        asker, request = _vote(agents, name)
    else:
        what: dict[str, Any] = {"whole": True} if keys is None else {"keys": keys}
        request = agents.of(name).ask("erase", **what)["request"]
        asker = name
    last: dict[str, Any] = {}
    for _ in patiently(timeout):
        answer = agents.again(asker, "erasure", request=request)
        if answer is None:
            tell(f"forgetting {name}: {asker} does not answer; the request stands")
            continue
        last = answer["erasure"]
        if last["state"] == "certified":
            text = jsonlib.dumps(last["certificate"], sort_keys=True, separators=(",", ":"))
            return text.encode(), request
        tell(_progress(name, last))
    raise TimedOut(_who(name, request, last, agents.down))


def _vote(agents: Fleet, name: str) -> tuple[str, str]:
    """Vote for every agent whose folder is here; each refuses by itself while it hears NAME."""
    import secrets

    from unweave.errors import UnweaveError

    agents.any()
    request = None
    refused = []
    for voter, operator in agents.agents.items():
        if voter == name:
            continue
        if request is None:
            known = operator.ask("status")["status"].get("gone_requests", {}).get(name)
            request = known or secrets.token_hex(16)
        try:
            operator.ask("vote", agent=name, request=request)
        except UnweaveError as error:
            refused.append(str(error))
    others = [voter for voter in agents.agents if voter != name]
    if not others or request is None or len(refused) == len(others):
        raise UnweaveError("; ".join(refused) or f"nobody here can vote that {name} is gone")
    return others[0], request


def _progress(name: str, report: dict[str, Any]) -> str:
    state = report["state"]
    if state == "voting":
        return f"forgetting {name}: {report['votes']} of {report['quorum']} votes"
    if state == "removed":
        waiting = report["waiting_for"]
        return f"forgetting {name}: taken out; waiting for {len(waiting)} attestations"
    return f"forgetting {name}: the token is on its way"


def _who(name: str, request: str, report: dict[str, Any], down: list[str]) -> str:
    state = report.get("state")
    if state == "voting":
        return (
            f"only {report['votes']} of {report['quorum']} votes that {name} is gone: other "
            f"operators confirm with `unweave vote AGENT_DIR {name}`, then ask again"
        )
    missing = ", ".join(down) or ", ".join(report.get("waiting_for", [])[:5]) or "the token"
    done = "was taken out, but not everybody has attested" if state == "removed" else "is not out"
    return (
        f"{name} {done} in time: waiting for {missing}. Start the missing agents; the request "
        f"({request}) stands and goes on by itself: ask again with `unweave forget`, or wait "
        "longer (--timeout)"
    )


def _keys(path: Path) -> list[str]:
    from unweave.errors import ConfigError

    try:
        keys = [line.strip() for line in path.read_text().splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None
    if not keys:
        raise ConfigError(f"{path}: no keys; write one per line")
    return keys
