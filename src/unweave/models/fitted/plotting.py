"""The plot of a posterior: the density of every quantity, in the prior and in the posterior."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from unweave.arguments import share
from unweave.errors import MissingExtra
from unweave.families.marginals import Marginal

if TYPE_CHECKING:
    from unweave.models.fitted.posterior import Posterior

__all__ = ["plot_posterior"]

_COLUMNS = 4
_MOST = 24  # quantities in one figure
_POSTERIOR, _PRIOR = "#0072B2", "#666666"


def plot_posterior(posterior: Posterior, p: float) -> Any:
    """A matplotlib figure: a panel per quantity, its posterior with mean and central interval of
    probability p, and its prior."""
    try:
        from matplotlib.figure import Figure
        from matplotlib.layout_engine import ConstrainedLayoutEngine
    except ImportError:
        raise MissingExtra("matplotlib", "plot", "Posterior.plot") from None
    p = share(p, "plot: p")
    model = posterior.model
    before = model.posterior(model.eta0).marginals
    laws = list(zip(posterior.marginals, before, strict=True))[:_MOST]
    rows = math.ceil(len(laws) / _COLUMNS)
    columns = math.ceil(len(laws) / rows)
    size = (max(2.5 * columns, 4.6), 2.0 * rows + 0.6)
    figure = Figure(figsize=size, layout=ConstrainedLayoutEngine(wspace=0.08, hspace=0.1))
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    for panel, (law, prior) in zip(panels, laws, strict=False):
        _panel(panel, law, prior, p)
    for panel in panels[len(laws) :]:
        panel.set_axis_off()
    lines, labels = panels[0].get_legend_handles_labels()
    figure.legend(lines, labels, loc="outside lower center", ncols=4, frameon=False, fontsize=8)
    omitted = len(posterior.marginals) - len(laws)
    figure.suptitle(
        model.name + (f" (and {omitted} more quantities)" if omitted else ""), fontsize=10
    )
    return figure


def _panel(panel: Any, law: Marginal, prior: Marginal, p: float) -> None:
    low, high = law.interval(p)
    ends = law.quantile([0.0005, 0.9995])
    # A margin shows part of the prior if the posterior is far from it or much narrower.
    room = 0.25 * (ends[1] - ends[0])
    x = np.linspace(ends[0] - room, ends[1] + room, 801)
    x = x[np.isfinite(law.log_pdf(x))]  # points outside the support have no finite log-density
    density, stated = law.pdf(x), prior.pdf(x)
    inside = (x >= low) & (x <= high)
    panel.fill_between(
        x,
        density,
        where=inside,
        color=_POSTERIOR,
        alpha=0.25,
        linewidth=0,
        label=f"{100 * p:.4g}% interval",
    )
    panel.plot(x, density, color=_POSTERIOR, linewidth=1.6, label="posterior")
    panel.plot(x, stated, color=_PRIOR, linewidth=1.2, linestyle=(0, (4, 2)), label="prior")
    mean = float(law.mean())
    if math.isfinite(mean):
        panel.plot(
            [mean, mean], [0, float(law.pdf(mean))], color=_POSTERIOR, linewidth=0.8, label="mean"
        )
    # A density that is infinite at an end of its support must not determine the y-axis.
    top = min(density.max(), 3.0 * float(law.pdf(law.quantile([0.25, 0.5, 0.75])).max()))
    panel.set_ylim(0, 1.08 * min(max(top, stated.max()), 2.0 * top))
    panel.set_xlim(x[0], x[-1])
    panel.set_title(law.name, fontsize=9)
    panel.set_yticks([])
    panel.locator_params(axis="x", nbins=4)
    panel.tick_params(axis="x", labelsize=8)
    for side in ("top", "right", "left"):
        panel.spines[side].set_visible(False)
