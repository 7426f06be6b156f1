"""`unweave predict`: predictions for the rows of a file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from unweave.cli.common import Folder, Json, console, emit_json, say
from unweave.errors import DataError

__all__ = ["predict"]

_SHOWN = 20  # rows on a terminal


def predict(
    folder: Folder,
    rows: Annotated[
        Path, typer.Argument(metavar="ROWS", help="A CSV or Parquet file, one row per prediction.")
    ],
    interval: Annotated[
        float, typer.Option("--interval", metavar="P", help="Probability of the interval.")
    ] = 0.95,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            help="Write the rows with their predictions, as CSV or Parquet.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Predict a new record for each row of a file, with the newest complete posterior of DIR.

    The columns of the file are the model's: the features of a regression, the group, the trials or
    the exposure (without it, 1). A prediction is a mean, a standard deviation and a central
    interval, or the probability of each class, of a regression with its interval. The rows stay on
    this machine, and are read in blocks: a file may be larger than the memory.

    Examples:

        unweave predict risk rows.csv

        unweave predict risk rows.csv --out predicted.parquet
    """
    import numpy as np

    from unweave.operations.tables import (
        check_table_path,
        current_posterior,
        read_table,
        write_table,
    )

    if out is not None:
        check_table_path(out)
    kept: list[dict[str, Any]] = []
    size = 0

    def predicted() -> Iterator[dict[str, Any]]:
        """The rows with their predictions, some at a time."""
        nonlocal size
        fitted = None
        for block in read_table(rows):
            fitted = fitted or current_posterior(folder)  # after a look at the file
            first, size = size, size + len(next(iter(block.values())))
            if out is None and not json and first:
                continue  # only the first rows are shown, and the others counted
            try:
                found = fitted.predict_table(block, interval)
            except DataError as error:
                since = f"counted from row {first + 1}: " if first else ""
                raise DataError(f"{rows}: {since}{error}") from None
            if json or not first:
                kept.append(found)
            yield {**block, **found}

    if out is not None:
        write_table(out, predicted())
    else:
        for _ in predicted():
            pass
    if not kept:
        raise DataError(f"{rows}: no rows. Fix: give at least one below the header")
    if json:
        all_of = {name: np.concatenate([part[name] for part in kept]) for name in kept[0]}
        emit_json({"rows": size, "predictions": all_of})
        return
    if out is not None:
        say(f"Wrote {out}.")
        return
    shown = Table()
    for name in ("row", *kept[0]):
        shown.add_column(name, justify="right")
    top = zip(*(column[:_SHOWN].tolist() for column in kept[0].values()), strict=True)
    for i, values in enumerate(top, start=1):
        shown.add_row(str(i), *(f"{value:.6g}" for value in values))
    console.print(shown)
    if size > shown.row_count:
        more = size - shown.row_count
        say(f"… and {more} more rows: --out FILE writes all of them, --json prints them")
