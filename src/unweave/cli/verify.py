"""`unweave verify`: verify certificates offline, with the manifest alone."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from unweave.bounded import read_bytes
from unweave.cli.common import Json, RunModel, console, emit_json, fail, quote, say, styled
from unweave.errors import ConfigError, NotACertificate, UnweaveError
from unweave.json_form import error_report

if TYPE_CHECKING:
    from unweave.grid import Ints
    from unweave.manifest import Manifest
    from unweave.node.identity import Identity
    from unweave.protocol.certificate.read import Check
    from unweave.protocol.certificate.verify import Account, Erased
    from unweave.protocol.terms import Terms

from unweave.text import clip, count, listed

__all__ = ["verify"]

_MEANING = {
    "exact": "the sum equals, bit for bit, that of training without the erased data",
    "exact_before_noise": "without its noise, the sum equals, bit for bit, that of training "
    "without the erased data; the published sum does not show this",
    "refined": "the erased factor was removed and the others were fitted again, starting from "
    "factors that were fitted with the erased data",
    "retrained": "all agents started again from zero; no factor was fitted with the erased data",
}


def verify(
    certificates: Annotated[
        list[Path], typer.Argument(metavar="CERT…", help="The certificate's file, or several.")
    ],
    network: Annotated[
        Path,
        typer.Option(
            "--network",
            "-n",
            metavar="FILE",
            help="The network's manifest, with pinned keys; or its folder.",
        ),
    ] = Path("network.toml"),
    records: Annotated[
        Path | None,
        typer.Option(
            "--records",
            metavar="KEYS",
            help="For the owner: are these records erased? A file with one key per line.",
        ),
    ] = None,
    agent: Annotated[
        Path | None,
        typer.Option(
            "--agent", metavar="AGENT_DIR", help="With --records: the folder with the owner's key."
        ),
    ] = None,
    sum_file: Annotated[
        Path | None,
        typer.Option(
            "--sum",
            metavar="FILE",
            help="Is this the certified sum? A file of `unweave posterior --sum`.",
        ),
    ] = None,
    secret_file: Annotated[
        Path | None,
        typer.Option("--secret", metavar="FILE", help="With --sum: the secret of the sum."),
    ] = None,
    run_model: RunModel = False,
    json: Json = False,
) -> None:
    """Verify certificates of erasure against the manifest; no other file or host is needed.

    Exit code 0: the certificate is valid, and its content is printed. 1: it was altered, is
    incomplete or has a wrong signature, and the reason is printed. 2: the file is not a certificate
    or cannot be read. Of several files all are verified, and the highest code is returned; `--json`
    then prints a list.

    A certificate names records by keyed hashes, which the owner can compute. With `--records` the
    exit code is 1, too, if some of these records are in none of the certificates.

    A certificate does not show its sum. With `--sum` and `--secret`, which an agent's operator can
    export (`unweave posterior --sum`), the exit code is 1, too, if a certificate is about another
    sum.

    Examples:

        unweave verify certificate.json --network clinics/network.toml

        unweave verify clinics/certificate-*.json --network clinics --json

        unweave verify c.json -n clinics --records ids.txt --agent clinics/agents/a1

        unweave verify c.json -n clinics --sum sum.bin --secret secret.txt
    """
    from unweave.keys import verifier
    from unweave.manifest import load

    if network.is_dir():
        network /= "network.toml"
    if not network.exists():
        near = certificates[0].parent / "network.toml"
        hint = quote(near) if near.is_file() else "FILE"
        raise ConfigError(f"{network}: there is no such manifest. Fix: give --network {hint}")
    manifest = load(network, run_model=run_model)
    terms, signed = manifest.terms(), verifier(manifest.pems())
    owner, keys = _owner(manifest, agent, records)
    opened = _opened(terms, sum_file, secret_file)
    sought = set(keys)
    reports, worst = [], 0
    for file in certificates:
        about = {} if len(certificates) == 1 else {"certificate": str(file)}
        try:
            raw, account = _verified(file, terms, signed)
        except UnweaveError as error:
            worst = max(worst, error.exit_code)
            reports.append(about | {"valid": False, "reason": str(error)} | error_report(error))
            if not json:
                fail(UnweaveError(f"{file}: {error}"))
            continue
        report = about | {"valid": True, **account.to_dict()}
        if opened is not None:
            report["opened"] = account.opens(*opened)
            worst = max(worst, int(not report["opened"]))
        if owner is not None:
            found = set(_erased(raw, account, owner, keys))
            sought -= found
            report["records"] = {
                "agent": owner.name,
                "erased": sorted(keys[key] for key in found),
                "not_erased": sorted(keys[key] for key in keys if key not in found),
            }
        reports.append(report)
        if not json:
            if about:
                say(f"{file}:")
            for part in _account(account, manifest.name):
                console.print(part)
            if opened is not None and report["opened"]:
                say(f"The certified sum is the one in {sum_file}.", style="green")
            elif opened is not None:
                why = f"{sum_file} is not its sum, or {secret_file} is the secret of another one"
                fail(UnweaveError(f"{file}: {why}. Fix: export both when the certificate is made"))
    if json:
        emit_json(reports if len(reports) > 1 else reports[0])
    elif owner is not None:
        say(*_found(owner.name, len(keys), [keys[key] for key in keys if key in sought]))
    worst = max(worst, int(bool(sought)))
    if worst:
        raise typer.Exit(worst)


def _owner(
    manifest: Manifest, agent: Path | None, records: Path | None
) -> tuple[Identity | None, dict[str, int]]:
    """The owner, and the keys of the records to look for with their numbers in the file: a report
    names a key by its number, because it is a part of a record."""
    from unweave.cli.forget import read_keys
    from unweave.keys import keyid_of, public_key
    from unweave.node.identity import Identity

    if agent is None and records is None:
        return None, {}
    if agent is None or records is None:
        raise ConfigError(
            "only one of --records and --agent is given; the owner's key is needed to find records "
            "in a certificate. Fix: give --records KEYS --agent AGENT_DIR"
        )
    owner = Identity.load(agent)
    pinned = dict(zip(manifest.topology.agents, manifest.pems(), strict=True))
    if owner.name not in pinned or keyid_of(public_key(pinned[owner.name])) != owner.keyid:
        raise ConfigError(
            f"--agent {agent}: the manifest does not pin its key. Fix: give the folder of an agent "
            "of this network"
        )
    numbered = list(enumerate(read_keys(records), 1))
    return owner, {key: number for number, key in reversed(numbered)}


def _opened(
    terms: Terms, sum_file: Path | None, secret_file: Path | None
) -> tuple[bytes, Ints] | None:
    """The secret and the sum in these files."""
    import numpy as np

    from unweave.protocol.token import SECRET_BYTES

    if sum_file is None and secret_file is None:
        return None
    if sum_file is None or secret_file is None:
        raise ConfigError(
            "only one of --sum and --secret is given; both are needed to open a certificate. Fix: "
            "give --sum FILE --secret FILE, as `unweave posterior --sum --secret` wrote them"
        )
    size = 8 * len(terms.grid.bits)
    raw = _content(sum_file, size)
    if len(raw) != size:
        raise ConfigError(
            f"{sum_file}: {len(raw)} bytes, but a sum of this network has {size}. Fix: give the "
            "file that `unweave posterior --sum` wrote"
        )
    text = _content(secret_file, 2 * SECRET_BYTES + 2).strip()
    if not re.fullmatch(rb"[0-9a-f]{%d}" % (2 * SECRET_BYTES), text):
        raise ConfigError(
            f"{secret_file}: no secret, which has {2 * SECRET_BYTES} hex digits. Fix: give the "
            "file that `unweave posterior --secret` wrote"
        )
    return bytes.fromhex(text.decode()), np.frombuffer(raw, dtype="<i8")


def _content(file: Path, most: int) -> bytes:
    try:
        return read_bytes(file, most)
    except ValueError as error:
        raise ConfigError(f"{file}: {error}. Fix: give the file that was exported") from None
    except OSError as error:
        raise ConfigError(
            f"{file}: cannot be read ({error.strerror or error}). Fix: give the exported file"
        ) from None


def _erased(raw: bytes, account: Account, owner: Identity, keys: Iterable[str]) -> list[str]:
    """The keys that the certificate erases: all, if it erases their owner."""
    from unweave.operations.erase import erased_keys

    if any(one.agent == owner.name and one.scope == "agent" for one in account.erasures):
        return list(keys)
    return erased_keys(raw, owner, keys)


def _found(name: str, keys: int, lacking: list[int]) -> list[str]:
    number = count(keys, "key")
    if not lacking:
        return [f"Erased: all {number}, as records of {name}."]
    return [
        f"{len(lacking)} of {number} not found among the erased records of {name}: key number "
        f"{listed(sorted(lacking), 10)}",
        "An earlier certificate may have them (give all of them), or they were never erased.",
    ]


def _verified(file: Path, terms: Terms, signed: Check) -> tuple[bytes, Account]:
    from unweave.protocol.certificate.format import MOST_BYTES
    from unweave.protocol.certificate.verify import verify as check

    try:
        raw = read_bytes(file, MOST_BYTES)
    except ValueError as error:
        raise NotACertificate(
            f"not a certificate: {error}. Fix: give the file that `unweave forget` wrote"
        ) from None
    except OSError as error:
        raise ConfigError(
            f"cannot be read ({error.strerror or error}). Fix: give a certificate's file"
        ) from None
    return raw, check(raw, terms, signed)


def _account(account: Account, network: str) -> list[Any]:
    agents = {one.agent for one in account.erasures}
    several = f": {len(account.erasures)} erasures, of {count(len(agents), 'agent')}"
    table = Table(title=f"Erased from {network}{several if len(account.erasures) > 1 else ''}")
    for column in ("agent", "erased", "kind", "requested by", "request"):
        table.add_column(column, overflow="fold")
    for one in account.erasures:
        by = "its owner" if one.by == "owner" else "a quorum"
        table.add_row(one.agent, _what(one), one.kind, by, one.request)
    lines = [
        styled(("The certificate is valid.", "green")),
        table,
        f"Attested by {listed(account.attested, 12)}; closed by {account.closed_by}.",
    ]
    if account.not_attested:
        lines.append(
            f"Departed by a quorum of votes, not attested: {listed(account.not_attested, 12)}."
        )
    lines.append(f"The sum holds factors of {listed(account.included, 12, 'nobody')}.")
    lines += [
        styled((k, "bold"), f": {_MEANING[k]}.") for k in sorted({e.kind for e in account.erasures})
    ]
    if any(one.remembered for one in account.erasures):
        lines.append(
            "only remembered: the owner's data did not have these keys at the request; no record "
            "was removed for them, and records with these keys can never be learned."
        )
    if account.estimate is not None:
        lines.append(_estimate(account.estimate))
    if account.noise is not None:
        lines += _noise(account)
    if not account.converged:
        why = ": the passes ended before all agents had converged."
        lines.append(styled(("Not converged", "yellow"), why))
    lines += [
        styled((line, "dim"))
        for line in (
            f"manifest {account.manifest}",
            f"commitment to the sum {account.commitment}",
            f"epoch {account.epoch}, hop {account.hop}",
        )
    ]
    return lines


def _noise(account: Account) -> list[str]:
    """What the agents state about noise, and what no certificate can prove."""
    noise = account.noise
    assert noise is not None
    lines = [
        f"Noise, as every agent states it: epsilon {noise['epsilon']:g}, delta {noise['delta']:g} "
        f"for each record over {noise['releases']} values of an agent, if at most "
        f"{noise['colluders']} agents collude; each value costs rho {noise['rho']:.3g}.",
        "Not proved: that the noise was drawn like this. What earlier sums show of the erased data "
        "stays, within epsilon and delta; an erasure refunds nothing.",
    ]
    if not account.included:
        lines.append("A privacy budget is spent: this sum is empty, and no other follows.")
    return lines


_ACCOUNTS = ("accuracy", "optimum", "bound")  # how good the estimate is, and of what


def _estimate(found: Mapping[str, Any]) -> str:
    """The closing agent's own estimate, which is not verified."""
    kl, how = found.get("kl_to_optimum"), clip(found.get("method", ""), 100)
    if not isinstance(kl, float):
        return f'KL to the retrained optimum: not estimated ("{how.removeprefix("none: ")}").'
    said = [how, *(clip(found[key], 100) for key in _ACCOUNTS if isinstance(found.get(key), str))]
    if isinstance(found.get("bound"), float):
        said.append(f"bound {found['bound']:.4g}")
    return f'Estimated KL to the retrained optimum: {kl:.2g} ("{"; ".join(said)}").'


def _what(one: Erased) -> str:
    if one.scope == "agent":
        return "everything"
    parts = [count(one.found, "record") if one.found else "no records"]
    if one.remembered:
        parts.append(f"{count(one.remembered, 'key')} only remembered")
    if one.repeated:
        parts.append(f"{one.repeated} in an erasure above, too")
    return "; ".join(parts)
