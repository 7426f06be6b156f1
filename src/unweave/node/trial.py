"""A user's own file, looked at as an agent will: what is wrong is named by its line there.

An agent refuses records that its model cannot use. Once they were dealt out, the number of a bad
record in somebody's share would tell its user nothing.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from unweave.errors import DataError
from unweave.models import Model
from unweave.models.resolution import Extremes
from unweave.node.data_duck import open_duck
from unweave.node.data_records import Wanted, checked, first_problem
from unweave.node.data_source import DataSource
from unweave.node.dealing import Records

__all__ = ["Trial", "try_records"]

_RECORD = re.compile(r", record (\d+) \(counted from 1\)")
_CELLS = 1 << 18
_ALL: frozenset[str] = frozenset()


class Trial(NamedTuple):
    """What is worth saying of records that can be used."""

    repeated: int  # with the key of another
    extremes: Extremes


def try_records(
    path: Path, records: Records, model: Model, names: Mapping[str, str], key: str | None
) -> Trial:
    """DataError if a record cannot be used, or has no key though the others have."""
    source = DataSource(path=path.name, key=key, delimiter=records.delimiter)
    wanted = Wanted("", model, tuple(names.get(name, name) for name in model.columns), key)
    chunk = max(1, _CELLS // len(model.columns))
    try:
        with open_duck(Path(tempfile.gettempdir()), source, [path.absolute()], wanted, 2) as reader:
            with closing(reader.batches(_ALL, chunk)) as batches:
                sound = all(checked(model, batch.rows) for batch in batches)
            if not sound:
                with closing(reader.told(_ALL, chunk)) as batches:
                    raise DataError(first_problem(wanted, batches) or "it changes while it is read")
            nameless, repeated = reader.named()
            extremes = reader.extremes(_ALL)
    except DataError as error:
        raise DataError(_here(str(error), path, records)) from None
    if key is not None and nameless:
        values = enumerate(records.column(key))
        first = next((i for i, value in values if value in (None, "") or value != value), 0)
        more = f", and {nameless - 1} more" if nameless > 1 else ""
        raise DataError(
            f"{path}, {records.place(first)}{more}: the key {key!r} is empty, so this record could "
            "never be erased alone: give it one, or leave --key away"
        )
    return Trial(repeated, extremes)


def _here(text: str, path: Path, records: Records) -> str:
    """The words of an agent about its file, about the user's."""
    text = text.removeprefix("agent '', ").replace(path.name, str(path), 1)
    if found := _RECORD.search(text):
        place = records.place(int(found[1]) - 1)
        text = text[: found.start()] + f", {place}" + text[found.end() :]
    return text
