"""Everything that reads bytes of others, as targets of a fuzzer.

    python -m tests.support.parsers manifest --count 1000

A target reads one input. It says whether it accepted it; it refuses with the errors that the parser
documents, and every other exception is a finding. The process may use a bounded amount of memory
and of CPU time per input. `tests/reference/fuzz.py` runs the same targets under coverage guidance;
here inputs are altered at random, by bytes and by structure.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import resource
import shutil
import signal
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Hashable, Iterator, MutableMapping
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from unweave.cli.forget import read_keys
from unweave.errors import (
    ConfigError,
    DataError,
    NotACertificate,
    NotCertified,
    StoreError,
    WireError,
)
from unweave.keys import verifier
from unweave.manifest import Manifest, load
from unweave.node.config import AgentFolder
from unweave.node.storage.file import explained, inspect
from unweave.node.storage.integrity import RowMacs
from unweave.node.storage.schema import MIGRATIONS
from unweave.node.storage.sqlite import SqliteStore
from unweave.node.transport.framing import Assembly, split
from unweave.node.wire.codec import decode, encode
from unweave.node.wire.envelope import open_message, sign_message
from unweave.protocol.certificate.verify import verify
from unweave.protocol.state import State
from unweave.testing.values import MESSAGES, small_terms, state

__all__ = ["TARGETS", "Target", "mutated", "run"]

VECTORS = Path(__file__).parents[1] / "vectors"
_MEMORY = 3 << 30  # bytes of address space beyond what the start of the process takes
_SECONDS = 120  # of CPU time for one input; the slowest takes a few


class Target(NamedTuple):
    """One parser."""

    seeds: list[bytes]  # inputs that are accepted
    accepts: Callable[[bytes], bool]


# ----------------------------------------------------------------------------------- mutations

_TOKENS = (
    *(b"[", b"]", b"{", b"}", b'"', b"'", b"\\", b",", b":", b"=", b".", b"#", b"\0", b"\n"),
    *(b"null", b"true", b"NaN", b"-Infinity", b"1e999", b"-1", b"9" * 70, b"1" + b"0" * 5000),
    *(b"9223372036854775808", b"18446744073709551616", b"2000000000", b"0x" + b"f" * 80, b"1.5"),
    *(b"inf", b"nan", b'"\\ud800"', b"\xed\xa0\x80", b"\xef\xbb\xbf", b"1979-05-27T07:32:00Z"),
    *(b"**", b"*/" * 300, b"../"),
    *(b'""', b"[]", b"{}", b'"""', b"'''", b"[[a]]\n", b"[a.b]\n", b"a.b = 1\n"),
    b"\xff" * 9 + b"\x7f",
)  # fmt: skip
_FLOODS = (
    *(b"[" * 100_000, b'{"a":' * 50_000, b"a." * 50_000, b"[]," * 400_000, b"9" * 500_000),
    *(b"x" * 2_000_000, b"{a=" * 20_000, b"\\" * 1_000_000, b'"' * 300_001, b"\xff" * 500_000),
)
_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2**31, 2**63, 2**64, 10**30, 10**70, 0.5, -1e308, 1e-320),
    *("", "x", "0" * 32, "0" * 64, "a" * 300, "\ud800", "\0", "\u202e", [], {}, [[]], {"": 0}),
    *([None] * 40, json.loads("[" * 20 + "]" * 20), json.loads("[" * 200 + "]" * 200)),
)


def _flip(draw: Random, data: bytes) -> bytes:
    out = bytearray(data)
    for _ in range(draw.choice((1, 1, 2, 5, 20))):
        if out:
            out[draw.randrange(len(out))] ^= 1 << draw.randrange(8)
    return bytes(out)


def _cut(draw: Random, data: bytes) -> bytes:
    return data[: draw.randrange(len(data) + 1)]


def _drop(draw: Random, data: bytes) -> bytes:
    start = draw.randrange(len(data) + 1)
    return data[:start] + data[start + draw.choice((1, 2, 8, 40)) :]


