"""A network of real processes in a folder, to be killed, frozen, robbed of its disk and healed.

    with Processes(tmp_path / "net", agents=4) as net:
        net.start()
        net.rest()
        net.kill("a2"); net.start("a2")
        assert set(net.rest().values()) == {net.expected()}

Every wait is bounded, and says which agents are not there yet. `expected()` is the result in
memory: the sum of the model's own factors, without what was erased.
"""

from __future__ import annotations

import contextlib
import csv
import os
import secrets
import shutil
import signal
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from unweave.errors import UnweaveError
from unweave.grid import digest
from unweave.models import BetaBernoulli, ConjugateModel, Model
from unweave.node.api.client import AgentDown, Operator
from unweave.node.process import is_restarting
from unweave.operations.create import create_network
from unweave.operations.supervisor import Child, Process
from unweave.protocol.token import request_id
from unweave.testing.transport import free_ports

__all__ = ["TIMEOUTS", "Processes", "erase", "is_clean"]


# Shorter than the defaults, so that healing takes seconds; long enough for a busy machine.
TIMEOUTS = {"welcome": 1.5, "resend": 0.5, "ack": 4.0, "alive": 1.0, "loss": 10.0}
_LIMIT = 180.0  # seconds; nothing here takes as long, on any machine


class Processes:
    """K agents as child processes, each with a folder of its own under `root`."""

    def __init__(
        self,
        root: Path,
        agents: int | Sequence[str] = 4,
        *,
        graph: str = "ring",
        model: Model | None = None,
        rows: int = 20,
        seed: int = 0,
        addresses: Sequence[str] | None = None,
        metrics: bool = False,
        timeouts: Mapping[str, float] = TIMEOUTS,
        draw: Callable[[Any, int], Any] | None = None,
        restart_interval: float | None = None,
        key_suffix: str = "",
        **settings: Any,
    ) -> None:
        self.root = root
        self.key_suffix = key_suffix
        self.model = BetaBernoulli(a=1.0, b=1.0) if model is None else model
        count = agents if isinstance(agents, int) else len(agents)
        self.names = [f"a{k + 1}" for k in range(count)] if isinstance(agents, int) else [*agents]
        ports = free_ports(2 * count)
        create_network(
            root,
            name=root.name,
            model=self.model,
            agents=self.names,
            addresses=addresses or [f"127.0.0.1:{port}" for port in ports[:count]],
            data={name: {"path": "data.csv", "key": "id"} for name in self.names},
            graph=graph,
            metrics=[f"127.0.0.1:{port}" for port in ports[count:]] if metrics else (),
            seed=seed,
            timeouts=dict(timeouts),
            **settings,
        )
        if restart_interval is not None:
            for name in self.names:
                file = self.folder(name) / "agent.toml"
                file.write_text(f"restart_interval = {restart_interval}\n{file.read_text()}")
        self.metrics = ports[count:]
        self.children = {name: Child(self.folder(name)) for name in self.names}
        self.rows: dict[str, dict[str, float]] = {name: {} for name in self.names}
        self.out: set[str] = set()  # agents that were erased or have departed
        rng = np.random.default_rng(seed)
        for name in self.names:
            values = rng.integers(0, 2, rows) if draw is None else draw(rng, rows)
            self.append(name, [float(v) for v in values])

    def folder(self, name: str) -> Path:
        return self.root / "agents" / name

    # ------------------------------------------------------------------------------------- data

    def append(self, name: str, values: Iterable[float]) -> list[str]:
        """New rows in an agent's file; returns their keys."""
        rows = self.rows[name]
        keys = []
        for value in values:
            key = f"{name}-{len(rows)}{self.key_suffix}"
            rows[key] = value
            keys.append(key)
        # The erased keys stay in the file: reading them again must not bring them back.
        part = self.folder(name) / "data.csv.part"
        with part.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["id", *self.model.columns])
            writer.writerows([key, repr(value)] for key, value in rows.items())
        os.replace(part, self.folder(name) / "data.csv")
        return keys

    def expected(self, without: Mapping[str, Iterable[str]] | None = None) -> str:
        """Digest of the posterior in memory, without these keys and without who is out."""
        assert isinstance(self.model, ConjugateModel)
        eta = self.model.eta0
        for name in self.names:
            gone = set((without or {}).get(name, ()))
            kept = [value for key, value in self.rows[name].items() if key not in gone]
            if name not in self.out and kept:
                shard = self.model.shard(np.array(kept), name)
                eta = self.model.grid.add(eta, self.model.factor(shard))
        return digest(eta).hex()

    # ---------------------------------------------------------------------------------- processes

    def start(self, *names: str) -> None:
        """Start agents (all, if none is named) and wait until each answers its operator."""
        chosen = names or tuple(self.names)
        for name in chosen:
            self.children[name].start()
        self.ready(*chosen)

    def ready(self, *names: str) -> None:
        def missing() -> list[str]:
            for name in names:
                code = self.children[name].poll()
                if code is not None:
                    raise UnweaveError(f"{name} exited with {code}: {self.log(name)[-600:]}")
            found = self.statuses(*names)
            return [n for n in names if found.get(n, {}).get("phase", "starting") == "starting"]

        self.wait("to start", missing)

    def clean(self, *names: str) -> None:
        """Wait until the agents have replaced the processes that may hold erased values."""

        def missing() -> list[str]:
            found = self.statuses(*names)
            return [n for n in names or self.names if n not in found or not is_clean(found[n])]

        self.wait("to replace its process", missing)

    def process(self, name: str) -> Process:
        process = self.children[name].process
        assert process is not None
        return process

    def running(self) -> list[str]:
        return [
            n
            for n, child in self.children.items()
            if child.process and child.pid and child.poll() is None
        ]

    def kill(self, *names: str) -> None:
        """As a power cut: no warning."""
        for name in names:
            self.process(name).kill()
        for name in names:
            self.process(name).wait()

    def stop(self, *names: str) -> list[int]:
        """As an operator does; returns the exit codes."""
        chosen = [n for n in (names or self.names) if n in self.running()]
        for name in chosen:
            self.process(name).terminate()
        return [self.process(name).wait(_LIMIT) for name in chosen]

    def freeze(self, name: str) -> None:
        self.process(name).send_signal(signal.SIGSTOP)

    def thaw(self, name: str) -> None:
        self.process(name).send_signal(signal.SIGCONT)

    def log(self, name: str) -> str:
        path = self.folder(name) / "agent.log"
        return path.read_text(errors="replace") if path.exists() else ""

    # ------------------------------------------------------------------------------------ disks

    def backup(self, name: str, to: Path) -> None:
        """A copy of the store of an agent that is down."""
        to.mkdir()
        for file in self.folder(name).glob("store.db*"):
            shutil.copy2(file, to / file.name)

    def restore(self, name: str, source: Path) -> None:
        self.lose(name)
        for file in source.glob("store.db*"):
            shutil.copy2(file, self.folder(name) / file.name)

    def lose(self, name: str) -> None:
        """The store is gone; key, certificate and data are still there."""
        for file in self.folder(name).glob("store.db*"):
            file.unlink()

    # ----------------------------------------------------------------------------------- asking

    def ask(self, name: str, do: str, **request: Any) -> dict[str, Any]:
        """As a patient operator, who starts replaced processes meanwhile."""
        while True:
            self.running()
            restarting = is_restarting(self.folder(name))
            try:
                with Operator(self.folder(name), 30.0, patient=False) as operator:
                    return operator.ask(do, **request)
            except AgentDown:
                if not restarting and not is_restarting(self.folder(name)):
                    raise
            time.sleep(0.1)

    def statuses(self, *names: str) -> dict[str, dict[str, Any]]:
        """Of those who answer within a moment."""
        found = {}
        for name in names or tuple(self.names):
            with (
                contextlib.suppress(AgentDown),
                Operator(self.folder(name), 5.0, patient=False) as operator,
            ):
                found[name] = operator.ask("status")["status"]
        return found

    def rest(self, *names: str, timeout: float = _LIMIT) -> dict[str, str | None]:
        """Wait until the token rests, complete, current and attested by everybody, and everybody
        knows it; the digests of the agents' sums."""
        chosen = names or tuple(n for n in self.names if n in self.running())
        found: dict[str, dict[str, Any]] = {}

        def missing() -> list[str]:
            found.update(self.statuses(*chosen))
            stamps = [s["parked_stamp"] for s in found.values() if s.get("parked_stamp")]
            newest = max(stamps, default=None)
            return [
                n
                for n in chosen
                if n not in found
                or not found[n].get("complete")
                or found[n]["parked"] is None
                or found[n]["parked_stamp"] != newest
                or found[n]["pending"]
                or found[n]["attested"] < len(self.names) - len(found[n]["departed"])
            ]

        self.wait("to rest", missing, timeout)
        return {name: self.digest(name) for name in chosen}

    def digest(self, name: str) -> str | None:
        """Of the sum that an agent shows its operator."""
        digest: str | None = self.ask(name, "posterior", brief=True)["posterior"].get("digest")
        return digest

    def wait(self, what: str, missing: Callable[[], list[str]], timeout: float = _LIMIT) -> None:
        end = time.monotonic() + timeout
        while waiting := missing():
            self.running()  # an agent whose process ended to be replaced gets a new one
            if time.monotonic() > end:
                logs = "".join(f"\n--- {n}\n{self.log(n)[-1500:]}" for n in waiting[:3])
                seen = {n: s.get("phase") for n, s in self.statuses().items()}
                raise AssertionError(f"{waiting} failed {what} in time; phases: {seen}{logs}")
            time.sleep(0.1)

    def settled(self) -> set[str | None]:
        """The digests of everybody, at rest."""
        return set(self.rest().values())

    # ------------------------------------------------------------------------------------- end

    def close(self) -> None:
        for child in self.children.values():
            if child.process is not None and child.poll() is None:
                child.process.kill()
                child.process.wait()
            child.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def is_clean(status: Mapping[str, Any]) -> bool:
    """Whether the agent has replaced its process and need not do so again."""
    return bool(status["replaced"]) and status["memory_holds_erased"] is None


def erase(net: Processes, name: str, keys: list[str] | None = None) -> dict[str, Any]:
    """Ask the owner, as often as it takes (it may be down or dying), and wait for the evidence."""
    request = request_id(net.names.index(name), secrets.token_bytes(12)).hex()
    what: dict[str, Any] = {"whole": True} if keys is None else {"keys": keys}
    last: dict[str, Any] = {}

    def waiting() -> list[str]:
        with contextlib.suppress(AgentDown):
            last.clear()
            last.update(net.ask(name, "erasure", request=request)["erasure"])
            if last["state"] == "unknown":
                net.ask(name, "erase", request=request, **what)
        return [] if last.get("state") == "certified" else [name]

    net.wait(f"to certify {request}", waiting)
    if keys is None:
        net.out.add(name)
    certificate: dict[str, Any] = last["certificate"]
    return certificate
