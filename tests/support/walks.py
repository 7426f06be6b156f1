"""How much code one thing passes through: a hop of the token, and the sum of a CSV column.

    python -m tests.support.walks            a table
    python -m tests.support.walks --list     and the modules, with their crossings

A *module* counts if one of its functions runs. A *crossing* is a call from a function of one module
to a function of another, each time; libraries between the two are not looked at. Both are found by
profiling real runs: agents with driver, codec, storage and solver, on a transport in memory.

A hop is what happens from one arrival of the token to the next: it is stored, visited, stored,
signed, sent, received, checked and decoded. Hops differ: the widest one also reads the agent's data
and computes its factor, and is the one that counts. The numbers before the code was divided into
rooms follow from the same definitions: this script finds them there (10 modules and 23 crossings of
the sum, 53 to 55 modules of the hop).
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from tests.support.nodes import QUICK, nodes, until
from tests.support.processes import Processes
from unweave.models import GammaPoisson
from unweave.node.data.private import PrivateData
from unweave.node.data.source import DataSource

__all__ = ["Walk", "csv_walk", "hop_walks"]

# Before the code was divided into rooms: modules and crossings.
_BEFORE = {"one token hop": (54, "–"), "one CSV sum": (10, 23)}


class Walk:
    """The modules that ran, and the calls from one into another."""

    def __init__(self) -> None:
        self.modules: set[str] = set()
        self.crossings: Counter[tuple[str, str]] = Counter()

    def call(self, frame: FrameType) -> None:
        module = _module(frame)
        if module is None:
            return
        self.modules.add(module)
        caller = frame.f_back
        while caller is not None and _module(caller) is None:  # a library between two of ours
            caller = caller.f_back
        origin = None if caller is None else _module(caller)
        if caller is not None and origin is not None and origin != module:
            self.crossings[origin, module] += 1


def _module(frame: FrameType) -> str | None:
    name = frame.f_globals.get("__name__", "")
    return name if name.startswith("unweave.") else None


@contextmanager
def _profiled(current: Callable[[], Walk]) -> Iterator[None]:
    """Calls in this thread, and in those that begin meanwhile, go to the walk that is current."""

    def profile(frame: FrameType, event: str, arg: Any) -> None:
        if event == "call":
            current().call(frame)

    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        yield
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def hop_walks(root: Path) -> list[Walk]:
    """One walk for each hop of a fit of three agents, from the first arrival to the last."""

    async def learn() -> list[Walk]:
        net = Processes(root / "net", agents=3, graph="path", timeouts=QUICK)
        hops: dict[int, Walk] = {}
        agents: dict[str, Any] = {}

        def current() -> Walk:
            arrived = sum(node.counts["tokens received"] for node in agents.values())
            return hops.setdefault(arrived, Walk())

        with _profiled(current):
            async with nodes(net) as running:
                agents |= running
                await until(lambda: all(n.state and n.state.token.parked for n in agents.values()))
        # Before the first arrival agents start, and after the last one they stop.
        return [hops[k] for k in sorted(hops)[1:-1]]

    return asyncio.run(learn())


def csv_walk(root: Path) -> Walk:
    """From a CSV file of counts to the sum of the model's statistics."""
    (root / "data.csv").write_text("x\n" + "\n".join("3142" * 25) + "\n", encoding="utf-8")
    model, walk = GammaPoisson(), Walk()
    data = PrivateData(root, DataSource(path="data.csv"), model, "a1", b"a secret")
    with _profiled(lambda: walk):
        found = data.statistics()
    assert model.grid.decode(found).tolist() == [250.0, 100.0]
    return walk


def main() -> None:
    out = sys.stdout
    with tempfile.TemporaryDirectory() as root:
        hops = hop_walks(Path(root))
        hop = max(hops, key=lambda walk: len(walk.modules))
        walks = {"one token hop": hop, "one CSV sum": csv_walk(Path(root))}
    out.write(f"{'':14} {'modules':>8} {'before':>7} {'crossings':>10} {'before':>7}\n")
    for name, walk in walks.items():
        modules, crossings = _BEFORE[name]
        out.write(f"{name:14} {len(walk.modules):8} {modules:>7} {walk.crossings.total():10}")
        out.write(f" {crossings:>7}\n")
    least = min(len(walk.modules) for walk in hops)
    out.write(f"{len(hops)} hops: from {least} to {len(hop.modules)} modules\n")
    if "--list" in sys.argv:
        for name, walk in walks.items():
            out.write(f"\n{name}: crossings into each module\n")
            for module in sorted(walk.modules):
                into = sum(n for (_, to), n in walk.crossings.items() if to == module)
                out.write(f"  {into:4}  {module}\n")


if __name__ == "__main__":
    main()
