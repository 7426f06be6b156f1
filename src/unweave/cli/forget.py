"""`unweave forget`: erase a contribution, wait for all attestations, write the certificate."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unweave.bounded import read_bytes
from unweave.cli.common import (
    Json,
    check_timeout,
    command,
    complete_agent,
    console,
    emit_json,
    fail,
    live_text,
    quote,
    styled,
)
from unweave.errors import ConfigError, UnweaveError
from unweave.json_form import error_report
from unweave.text import count, due

if TYPE_CHECKING:
    from unweave.operations.cluster import Cluster
    from unweave.operations.erase import Waits
    from unweave.protocol.certificate.verify import Erased

__all__ = ["forget", "read_keys"]

_MOST_BYTES = 8 << 20  # of a keys file: an agent takes 100,000 keys at a time


def forget(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="A network's folder, or the owner's agent's.")
    ],
    agent: Annotated[
        str | None,
        typer.Argument(
            metavar="AGENT",
            help="Whose contribution; default with AGENT_DIR: its own.",
            autocompletion=complete_agent,
        ),
    ] = None,
    records: Annotated[
        Path | None,
        typer.Option("--records", help="Only these records: a file with one key per line."),
    ] = None,
    missing_ok: Annotated[
        bool,
        typer.Option(
            "--missing-ok",
            help="With --records: keys that are not in the data (any more) are remembered, so that "
            "their records can never come back. Exit code 1 if no key was found.",
        ),
    ] = False,
    departed: Annotated[
        bool,
        typer.Option(
            "--departed", help="AGENT will never run again: collect votes, do not ask it."
        ),
    ] = False,
    now: Annotated[
        bool,
        typer.Option(
            "--now",
            help="With --records, where changes wait for others (publish in network.toml): do not "
            "wait. The next sum then shows these records alone.",
        ),
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", help="The certificate's file; default: DIR/certificate-AGENT-….json."
        ),
    ] = None,
    timeout: Annotated[float, typer.Option("--timeout", help="Seconds to wait.")] = 300.0,
    json: Json = False,
) -> None:
    """Forget an agent, or single records of it, and write a certificate that anybody can verify.

    The command asks the owner's agent, which removes its contribution at the token's next visit.
    The erasure is complete when every remaining agent has attested; then the certificate is
    written. A majority of votes removes an agent that will never run again (`--departed`): this
    command votes for every agent whose folder is in DIR, other operators use `unweave vote`.
    Progress goes to standard error (not with --json).

    A warning says beforehand what others will be able to compute: the difference of two published
    sums shows what changed between them. In a masked network an erasure that leaves fewer than
    `min_roster` agents is certified with an empty sum, and no posterior follows.

    Where the manifest has `publish`, a request for records waits until enough changes have
    gathered, or until its date; the command says so and ends. Repeat it later for the certificate,
    or add `--now`.

    With `--records`, the answer and the certificate state how many keys were found in the data, and
    how many are only remembered: no data were removed for those. If no key was found, the exit code
    is 1.

    In plain mode the command also writes DIR/change-AGENT-….json for `unweave report`: by how much
    means and standard deviations changed, in two digits. Delete it when you need it no more.

    Examples:

        unweave forget clinics a1 --records ids.txt

        unweave forget clinics a3

        unweave forget clinics a4 --departed
    """
    from unweave.node.storage.atomic import check_writable
    from unweave.operations.cluster import LOOK, open_cluster, wait_until
    from unweave.operations.disclosure import disclosed
    from unweave.operations.erase import Waits, erase_and_wait
    from unweave.report.changes import Before, keep_change

    check_timeout(timeout)
    if departed and records is not None:
        raise ConfigError("--departed removes the whole agent. Fix: leave --records out")
    if missing_ok and records is None:
        raise ConfigError("--missing-ok needs --records. Fix: add --records FILE")
    keys = None if records is None else read_keys(records)
    with open_cluster(folder, timeout) as agents, live_text("forgetting", quiet=json) as tell:
        check_writable(out or folder / "certificate")
        name = agent or (next(iter(agents.folders)) if len(agents.folders) == 1 else None)
        if name is None:
            raise ConfigError(
                f"no agent given. Fix: unweave forget {quote(folder)} AGENT, with one of "
                f"{', '.join(agents.folders)}"
            )
        agents.check_name(name)
        if now and (keys is None or agents.manifest.publish is None):
            raise ConfigError(
                "--now: nothing waits. Fix: leave it out; it is for --records in a network with "
                "publish"
            )
        warning = disclosed(agents, name, keys, now=now)
        if warning:
            tell(warning)
        options = f"--records {quote(records)}" if records is not None else "--departed" * departed
        options += " --missing-ok" * missing_ok
        before = Before.of(folder)
        try:
            certificate, erased = erase_and_wait(
                agents,
                name,
                keys=keys,
                missing_ok=missing_ok,
                departed=departed,
                timeout=timeout,
                tell=tell,
                repeat=options if records is not None else "",
                now=now,
            )
        except Waits as waits:
            _tell_waiting(name, waits, json=json)
            return
        if before is not None:
            for _ in wait_until(LOOK):  # agents replace their processes after an erasure
                if keep_change(folder, name, erased.request, before):
                    break
    # The first 8 digits of a request's id are those of its agent, so the name takes the next 8.
    target = out or folder / f"certificate-{name}-{erased.request[8:16]}.json"
    try:
        _write(target, certificate)
    except OSError as error:
        again = " ".join(filter(None, [f"unweave forget {quote(folder)} {quote(name)}", options]))
        raise UnweaveError(
            f"{target}: cannot be written ({error.strerror or error}), but {_subject(name, keys)} "
            f"forgotten and certified. {_copies(agents, certificate)}. "
            f"Fix: `{again} --out FILE` writes the same certificate"
        ) from None
    nothing = _nothing_found(name, erased)
    if json:
        told: dict[str, Any] = {"warning": warning} if warning else {}
        if erased.scope == "records":
            told |= {"found": erased.found, "remembered": erased.remembered}
        told |= error_report(nothing) if nothing else {}
        emit_json({"request": erased.request, "agent": name, "certificate": str(target)} | told)
    else:
        done = ("Nothing was found.", "yellow") if nothing else ("Forgotten.", "green")
        console.print(styled(done, f" {_count(erased)}All agents have attested. Verify it with"))
        command(f"unweave verify {quote(target)} --network {quote(folder / 'network.toml')}")
        if nothing:
            fail(nothing)
    if nothing:
        raise typer.Exit(nothing.exit_code)


def _tell_waiting(name: str, waits: Waits, *, json: bool) -> None:
    """The request is durable: it waits for others, which is no failure."""
    if json:
        told = {"request": waits.request, "agent": name, "state": "waiting", "by": due(waits.by)}
        emit_json(told)
    else:
        console.print(styled(("Waiting.", "yellow"), f" {waits}"))


def _count(erased: Erased) -> str:
    """How many keys were found, and how many are only remembered."""
    if erased.scope != "records":
        return ""
    found = f"{erased.found} of {count(erased.rows or 0, 'key')} found in the data"
    return f"{found}, {erased.remembered} only remembered. "


def _nothing_found(name: str, erased: Erased) -> UnweaveError | None:
    """The error if no key was found: the certificate is valid, but proves no erasure."""
    if erased.found != 0:
        return None
    keys = "the key" if erased.rows == 1 else f"any of the {erased.rows} keys"
    return UnweaveError(
        f"the data of {name} did not have {keys}: no record was removed, as the certificate "
        "states. Fix: compare the keys file with the key column, unless the records were deleted "
        "before"
    )


def _subject(name: str, keys: list[str] | None) -> str:
    if keys is None:
        return f"{name} is"
    number = len(set(keys))
    return f"{count(number, 'record')} of {name} {'is' if number == 1 else 'are'}"


def _copies(agents: Cluster, certificate: bytes) -> str:
    """The place of the agents' own copies of the certificate."""
    import hashlib

    name = f"certificates/certificate-*-{hashlib.sha256(certificate).hexdigest()[:8]}.json"
    for folder in agents.folders.values():
        for path in folder.glob(name):
            return f"The agent keeps its own copy: {path}"
    return "The agents keep their own copies, in certificates/ of their folders"


