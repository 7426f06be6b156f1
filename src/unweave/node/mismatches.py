"""Audits that did not add up, as the agents have them on record: who found one, and what to say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from unweave.errors import UnweaveError

__all__ = ["did_not_add_up", "on_record"]


def on_record(statuses: Iterable[Mapping[str, Any]]) -> list[str]:
    """Who has found a mismatch, once for each: all that any of these agents has heard of."""
    known: Counter[str] = Counter()
    for status in statuses:
        known |= Counter(status.get("mismatches", ()))
    return sorted(known.elements())


def did_not_add_up(root: Path, before: Iterable[str], now: Iterable[str]) -> UnweaveError | None:
    """What an audit ends with if a mismatch is on record that was not before, or if the network
    has halted because of two of them; None: neither."""
    found = sorted(now)
    new = sorted((Counter(found) - Counter(before)).elements())
    if not new and len(found) < 2:
        return None
    again = f"when that is found, run `unweave audit {root}` again"
    if len(found) >= 2:
        done = (
            "It was the second time, so the network has halted and keeps its evidence: trust no "
            "posterior of it"
        )
        again = "then make a new network with `unweave init`"
    else:
        done = (
            "That token was dropped, and the network rebuilds it from the factors that the agents "
            "hold now: the posterior may be another one than before. A second time it halts"
        )
    where = ", ".join(new or found)
    return UnweaveError(
        "the audit did NOT add up: the agents' factors, added up a second time, were not the "
        f"token (found at {where}, where the cover ended; the cause may be anywhere). {done}. "
        "Look at what can change numbers behind an agent's back: the log of every agent around "
        "that time, its disk and memory, who can write to its folder and read its key.pem, and "
        f"whether all run the same version; {again}"
    )
