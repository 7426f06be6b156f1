"""The style of all figures: IEEE column width, readable in grey, reproducible bytes.

Only this module imports matplotlib, within functions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from unweave.errors import MissingExtra
from unweave.experiments.paper.report import ResultTable

__all__ = [
    "BAND_LABEL",
    "COLUMN",
    "PAGE",
    "Line",
    "band_handle",
    "band_line",
    "canvas",
    "floor_line",
    "legend",
    "look",
    "need",
    "numbers",
    "panel",
    "point_handle",
    "save",
]


BAND_LABEL = "75% of replicas"
COLUMN, PAGE = 3.5, 7.16  # inches: one column, and both with the gap between them

# Okabe and Ito's palette: distinct for all kinds of colour vision, and of different lightness.
BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
BLUE, RED, PURPLE, GREY = "#0072B2", "#D55E00", "#CC79A7", "#666666"

_RC: dict[str, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Arial", "Helvetica"],
    "font.size": 7.5,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "legend.fontsize": 7,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.grid.which": "major",
    "grid.color": "#e3e3e3",
    "grid.linewidth": 0.5,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.minor.width": 0.4,
    "ytick.minor.width": 0.4,
    "xtick.minor.size": 1.6,
    "ytick.minor.size": 1.6,
    "lines.linewidth": 1.3,
    "legend.frameon": False,
    "legend.handlelength": 2.6,
    "legend.borderaxespad": 0.3,
    "legend.labelspacing": 0.3,
    "figure.dpi": 100,
    "savefig.dpi": 300,
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "unweave",  # element ids are random otherwise
    "pdf.fonttype": 42,  # TrueType: text can be selected, and publishers take it
}


@dataclass(frozen=True)
class Line:
    """How one curve looks; line style and marker tell it apart where colour does not."""

    label: str
    color: str
    style: Any = "-"
    marker: str = ""
    width: float = 1.3


def need() -> Any:
    """matplotlib, or an error that says how to get it."""
    try:
        import matplotlib
    except ImportError:
        raise MissingExtra("matplotlib", "plot", "drawing the paper's figures") from None
    return matplotlib


@contextmanager
def look() -> Iterator[None]:
    """Apply the style within the context; the caller's settings return afterwards."""
    matplotlib = need()
    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # ignore the user's matplotlibrc
        matplotlib.rcParams.update(_RC)
        yield


def canvas(width: float, height: float, rows: int = 1, cols: int = 1, **kwargs: Any) -> Any:
    """A figure on the Agg backend (no display, no global state), and its axes [rows, cols]."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    spacing = ConstrainedLayoutEngine(w_pad=0.03, h_pad=0.03, wspace=0.02, hspace=0.03)
    figure = Figure(figsize=(width, height), layout=spacing)
    FigureCanvasAgg(figure)
    return figure, figure.subplots(rows, cols, squeeze=False, **kwargs)


def panel(axes: Any, letter: str, title: str) -> None:
    axes.set_title(f"({letter}) {title}" if letter else title, loc="left", pad=4)


def numbers(axis: Any, ticks: list[float]) -> None:
    """Plain numbers on a logarithmic axis that spans little more than a decade."""
    axis.set_ticks(ticks, [f"{tick:g}" for tick in ticks])
    axis.set_ticks([], minor=True)


def band_line(
    axes: Any,
    rows: ResultTable,
    x: str,
    line: Line,
    centre: str = "kl_median",
    every: Any = None,
    z: int = 3,
) -> None:
    """The column `centre` as a line over its 75% band, both straight from the table's rows."""
    at, low = rows.values(x), rows.values("kl_low")
    # An empty cell is infinite: more than an eighth of the replicas are outside the domain.
    high = np.nan_to_num(rows.values("kl_high"), nan=1e300)
    axes.fill_between(at, low, high, color=line.color, alpha=0.15, linewidth=0, zorder=z - 1)
    axes.plot(
        at,
        rows.values(centre),
        color=line.color,
        linestyle=line.style,
        linewidth=line.width,
        marker=line.marker,
        markersize=3.2,
        markeredgewidth=0,
        markevery=every,
        label=line.label,
        zorder=z,
    )


def floor_line(axes: Any, value: float, label: str = "best Beta (floor)") -> None:
    axes.axhline(value, color=BLACK, linestyle=(0, (1, 1.4)), linewidth=0.9, label=label, zorder=2)


def band_handle() -> Any:
    """A legend entry for the bands of all curves (`BAND_LABEL`)."""
    from matplotlib.patches import Patch

    return Patch(facecolor=GREY, alpha=0.3, linewidth=0)


def point_handle(lines: Iterable[Line]) -> Any:
    """A legend entry for the point that marks one place of each of `lines`."""
    from matplotlib.lines import Line2D

    look: dict[str, Any] = {"linestyle": "", "markersize": 3.2, "markeredgewidth": 0}
    return tuple(Line2D([], [], marker=line.marker, color=line.color, **look) for line in lines)


def legend(where: Any, handles: list[Any], labels: list[str], **place: Any) -> None:
    """The legend of a figure or of axes below it, where no curve is."""
    from matplotlib.legend_handler import HandlerTuple

    side_by_side = {tuple: HandlerTuple(ndivide=None)}
    where.legend(handles, labels, handler_map=side_by_side, **place)


def save(figure: Any, stem: Path, dpi: int = 300) -> list[str]:
    """PNG, SVG and PDF beside each other, without dates; the names of the files."""
    names = {
        ".png": {"Software": None},
        ".svg": {"Date": None, "Creator": None},
        ".pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    }
    for ending, metadata in names.items():
        figure.savefig(stem.with_suffix(ending), dpi=dpi, metadata=metadata)
    return [stem.with_suffix(ending).name for ending in names]
