"""`unweave predict`: predictions for the rows of a file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from unweave.cli.common import Folder, Json, console, emit_json, quote, say
from unweave.errors import ConfigError, DataError

if TYPE_CHECKING:
    from unweave.models import Posterior
    from unweave.operations.tables import RowBlock

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
    decimal: Annotated[
        str,
        typer.Option("--decimal", metavar="SIGN", help="The decimal sign of a CSV file: . or ,"),
    ] = ".",
    json: Json = False,
) -> None:
    """Predict a new record for each row of a file, with the newest complete posterior of DIR.

    The columns of the file are the model's: the features of a regression, the group, the trials or
    the exposure. Where 1 is assumed for one of the last two, or gamma-events has no exposure, a
    note says so. A prediction is a mean, a standard deviation and a central interval, or the
    probability of each class, of a regression with its interval. --out keeps all columns of the
    file: their texts, and between Parquet files their types. The rows stay on this machine, and are
    read in blocks: a file may be larger than the memory.

    Examples:

        unweave predict risk rows.csv

        unweave predict risk rows.csv --out predicted.parquet
    """
    import warnings

    import numpy as np

    from unweave.models.fitted.tables import NoPrediction, used_columns
    from unweave.operations.tables import (
        check_output,
        current_posterior,
        delimiter_in,
        read_rows,
        values_of,
        write_table,
    )

    if decimal not in (".", ","):
        raise ConfigError(f"--decimal {decimal}: no such sign. Fix: choose . or ,")
    if out is not None:
        check_output(out, rows)
    kept: list[dict[str, Any]] = []
    notes: dict[str, None] = {}
    size = 0

    def predict_block(fitted: Posterior, block: RowBlock) -> dict[str, Any]:
        try:
            values = values_of(block, used_columns(fitted.model), decimal)
        except DataError as error:
            raise DataError(f"{rows}, {error}") from None
        try:
            # A model without features predicts the same for each row.
            table = values or {"row": np.arange(len(block.places))}
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                found = fitted.predict_table(table, interval)
        except DataError as error:
            raise DataError(f"{rows}: {error}") from None
        except NoPrediction:
            raise ConfigError(
                f"{fitted.model.name}: its predictions can only be drawn. Fix: take draws of its "
                f"parameters with `unweave posterior {quote(folder)} --draws 4000 --out draws.csv`"
            ) from None
        notes.update(dict.fromkeys(str(one.message) for one in said))
        return found

    def predicted() -> Iterator[tuple[RowBlock, dict[str, Any]]]:
        """The rows with their predictions, some at a time."""
        nonlocal size
        fitted = None
        for block in read_rows(rows):
            fitted = fitted or current_posterior(folder)  # after a look at the file
            first, size = size, size + len(block.places)
            if out is None and not json and first:
                continue  # only the first rows are shown, and the others counted
            found = predict_block(fitted, block)
            if json or not first:
                kept.append(found)
            yield block, found

    if out is not None:
        kinds = [path.suffix.lower() for path in (rows, out)]
        beside = rows if kinds == [".parquet", ".parquet"] else None
        comma = decimal == "," and kinds == [".csv", ".csv"]

        def written() -> Iterator[dict[str, Any]]:
            for block, found in predicted():
                given = {name.casefold() for name in block.cells}
                if taken := [name for name in found if name.casefold() in given]:
                    raise DataError(
                        f"{rows}: the column {taken[0]!r} has the name of a prediction. Fix: "
                        "rename it"
                    )
                if comma:
                    found = {name: _with_comma(column) for name, column in found.items()}
                cells = {} if beside else block.cells
                yield {n: np.array(c, dtype=object) for n, c in cells.items()} | found

        delimiter = delimiter_in(rows) if kinds == [".csv", ".csv"] else ","
        write_table(out, written(), beside, delimiter)
    else:
        for _ in predicted():
            pass
    if not kept:
        raise DataError(f"{rows}: no rows. Fix: give at least one below the header")
    if json:
        # JSON has no infinity: a mean or an sd that does not exist (few events: Lomax) is null.
        all_of = {
            name: [value if np.isfinite(value) else None for part in kept for value in part[name]]
            for name in kept[0]
        }
        emit_json({"rows": size, "predictions": all_of, "notes": list(notes)})
        return
    say(*(f"note: {note}" for note in notes), style="yellow")
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


def _with_comma(column: Any) -> Any:
    """Numbers as texts with a decimal comma."""
    import numpy as np

    return np.array([repr(value).replace(".", ",") for value in column.tolist()], dtype=object)
