"""Access to an agent's private records.

The records stay in their files. For a conjugate model, the engine that reads the file sums the
statistics, or the reader sums them in batches. For a loss model, the records are loaded. Every call
reads the files in their present state, so new rows count. Every call skips the records whose keys
have a commitment in `dropped`, also if these records are written to the files again.
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
from unweave.models import ConjugateModel, Data, Model, Shard
from unweave.models.resolution import Measured, rounding_problem, sum_problem, weighted
from unweave.models.shards import Missing
from unweave.node.data.commitments import KEY_FILE, Key, canonical, check_key, commitment
from unweave.node.data.diagnostics import refusal
from unweave.node.data.duckdb_reader import open_duck
from unweave.node.data.reader import Reader, Selection, Sums, checked, mended
from unweave.node.data.source import SEEN_FILE, DataSource, is_sqlite
from unweave.node.data.sqlite_reader import open_sqlite
from unweave.node.errors import BadData, BadSum
from unweave.text import listed, quote

__all__ = ["MIN_RECORDS", "DataSource", "PrivateData", "check_records"]


T = TypeVar("T")
Floats = NDArray[np.float64]
WatchReading = Callable[[str, frozenset[str]], object]
"""Called with the fingerprint of the files and the erased keys that a reader met and skipped."""

MIN_RECORDS = 10

_NOTHING: frozenset[bytes] = frozenset()
_MOST_CELLS = 1 << 22  # cells of all records together, in memory: 32 MB
_CELLS = 1 << 18  # cells of one batch in memory, for any number of columns


class PrivateData:
    """The records of one agent, with the columns of its model.

    `folder` is the agent's folder. `secret` is derived from the agent's identity and is the HMAC
    key of the commitments. `threads` and `chunk` (records per batch) change the speed, never a
    result. `agents` is the number K of agents in the network. A rounding bias that all agents share
    is larger in the common result by a factor of √K, in standard deviations. `small_shards` allows
    fewer records than the model requires for a factor that others see.
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
        small_shards: bool = False,
    ) -> None:
        if unknown := [name for name in source.columns if name not in model.inputs]:
            raise ConfigError(
                f"agent {agent!r}: [data] columns names {unknown[0]!r}, which the model does not "
                f"have; its columns are {listed(map(repr, model.inputs), 12)}"
            )
        self.agent = agent
        self.model = model
        self.source = source
        self._folder = Path(folder).absolute()
        self._secret = secret
        self._threads = threads
        self._share = agents**-0.5
        self._small_shards = small_shards
        self._chunk = chunk or max(1, _CELLS // len(model.columns))
        self._selection = Selection.of(agent, model, source, source.columns)
        self.missing: Missing | None = None
        """The records that the last reading left out; None before it, and if none may be."""
        self.clipped = 0
        """The records outside of the declared bounds, in the last sum (differential privacy)."""
        self._resolved: tuple[str, frozenset[bytes], frozenset[str]] | None = None
        self._seen: str | None = None
        self._ready: tuple[str, frozenset[bytes], int, Ints] | None = None
        self._loaded_data: tuple[str, frozenset[bytes], Data] | None = None
        self.watch_reading: WatchReading | None = None

    def check(self, dropped: frozenset[bytes] = _NOTHING) -> int:
        """The number of records, all valid; DataError for the first invalid record, or if rounding
        to the grid would change a result."""
        self._seen = self.fingerprint()
        if isinstance(self.model, ConjugateModel):
            n, units = self._steady(self._examined, dropped)
            self._ready = (self._seen, dropped, n, units)
        else:
            n = self.shard(dropped).n  # every record was checked; the first visit reads no file
        if n == 0 and not dropped:
            lost = f": {self.missing}" if self.missing and self.missing.records else ""
            raise BadData(
                f"agent {self.agent!r} has no records{lost}",
                "give it at least one, or leave it out of the network; if it has contributed, "
                f"erase that: unweave forget … {quote(self.agent)}",
            )
        return n

    def count(self, dropped: frozenset[bytes] = _NOTHING) -> int:
        """The number of remaining records."""
        return self._steady(lambda reader, erased: reader.count(erased), dropped)

    def totals(self, dropped: frozenset[bytes] = _NOTHING) -> tuple[int, Ints]:
        """The number of records and their statistics, from one pass over the files.

        The first call after `check` uses the result of `check`, if the files have not changed.
        """
        ready, self._ready = self._ready, None
        if ready is not None and ready[:2] == (self.fingerprint(), dropped):
            return ready[2:]
        return self._steady(self._totals, dropped)

    def statistics(self, dropped: frozenset[bytes] = _NOTHING) -> Ints:
        """Σ of the rounded record statistics: `model.statistics` of the same records."""
        return self.totals(dropped)[1]

    def factor(self, dropped: frozenset[bytes] = _NOTHING) -> Ints:
        """The agent's factor: `model.factor` of the same records, zero if no record remains."""
        n, units = self.totals(dropped)
        assert isinstance(self.model, ConjugateModel)  # `totals` refuses others
        return self.model.finished(units, n)

    def shard(self, dropped: frozenset[bytes] = _NOTHING) -> Data:
        """The records, in the order of the files. They are read once for as long as neither the
        files nor `dropped` change; records that would fill the memory are read in batches."""
        key, known = (self.fingerprint(), dropped), self._loaded_data
        if known is None or known[:2] != key:
            self._loaded_data = None  # frees the old records before the new ones are read
            found = self._steady(self._loaded, dropped)
            data: Data = _Streamed(self, dropped, found) if isinstance(found, int) else found
            known = self._loaded_data = (*key, data)
        return known[2]

    def stream(self, dropped: frozenset[bytes]) -> Iterator[Floats]:
        """The records in batches, from the files."""
        before = self.fingerprint()
        with self._open() as reader:
            yield from self._chunks(
                reader, self._erased_keys(reader, dropped, before), ordered=True
            )
        if self.fingerprint() != before:
            raise DataError(f"agent {self.agent!r}: the data change while they are read")

    def empty(self) -> Shard:
        """A shard without records."""
        return Shard(self.agent, np.empty((0, len(self.model.columns))))

    def admit(self, least: int = MIN_RECORDS) -> int:
        """The number of records; DataError if a record is invalid or there are fewer than `least`.

        The statistics of very few records would reveal single records.
        """
        n = self.check()
        check_records(self.agent, n, least)
        needed = 1 if self._small_shards else self.model.min_records()
        if n < needed:
            raise BadData(
                f"agent {self.agent!r} has {n} records, fewer than the {needed} that "
                f"{self.model.name} needs: {self.model.disclosure()}",
                'add records, or let all agents agree: small_shards = "neighbours can reconstruct '
                'records" in network.toml',
                ". Fix: ",
            )
        return n

    def measured(self, dropped: frozenset[bytes] = _NOTHING) -> Measured:
        """The agent's factor and its rounding error."""
        sums = self._steady(self._sums, dropped)
        return weighted(self._conjugate(), sums.n, sums.units, sums.added)

    def commit_keys(
        self, keys: Iterable[Key], *, write: bool = True
    ) -> tuple[frozenset[bytes], tuple[Key, ...]]:
        """The commitments to the keys that occur in the records, and the keys that do not occur.
        `write`: from now on the key column must stay (`check_key`)."""
        self._need_key()

        def known(asked: frozenset[str]) -> frozenset[str]:
            return self._steady(lambda reader, _: reader.known(asked), _NOTHING)

        return self._commit(keys, known, write)

    def commit_absent(
        self, keys: Iterable[Key], *, write: bool = True
    ) -> tuple[frozenset[bytes], tuple[Key, ...]]:
        """The commitments to keys that need not occur in the records, so that deleted records
        cannot return; and the keys that cannot occur in any record."""
        return self._commit(keys, lambda asked: asked, write)

    def _commit(
        self,
        keys: Iterable[Key],
        known_of: Callable[[frozenset[str]], frozenset[str]],
        write: bool,
    ) -> tuple[frozenset[bytes], tuple[Key, ...]]:
        texts = {key: canonical(key) for key in keys}
        known = known_of(frozenset(t for t in texts.values() if t is not None and _plain(t)))
        if known:  # records that are erased by one key column must keep that column
            check_key(self._folder, self._need_key(), self.agent, write=write)
        unknown = tuple(key for key, text in texts.items() if text not in known)
        return frozenset(commitment(self._secret, text) for text in known), unknown

    def named(self) -> tuple[int, int]:
        """How many records have no key, and how many repeat a key; (0, 0) without a key column."""
        if self.source.key is None:
            return 0, 0
        return self._steady(lambda reader, _: reader.named(), _NOTHING)

    def fingerprint(self) -> str:
        """A digest of the files' names, sizes and times; see `DataSource.fingerprint`."""
        return self.source.fingerprint(self._folder, self.agent)

    def refresh(self) -> bool:
        """Whether the files changed since the last `check` or `refresh`."""
        before, self._seen = self._seen, self.fingerprint()
        return self._seen != before

    def let_go(self, *, whole: bool) -> None:
        """Delete cached sums and keys after an erasure; if `whole`, also `data.seen` and
        `data.key`, because every record was erased."""
        self._ready = self._resolved = self._loaded_data = None
        if whole:
            for name in (SEEN_FILE, KEY_FILE):
                with suppress(OSError):
                    (self._folder / name).unlink()

    def _open(self) -> AbstractContextManager[Reader]:
        files = self.source.files(self._folder, self.agent)
        sql = self.source.sql
        if self.source.database is not None and sql and is_sqlite(files[0], self.agent):
            return open_sqlite(files[0], sql, self._selection)
        return open_duck(self._folder, self.source, files, self._selection, self._threads)

    def _steady(self, work: Callable[[Reader, frozenset[str]], T], dropped: frozenset[bytes]) -> T:
        """Run `work`; repeat it once if the files changed meanwhile, then raise DataError."""
        for _ in range(2):
            before = self.fingerprint()
            with self._open() as reader:
                result = work(reader, self._erased_keys(reader, dropped, before))
            if self.fingerprint() == before:
                return result
        raise DataError(
            f"agent {self.agent!r}: the data change while they are read: write to another file and "
            "rename it when it is complete"
        )

    def _erased_keys(
        self, reader: Reader, dropped: frozenset[bytes], fingerprint: str
    ) -> frozenset[str]:
        """The keys of the commitments, found by hashing every key of the files once."""
        if not dropped:
            return frozenset()
        check_key(self._folder, self._need_key(), self.agent)
        known = self._resolved
        if known is None or known[:2] != (fingerprint, dropped):
            known = (fingerprint, dropped, reader.committed(dropped, self._secret))
            self._resolved = known
        if self.watch_reading is not None:
            self.watch_reading(fingerprint, known[2])
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

    def _sums(self, reader: Reader, erased: frozenset[str]) -> Sums:
        model = self._conjugate()
        try:
            found = reader.sums(model, erased, self._chunk)
        except GridOverflow:
            found = None
        if found is None:
            raise self._refusal(reader, erased)
        whose = f"the {found.n} records of agent {self.agent!r}"
        problem = sum_problem(model, found.units, whose)
        if problem is not None:
            fix = self._scale(reader, erased) if any(model.resolution) else problem[1]
            raise BadSum(problem[0], fix, ". Fix: ")
        self._count_missing(reader, erased)
        self.clipped = found.clipped
        return found

    def _count_missing(self, reader: Reader, erased: frozenset[str]) -> None:
        if self._selection.drop:
            self.missing = reader.missing(erased)

    def _totals(self, reader: Reader, erased: frozenset[str]) -> tuple[int, Ints]:
        found = self._sums(reader, erased)
        return found.n, self.model.grid.units(found.units)

    def _examined(self, reader: Reader, erased: frozenset[str]) -> tuple[int, Ints]:
        """As `_totals`; DataError if rounding would change the result of this agent alone."""
        found = self._sums(reader, erased)
        measured = weighted(self._conjugate(), found.n, found.units, found.added)
        problem = rounding_problem(self.model, measured, self._share)
        if problem is not None:
            fix = self._scale(reader, erased)
            raise BadData(f"agent {self.agent!r}: {problem}", fix, ". Fix: ")
        return found.n, self.model.grid.units(found.units)

    def _scale(self, reader: Reader, erased: frozenset[str]) -> str:
        return mended(reader, self._conjugate(), erased, self._chunk, self._share)

    def _loaded(self, reader: Reader, erased: frozenset[str]) -> Shard | int:
        """All records; only their number if they would fill the memory."""
        kept: list[Floats] = [self.empty().rows]
        cells = n = 0
        self._count_missing(reader, erased)
        for rows in self._chunks(reader, erased, ordered=True):
            n, cells = n + len(rows), cells + rows.size
            if cells <= _MOST_CELLS:
                kept.append(rows)
            else:
                kept.clear()
        return Shard(self.agent, np.concatenate(kept)) if kept else n

    def _chunks(
        self, reader: Reader, erased: frozenset[str], ordered: bool = False
    ) -> Iterator[Floats]:
        """The records in chunks; each chunk is checked before it is returned."""
        with closing(reader.batches(erased, self._chunk, ordered)) as batches:
            for batch in batches:
                if not checked(self.model, batch.rows):
                    break
                yield batch.rows
            else:
                return
        raise self._refusal(reader, erased)

    def _refusal(self, reader: Reader, erased: frozenset[str]) -> UnweaveError:
        changing = f"agent {self.agent!r}: the data change while they are read"
        return refusal(reader, self._selection, erased, self._chunk) or DataError(changing)


class _Streamed(Data):
    """Records that are read from their files for every pass over them."""

    def __init__(self, source: PrivateData, dropped: frozenset[bytes], n: int) -> None:
        self.agent = source.agent
        self._source = source
        self._dropped = dropped
        self._n = n

    @property
    def n(self) -> int:
        return self._n

    @property
    def rows(self) -> Floats:  # type: ignore[override]
        return np.concatenate(list(self.batches()))

    def batches(self) -> Iterator[Floats]:
        return self._source.stream(self._dropped)


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
    """Whether a file can contain the text. Escaped bytes of a command line cannot occur there."""
    return not any("\ud800" <= c <= "\udfff" for c in text)