def _insert(draw: Random, data: bytes) -> bytes:
    at = draw.randrange(len(data) + 1)
    return data[:at] + draw.randbytes(draw.choice((1, 2, 8, 40))) + data[at:]


def _token(draw: Random, data: bytes) -> bytes:
    """A token instead of some bytes, or between them."""
    at = draw.randrange(len(data) + 1)
    return data[:at] + draw.choice(_TOKENS) + data[at + draw.choice((0, 0, 1, 3, 8)) :]


def _repeat(draw: Random, data: bytes) -> bytes:
    """Some bytes once more: fields that come twice, lists that grow."""
    start = draw.randrange(len(data) + 1)
    stretch = data[start : start + draw.randrange(64)]
    return data[:start] + stretch * draw.choice((2, 3, 50)) + data[start:]


def _splice(draw: Random, data: bytes, pool: list[bytes]) -> bytes:
    other = draw.choice(pool)
    return data[: draw.randrange(len(data) + 1)] + other[draw.randrange(len(other) + 1) :]


def _line(draw: Random, data: bytes) -> bytes:
    """A line is removed, repeated or moved, or gets another value."""
    lines = data.split(b"\n")
    at = draw.randrange(len(lines))
    line = lines.pop(at)
    key, equals, _ = line.partition(b"=")
    if equals and draw.random() < 0.5:
        line = key + b"= " + draw.choice((draw.choice(_TOKENS), _json(draw.choice(_VALUES))))
    for _ in range(draw.randrange(3)):
        lines.insert(draw.randrange(len(lines) + 1), line)
    return b"\n".join(lines)


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


def _places(node: Any) -> Iterator[tuple[Any, Any]]:
    """Every container in a document, with every key."""
    inner = node.items() if isinstance(node, dict) else enumerate(node)
    for key, value in list(inner):
        yield node, key
        if isinstance(value, dict | list):
            yield from _places(value)


def _value(draw: Random, data: bytes) -> bytes:
    """Another value somewhere in a JSON document, or another key."""
    head, line, rest = data.partition(b"\n")  # the request of an API comes before its document
    try:
        document = json.loads(rest if line else data)
    except (ValueError, RecursionError):
        return _token(draw, data)
    places = list(_places(document)) if isinstance(document, dict | list) else []
    if not places:
        return _token(draw, data)
    node, key = draw.choice(places)
    other, its_key = draw.choice(places)
    what = draw.randrange(4)
    if what == 0 and isinstance(node, dict):
        node[draw.choice(("x", "", "\ud800", "y" * 100))] = node.pop(key)
    elif what == 1:
        del node[key]
    elif what == 2:
        node[key] = json.loads(_json(other[its_key]))
    else:
        node[key] = draw.choice(_VALUES)
    changed = _json(document)
    return head + line + changed if line else changed


def _flood(draw: Random, data: bytes) -> bytes:
    at = draw.randrange(len(data) + 1)
    return data[:at] + draw.choice(_FLOODS) + data[at:]


_BYTES = (_flip, _cut, _drop, _insert, _repeat)
_STRUCTURE = (_token, _line, _value)


def mutated(draw: Random, pool: list[bytes]) -> bytes:
    """One input: a seed, altered a few times."""
    data = draw.choice(pool)
    for _ in range(draw.choice((1, 1, 1, 2, 4))):
        chance = draw.random()
        if chance < 0.005:
            data = _flood(draw, data)
        elif chance < 0.05:
            data = _splice(draw, data, pool)
        else:
            data = draw.choice(_BYTES if chance < 0.5 else _STRUCTURE)(draw, data)
    return data


# ------------------------------------------------------------------------------------- manifest


