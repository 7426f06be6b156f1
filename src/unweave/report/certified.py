"""Certificates and the erasures that they prove, as facts: every certificate is verified here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from unweave.errors import UnweaveError
from unweave.keys import verifier
from unweave.manifest import Manifest
from unweave.node.erasures import certificate_files
from unweave.protocol.certificate.verify import Account, Erased, verify
from unweave.report.facts import CertificateFact, ErasureFact
from unweave.report.timeline import Dates, of_votes
from unweave.text import dated

__all__ = ["certificate_facts", "date", "proved_erasures", "written_in"]


def certificate_facts(
    files: Mapping[str, bytes | str], manifest: Manifest
) -> tuple[tuple[CertificateFact, ...], dict[str, tuple[Erased, str]]]:
    """The certificates in these files, verified, the newest first; and by request what they prove,
    with the newest file that does."""
    if not files:
        return (), {}
    terms, check = manifest.terms(), verifier(manifest.pems())
    valid: list[tuple[CertificateFact, Account]] = []
    broken: list[CertificateFact] = []
    for name, content in files.items():
        if isinstance(content, str):
            broken.append(CertificateFact(name, b"", problem=content))
            continue
        try:
            account = verify(content, terms, check)
        except UnweaveError as error:
            broken.append(CertificateFact(name, content, problem=str(error)))
            continue
        valid.append((_fact(name, content, account), account))
    valid.sort(key=lambda one: one[1].stamp, reverse=True)
    proved: dict[str, tuple[Erased, str]] = {}
    for fact, account in valid:
        for erased in account.erasures:
            proved.setdefault(erased.request, (erased, fact.file))
    return (*(fact for fact, _ in valid), *broken), proved


def _fact(name: str, content: bytes, account: Account) -> CertificateFact:
    return CertificateFact(
        name,
        content,
        attested=account.attested,
        not_attested=account.not_attested,
        included=account.included,
        closed_by=account.closed_by,
        converged=account.converged,
        estimate=None if account.estimate is None else dict(account.estimate),
        noise=None if account.noise is None else dict(account.noise),
        epoch=account.epoch,
        hop=account.hop,
        requests=tuple(one.request for one in account.erasures),
    )


def written_in(folder: Path) -> dict[str, float]:
    """When each certificate of this folder was written, by the file's own time."""
    return {path.name: path.stat().st_mtime for path in certificate_files(folder)}


def proved_erasures(
    facts: Sequence[CertificateFact],
    proved: Mapping[str, tuple[Erased, str]],
    when: Dates,
    written: Mapping[str, float],
) -> list[ErasureFact]:
    """The erasures that certificates prove, in the order of the certificates, the latest last.
    Without a date in a log, an erasure was certified at the latest when its first file was
    written."""
    found: list[tuple[tuple[int, int], ErasureFact]] = []
    for request, (erased, file) in proved.items():
        by_votes = erased.by != "owner"
        logged = when.get(request, {}) | (when.get(of_votes(erased.agent), {}) if by_votes else {})
        kept = [
            written[one.file] for one in facts if request in one.requests and one.file in written
        ]
        certified = date(logged.get("certified"))
        if certified is None and kept:  # a copy of the file may be younger than the certificate
            certified = f"by {date(min(kept))}"
        fact = ErasureFact(
            erased.agent,
            erased.scope,
            "certified",
            records=erased.found,
            remembered=erased.remembered or 0,
            by=erased.by,
            kind=erased.kind,
            request=request,
            requested=date(logged.get("requested")),
            carried_out=date(logged.get("carried_out")),
            certified=certified,
            certificate=file,
        )
        first = min((one.epoch, one.hop) for one in facts if request in one.requests)
        found.append((first, fact))
    return [fact for _, fact in sorted(found, key=lambda one: one[0])]


def date(seconds: float | None) -> str | None:
    return None if seconds is None else dated(seconds)
