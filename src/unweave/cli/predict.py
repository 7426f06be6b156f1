"""`unweave predict`: predictions for the rows of a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from unweave.cli.common import Folder, Json, console, emit_json, say

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
    the exposure. A prediction is a mean, a standard deviation and a central interval, or the
    probability of each class. The rows stay on this machine.

    Examples:

        unweave predict clinics rows.csv

        unweave predict clinics rows.csv --out predicted.parquet
    """
    from unweave.operations.tables import (
        check_table_path,
        current_posterior,
        read_table,
        write_table,
    )

    if out is not None:
        check_table_path(out)
    table = read_table(rows)
    found = current_posterior(folder).predict_table(table, interval)
    if out is not None:
        write_table(out, {**table, **found})
    if json:
        emit_json({"rows": len(next(iter(found.values()))), "predictions": found})
        return
    if out is not None:
        say(f"Wrote {out}.")
        return
    size = len(next(iter(found.values())))
    shown = Table()
    for name in ("row", *found):
        shown.add_column(name, justify="right")
    for i in range(min(size, _SHOWN)):
        shown.add_row(str(i + 1), *(f"{column[i]:.6g}" for column in found.values()))
    console.print(shown)
    if size > _SHOWN:
        say(f"… and {size - _SHOWN} more rows: --out FILE writes all of them, --json prints them")