def manifest() -> Target:
    """Terms or a ConfigError; a manifest that is accepted can be written and read again."""
    simulated = [
        b'name = "n"\nseed = 7\ngraph = "ring"\nagents = 3\n\n[model]\nname = "beta-bernoulli"\n'
        b"a = 2.0\nb = 2.0\n[timeouts]\nalive = 2.0\n",
        b'name = "n"\nagents = 4\nkept = 3\nmax_passes = 9\nschedule = "metropolis"\n'
        b'graph = {name = "erdos-renyi", p = 0.9}\n[model]\nname = "dirichlet-categorical"\n'
        b"classes = 3\nconcentration = [1.0, 2.0, 0.5]\nalpha = 2.0\n",
        b'name = "n"\nedges = [["a", "b"], ["b", "c"]]\n[model]\nname = "linear-regression"\n'
        b'features = ["dose", "age"]\nintercept = true\nscale = {dose = 0.5, age = 10.0}\n'
        b'[[agents]]\nname = "a"\ndata = "a.csv"\n[[agents]]\nname = "b"\n[[agents]]\nname = "c"\n',
        b'name = "n"\nagents = 2\ngraph = "path"\n[model]\nname = "multivariate-normal"\ndim = 2\n'
        b"kappa = 1.0\npsi = [[1.0, 0.0], [0.0, 1.0]]\nreduction = 'mean'\nbits = 20\n",
        b'name = "n"\nagents = 2\ngraph = "star"\n[model]\nname = "beta-exponential"\na = 3.0\n',
    ]

    def accepts(data: bytes) -> bool:
        try:
            found = Manifest.parse(data)
            found.terms()
        except ConfigError:
            return False
        again = Manifest.parse(found.to_toml().encode())
        assert again.to_toml() == found.to_toml()
        return True

    return Target([*simulated, (VECTORS / "network.toml").read_bytes()], accepts)


def agent_toml() -> Target:
    folder = Path(tempfile.mkdtemp())
    (folder / "network.toml").write_text(
        'name = "n"\nagents = 1\n[model]\nname = "beta-bernoulli"\n'
    )
    for name in ("north.csv", "d.db"):
        (folder / name).write_text("x\n")
    seeds = [
        b'network = "network.toml"\nname = "a1"\nlisten = "0.0.0.0:7400"\nmin_records = 10\n'
        b'auto_vote = false\nwatch = 0\nsolve_limit = 3600\nmetrics = "127.0.0.1:9400"\n'
        b'log = "human"\nlog_level = "info"\nlog_bytes = 10000000\nlog_files = 3\n\n[data]\n'
        b'path = "north.csv"\nkey = "id"\n',
        b'name = "a1"\n[data]\npath = "*.c[a-t]v"\n',
        b'name = "a1"\n[data]\ndatabase = "d.db"\nsql = "SELECT * FROM t"\ncolumns = {x = "y"}\n'
        b'delimiter = ";"\ndecimal = ","\n',
    ]

    def accepts(data: bytes) -> bool:
        (folder / "agent.toml").write_bytes(data)
        try:
            found = AgentFolder.read(folder)
            found.config.data.files(folder, found.config.name)
        except (ConfigError, DataError):
            return False
        return True

    return Target(seeds, accepts)


def keys_file() -> Target:
    file = Path(tempfile.mkdtemp()) / "keys.txt"

    def accepts(data: bytes) -> bool:
        file.write_bytes(data)
        try:
            keys = read_keys(file)
        except ConfigError:
            return False
        assert keys
        assert all(key and "\n" not in key for key in keys)
        return True

    return Target([b"one\ntwo\n3\n", "\ufeffé\r\nzwölf\r\n".encode(), b"k\n" * 500], accepts)


# ------------------------------------------------------------------------------------- certificate


def certificate() -> Target:
    under = load(VECTORS / "network.toml")
    terms, check = under.terms(), verifier(under.pems())

    def accepts(data: bytes) -> bool:
        try:
            json.dumps(verify(data, terms, check).to_dict(), allow_nan=False)
        except (NotACertificate, NotCertified):
            return False
        return True

    whole = (VECTORS / "certificate.json").read_bytes()
    return Target([whole, json.dumps(json.loads(whole), indent=1).encode()], accepts)


