"""The page of 2,000 agents: frames per second in headless Chromium while they change, and how long
a simulation of them holds back the page's server.

Frames are measured by the time between animation frames, with software rendering: a machine with a
graphics processor does more.
"""

from __future__ import annotations

import math
import statistics
import time
from itertools import pairwise
from typing import cast

from tests.support.chromium import launch
from tests.support.scenes import SceneSource, scene

from benchmarks.harness import benchmark
from unweave.address import Address
from unweave.manifest import Manifest
from unweave.simulator.run import draw_shards
from unweave.web.server import PageServer
from unweave.web.simulated.simulation import SimulationSource
from unweave.web.simulated.specification import Simulated

AGENTS = 2000
SECONDS = 6.0
SLICED = 15.0  # seconds of a simulation
# The times of all animation frames from now on.
FRAMES = """() => {
  window.frames_at = [];
  const note = at => { window.frames_at.push(at); requestAnimationFrame(note); };
  requestAnimationFrame(note);
}"""


def frames_per_second() -> float:
    """The median, while the token moves 64 hops and 100 agents change ten times a second."""
    names = [f"clinic-{k:04}" for k in range(AGENTS)]
    source = SceneSource(scene("learning", names))
    with PageServer(source, Address("127.0.0.1", 0), code=None) as server, launch() as browser:
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        page.goto(server.url)
        page.wait_for_selector("body.ready")
        page.wait_for_timeout(1000)
        page.evaluate(FRAMES)
        start, turn = time.monotonic(), 0
        while time.monotonic() < start + SECONDS:
            state = "solving" if turn % 2 else "in"
            some = range(100 * turn % AGENTS, 100 * turn % AGENTS + 100)
            source.change({"agents": {names[k]: {"state": state} for k in some}})
            visits = [((7 * turn + k) % AGENTS, 1e10 + turn + k / 100) for k in range(64)]
            source.change({"token": {"state": "moving", "at": visits[-1][0], "visits": visits}})
            turn += 1
            page.wait_for_timeout(100)
        frames = cast("list[float]", page.evaluate("window.frames_at"))
    return 1000 / statistics.median(b - a for a, b in pairwise(frames))


@benchmark("page, 2,000 agents: frames per second", target=60.0, unit="fps")
def page_frames() -> float:
    return round(frames_per_second())


@benchmark(
    "page, 2,000 simulated agents: CPU time of a slice, 99th percentile",
    target=20.0,
    unit="ms",
    at_most=True,
)
def page_slices() -> float:
    """A slice holds back the page's own thread and whoever presses a button."""
    manifest = Manifest.make(
        name="clinics", agents=AGENTS, graph="watts-strogatz", model={"name": "beta-bernoulli"}
    )
    model = manifest.build_model()
    shards = draw_shards(model, manifest.topology.agents, 3)
    network = Simulated(manifest, model, shards, "synthetic", None, None, 3, None, str)
    source = SimulationSource(network)
    slices: list[float] = []
    end = time.monotonic() + SLICED
    while time.monotonic() < end:
        began = time.thread_time()
        source._slice(math.inf)
        slices.append(time.thread_time() - began)
    return 1e3 * statistics.quantiles(slices, n=100)[-1]
