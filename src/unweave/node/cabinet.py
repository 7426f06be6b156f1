"""Where an agent keeps the certificates of what was asked of it: one file each, for good.

`certificates/certificate-EPOCH-HOP-DIGEST.json` in the agent's folder. A file is whole or not
there, and the same certificate is the same file.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from unweave.node.opening import sync_directory
from unweave.protocol.certificate import closing_of

__all__ = ["Cabinet"]


class Cabinet:
    """The certificates in one folder, by the requests that they prove."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._index: dict[str, Path] | None = None  # request → file; None: not looked yet

    def keep(self, certificate: bytes) -> Path:
        """Write the file, unless it is there. OSError if the disk refuses."""
        closing = closing_of(certificate)
        epoch, _, _, hop, _ = closing["stamp"]
        name = hashlib.sha256(certificate).hexdigest()[:8]  # stamps come again after a restore
        path = self._folder / f"certificate-{epoch}-{hop}-{name}.json"
        if not path.exists():
            self._folder.mkdir(mode=0o700, exist_ok=True)
            temporary = path.with_suffix(".tmp")
            with temporary.open("wb") as file:
                file.write(certificate)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
            sync_directory(path)
        if self._index is not None:
            self._index |= dict.fromkeys(closing["erasures"], path)
        return path

    def find(self, request: bytes) -> bytes | None:
        """The certificate that proves this request."""
        if self._index is None:
            self._index = {}
            for path in sorted(self._folder.glob("certificate-*.json")):
                try:
                    erasures = closing_of(path.read_bytes())["erasures"]
                except (OSError, ValueError, KeyError, TypeError):
                    continue  # somebody else's file: `unweave verify` says what is wrong with it
                self._index |= dict.fromkeys(erasures, path)
        found = self._index.get(request.hex())
        try:
            return None if found is None else found.read_bytes()
        except OSError:
            self._index = None  # it was moved away: look again
            return None
