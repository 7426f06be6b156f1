"""What an agent's certificates prove stays erased, even if no store remembers it.

A store may be lost, or restored from a backup; then the neighbours tell what was erased. If all
stores were lost, nobody could. The agent that asked for an erasure keeps its certificate in a file
of its own: whatever it proves and the store does not know is asked for again when the agent starts.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from unweave.protocol.state import State

__all__ = ["Remembered", "unremembered"]


class Remembered(NamedTuple):
    """An erasure of this agent, out of a certificate."""

    request: bytes
    whole: bool
    rows: frozenset[bytes]
    file: str


def unremembered(folder: Path, s: State) -> Iterator[Remembered]:
    """The erasures of this agent that the certificates in `folder` prove and its state does not
    know. Whatever is no certificate of this network is left alone."""
    if s.tomb.whole or s.tomb.left:
        return
    known = {*s.tomb.ids, *s.intents}
    for path in sorted(folder.glob("certificate-*.json")):
        try:
            found = list(_removals(path, s))
        except (OSError, ValueError, KeyError, TypeError):
            continue
        for one in found:
            if one.request not in known:
                known.add(one.request)
                yield one


def _removals(path: Path, s: State) -> Iterator[Remembered]:
    for envelope in json.loads(path.read_bytes())["tombstones"]:
        body = json.loads(base64.b64decode(envelope["payload"]))
        if body["run"] == s.terms.run.hex() and body["agent"] == s.me:
            rows = frozenset(bytes.fromhex(row) for row in body["rows"])
            yield Remembered(bytes.fromhex(body["request"]), bool(body["whole"]), rows, path.name)
