"""An agent's private records: they stay in their files, and only what a model needs comes out.

A conjugate model's statistics are summed by the engine that reads the file, or in batches; a loss
model's records are loaded. Every call reads the files as they are now, so new rows count, and the
records behind `dropped` (commitments to keys) do not exist, however often they are written again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, closing, suppress
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from unweave.errors import ConfigError, DataError, GridOverflow, UnweaveError
from unweave.grid import Ints
from unweave.models import ConjugateModel, Model, Shard
from unweave.models.resolution import Measured, rounding_problem, sum_problem, weighted
from unweave.node.data.commitments import KEY_FILE, Key, canonical, check_key, commitment
from unweave.node.data.diagnostics import refusal
from unweave.node.data.duckdb_reader import open_duck
from unweave.node.data.reader import Reader, Selection, Sums, checked, mended
from unweave.node.data.source import DataSource, is_sqlite
from unweave.node.data.sqlite_reader import open_sqlite
from unweave.node.errors import BadData, BadSum
from unweave.text import listed, quote

__all__ = ["MIN_RECORDS", "SEEN_FILE", "DataSource", "PrivateData", "check_records"]


T = TypeVar("T")
Floats = NDArray[np.float64]

MIN_RECORDS = 10
SEEN_FILE = "data.seen"  # which version of the files was learned from (`freshness`)

_NOTHING: frozenset[bytes] = frozenset()
_CELLS = 1 << 18  # per chunk: what a batch holds in memory, whatever its number of columns


class PrivateData:
    """The records of one agent, as its model sees them.

    `folder` is the agent's, `secret` is derived from its identity and keys the commitments.
    `threads` and `chunk` (records at a time) change the speed, never a result. `agents` is the size
    of the network: rounding that biases every agent's result a little biases theirs together more,
    by the square root of their number in standard deviations.
    """

    def __init__(
        self,
        folder: str | Path,
        source: DataSource,
        model: Model,
        agent: str,
        secret: bytes,
        *,
        threads: int = 2,
        chunk: int | None = None,
        agents: int = 1,
    ) -> None:
        unknown = [name for name in source.columns if name not in model.columns]
        if unknown:
            raise ConfigError(
                f"agent {agent!r}: [data] columns names {unknown[0]!r}, which the model does not "
                f"have; its columns are {listed(map(repr, model.columns), 12)}"
            )
        self.agent = agent
        self.model = model
        self.source = source
        self._folder = Path(folder).absolute()
        self._secret = secret
        self._threads = threads
        self._share = agents**-0.5
        self._chunk = chunk or max(1, _CELLS // len(model.columns))
        names = tuple(source.column(name) for name in model.columns)
        self._selection = Selection(agent, model, names, source.key)
        self._resolved: tuple[str, frozenset[bytes], frozenset[str]] | None = None
        self._seen: str | None = None
        self._ready: tuple[str, frozenset[bytes], int, Ints] | None = None

    # -- what comes out ---------------------------------------------------------------------------

    def check(self, dropped: frozenset[bytes] = _NOTHING) -> int:
        """The number of records, all of them sound and none distorted by the grid; else DataError
        for the first that is not sound, or for rounding that would move a result."""
        self._seen = self.fingerprint()
        if isinstance(self.model, ConjugateModel):
            n, units = self._steady(self._examined, dropped)
            self._ready = (self._seen, dropped, n, units)
        else:
            n = self._steady(self._sound, dropped)
        if n == 0 and not dropped:
            raise BadData(
                f"agent {self.agent!r} has no records",
                "give it at least one, or leave it out of the network; if it has contributed, "
                f"erase that: unweave forget … {quote(self.agent)}",
            )
        return n

    def count(self, dropped: frozenset[bytes] = _NOTHING) -> int:
        """How many records are left."""
        return self._steady(lambda reader, gone: reader.count(gone), dropped)

    def totals(self, dropped: frozenset[bytes] = _NOTHING) -> tuple[int, Ints]:
        """The number of records and their statistics, from one look at the files; from the one that
        `check` took, if they are the same and this is the first time that they are asked for."""
        ready, self._ready = self._ready, None
        if ready is not None and ready[:2] == (self.fingerprint(), dropped):
            return ready[2:]
        return self._steady(self._totals, dropped)

    def statistics(self, dropped: frozenset[bytes] = _NOTHING) -> Ints:
        """Σ of the rounded record statistics: `model.statistics` of the same records."""
        return self.totals(dropped)[1]

    def factor(self, dropped: frozenset[bytes] = _NOTHING) -> Ints:
        """The agent's factor: `model.factor` of the same records, zero if none is left."""
        n, units = self.totals(dropped)
        return self.model.grid.rescale(units, self.model.weight(n))

    def shard(self, dropped: frozenset[bytes] = _NOTHING) -> Shard:
        """The records in memory, in the order of the files."""
        return Shard(self.agent, self._steady(self._loaded, dropped))

    def empty(self) -> Shard:
        """A shard without records."""
        return Shard(self.agent, np.empty((0, len(self.model.columns))))

    def admit(self, least: int = MIN_RECORDS) -> int:
        """The number of records, sound and not so few that their statistics would tell about
        single ones; else DataError."""
        n = self.check()
        check_records(self.agent, n, least)
        return n

    def measured(self, dropped: frozenset[bytes] = _NOTHING) -> Measured:
        """The agent's factor, and what rounding has added to it."""
        sums = self._steady(self._sums, dropped)
        return weighted(self._conjugate(), *sums)

    # -- keys and changes -------------------------------------------------------------------------

    def commit_keys(self, keys: Iterable[Key]) -> tuple[frozenset[bytes], tuple[Key, ...]]:
        """The commitments of the keys that the records have, and the keys that they do not."""
        self._need_key()
        return self._commit(keys, lambda asked: self._steady(lambda r, _: r.known(asked), _NOTHING))

    def commit_absent(self, keys: Iterable[Key]) -> tuple[frozenset[bytes], tuple[Key, ...]]:
        """The commitments of keys that no record has: what was deleted from the data is not to come
        back. And the keys that no record could ever have."""
        return self._commit(keys, lambda asked: asked)

    def _commit(
        self, keys: Iterable[Key], known_of: Callable[[frozenset[str]], frozenset[str]]
    ) -> tuple[frozenset[bytes], tuple[Key, ...]]:
        texts = {key: canonical(key) for key in keys}
        known = known_of(frozenset(t for t in texts.values() if t is not None and _plain(t)))
        if known:  # from now on they are known by this column
            check_key(self._folder, self._need_key(), self.agent)
        unknown = tuple(key for key, text in texts.items() if text not in known)
        return frozenset(commitment(self._secret, text) for text in known), unknown

    def named(self) -> tuple[int, int]:
        """How many records have no key, and how many repeat another's; none without a key."""
        if self.source.key is None:
            return 0, 0
        return self._steady(lambda reader, _: reader.named(), _NOTHING)

    def fingerprint(self) -> str:
        """Changes when a file does, at the cost of looking at its size and time."""
        return self.source.fingerprint(self._folder, self.agent)

    def refresh(self) -> bool:
        """Whether the files have changed since they were checked, or this was last asked."""
        before, self._seen = self._seen, self.fingerprint()
        return self._seen != before

    def let_go(self, *, whole: bool) -> None:
        """Keep nothing of records that were erased: neither sums nor keys in memory, nor (of all of
        them) what the files looked like."""
        self._ready = self._resolved = None
        if whole:
            for name in (SEEN_FILE, KEY_FILE):
                with suppress(OSError):
                    (self._folder / name).unlink()

    # -- how --------------------------------------------------------------------------------------

    def _open(self) -> AbstractContextManager[Reader]:
        files = self.source.files(self._folder, self.agent)
        if self.source.sql is not None and is_sqlite(files[0], self.agent):
            return open_sqlite(files[0], self.source.sql, self._selection)
        return open_duck(self._folder, self.source, files, self._selection, self._threads)

    def _steady(self, work: Callable[[Reader, frozenset[str]], T], dropped: frozenset[bytes]) -> T:
        """`work` on files that did not change meanwhile: a second try, then an error."""
        for _ in range(2):
            before = self.fingerprint()
            with self._open() as reader:
                result = work(reader, self._gone(reader, dropped, before))
            if self.fingerprint() == before:
                return result
        raise DataError(
            f"agent {self.agent!r}: the data change while they are read: write to another file and "
            "rename it when it is complete"
        )

    def _gone(self, reader: Reader, dropped: frozenset[bytes], state: str) -> frozenset[str]:
        """The keys behind the commitments, found by hashing every key of the files once."""
        if not dropped:
            return frozenset()
        check_key(self._folder, self._need_key(), self.agent)
        known = self._resolved
        if known is None or known[:2] != (state, dropped):
            known = (state, dropped, reader.committed(dropped, self._secret))
            self._resolved = known
        return known[2]

    def _need_key(self) -> str:
        if self.source.key is None:
            raise DataError(
                f"agent {self.agent!r}: single records are erased by their key, but [data] in "
                'agent.toml names no key column (key = "…")'
            )
        return self.source.key

    def _conjugate(self) -> ConjugateModel:
        if not isinstance(self.model, ConjugateModel):
            name = self.model.name
            raise ConfigError(f"{name} is not conjugate: its factor comes from a solver")
        return self.model

    def _sums(self, reader: Reader, gone: frozenset[str]) -> Sums:
        model = self._conjugate()
        try:
            found = reader.sums(model, gone, self._chunk)
        except GridOverflow:
            found = None
        if found is None:
            raise self._refusal(reader, gone)
        whose = f"the {found.n} records of agent {self.agent!r}"
        problem = sum_problem(model, found.units, whose)
        if problem is not None:
            fix = self._scale(reader, gone) if any(model.resolution) else problem[1]
            raise BadSum(problem[0], fix, ". Fix: ")
        return found

    def _totals(self, reader: Reader, gone: frozenset[str]) -> tuple[int, Ints]:
        found = self._sums(reader, gone)
        return found.n, self.model.grid.units(found.units)

    def _examined(self, reader: Reader, gone: frozenset[str]) -> tuple[int, Ints]:
        """As `_totals`; refused if rounding would move what this agent alone would learn."""
        found = self._sums(reader, gone)
        problem = rounding_problem(self.model, weighted(self._conjugate(), *found), self._share)
        if problem is not None:
            fix = self._scale(reader, gone)
            raise BadData(f"agent {self.agent!r}: {problem}", fix, ". Fix: ")
        return found.n, self.model.grid.units(found.units)

    def _scale(self, reader: Reader, gone: frozenset[str]) -> str:
        return mended(reader, self._conjugate(), gone, self._chunk, self._share)

    def _sound(self, reader: Reader, gone: frozenset[str]) -> int:
        return sum(len(rows) for rows in self._chunks(reader, gone))

    def _loaded(self, reader: Reader, gone: frozenset[str]) -> Floats:
        return np.concatenate([self.empty().rows, *self._chunks(reader, gone, ordered=True)])

    def _chunks(
        self, reader: Reader, gone: frozenset[str], ordered: bool = False
    ) -> Iterator[Floats]:
        """The records in chunks, each checked before the model sees it."""
        with closing(reader.batches(gone, self._chunk, ordered)) as batches:
            for batch in batches:
                if not checked(self.model, batch.rows):
                    break
                yield batch.rows
            else:
                return
        raise self._refusal(reader, gone)

    def _refusal(self, reader: Reader, gone: frozenset[str]) -> UnweaveError:
        changing = f"agent {self.agent!r}: the data change while they are read"
        return refusal(reader, self._selection, gone, self._chunk) or DataError(changing)


def check_records(agent: str, n: int, least: int = MIN_RECORDS) -> None:
    """DataError if `n` records are fewer than `least`: neighbours can see an agent's statistics."""
    if n < least:
        raise BadData(
            f"agent {agent!r} has {n} record{'s' if n != 1 else ''}, fewer than min_records = "
            f"{least}: its neighbours can see the sum of its statistics, which tells much "
            "about so few",
            "add records, or set min_records in agent.toml if that is acceptable",
            "; ",
        )


def _plain(text: str) -> bool:
    """Whether a text can be in a file at all: escaped bytes of a command line cannot."""
    return not any("\ud800" <= c <= "\udfff" for c in text)
