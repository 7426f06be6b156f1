"""An agent's folder in one file, and back: `unweave backup` and `unweave restore`.

An archive is an uncompressed tar. Its first member, `backup.json`, names every other one with its
SHA-256; the digest of a backup is the SHA-256 of `backup.json`, so it stands for all files. The
store is SQLite's online copy, taken by the process that holds it: a running agent goes on.

An archive holds the agent's private key and its private state. Data that were erased after the
backup are still in it, but do not come back: a restored agent starts a new incarnation in
quarantine and learns the tombstones from its certificates and neighbours before it sends a token.

With differential privacy an archive has no ledger, because one that is restored lacks the values
that were given since. The store counts those up to the backup, and the neighbours know the others.
`restore` makes a ledger that is in doubt until all of them have vouched, and the restored store
vouches for no neighbour (`protocol.given`).
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import tarfile
import tempfile
from base64 import b64decode
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from unweave.bounded import load_json
from unweave.errors import ConfigError, DataError, StoreError
from unweave.node.agent import open_identity
from unweave.node.api.client import AgentDown, Operator
from unweave.node.config import AGENT_FILE, AgentFolder
from unweave.node.data.commitments import KEY_FILE as KEY_COLUMN_FILE
from unweave.node.data.source import SEEN_FILE
from unweave.node.erasures import certificate_files
from unweave.node.identity import CERTIFICATE_FILE, KEY_FILE
from unweave.node.storage.atomic import create_private, sync_directory
from unweave.node.storage.file import explained, inspect
from unweave.node.storage.integrity import RowMacs
from unweave.node.storage.schema import MIGRATIONS
from unweave.node.storage.sqlite import open_store
from unweave.protocol.given import forget_given

__all__ = ["Backup", "back_up", "restore"]


_INDEX = "backup.json"
_MOST_INDEX = 32 << 20  # bytes: 100 for each file of the folder
_FORMAT = 1
_WRITABLE = "check the permissions and the space on the disk"
_OTHER = "take another backup file, with the digest that `unweave backup` printed"
_STORE = "store.db"
_COPYING = 120.0  # seconds for a running agent to copy its store


@dataclass(frozen=True)
class Backup:
    """The content of an archive. `data`: it includes the private data files."""

    agent: str
    network: str
    digest: str
    files: tuple[str, ...]
    data: bool
    running: bool = False  # the agent ran during the backup
    noise: bool = False  # restored, with a ledger that is in doubt


# ------------------------------------------------------------------------------------- writing


def back_up(folder: str | Path, archive: str | Path, *, data: bool = False) -> Backup:
    """Write the agent's folder to a new file (mode 0600); with `data`, its data files too."""
    home, target = AgentFolder.read(folder), Path(archive)
    identity = open_identity(home)
    store, running = _store(home)
    # The store first: the erasure of a newer certificate is only requested again.
    files: dict[str, bytes | Path] = {} if store is None else {_STORE: store}
    files |= {name: _read(home.path / name) for name in _fixed(home)}
    for path in certificate_files(home.certificates):
        files[f"{home.certificates.name}/{path.name}"] = _read(path)
    seen = home.config.data.fingerprint(home.path, home.config.name) if data else None
    if data:
        files |= _data(home)
    index: dict[str, Any] = {
        "format": _FORMAT,
        "agent": identity.name,
        "network": home.terms.network_id.hex(),
        "data": data,
        "files": {name: _digest(files[name]) for name in sorted(files)},
    }
    head = json.dumps(index, indent=1).encode()
    _write(target, {_INDEX: head, **files})
    if seen is not None and home.config.data.fingerprint(home.path, home.config.name) != seen:
        target.unlink()
        raise DataError(
            f"agent {home.config.name!r}: the data changed while they were read. Fix: try again"
        )
    return _described(index, head, running)


def _described(index: Mapping[str, Any], head: bytes, running: bool = False) -> Backup:
    digest = hashlib.sha256(head).hexdigest()
    return Backup(
        index["agent"], index["network"], digest, tuple(index["files"]), index["data"], running
    )


