"""Hitting times of the random walk: exact, by linear algebra.

The walk of `eq:mh_rule` has P_kj = min(1/deg k, 1/deg j) for neighbours and P_kk = 1 − Σ_j P_kj: P
is symmetric, so its stationary distribution is uniform. The expected steps h to a target solve
(I − P) h = 1 off the target, h = 0 on it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from unweave.errors import GraphError
from unweave.graph.topology import Topology

__all__ = ["first_visit", "hitting_times", "move_probabilities", "transition_matrix"]

_DENSE = 2000  # agents up to which a K × K matrix is solved directly
_TOLERANCE = 1e-13
_MOST_ITERATIONS = 3000
_TREE_LIKE = 2.2  # mean degree up to which elimination fills in little; a tree or a cycle has 2

Floats = NDArray[np.float64]


def move_probabilities(topology: Topology) -> tuple[Floats, Floats]:
    """P_kj for every entry of `topology.indices`, and the probability P_kk of staying."""
    degrees = topology.degrees.astype(np.float64)
    heads = np.repeat(np.arange(len(topology)), topology.degrees)
    moves = 1.0 / np.maximum(degrees[heads], degrees[topology.indices])
    leave = np.bincount(heads, weights=moves, minlength=len(topology))
    # 1 − leave is zero up to rounding where every neighbour accepts.
    return moves, np.maximum(1.0 - leave, 0.0)


def transition_matrix(topology: Topology) -> Floats:
    """P as a dense K × K matrix, for small graphs."""
    count = len(topology)
    if count > 4 * _DENSE:
        raise GraphError(
            f"a {count} × {count} transition matrix is too large. Fix: use move_probabilities"
        )
    moves, stay = move_probabilities(topology)
    heads = np.repeat(np.arange(count), topology.degrees)
    P = np.zeros((count, count))
    P[heads, topology.indices] = moves
    P[np.arange(count), np.arange(count)] = stay
    return P


def hitting_times(topology: Topology, target: str | int) -> Floats:
    """Expected steps from every agent until `target` is first scheduled (0 at the target)."""
    t = topology.index(target)
    count = len(topology)
    if count == 1:
        return np.zeros(1)
    if count > _DENSE:
        return _hitting_times_sparse(topology, t)
    # I − P from the moves: 1 − P_kk would lose digits where an agent nearly always keeps the token.
    A = -transition_matrix(topology)
    np.fill_diagonal(A, 0.0)
    np.fill_diagonal(A, -A.sum(axis=1))
    others = np.delete(np.arange(count), t)
    h = np.zeros(count)
    h[others] = np.linalg.solve(A[np.ix_(others, others)], np.ones(count - 1))
    return h


def first_visit(topology: Topology, target: str | int) -> float:
    """Expected iteration at which `target` is first scheduled; the uniform start is iteration 1.

    On the complete graph this is the paper's 1/K + K − 1.
    """
    return 1.0 + float(hitting_times(topology, target).mean())


def _hitting_times_sparse(topology: Topology, t: int) -> Floats:
    """The Poisson equation (I − P) x = 1 − K e_t; then h = x − x_t.

    P is symmetric, so conjugate gradients apply; they converge quickly if the walk mixes fast. If
    the walk mixes slowly, the graph is close to a line or a tree, and sparse elimination is cheap.
    """
    from scipy.sparse import csr_array, diags_array
    from scipy.sparse.linalg import cg, splu

    count = len(topology)
    moves, _ = move_probabilities(topology)
    off = csr_array((-moves, topology.indices, topology.indptr), shape=(count, count))
    leave = -np.asarray(off.sum(axis=1))
    A: Any = (diags_array(leave) + off).tocsr()
    b = np.ones(count)
    b[t] = 1.0 - count
    if topology.indices.size > _TREE_LIKE * count:
        jacobi = diags_array(1.0 / leave).tocsr()
        x, failed = cg(A, b, rtol=_TOLERANCE, maxiter=_MOST_ITERATIONS, M=jacobi)
        if not failed:
            return np.asarray(x - x[t], dtype=np.float64)
    keep = np.delete(np.arange(count), t)
    h = np.zeros(count)
    h[keep] = splu(A[keep][:, keep].tocsc(), permc_spec="MMD_AT_PLUS_A").solve(np.ones(count - 1))
    return h
