"""Views in every state of the page, and a source that shows one of them.

The real sources decide what happens; these views decide what can be seen: states that a run
reaches rarely, names of any length and with any characters, and any number of agents.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence
from copy import deepcopy
from typing import Any, cast

import numpy as np

from unweave.errors import ConfigError
from unweave.graph import Topology, graphs
from unweave.web import view as values
from unweave.web.layout import graph_view
from unweave.web.source import Feed, NotFound

__all__ = ["CITIES", "SceneSource", "controls", "masked", "scene"]

Json = dict[str, Any]  # a view that is being written

CITIES = (
    *("Aachen", "Bergen", "Cork", "Dijon", "Esbjerg"),
    *("Faro", "Ghent", "Haarlem", "Imola", "Jena"),
)


def _normal(mean: float, sd: float, points: int = 121) -> tuple[list[float], list[float]]:
    x = np.linspace(mean - 4 * sd, mean + 4 * sd, points)
    return x.tolist(), (np.exp(-(((x - mean) / sd) ** 2) / 2) / sd / 2.5066).tolist()


def _parameters(names: Sequence[str]) -> list[Json]:
    found = []
    for place, name in enumerate(names):
        mean, sd = 0.37 + 0.4 * math.sin(3 * place), 0.034 + 0.01 * (place % 3)
        found.append(
            {
                "name": name,
                "mean": mean,
                "sd": sd,
                "low": mean - 1.96 * sd,
                "high": mean + 1.96 * sd,
                "prior_mean": 0.0,
                "prior_sd": 0.5,
                "prior_low": -0.98,
                "prior_high": 0.98,
            }
        )
    return found


def _graph(size: int) -> Topology:
    if size <= 5:
        return graphs.ring(size)
    if size <= 100:
        return graphs.erdos_renyi(size, 2.4 / size + 0.08, 3)
    return graphs.watts_strogatz(size, 4, 0.05, seed=1)


def scene(
    kind: str = "rest",
    names: Sequence[str] = CITIES,
    *,
    parameters: Sequence[str] = ("θ",),
    simulated: bool = False,
) -> Json:
    """A view: `kind` is a state of `Summary`, or "erased"."""
    names = list(names)
    size = len(names)
    now = 41.5 if simulated else time.time()
    graph = _graph(size)
    starting, down = kind == "starting", kind == "waiting"
    agents: dict[str, Json] = {}
    for index, name in enumerate(names):
        agents[name] = {"index": index, "state": "in", "attested": kind in ("rest", "erased")}
        agents[name] |= {"revision": 1 + index % 4, "posterior": "epoch 3, hop 151"}
        agents[name] |= {"posterior_at": now - 4 - 7 * index % 600}
        if starting or (kind == "learning" and index > 0.6 * size):
            agents[name] = {
                "index": index,
                "state": "pending",
                "attested": False,
                "why": "The token has not visited this agent yet; wait for the pass to end.",
            }
    if kind == "learning":
        agents[names[2]] |= {"state": "solving"}
    if down:
        agents[names[1]] = {
            "index": 1,
            "state": "down",
            "attested": False,
            "why": f"{names[1]} does not answer; start it with: unweave agent net/{names[1]}",
        }
    if kind == "erased":
        agents[names[3]] = {"index": 3, "state": "erased", "attested": False}
        agents[names[4]] = {"index": 4, "state": "departed", "attested": False}
    counts: dict[str, int] = {}
    for agent in agents.values():
        counts[agent["state"]] = counts.get(agent["state"], 0) + 1
    view: Json = {
        "title": "Hospitals of the coast",
        "kind": "simulation" if simulated else "network",
        "clock": now,
        "model": "Beta-Bernoulli",
        "settings": {"Prior": "Beta(1, 1)", "Schedule": "sweep", "Grid": "2^-20 per unit"},
        "privacy": "plain",
        "seen": "Plain mode: neighbours of an agent can compute its factor; no one sees records.",
        "may_erase": names[:40],
        "summary": {
            "state": "rest" if kind == "erased" else kind,
            "text": _SENTENCES[kind].format(first=names[1], size=size),
            "agents": counts,
            "hops": 0 if starting else 1151,
            "epoch": 3,
            "attested": size if kind in ("rest", "erased") else 2,
        },
        "graph": graph_view(graph) | {"names": names},
        "agents": agents,
        "token": {"state": "none"}
        if starting
        else {
            "state": {"learning": "solving", "rest": "parked", "erased": "parked"}.get(
                kind, "moving"
            ),
            "at": 2,
            "epoch": 3,
            "hop": 151,
            "visits": [(0, now - 3), (1, now - 2), (2, now - 1)],
        },
        "waits": {},
        "posterior": {"state": "none", "why": "No posterior yet: the first pass has not ended."},
        "series": {
            "progress": _series("Free energy to the optimum", now, 0.07, log=True, empty=starting),
            "residual": _series("Residual", now, 0.02, log=True, empty=starting),
            "rate": _series("Hops per second", now, 9.3, empty=starting) | {"unit": "hops/s"},
        },
        "erasures": {},
        "timeline": {} if starting else _timeline(names, now, kind),
    }
    if not starting:
        view["posterior"] = {
            "state": "complete" if kind in ("rest", "erased") else "incomplete",
            "version": "epoch 3, hop 151",
            "at": now - 12,
            "total": len(parameters),
            "parameters": _parameters(parameters)[:200],
        }
    if kind == "learning":
        view["posterior"]["why"] = f"The sum holds {counts.get('in', 0)} of {size} agents so far."
    if down:
        view["waits"] = {
            "pass": {
                "what": "The pass cannot go on.",
                "why": f"{names[1]} has not acknowledged the token for 42 s.",
                "fix": f"Start the agent: unweave agent net/{names[1]}",
                "agents": [names[1]],
            },
            "batch": {
                "what": "The erasure of 3 records of Cork waits for its batch.",
                "why": "A batch holds at least 4 agents, so that no single factor can be computed.",
                "fix": "Wait until 14:30, or ask again without the batch.",
                "agents": names[2:10],
            },
        }
        view["erasures"] = {"r9": _erasure(names[2], "waiting", now)}
    if kind == "failed":
        view["waits"] = {
            "audit": {
                "what": "The network serves no posterior.",
                "why": "Two agents found that the sum differs from the sum of the factors.",
                "fix": "Find the agent at fault with unweave status, and vote it out.",
                "agents": names[3:5],
            }
        }
        view["posterior"] = {
            "state": "none",
            "why": "The audit failed: no posterior is served until another agent is voted out.",
        }
    if kind == "erased":
        view["erasures"] = {
            "r1": _erasure(names[5], "asked", now),
            "r2": _erasure(names[3], "certified", now),
        }
    return view


_SENTENCES = {
    "starting": "The network starts: 0 of {size} agents have answered.",
    "learning": "The agents learn: the token is on its first pass.",
    "rest": "The network is at rest. All {size} agents are in the sum, and the audit matched.",
    "waiting": "The network waits for {first}, which does not answer.",
    "failed": "The audit failed twice. The network has stopped and serves no posterior.",
    "erased": "The network is at rest. One agent is erased; a certificate proves it.",
    "down": "No agent answers on this machine.",
}


def _erasure(agent: str, state: str, now: float) -> Json:
    found: Json = {
        "agent": agent,
        "scope": "everything" if state != "waiting" else "3 records",
        "state": state,
        "text": {
            "waiting": "It waits for its batch, until 14:30 at the latest.",
            "asked": "The request is durable; the token goes to the agent by the shortest path.",
            "removed": "The factor is out of the sum; the others attest.",
            "certified": "All remaining agents have attested. The certificate is ready.",
        }[state],
        "asked_at": now - 240,
        "certificate": state == "certified",
    }
    if state == "certified":
        found |= {"done_at": now - 60, "kind": "exact", "change": [("θ", 0.012, -0.0031)]}
    return found


def _series(title: str, now: float, last: float, *, log: bool = False, empty: bool = False) -> Json:
    number = 160
    points = [
        (
            now - 2 * (number - k),
            last * (10 ** (1.5 * (1 - k / number)) if log else 1 + 0.2 * math.sin(k / 5)),
        )
        for k in range(number)
    ]
    return {
        "title": title,
        "x": "time",
        "log": log,
        "empty": "No visit has been measured yet.",
        "points": [] if empty else points,
    }


def _timeline(names: Sequence[str], now: float, kind: str) -> Json:
    found: list[Json] = [
        {
            "at": now - 900,
            "text": f"The network started with {len(names)} agents.",
            "level": "info",
        },
        {
            "at": now - 820,
            "text": f"{names[2]} added its factor, revision 1.",
            "level": "info",
            "agent": names[2],
        },
        {
            "at": now - 700,
            "until": now - 300,
            "times": 214,
            "text": "The token moved on.",
            "level": "info",
        },
        {
            "at": now - 400,
            "text": f"{names[1]} did not acknowledge the token; it took another way.",
            "level": "warning",
        },
        {"at": now - 280, "text": "All agents attested, and the audit matched.", "level": "good"},
    ]
    if kind == "failed":
        found.append(
            {
                "at": now - 20,
                "text": f"{names[3]} found a second audit mismatch: the network stopped.",
                "level": "failure",
            }
        )
    if kind == "erased":
        found.append(
            {"at": now - 60, "text": f"The erasure of {names[3]} is certified.", "level": "good"}
        )
    return {str(number): entry for number, entry in enumerate(found)}


def masked(view: Json) -> Json:
    """The same in private rounds: nothing about single agents."""
    view = deepcopy(view)
    view["privacy"] = "masked"
    view["seen"] = "Masked mode: neighbours see only the sum of all agents, never a single factor."
    for agent in view["agents"].values():
        agent.pop("revision", None)
    return view


def controls(view: Json) -> Json:
    """The same as a simulation, with its controls."""
    view = deepcopy(view)
    view["kind"] = "simulation"
    view["controls"] = {
        "playing": False,
        "speed": 2.0,
        "faults": {
            "lose": "Lose a message",
            "partition": "Cut the network in two",
            "crash": "Crash",
            "disk": "Lose its disk",
        },
        "of_agent": ["crash", "disk"],
    }
    return view


class SceneSource:
    """Shows one view, and plays an erasure from the request to the certificate."""

    feed: Feed
    loop: asyncio.AbstractEventLoop

    def __init__(self, view: Json) -> None:
        self._view = view
        self.wishes: list[values.ErasureWish] = []
        self.pressed: list[values.Control] = []
        self.looked_at: list[str] = []  # agents whose details were wanted
        self.refuses = ""  # why the next presses are refused
        self.batched = False
        self._tasks: set[asyncio.Task[None]] = set()

    def view(self) -> values.View:
        return cast("values.View", deepcopy(self._view))

    async def run(self, feed: Feed) -> None:
        self.feed, self.loop = feed, asyncio.get_running_loop()
        await asyncio.Event().wait()

    def change(self, patch: Json) -> None:
        self.loop.call_soon_threadsafe(self.feed.change, patch)

    def points(self, points: values.Points) -> None:
        self.loop.call_soon_threadsafe(self.feed.points, points)

    async def curves(self, names: Sequence[str], moments: Sequence[str]) -> values.CurvesAnswer:
        found: Json = {}
        for one in self._view["posterior"]["parameters"]:
            if one["name"] not in names:
                continue
            x, y = _normal(one["mean"], one["sd"])
            px, py = _normal(one["prior_mean"], one["prior_sd"])
            found[one["name"]] = [
                {"label": "posterior", "x": x, "y": y},
                {"label": "prior", "x": px, "y": py},
            ]
            for moment in moments:
                x, y = _normal(one["mean"] + 0.03, 1.2 * one["sd"])
                found[one["name"]].append({"label": moment, "x": x, "y": y})
        return {"version": "epoch 3, hop 151", "curves": found}

    async def moment(self, moment: str) -> values.MomentAnswer:
        found = [
            one | {key: one[key] + 0.03 for key in ("mean", "low", "high")}
            for one in self._view["posterior"]["parameters"]
        ]
        (label,) = [
            one["label"] for one in self._view["posterior"]["moments"] if one["id"] == moment
        ]
        return {"label": label, "parameters": cast("list[values.ParameterView]", found)}

    async def agent(self, name: str) -> values.AgentDetails:
        self.looked_at.append(name)
        if name not in self._view["agents"]:
            raise NotFound(f"{name}: no such agent. Fix: choose one of the table")
        return {
            "name": name,
            "facts": {
                "Address": "127.0.0.1:7012",
                "Records": "1,204, read 3 min ago",
                "Process": "4711, since 14:02",
                "Revision": "2 of incarnation 9f3a",
            },
            "receipts": [
                {
                    "at": self._view["clock"] - 90,
                    "text": "Added its factor, revision 2.",
                    "level": "info",
                },
                {
                    "at": self._view["clock"] - 800,
                    "text": "Added its factor, revision 1.",
                    "level": "info",
                },
            ],
            "influence": 0.0421,
            "influence_text": "KL from the posterior to the posterior without this agent, in nats.",
        }

    async def certificate(self, request: str) -> tuple[str, bytes]:
        return f"certificate-{request}.json", b'{"certificate": true}'

    async def report(self) -> bytes:
        return b"<!doctype html><title>Report</title><p>A report.</p>"

    async def verify(self, certificate: bytes) -> values.Verification:
        if b"certificate" not in certificate:
            raise ConfigError("certificate: not JSON. Fix: drop the file that was downloaded")
        return {
            "valid": True,
            "text": "9 of 9 remaining agents have signed that Dijon is erased.",
            "erasures": [{"Agent": "Dijon", "What": "everything", "Kind": "exact"}],
            "proves": ["The factor of Dijon is not in the sum.", "All remaining agents agree."],
            "does_not_prove": ["Files of Dijon are deleted from its disks.", "The data were true."],
        }

    async def preview(self, wish: values.ErasureWish) -> values.ErasurePreview:
        keys = wish.get("keys")
        what = f"{len(keys)} records of {wish['agent']}" if keys else f"All data of {wish['agent']}"
        found: values.ErasurePreview = {
            "what": f"{what} will be removed from the posterior of the whole network.",
            "steps": [
                f"The token goes to {wish['agent']} by the shortest path.",
                "The agent takes its factor out and signs a tombstone.",
                "Every remaining agent attests the new sum; a certificate is written.",
            ],
            "shown": [
                "Neighbours that saw the sum before and after can compute the erased factor.",
                "Everybody sees the change of mean and sd, to two digits.",
            ],
            "irreversible": "This cannot be undone. The agent can add new data later.",
        }
        if self.batched:
            found["batched"] = True
        return found

    async def erase(self, wish: values.ErasureWish) -> str:
        self.wishes.append(wish)
        request = f"r{len(self.wishes)}"
        task = self.loop.create_task(self._erase(request, wish["agent"]))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return request

    async def _erase(self, request: str, agent: str) -> None:
        for state in ("asked", "removed", "certified"):
            self.feed.change({"erasures": {request: _erasure(agent, state, time.time())}})
            if state == "removed":
                self.feed.change({"agents": {agent: {"state": "erased", "attested": False}}})
            await asyncio.sleep(0.3)

    async def control(self, control: values.Control) -> None:
        self.pressed.append(control)
        if self.refuses:
            raise ConfigError(self.refuses)
        if control["do"] in ("play", "pause"):
            self.feed.change({"controls": {"playing": control["do"] == "play"}})