def _store(home: AgentFolder) -> tuple[bytes | None, bool]:
    """A copy of the store, and whether a running agent made it."""
    try:
        with Operator(home.path, _COPYING) as agent:
            return b64decode(agent.ask("backup")["store"]), True
    except AgentDown:
        if not home.store.exists():
            return None, False
    # If the agent runs and does not answer, the lock of its store refuses this.
    with open_store(home, open_identity(home)) as store:
        return store.image(), False


def _fixed(home: AgentFolder) -> list[str]:
    network = _inside(home, home.path / home.config.network, "the manifest")
    kept = (SEEN_FILE, KEY_COLUMN_FILE)
    there = [name for name in kept if (home.path / name).is_file()]
    return [AGENT_FILE, network, KEY_FILE, CERTIFICATE_FILE, *there]


def _inside(home: AgentFolder, path: Path, what: str) -> str:
    """The path relative to the agent's folder, as an archive names it."""
    name = Path(os.path.relpath(path, home.path)).as_posix()
    if not _safe(name):
        raise ConfigError(
            f"{path}: {what} is outside the agent's folder and cannot be restored with it. "
            f"Fix: copy it into {home.path} and name it in {AGENT_FILE}"
        )
    return name


def _data(home: AgentFolder) -> dict[str, Path]:
    """The data files, with the write-ahead logs of databases."""
    paths = home.config.data.files(home.path, home.config.name)
    logs = [path.with_name(path.name + end) for path in paths for end in ("-wal", ".wal")]
    there = (*paths, *(log for log in logs if log.is_file()))
    return {_inside(home, path, "a data file"): path for path in there}


def _stream(content: bytes | Path) -> io.BytesIO | io.BufferedReader:
    return io.BytesIO(content) if isinstance(content, bytes) else content.open("rb")


def _digest(content: bytes | Path) -> str:
    with _stream(content) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot be read ({error.strerror}). Fix: make it readable"
        ) from None


def _write(target: Path, files: Mapping[str, bytes | Path]) -> None:
    try:
        file = create_private(target)
    except FileExistsError:
        raise ConfigError(f"{target}: exists already. Fix: choose another name") from None
    except OSError as error:
        raise ConfigError(
            f"{target}: cannot be written ({error.strerror}). Fix: {_WRITABLE}"
        ) from None
    try:
        with file:
            with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar:
                for name, content in files.items():
                    member = tarfile.TarInfo(name)
                    member.mode = 0o600
                    with _stream(content) as stream:
                        member.size = stream.seek(0, os.SEEK_END)
                        stream.seek(0)
                        tar.addfile(member, stream)
            file.flush()
            os.fsync(file.fileno())
        sync_directory(target)
    except BaseException as error:
        with suppress(OSError):
            target.unlink()
        if isinstance(error, OSError):
            raise ConfigError(
                f"{target}: cannot be written ({error.strerror}). Fix: {_WRITABLE}"
            ) from None
        raise


# ------------------------------------------------------------------------------------- reading


def restore(archive: str | Path, folder: str | Path, *, digest: str | None = None) -> Backup:
    """Restore the agent's folder into a new or empty one, completely or not at all.

    Refused: an archive whose files are not those of its index (or not those of `digest`), a key
    that the manifest does not pin, a store that this agent did not write.
    """
    source, target = Path(archive), Path(folder)
    if target.is_symlink() or (target.exists() and not _empty(target)):
        raise ConfigError(
            f"{target}: is not empty, and nothing is overwritten. Fix: choose a new folder"
        )
    place: Path | None = None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        # On the same disk, so that the folder can be renamed.
        place = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
        found = _unpack(source, place, digest)
        _check(source, place, found)
        found = replace(found, noise=_doubt(place))
        if target.exists():
            target.rmdir()
        os.rename(place, target)
        sync_directory(target)
    except OSError as error:
        raise ConfigError(
            f"{target}: cannot be written ({error.strerror or error}). Fix: {_WRITABLE}"
        ) from None
    finally:
        if place is not None:
            shutil.rmtree(place, ignore_errors=True)
    return found


