"""Plots of learning and forgetting: posteriors before and after, and the token's walk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from unweave.demo.scenario import Scenario
from unweave.experiments.paper.style import BLUE, GREEN, GREY, ORANGE, RED, canvas, look, panel
from unweave.federation.history import Step
from unweave.graph import Topology
from unweave.models import Posterior

__all__ = ["CAPTION", "coefficients", "densities", "draw", "network", "timeline"]


CAPTION = (
    "The walk in memory, for the share of malignant diagnoses. The processes learn the regression "
    "on another walk."
)

_BEFORE, _AFTER, _NEVER = GREY, BLUE, ORANGE
_ACTIONS = {
    "learn": ("o", GREEN, "learns"),
    "update": ("o", BLUE, "updates"),
    "forget": ("X", RED, "forgets"),
    "pass": (".", GREY, "passes on"),
}


def draw(scenario: Scenario, out: Path) -> list[str]:
    """Save the demonstration's two pictures; return their names."""
    share, regression = scenario.stages
    with look():
        figure, axes = canvas(7.2, 2.9, 1, 2, width_ratios=[1, 1.05])
        densities(axes[0, 0], share.before, share.after, share.never)
        panel(axes[0, 0], "", "Share of malignant diagnoses")
        coefficients(axes[0, 1], regression.before, regression.after, regression.never)
        panel(axes[0, 1], "", "Diagnosis from cell features: coefficients, 95%")
        figure.savefig(out / "posteriors.png", dpi=150, metadata={"Software": None})
        figure, axes = canvas(7.2, 2.9, 1, 2, width_ratios=[1, 1.6])
        figure.suptitle(CAPTION, fontsize=7, color="#666666", x=0.01, ha="left")
        network(axes[0, 0], scenario.graph, share.steps, scenario.patients, scenario.forgotten)
        panel(axes[0, 0], "", "The hospitals and the token's walk")
        timeline(axes[0, 1], scenario.graph, share.steps)
        panel(axes[0, 1], "", "The token's holder and its action")
        figure.savefig(out / "token.png", dpi=150, metadata={"Software": None})
    return ["posteriors.png", "token.png"]


def densities(axes: Any, before: Posterior, after: Posterior, never: Posterior) -> None:
    """One quantity: its density before and after forgetting, and without the data."""
    ends = [m.quantile([0.0005, 0.9995]) for q in (before, after) for m in _marginals(q)[:1]]
    theta = np.linspace(np.min(ends), np.max(ends), 400)

    def density(q: Posterior) -> Any:
        return np.exp(q.log_prob(theta))

    axes.fill_between(theta, density(before), color=_BEFORE, alpha=0.2, linewidth=0)
    axes.plot(theta, density(before), color=_BEFORE, label="learned from all")
    axes.plot(theta, density(after), color=_AFTER, linewidth=3.2, label="after forgetting")
    axes.plot(theta, density(never), color=_NEVER, linestyle=(0, (2, 1.6)), label="never had it")
    axes.set(xlabel="theta", ylabel="posterior density", yticks=[])
    axes.set_ylim(0, 1.3 * max(density(before).max(), density(after).max()))
    axes.set_xlim(theta[0], theta[-1])
    axes.locator_params(axis="x", nbins=6)
    axes.grid(False)
    axes.legend(loc="upper right")


def coefficients(axes: Any, before: Posterior, after: Posterior, never: Posterior) -> None:
    """Several quantities: 95% intervals before and after forgetting, means without the data."""
    names = list(getattr(before.model, "coefficients", ())) or [m.name for m in _marginals(before)]
    for i, (q, color, shift) in enumerate(((before, _BEFORE, 0.17), (after, _AFTER, -0.17))):
        for j, marginal in enumerate(_marginals(q)[: len(names)]):
            low, high = (float(v) for v in marginal.interval(0.95))
            at = len(names) - 1 - j + shift
            axes.plot([low, high], [at, at], color=color, linewidth=1.6 + 0.6 * i)
            axes.plot(float(marginal.mean()), at, "o", color=color, markersize=4.5)
    for j, marginal in enumerate(_marginals(never)[: len(names)]):
        at = len(names) - 1 - j - 0.17
        axes.plot(
            float(marginal.mean()), at, "o", color="none", markeredgecolor=_NEVER, markersize=8
        )
    axes.axvline(0, color="#999999", linewidth=0.6)
    axes.set_yticks(range(len(names)), [_words(name) for name in reversed(names)])
    axes.set_ylim(-0.6, len(names) - 0.4)
    axes.grid(False, axis="y")
    axes.set_xlabel("coefficient (features in fixed units)")


