"""Draws the roles of an agent from the protocol's table of moves: an SVG, and a table below it.

The four roles are the corners of a square; a move is an arrow with its reason. Quarantine, which
leads to each of them, is a box beside them with one arrow.
"""

from __future__ import annotations

from html import escape

from unweave.protocol.machine import MOVES, RoleChange

WIDTH, HEIGHT = 1050, 600
CORNERS = {"Idle": (360, 100), "Hold": (860, 100), "Parked": (360, 500), "Out": (860, 500)}
MEANING = {
    "Quarantine": "after a start",
    "Idle": "not responsible",
    "Hold": "visits the token",
    "Out": "sent, no Ack yet",
    "Parked": "keeps the token",
}
BOX = (154, 68)  # width and height of a role
APART = 13  # distance of the two arrows of a pair from the line between their roles
# Where the reason of a move stands: beside its arrow, on the side away from the arrow back.
LABELS = {
    ("Hold", "Idle"): (610, 76, "middle"),
    ("Idle", "Hold"): (610, 134, "middle"),
    ("Idle", "Parked"): (336, 290, "end"),
    ("Parked", "Idle"): (386, 340, "start"),
    ("Hold", "Out"): (838, 276, "end"),
    ("Out", "Hold"): (884, 330, "start"),
    ("Parked", "Out"): (610, 538, "middle"),
    ("Out", "Parked"): (610, 458, "middle"),
    ("Idle", "Out"): (545, 290, "end"),
    ("Out", "Idle"): (698, 330, "start"),
    ("Hold", "Parked"): (684, 196, "end"),
    ("Parked", "Hold"): (524, 404, "start"),
}

STYLE = """\
svg { color: #1f2328; background: none; font: 14px system-ui, sans-serif; }
@media (prefers-color-scheme: dark) { svg { color: #e6edf3; } }
"""


def diagram() -> str:
    """The SVG. Colours follow the text around it."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        'aria-label="The roles of an agent, and what leads from one to another">',
        f"<style>{STYLE}</style>",
        '<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" '
        'markerHeight="8" orient="auto-start-reverse">'
        '<path d="M0 0 10 5 0 10z" fill="currentColor"/></marker></defs>',
        '<g fill="none" stroke="currentColor">',
        '<rect x="208" y="30" width="832" height="560" rx="14" stroke-opacity="0.25" '
        'stroke-dasharray="5 5"/>',
        '<path d="M178 300H206" stroke-width="1.5" marker-end="url(#tip)"/>',
        *(_arrow(move) for move in MOVES if move.before != "Quarantine"),
        "</g>",
        _box("Quarantine", (98, 300)),
        _text(98, 362, "to its durable role,", 15),
        _text(98, 382, "when neighbours", 15),
        _text(98, 402, "have answered", 15),
        *(_box(role, at) for role, at in CORNERS.items()),
        *(_label(move) for move in MOVES if move.before != "Quarantine"),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def table() -> list[str]:
    """The same as a table, with the events."""
    return [
        "| from | to | because | possible at |",
        "|---|---|---|---|",
        *(
            f"| {m.before} | {m.after} | {m.why} | {', '.join(f'`{e}`' for e in m.events)} |"
            for m in MOVES
        ),
    ]


def _ends(move: RoleChange) -> tuple[float, float, float, float]:
    """The arrow of a move: from border to border, to the right of the line between the centres."""
    (x1, y1), (x2, y2) = CORNERS[move.before], CORNERS[move.after]
    length = ((x2 - x1) ** 2 + (y2 - y1) ** 2) ** 0.5
    ux, uy = (x2 - x1) / length, (y2 - y1) / length
    aside = (-uy * APART, ux * APART)
    half = (BOX[0] / 2 + 4, BOX[1] / 2 + 4)
    border = min(half[0] / abs(ux) if ux else 1e9, half[1] / abs(uy) if uy else 1e9)
    return (
        x1 + ux * border + aside[0],
        y1 + uy * border + aside[1],
        x2 - ux * border + aside[0],
        y2 - uy * border + aside[1],
    )


def _arrow(move: RoleChange) -> str:
    x1, y1, x2, y2 = _ends(move)
    return (
        f'<path d="M{x1:.0f} {y1:.0f}L{x2:.0f} {y2:.0f}" stroke-width="1.5" '
        'marker-end="url(#tip)"/>'
    )


def _box(role: str, at: tuple[int, int]) -> str:
    x, y = at[0] - BOX[0] / 2, at[1] - BOX[1] / 2
    return (
        f'<rect x="{x:.0f}" y="{y:.0f}" width="{BOX[0]}" height="{BOX[1]}" rx="10" '
        'fill="currentColor" fill-opacity="0.06" stroke="currentColor" stroke-width="1.5"/>\n'
        f"{_text(at[0], at[1] - 3, role, 20, bold=True)}\n"
        f"{_text(at[0], at[1] + 20, MEANING[role], 15)}"
    )


def _label(move: RoleChange) -> str:
    x, y, anchor = LABELS[move.before, move.after]
    lines = move.why.replace(", ", ",\n").split("\n")
    return "\n".join(_text(x, y + 19 * i, line, 16, anchor=anchor) for i, line in enumerate(lines))


def _text(
    x: float, y: float, text: str, size: int, *, bold: bool = False, anchor: str = "middle"
) -> str:
    weight = ' font-weight="600"' if bold else ""
    return (
        f'<text x="{x:.0f}" y="{y:.0f}" font-size="{size}" text-anchor="{anchor}"{weight} '
        f'fill="currentColor">{escape(text)}</text>'
    )
