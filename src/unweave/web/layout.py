"""Places of the agents in the unit square: the same graph has the same picture.

Rings, stars, complete graphs and grids are recognised. Other graphs start from their distances to a
few agents (PivotMDS: Brandes and Pich 2007), and springs then pull neighbours together and push all
others apart (Fruchterman and Reingold 1991).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from unweave.graph import Topology
from unweave.web.view import GraphView

__all__ = ["graph_view", "places"]

Floats = NDArray[np.float64]

_MARGIN = 0.04
_PIVOTS = 32
_WORK = 1.2e8  # pairs of agents over all steps of the springs: about a second
_STEPS = (10, 200)
_MOST = 4000  # agents; beyond them a step of the springs takes too long
_CIRCLE = 60  # agents of a complete graph, or leaves of a star, that one circle can show


def graph_view(graph: Topology) -> GraphView:
    return {
        "names": list(graph.agents),
        "edges": [(int(a), int(b)) for a, b in graph.edge_array],
        "places": places(graph),
    }


def places(graph: Topology) -> list[tuple[float, float]]:
    """A place for every agent, by index."""
    size = len(graph)
    if size == 1:
        return [(0.5, 0.5)]
    found = _grid(graph)
    if found is None:
        found = _circles(graph)
    if found is None:
        found = _springs(graph, _distances(graph))
    return [(round(float(x), 4), round(float(y), 4)) for x, y in _fitted(found)]


def _circle(order: NDArray[np.int64]) -> Floats:
    """The agents of `order` on a circle, clockwise from the top."""
    angle = np.empty(len(order))
    angle[order] = 2.0 * math.pi * np.arange(len(order)) / len(order)
    return np.stack([np.sin(angle), -np.cos(angle)], axis=1)


def _circles(graph: Topology) -> Floats | None:
    """A ring, a complete graph or a star."""
    size, degrees = len(graph), graph.degrees
    if (degrees == 2).all():
        return _circle(_around(graph))
    if size <= 3 or (size <= _CIRCLE and (degrees == size - 1).all()):
        return _circle(np.arange(size))
    hubs = np.flatnonzero(degrees == size - 1)
    if len(hubs) != 1 or (degrees > 1).sum() != 1:
        return None
    leaves = np.delete(np.arange(size), hubs[0])
    found = np.zeros((size, 2))
    found[leaves] = _disc(size - 1)
    return found


def _disc(number: int) -> Floats:
    """Leaves around a hub: one circle of few, several circles of many."""
    circles = math.ceil(number / _CIRCLE)
    radius = 0.35 + 0.65 * np.arange(1, circles + 1) / circles
    counts = np.floor(number * radius / radius.sum()).astype(int)
    counts[-1] += number - counts.sum()
    rings = [r * _circle(np.arange(n)) for r, n in zip(radius, counts, strict=True) if n]
    return np.concatenate(rings)


def _around(graph: Topology) -> NDArray[np.int64]:
    """The agents of a ring in their order."""
    order, before, here = [0], -1, 0
    while len(order) < len(graph):
        near = [int(k) for k in graph.adjacency[here] if k != before]
        before, here = here, near[0]
        order.append(here)
    return np.array(order)


def _grid(graph: Topology) -> Floats | None:
    """Rows one after the other, as `graph.grid` numbers them; a path is wound into such rows."""
    size, edges = len(graph), graph.edge_array
    path = len(edges) == size - 1 and (edges[:, 1] - edges[:, 0] == 1).all()
    if path and size > 3:
        columns = max(2, math.ceil(math.sqrt(size))) if size > 12 else size
        row, column = np.divmod(np.arange(size), columns)
        column = np.where(row % 2, columns - 1 - column, column)
        return np.stack([column, row], axis=1).astype(float)
    for columns in range(2, size // 2 + 1):
        rows = size // columns
        if size % columns or len(edges) != rows * (columns - 1) + (rows - 1) * columns:
            continue
        step = edges[:, 1] - edges[:, 0]
        across = (step == 1) & (edges[:, 0] // columns == edges[:, 1] // columns)
        if (across | (step == columns)).all():
            row, column = np.divmod(np.arange(size), columns)
            return np.stack([column, row], axis=1).astype(float)
    return None


def _distances(graph: Topology) -> Floats:
    """The two directions in which the distances to a few agents, far from each other, differ
    most."""
    size = len(graph)
    nearest = np.full(size, np.inf)
    columns, pivot = [], 0
    for _ in range(min(_PIVOTS, size)):
        hops = np.asarray(graph.distances(pivot), dtype=float)
        columns.append(hops**2)
        nearest = np.minimum(nearest, hops)
        pivot = int(nearest.argmax())
    squared = np.stack(columns, axis=1)
    centred = squared - squared.mean(axis=0) - squared.mean(axis=1, keepdims=True) + squared.mean()
    _, _, directions = np.linalg.svd(centred.T @ centred)
    found = centred @ directions[:2].T
    # Agents with equal distances would lie on one point: a fixed spiral takes them apart.
    turn = np.arange(size) * 2.399963
    spread = max(float(np.abs(found).max()), 1.0)
    spiral = np.sqrt(np.arange(size) / size)[:, None] * np.stack(
        [np.cos(turn), np.sin(turn)], axis=1
    )
    return np.asarray(found / spread + 0.15 * spiral)


def _springs(graph: Topology, found: Floats) -> Floats:
    size = len(graph)
    if size > _MOST:
        return found
    steps = int(np.clip(_WORK / size**2, *_STEPS))
    place = _fitted(found).astype(np.float32)
    wanted = np.float32(1.0 / math.sqrt(size))
    head, tail = graph.edge_array.T
    for step in range(steps):
        dx = place[:, 0, None] - place[None, :, 0]
        dy = place[:, 1, None] - place[None, :, 1]
        push = dx * dx
        push += dy * dy
        np.maximum(push, np.float32(1e-6), out=push)
        np.divide(wanted * wanted, push, out=push)
        force = np.stack([np.einsum("ij,ij->i", dx, push), np.einsum("ij,ij->i", dy, push)], axis=1)
        along = place[head] - place[tail]
        pull = along * (np.sqrt((along**2).sum(axis=1, keepdims=True)) / wanted)
        for axis in (0, 1):
            force[:, axis] -= np.bincount(head, pull[:, axis], size)
            force[:, axis] += np.bincount(tail, pull[:, axis], size)
        length = np.maximum(np.sqrt((force**2).sum(axis=1, keepdims=True)), 1e-9)
        longest = 0.1 * (1.0 - step / steps)
        place += (force / length * np.minimum(length, longest)).astype(np.float32)
    return place.astype(float)


def _fitted(found: Floats) -> Floats:
    """Moved and scaled into the unit square, with a margin; a line lies in its middle."""
    low, high = found.min(axis=0), found.max(axis=0)
    scale = (1.0 - 2.0 * _MARGIN) / max(float((high - low).max()), 1e-12)
    fitted: Floats = 0.5 + (found - 0.5 * (low + high)) * scale
    return fitted
