"""One picture of the idea: learn over a graph, then forget one agent."""

from __future__ import annotations

from typing import Any

from unweave.experiments.paper import fig3, fig5, style
from unweave.experiments.paper.report import PaperReport

__all__ = ["draw"]


def draw(learned: PaperReport, forgotten: PaperReport) -> Any:
    """Figure 3 beside the panel of figure 5 in which agent 10 is unlike the others (sum loss)."""
    figure, grid = style.canvas(style.PAGE, 3.3, 1, 2)
    left, right = grid[0]
    fig3.draw_on(left, learned)
    style.panel(left, "", "Learn: exact once every agent was visited")
    case = next(case for case in fig5.CASES if case.name == "dissimilar")
    fig5.draw_case(right, forgotten, "sum", case)
    style.panel(right, "", "Forget an agent that is unlike the others")
    lowest = forgotten.results["sum"][case.name]["floor"]
    right.set_ylim(0.5 * lowest, 200)
    right.set_xlabel("iterations since the request")
    right.set_ylabel("KL($q$ ‖ exact posterior without it), nats")
    style.legend(figure, *fig3.legend_entries(left), loc="outside lower left", ncols=2)
    style.legend(figure, *fig5.legend_entries(right), loc="outside lower right", ncols=2)
    return figure