def statements() -> Target:
    """A certificate whose payloads are plain JSON here, and whose signatures all hold: alterations
    reach what is signed."""
    terms = load(VECTORS / "network.toml").terms()

    def opened(node: Any) -> Any:
        if isinstance(node, dict) and "payload" in node:
            return node | {"payload": json.loads(base64.b64decode(node["payload"]))}
        return node

    def closed(node: Any) -> Any:
        if isinstance(node, list):
            return [closed(one) for one in node]
        if not isinstance(node, dict):
            return node
        found = {key: closed(value) for key, value in node.items()}
        if "payload" in found:
            raw = json.dumps(found["payload"], sort_keys=True, separators=(",", ":")).encode()
            found["payload"] = base64.b64encode(raw).decode()
        return found

    def accepts(data: bytes) -> bool:
        try:
            raw = _json(closed(json.loads(data)))
        except (ValueError, RecursionError):
            return False
        try:
            verify(raw, terms, lambda agent, payload, signature: True)
        except (NotACertificate, NotCertified):
            return False
        return True

    whole = json.loads((VECTORS / "certificate.json").read_bytes(), object_hook=opened)
    return Target([_json(whole)], accepts)


# -------------------------------------------------------------------------------------------- wire


_PLAIN, _MASKED = small_terms(), small_terms(privacy="masked")


def _messages(count: int) -> list[bytes]:
    """Of networks in both modes: of one form, until an agent compares them with its terms."""
    draw = Random(1)
    return [
        encode(make(draw, terms), terms)
        for make in MESSAGES.values()
        for terms in (_PLAIN, _MASKED)
        for _ in range(count)
    ]


def message() -> Target:
    """What is read as a message can be written, and is then read as the same bytes."""
    terms = _MASKED

    def accepts(data: bytes) -> bool:
        try:
            found = decode(data, terms)
        except WireError:
            return False
        written = encode(found, terms)
        assert encode(decode(written, terms), terms) == written
        return True

    return Target(_messages(10), accepts)


def envelope() -> Target:
    terms = _MASKED

    def accepts(data: bytes) -> bool:
        try:
            sender, payload = open_message(data, terms, lambda a, p, s: s.startswith(b"signed"))
            decode(payload, terms)
        except WireError:
            return False
        assert 0 <= sender < terms.size
        return True

    return Target([sign_message(m, 1, lambda p: b"signed") for m in _messages(5)], accepts)


def chunks() -> Target:
    """One envelope in chunks, which the separator divides."""
    between, limit = b"\n--\n", 60

    def accepts(data: bytes) -> bool:
        assembly = Assembly(limit)
        try:
            for chunk in data.split(between):
                assembly.add(chunk)
        except WireError:
            return False
        if assembly.complete:
            assert len(assembly.take()) == assembly.total <= limit
        return True

    draw = Random(1)
    envelopes = [draw.randbytes(draw.randrange(1, limit)) for _ in range(20)]
    return Target([between.join(split(e, s)) for e in envelopes for s in (1, 7, 20, 100)], accepts)


# ------------------------------------------------------------------------------------------- store

_STORE_TERMS, _ME = small_terms(agents=3, dim=2, privacy="masked"), 1


def _store(path: Path, seed: int) -> bytes:
    """The file of a store with some history, without a log beside it."""
    draw, at = Random(seed), State(_STORE_TERMS, _ME)
    with SqliteStore.open(path, _STORE_TERMS, _ME) as store:
        for step in range(4):
            after = state(draw, _STORE_TERMS, _ME, at if step else None)
            store.commit(at, after)
            at = after
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA journal_mode = DELETE")
    db.close()
    return path.read_bytes()


class _Believing(RowMacs):
    """MACs that hold, as if the owner of the key had written every row."""

    def read(self, mac: bytes, table: str, key: Hashable, *values: Any) -> None:
        self.write(table, key, *values)

    def check(self, mac: bytes, *values: Any) -> None:
        pass


def _loads(path: Path, macs: type[RowMacs] = RowMacs) -> bool:
    try:
        with explained(path):
            inspect(path, _STORE_TERMS, _ME, macs(b""), MIGRATIONS)
    except StoreError:
        return False
    return True


