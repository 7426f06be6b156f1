"""Pictures as inline SVG: densities, intervals, and the graph. Colours are classes of the style
sheet, so that they follow light, dark and printed pages."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from unweave.report.facts import AgentFact, Moments, QuantityFact
from unweave.report.markup import Element, el
from unweave.text import clip

__all__ = ["LABELS", "densities", "graph", "intervals", "legend"]

LABELS = {
    "posterior": "learned",
    "prior": "assumed before (prior)",
    "before": "before the erasure",
    "never": "a network that never had the data",
}
_ORDER = ("before", "prior", "posterior", "never")  # the last lies on top
_MOST_ROWS = 24  # quantities in a picture of intervals
_MOST_AGENTS = 300  # in a picture of the graph
_LABELLED = 30  # agents with names there


def densities(quantity: QuantityFact) -> Element:
    """One quantity: its densities over one axis."""
    width, height, foot = 330, 150, 26
    curves = sorted(quantity.curves, key=lambda one: _ORDER.index(one.label))
    low, high = curves[0].x[0], curves[0].x[-1]
    base = height - foot

    def at(x: float, y: float) -> str:
        px = 8 + (x - low) / (high - low) * (width - 16)
        return f"{px:.1f} {base - y * (base - 12):.1f}"

    parts: list[Element] = []
    for one in curves:
        points = " L".join(at(x, y) for x, y in zip(one.x, one.y, strict=True))
        if one.label == "posterior":
            area = f"M{at(low, 0)} L{points} L{at(high, 0)} Z"
            parts.append(el("path", d=area, class_="area posterior"))
        parts.append(el("path", d=f"M{points}", class_=f"curve {one.label}"))
    parts.append(el("line", x1=8, x2=width - 8, y1=base, y2=base, class_="axis"))
    parts += _ticks(low, high, 8, width - 8, base)
    return _picture(f"Density of {clip(quantity.name, 60)}", parts, width, height, "plot")


def _picture(
    title: str, parts: Sequence[Element], width: float, height: float, style: str
) -> Element:
    box = f"0 0 {width} {height}"
    return el("svg", el("title", title), *parts, viewbox=box, role="img", class_=style)


def _short(name: str, most: int) -> str:
    """A name beside a picture, cut off without a note of its length."""
    return clip(name, most).partition("… (")[0]


def _ticks(low: float, high: float, left: float, right: float, base: float) -> list[Element]:
    """At most five round numbers on the axis."""
    step = 10.0 ** math.floor(math.log10((high - low) / 2.0))
    for factor in (1.0, 2.0, 5.0, 10.0):
        if (high - low) / (step * factor) <= 5.0:
            step *= factor
            break
    first = math.ceil(low / step)
    marks = []
    for k in range(first, math.floor(high / step) + 1):
        value = k * step
        x = left + (value - low) / (high - low) * (right - left)
        text = f"{value:.10g}".replace("-", "−")
        marks.append(
            el("line", x1=round(x, 1), x2=round(x, 1), y1=base, y2=base + 4, class_="axis")
        )
        marks.append(el("text", text, x=round(x, 1), y=base + 17, text_anchor="middle"))
    return marks


def intervals(quantities: Sequence[QuantityFact]) -> Element | None:
    """Several quantities: mean and 95% interval of each, one row per quantity."""
    shown = [one for one in quantities if _ends(one.moments.get("posterior"))][:_MOST_ROWS]
    if not shown:
        return None
    labels = [one for one in ("prior", "before", "posterior", "never") if one in shown[0].moments]
    ends = [
        found
        for one in shown
        for label in labels
        if label != "prior" and (found := _ends(one.moments.get(label)))
    ]
    low = min(0.0, *(one[0] for one in ends))
    high = max(0.0, *(one[2] for one in ends))
    room = 0.06 * (high - low) or 1.0
    low, high = low - room, high + room
    name_width, width, row = 150, 640, 14 + 8 * len(labels)
    height = row * len(shown) + 34

    def px(value: float) -> float:
        inside = min(max(value, low), high)  # a wide prior ends at the edge
        return round(name_width + (inside - low) / (high - low) * (width - name_width - 8))

    zero = el("line", x1=px(0.0), x2=px(0.0), y1=4, y2=height - 30, class_="zero")
    parts: list[Element] = [zero]
    for i, one in enumerate(shown):
        middle = 4 + row * i + row / 2
        text = _short(one.name, 22)
        parts.append(el("text", text, x=name_width - 10, y=middle + 4, text_anchor="end"))
        for k, label in enumerate(labels):
            found = _ends(one.moments.get(label))
            if not found:
                continue
            y = round(middle + (k - (len(labels) - 1) / 2) * 7.0, 1)
            start, mean, end = found
            line = el("line", x1=px(start), x2=px(end), y1=y, y2=y, class_=f"interval {label}")
            parts.append(line)
            if low <= mean <= high:
                parts.append(el("circle", cx=px(mean), cy=y, r=3.2, class_=f"dot {label}"))
    base = height - 30
    parts.append(el("line", x1=name_width, x2=width - 8, y1=base, y2=base, class_="axis"))
    parts += _ticks(low, high, name_width, width - 8, base)
    return _picture("Means and 95% intervals", parts, width, height, "plot wide")


def _ends(found: Moments | None) -> tuple[float, float, float] | None:
    """Low end, mean and high end, if all of them exist."""
    if found is None or found.low is None or found.mean is None or found.high is None:
        return None
    return found.low, found.mean, found.high


def legend(labels: Sequence[str]) -> Element:
    """What the colours mean, in words beside a sample of each."""
    return el(
        "p",
        *(
            el("span", el("span", class_=f"key {label}", aria_hidden="true"), f" {LABELS[label]}")
            for label in labels
        ),
        class_="legend",
    )


_STATES = {"not in": "outside", "in": "inside"}


def graph(agents: Sequence[AgentFact], edges: Sequence[tuple[int, int]]) -> Element | None:
    """The agents on a circle, with their connections; none for a very large network."""
    if not 2 <= len(agents) <= _MOST_AGENTS:
        return None
    width, height = 480, 300
    labelled = len(agents) <= _LABELLED
    places: Mapping[int, tuple[float, float]] = {
        k: (
            round(width / 2 + 150 * math.sin(2 * math.pi * k / len(agents)), 1),
            round(height / 2 - 118 * math.cos(2 * math.pi * k / len(agents)), 1),
        )
        for k in range(len(agents))
    }
    parts = [
        el(
            "line",
            x1=places[a][0],
            y1=places[a][1],
            x2=places[b][0],
            y2=places[b][1],
            class_="edge",
        )
        for a, b in edges
    ]
    radius = 9 if labelled else 4
    for k, agent in enumerate(agents):
        x, y = places[k]
        state = _STATES.get(agent.state, agent.state)
        parts.append(el("circle", cx=x, cy=y, r=radius, class_=f"agent {state}"))
        if labelled:
            across = x - width / 2
            anchor = "middle" if abs(across) < 20 else "start" if across > 0 else "end"
            dx = 0.0 if anchor == "middle" else math.copysign(15, across)
            dy = 4.0 if dx else math.copysign(21, y - height / 2) + 4
            text = _short(agent.name, 18)
            parts.append(
                el("text", text, x=round(x + dx, 1), y=round(y + dy, 1), text_anchor=anchor)
            )
    title = "The graph: which agents exchange messages"
    return _picture(title, parts, width, height, "plot graph")