def _doubt(place: Path) -> bool:
    """With noise: note that the account of given values is older than the truth, and forget what
    others have given."""
    home = AgentFolder.read(place)
    if home.terms.noise is None:
        return False
    from unweave.node.storage.ledger import open_ledger

    identity = open_identity(home)
    with open_ledger(home, identity, budget=0.0) as ledger:
        ledger.doubt()
    if home.store.exists():
        with open_store(home, identity) as store:
            state = store.load(home.terms, home.me)
            if state is not None:
                store.commit(state, forget_given(state))
    return True


def _empty(folder: Path) -> bool:
    return folder.is_dir() and not any(folder.iterdir())


def _unpack(source: Path, place: Path, digest: str | None) -> Backup:
    """Write the archive's files into `place`; ConfigError unless they are those of its index."""
    if not source.is_file():
        raise ConfigError(f"{source}: no such file. Fix: give the file that `unweave backup` wrote")
    digests: dict[str, str] = {}
    try:
        with tarfile.open(source, "r:") as tar:
            head, index = _index(tar)
            if index["format"] != _FORMAT:
                raise ConfigError(
                    f"{source}: format {index['format']}, this version reads {_FORMAT}. Fix: "
                    "install the version that wrote it"
                )
            found = _described(index, head)
            if digest is not None and digest.strip().lower() != found.digest:
                raise ConfigError(
                    f"{source}: its digest is {found.digest}, not the given one. Fix: {_OTHER}"
                )
            for member in tar:
                if member.name == _INDEX and not digests:
                    continue  # `_index` has read it
                if not member.isreg() or not _safe(member.name) or member.name in digests:
                    raise ConfigError(
                        f"{source}: a member is a link, a special file, a duplicate, or outside "
                        f"the folder: not a backup of unweave. Fix: {_OTHER}"
                    )
                digests[member.name] = _take(tar, member, place)
    except ConfigError:  # a ValueError
        raise
    except (tarfile.TarError, KeyError, ValueError, TypeError, EOFError):
        raise ConfigError(f"{source}: damaged, or not a backup of unweave. Fix: {_OTHER}") from None
    if digests != index["files"]:
        raise ConfigError(f"{source}: its files are not those that it names. Fix: {_OTHER}")
    return found


def _index(tar: tarfile.TarFile) -> tuple[bytes, dict[str, Any]]:
    """The first member, checked to be an index; KeyError, ValueError or TypeError if it is not."""
    first = tar.next()
    stream = tar.extractfile(first) if first is not None and first.name == _INDEX else None
    if stream is None:
        raise KeyError
    head = stream.read(_MOST_INDEX)
    index = load_json(head)
    kinds = {"format": int, "agent": str, "network": str, "data": bool, "files": dict}
    if not all(isinstance(index[key], kind) for key, kind in kinds.items()):
        raise TypeError
    return head, index


def _take(tar: tarfile.TarFile, member: tarfile.TarInfo, place: Path) -> str:
    """Write one regular file (mode 0600); its digest."""
    path, found = place / member.name, hashlib.sha256()
    for above in list(PurePosixPath(member.name).parents)[-2::-1]:
        (place / above).mkdir(mode=0o700, exist_ok=True)
    stream = tar.extractfile(member)
    assert stream is not None  # a regular file
    with create_private(path) as file:
        while block := stream.read(1 << 20):
            found.update(block)
            file.write(block)
        file.flush()
        os.fsync(file.fileno())
    return found.hexdigest()


def _safe(name: str) -> bool:
    """Whether a relative path stays inside its folder and is in normal form."""
    path = PurePosixPath(name)
    inside = bool(path.parts) and not path.is_absolute() and ".." not in path.parts
    return inside and str(path) == name and not set(name) & {"\\", "\0"}


def _check(source: Path, place: Path, found: Backup) -> None:
    """Key, manifest and store must belong together, as at the start of an agent."""
    try:
        home = AgentFolder.read(place)
        identity = open_identity(home)
        if (identity.name, home.terms.network_id.hex()) != (found.agent, found.network):
            raise ConfigError(
                f"{source}: its index names another agent than its key. Fix: {_OTHER}"
            )
        if home.store.exists():
            with explained(home.store):
                inspect(home.store, home.terms, home.me, RowMacs(identity.store_secret), MIGRATIONS)
    except (ConfigError, StoreError) as error:
        raise ConfigError(str(error).replace(str(place), str(source))) from None