def store_file() -> Target:
    """A whole file: altered, cut, of another program."""
    path = Path(tempfile.mkdtemp()) / "store.db"
    seeds = [_store(path.with_name(f"{seed}.db"), seed) for seed in range(4)]

    def accepts(data: bytes) -> bool:
        path.write_bytes(data)
        return _loads(path)

    return Target(seeds, accepts)


_KINDS: tuple[Callable[[bytes], Any], ...] = (
    bytes,
    lambda raw: int.from_bytes(raw[:8], "little", signed=True),
    lambda raw: raw.decode(errors="replace"),
    lambda raw: float(int.from_bytes(raw[:9], "little", signed=True)),
    lambda raw: None,
)


def _as_bytes(value: Any) -> tuple[int, bytes]:
    """The type of a value, as a place in `_KINDS`, and its bytes."""
    if isinstance(value, bytes):
        return 0, value
    if isinstance(value, int):
        return 1, value.to_bytes(8, "little", signed=True)
    return (2, value.encode()) if isinstance(value, str) else (4, b"")


def _row_key(table: str) -> str:
    return "name" if table == "part" else "rowid"  # the one table without row ids


def store_rows() -> Target:
    """One value of one row. The MACs are taken to hold, as if the owner of the key had written it.
    An input is the number of the value (two bytes), its type (one) and its bytes."""
    path = Path(tempfile.mkdtemp()) / "store.db"
    image = _store(path.with_name("seed.db"), 1)
    cells: list[tuple[str, int, str]] = []
    seeds = []
    with sqlite3.connect(path.with_name("seed.db")) as db:
        for (table,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'"):
            names = [column[1] for column in db.execute(f"PRAGMA table_info({table})")]
            sql = f"SELECT * FROM {table} ORDER BY {_row_key(table)}"
            for number, row in enumerate(db.execute(sql).fetchall()):
                for name, value in zip(names, row, strict=True):
                    kind, raw = _as_bytes(value)
                    seeds.append(len(cells).to_bytes(2, "big") + bytes([kind]) + raw)
                    cells.append((table, number, name))
    db.close()

    def accepts(data: bytes) -> bool:
        head, raw = data[:3].ljust(3, b"\0"), data[3:]
        table, number, name = cells[int.from_bytes(head[:2], "big") % len(cells)]
        value = _KINDS[head[2] % len(_KINDS)](raw)
        db = sqlite3.connect(":memory:", isolation_level=None)
        db.deserialize(image)
        key = _row_key(table)
        at = f"SELECT {key} FROM {table} ORDER BY {key} LIMIT 1 OFFSET {number}"
        try:
            db.execute("PRAGMA ignore_check_constraints = ON")
            db.execute(f"UPDATE {table} SET {name} = ? WHERE {key} = ({at})", (value,))
            path.write_bytes(db.serialize())
        except (sqlite3.Error, UnicodeEncodeError, OverflowError):
            return False  # no such row can be made
        finally:
            db.close()
        return _loads(path, _Believing)

    return Target(seeds, accepts)


# -------------------------------------------------------------------------------------- control API


def control() -> Target:
    """A request of the operator, `METHOD PATH` and the body after a line break. An answer is JSON,
    and never says that the agent has a fault. What is asked for is not carried out."""
    from tests.support.nodes import QUICK, nodes, until
    from tests.support.processes import Processes
    from unweave.node.agent import open_data
    from unweave.node.api.server import Api
    from unweave.node.data.watch import DataWatch

    runner = asyncio.Runner()
    net = Processes(Path(tempfile.mkdtemp()) / "net", agents=1, timeouts=QUICK)

    running = nodes(net)

    async def start() -> Api:
        node = (await running.__aenter__())["a1"]
        await until(lambda: node.phase == "parked")
        data = open_data(node.folder, node.identity)
        return Api(node, data, DataWatch(node, data))

    async def nothing(*_: Any) -> list[Any]:
        return []

    api = runner.run(start())
    setattr(api.node, "tell", nothing)  # noqa: B010

    async def call(method: str, target: bytes, body: bytes) -> tuple[int, bytes]:
        path, _, query = target.partition(b"?")
        scope = {
            "type": "http",
            "method": method,
            "path": path.decode(errors="replace"),
            "raw_path": path,
            "query_string": query,
            "headers": [],
        }
        sent: list[MutableMapping[str, Any]] = []
        parts = [body[at : at + 65536] for at in range(0, len(body), 65536)] or [b""]

        async def receive() -> dict[str, Any]:
            part = parts.pop(0) if parts else b""
            return {"type": "http.request", "body": part, "more_body": bool(parts)}

        async def send(one: MutableMapping[str, Any]) -> None:
            sent.append(one)

        await api.app(scope, receive, send)
        return sent[0]["status"], b"".join(one.get("body", b"") for one in sent[1:])

    def accepts(data: bytes) -> bool:
        head, _, body = data.partition(b"\n")
        method, _, target = head.partition(b" ")
        if target.startswith((b"/stop", b"/wait", b"/backup")):
            return False  # they take time, not parameters
        code, text = runner.run(call(method.decode(errors="replace"), target, body))
        assert code in (200, 307, 400, 404, 405, 409, 413), (code, text)
        assert api.node.phase == "parked", running  # while it is referred to, the agent runs
        if code not in (307, 404, 405) and target not in (b"/metrics", b"/healthz"):
            json.loads(text)
        return code == 200

    key = "1" * 32
    seeds = [
        b'POST /erasures\n{"keys": ["a1-0", "a1-1"]}',
        b'POST /erasures\n{"keys": ["gone", 17], "missing_ok": true, "whole": false}',
        b'POST /erasures\n{"whole": true}',
        f'POST /erasures\n{{"whole": true, "request": "{"0" * 32}"}}'.encode(),
        b"POST /wake\n{}",
        f"GET /erasures/{key}".encode(),
        b"GET /posterior?everything=true&erasures=1",
        b"GET /status",
        b"GET /forgotten",
        b"GET /healthz",
    ]
    return Target(seeds, accepts)


TARGETS: dict[str, Callable[[], Target]] = {
    "manifest": manifest,
    "agent.toml": agent_toml,
    "keys-file": keys_file,
    "certificate": certificate,
    "statements": statements,
    "message": message,
    "envelope": envelope,
    "chunks": chunks,
    "store-file": store_file,
    "store-rows": store_rows,
    "control": control,
}


# ------------------------------------------------------------------------------------------ running


def run(target: Target, count: int, seed: int) -> int:
    """How many of `count` inputs were accepted; an input with a finding is written to a file."""
    draw = Random(seed)
    accepted = 0
    pool = list(target.seeds)
    for one in pool:
        assert target.accepts(one), one[:200]
    for number in range(count):
        data = mutated(draw, pool)
        signal.setitimer(signal.ITIMER_PROF, _SECONDS)
        try:
            found = target.accepts(data)
        except BaseException:
            file = Path(tempfile.mkdtemp()) / "input"
            file.write_bytes(data)
            sys.stderr.write(f"input {number} of seed {seed}: {file}\n")
            raise
        accepted += found
        if found and len(data) < 100_000 and draw.random() < 0.05:
            # A second alteration of an accepted one goes deeper. The pool stays small.
            pool[len(target.seeds) :] = [*pool[len(target.seeds) :][-200:], data]
    signal.setitimer(signal.ITIMER_PROF, 0)
    return accepted


def _limit_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + _MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def _late(*_: object) -> None:
    raise TimeoutError(f"one input took more than {_SECONDS} s of CPU time")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.support.parsers", description=__doc__)
    parser.add_argument("target", choices=list(TARGETS))
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    place = tempfile.mkdtemp()
    tempfile.tempdir = place
    try:
        target = TARGETS[options.target]()
        _limit_memory()
        signal.signal(signal.SIGPROF, _late)
        accepted = run(target, options.count, options.seed)
        sys.stdout.write(f"{options.count} inputs, {accepted} accepted\n")
    finally:
        with suppress(OSError):
            shutil.rmtree(place)


if __name__ == "__main__":
    main()
