"""One picture of the idea: learn over a graph, then forget one agent."""

from __future__ import annotations

from typing import Any

from unweave.experiments.paper import fig3, fig5, style
from unweave.experiments.paper.report import Report

__all__ = ["draw"]


def draw(learned: Report, forgotten: Report) -> Any:
    """Figure 3 beside the panel of figure 5 in which agent 10 is unlike the others (sum loss)."""
    figure, grid = style.canvas(style.PAGE, 2.6, 1, 2)
    left, right = grid[0]
    fig3.draw_on(left, learned)
    style.panel(left, "", "Learn: exact once every agent was visited")
    case = next(case for case in fig5.CASES if case.name == "dissimilar")
    fig5.draw_case(right, forgotten, "sum", case)
    style.panel(right, "", "Forget an agent that is unlike the others")
    lowest = forgotten.results["sum"][case.name]["floor"]
    fig5.label_removal(right, forgotten, 2.5e-3, "right")
    right.set_ylim(0.5 * lowest, 200)
    right.set_xlabel("iterations since the request")
    right.set_ylabel("KL to the posterior without it")
    right.legend(loc="upper right")
    return figure