def network(
    axes: Any,
    graph: Topology,
    steps: Sequence[Step],
    sizes: Mapping[str, int],
    forgotten: str = "",
) -> None:
    """The graph. An agent's area grows with its records, an edge's width with the token's hops."""
    angle = np.pi / 2 - 2 * np.pi * np.arange(len(graph)) / len(graph)
    place = {name: (np.cos(a), np.sin(a)) for name, a in zip(graph.agents, angle, strict=True)}
    used: dict[frozenset[str], int] = {}
    for one, two in pairwise(steps):
        pair = frozenset((one.agent, two.agent))
        used[pair] = used.get(pair, 0) + 1
    for one_end, other_end in graph.edges:
        (x0, y0), (x1, y1) = place[one_end], place[other_end]
        axes.plot([x0, x1], [y0, y1], color="#cccccc", linewidth=1, zorder=1)
        times = used.get(frozenset((one_end, other_end)), 0)
        if times:
            width = 1.2 + 4.5 * times / max(used.values())
            axes.plot([x0, x1], [y0, y1], color=BLUE, alpha=0.35, linewidth=width, zorder=2)
    largest = max(sizes.values())
    for name, (x, y) in place.items():
        gone = name == forgotten
        area = 60 + 560 * sizes[name] / largest
        axes.scatter(
            [x],
            [y],
            s=area,
            color="white" if gone else "#dbe9f4",
            edgecolor=RED if gone else BLUE,
            linewidth=1.4,
            linestyle="--" if gone else "-",
            zorder=3,
        )
        axes.text(x, y, str(sizes[name]), ha="center", va="center", fontsize=7, zorder=4)
        side = 0 if abs(x) < 0.2 else np.sign(x)  # a label beside its agent, or above it
        axes.text(
            x + 0.4 * side,
            y if side else y + 0.46 * np.sign(y),
            _words(name),
            ha={-1: "right", 0: "center", 1: "left"}[int(side)],
            va="center",
            color=RED if gone else "black",
        )
    axes.update_datalim([(-2.0, -1.1), (2.0, 1.6)])
    axes.set(xticks=[], yticks=[])
    axes.set_aspect("equal", adjustable="datalim")
    axes.spines[:].set_visible(False)
    axes.grid(False)


def timeline(axes: Any, graph: Topology, steps: Sequence[Step]) -> None:
    """The scheduled agent and its action, by iteration."""
    row = {name: len(graph) - 1 - k for k, name in enumerate(graph.agents)}
    at = [step.iteration for step in steps]
    axes.plot(at, [row[step.agent] for step in steps], color="#cccccc", linewidth=1, zorder=1)
    for action, (marker, color, label) in _ACTIONS.items():
        chosen = [step for step in steps if step.action == action]
        if chosen:
            axes.plot(
                [step.iteration for step in chosen],
                [row[step.agent] for step in chosen],
                marker,
                color=color,
                markersize=7 if action == "forget" else 5,
                markeredgewidth=0,
                label=label,
                zorder=3,
            )
    axes.set_yticks(range(len(graph)), [_words(name) for name in reversed(graph.agents)])
    axes.set_ylim(-0.5, len(graph) + 0.1)
    axes.set_xlabel("iteration")
    axes.grid(False, axis="y")
    axes.legend(loc="upper right", ncols=4, columnspacing=1.2, handletextpad=0.2)


def _marginals(q: Posterior) -> tuple[Any, ...]:
    return q.distribution.marginals


def _words(name: str) -> str:
    return name.replace("_", " ")
