"""Certificates for tests: small networks with fixed keys that really run, erase and certify.

The keys are derived from the agents' names, so that everything signed is the same in every run.
They protect nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric import ec

from unweave.grid import Ints
from unweave.manifest import Manifest
from unweave.node.identity import Identity
from unweave.protocol.events import (
    Advance,
    Appraise,
    Certified,
    Effect,
    EraseRequested,
    Freeze,
    Judge,
    NextPoint,
    Solve,
    SolveResult,
    VoteCast,
)
from unweave.protocol.state import State
from unweave.simulator.world import World

__all__ = ["Bench", "fixed_identity", "fixed_request", "signed_manifest"]


ROWS = 8
CONJUGATE = {"name": "beta-bernoulli", "a": 2.0, "b": 2.0}
OTHER = {"name": "beta-exponential", "a": 3.0, "b": 3.0}


def fixed_identity(name: str) -> Identity:
    """An identity that everybody can make again from its name."""
    scalar = int.from_bytes(hashlib.sha256(f"unweave test key {name}".encode()).digest(), "big")
    return Identity(name, ec.derive_private_key(scalar, ec.SECP256R1()))


def fixed_request(name: str) -> bytes:
    """A request id for tests; real ones are random."""
    return hashlib.sha256(f"unweave test request {name}".encode()).digest()[:16]


def signed_manifest(names: Sequence[str], **settings: Any) -> Manifest:
    """A ring of agents with pinned certificates."""
    values: dict[str, Any] = {"name": "bench", "graph": "ring", "model": CONJUGATE} | settings
    agents = [{"name": n, "certificate": fixed_identity(n).certificate_pem} for n in names]
    return Manifest.make(agents=agents, **values)


class _Toy:
    """One agent's statistics: a count per row; without a conjugate model, also a small share of the
    cavity, so that factors move for a few passes after anything changes."""

    def __init__(self, identity: Identity, conjugate: bool, judgement: bool) -> None:
        self.keys = {identity.commit(f"row {r}"): r for r in range(ROWS)}
        self.conjugate = conjugate
        self.judgement = judgement

    def solve(self, work: Solve) -> SolveResult:
        rows = [r for key, r in self.keys.items() if key not in work.dropped]
        if not rows:
            return SolveResult(None)
        ones = sum(r % 3 == 0 for r in rows)
        units = np.array([ones, len(rows) - ones], dtype=np.int64) << 24
        if not self.conjugate:
            assert work.cavity is not None
            units[0] += int(work.cavity[0]) >> 10
            if work.current is not None and np.abs(units - work.current).max() < 1 << 10:
                return SolveResult(None, keep=True)
        return SolveResult(units)

    def judge(self, work: Judge) -> bool:
        return self.judgement

    def freeze(self, work: Freeze) -> Ints:
        return work.factor >> 20

    def appraise(self, work: Appraise) -> dict[str, Any]:
        assert work.frozen is not None
        return {"estimate": float(np.abs(work.frozen).sum()) * 2.0**-24, "bound": None}

    def advance(self, work: Advance) -> NextPoint:
        return NextPoint(work.point if work.eta is None else None)


class Bench:
    """A network at rest, to which erasures are put; `certificates` holds what it certified."""

    def __init__(
        self, names: Sequence[str] = "abcd", judgement: bool = True, **settings: Any
    ) -> None:
        self.manifest = signed_manifest(names, **settings)
        self.terms = self.manifest.terms()
        self.identities = [fixed_identity(name) for name in names]
        self.certificates: list[bytes] = []
        workers = [_Toy(i, self.terms.conjugate, judgement) for i in self.identities]
        self.world = World(
            self.terms, workers, signers=[i.sign for i in self.identities], observers=[self]
        )
        self.world.start()
        self.settle()

    def after(self, agent: int, before: State, after: State, effects: Sequence[Effect]) -> None:
        """Collect every certificate as it is written."""
        self.certificates += [e.certificate for e in effects if isinstance(e, Certified)]

    def settle(self) -> None:
        """Run until nothing is left to do."""
        while self.world.step():
            pass

    def request(self, name: str, request: str, rows: Sequence[int] | None = None) -> None:
        """Ask the owner to erase itself, or some of its rows; nothing runs yet."""
        k = self.terms.topology.index(name)
        keys = frozenset(self.identities[k].commit(f"row {r}") for r in rows or ())
        self.world.tell(k, EraseRequested(fixed_request(request), rows is None, keys, 0.0))

    def erase(self, name: str, request: str, rows: Sequence[int] | None = None) -> bytes:
        """The same, until it is certified."""
        self.request(name, request, rows)
        self.settle()
        return self.certificates[-1]

    def declare_departed(self, name: str, request: str) -> bytes:
        """Stop an agent for good; everybody else votes, its neighbours first."""
        target = self.terms.topology.index(name)
        near = self.terms.topology.adjacency[target]
        self.world.crash(target)
        for voters in (near, set(range(self.terms.size)) - {target, *near}):
            for k in sorted(voters):
                self.world.tell(k, VoteCast(target, fixed_request(request), 1e6))
            self.settle()
        return self.certificates[-1]
