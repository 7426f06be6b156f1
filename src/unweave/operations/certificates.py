"""The certificates that a network's folder holds: files of `unweave forget` in DIR and files that
the agents keep. `ask_erasures` returns those that came with the parked token, too.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from unweave.bounded import read_bytes
from unweave.node.erasures import certificate_files
from unweave.operations.cluster import LOOK, Cluster
from unweave.operations.reading import read_erasures
from unweave.protocol.certificate.format import MOST_BYTES

__all__ = ["ask_erasures", "certificates_in", "stored_erasures"]

_KEPT = "certificates"  # in an agent's folder
_ORDER = ("unknown", "starting", "waiting", "voting", "asked", "removed", "certified")


def certificates_in(folder: Path, agents: Iterable[Path] = ()) -> dict[str, bytes | str]:
    """The files named certificate-*.json in DIR and in the folders of its agents, by name: the
    content, or why it cannot be read. The same content counts once."""
    found: dict[str, bytes | str] = {}
    seen: set[bytes] = set()
    for place in (folder, *(home / _KEPT for home in agents)):
        for path in certificate_files(place):
            try:
                content = read_bytes(path, MOST_BYTES)
            except ValueError as error:
                found.setdefault(path.name, str(error))
                continue
            except OSError as error:
                found.setdefault(path.name, f"cannot be read ({error.strerror or error})")
                continue
            if content not in seen:
                seen.add(content)
                found[_free(path.name, found)] = content
    return found


def _free(name: str, taken: Iterable[str]) -> str:
    """`name`, or with a number if it is taken."""
    names, stem, number = set(taken), name.removesuffix(".json"), 1
    while name in names:
        number += 1
        name = f"{stem}-{number}.json"
    return name


def ask_erasures(agents: Cluster, requests: Iterable[str]) -> dict[str, dict[str, Any]]:
    """How far each of these requests is, by the running agent that knows most of it: the report of
    `unweave forget`, with the certificate as bytes."""
    return _furthest(
        (request, answer["erasure"])
        for request in requests
        for answer in agents.ask_all("erasure", LOOK, request=request).values()
    )


def stored_erasures(agents: Cluster, requests: Iterable[str]) -> dict[str, dict[str, Any]]:
    """The same by the stores of stopped agents."""
    return _furthest(read_erasures(agents, requests))


def _furthest(reports: Iterable[tuple[str, dict[str, Any]]]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for request, one in reports:
        if request not in found or _knowledge(one) > _knowledge(found[request]):
            found[request] = one
    for request, best in found.items():
        if "certificate" in best:
            text = json.dumps(best["certificate"], sort_keys=True, separators=(",", ":"))
            found[request] = best | {"certificate": text.encode()}
    return found


def _knowledge(report: Mapping[str, Any]) -> tuple[int, int]:
    return _ORDER.index(report["state"]), -len(report.get("waiting_for", ()))