def _write(target: Path, certificate: bytes) -> None:
    """All of it or nothing: half a certificate would only look like a forged one."""
    from unweave.node.storage.atomic import write_atomic

    target = target.resolve()  # replace the file behind a link, not the link
    if target.exists() and not target.is_file():  # a pipe or a terminal cannot be replaced
        target.write_bytes(certificate)
        return
    write_atomic(target, certificate)


def read_keys(path: Path) -> list[str]:
    """Read one key per line, in UTF-8; a byte order mark is not part of the first key."""
    try:
        text = read_bytes(path, _MOST_BYTES).decode("utf-8-sig")
    except OSError as error:
        raise ConfigError(
            f"--records {path}: cannot be read ({error.strerror}). Fix: give a file with one key "
            "per line"
        ) from None
    except UnicodeDecodeError:
        text = "\0"
    except ValueError as error:
        raise ConfigError(
            f"--records {path}: {error}. Fix: give a file with one key per line, and ask for some "
            "of the keys at a time"
        ) from None
    if "\0" in text:  # UTF-16 has a zero byte for every ASCII letter
        raise ConfigError(
            f"--records {path}: not text in UTF-8. Fix: save the file as UTF-8 (many editors and "
            "spreadsheets write UTF-16), one key per line"
        )
    lines = text.replace("\r", "\n").split("\n")
    keys = [line.strip() for line in lines if line.strip()]
    if not keys:
        raise ConfigError(f"--records {path}: no keys. Fix: write one key per line")
    return keys
