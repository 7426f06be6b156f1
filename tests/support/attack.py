"""Faults and lies at once, on real processes: what is left must be exact, certified and at rest.

    with Processes(tmp_path / "net", agents=6) as net:
        attack = Attack(net, seed=1)
        attack.storm(Faults(kills=200, freezes=60, restores=20))
        attack.end("votes")
        attack.verify(attack.settle())

Agents are killed, frozen, and restored from old backups of their folders, while their owners
change data and erase records and agents, and the insider lies. A storm draws everything from its
seed, except the moments at which processes run.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tests.support.commands import run_command
from tests.support.erasing import Owners
from tests.support.insider import InsiderChild, lies_told, order, stop_lying
from tests.support.processes import Processes
from unweave.errors import UnweaveError
from unweave.grid import digest
from unweave.keys import verifier
from unweave.manifest import load
from unweave.node.agent import open_identity
from unweave.node.config import AgentFolder
from unweave.node.storage.sqlite import open_store
from unweave.operations.backup import back_up, restore
from unweave.protocol.certificate.verify import verify
from unweave.protocol.state import Parked

__all__ = ["TIMEOUTS", "Attack", "Faults"]


# Shorter than the defaults: most of an attack is waiting for a token that is lost on purpose.
TIMEOUTS = {"welcome": 1.5, "resend": 0.5, "ack": 3.0, "alive": 1.0, "loss": 6.0}
FEWEST = 6  # records that stay with each agent


class Faults(NamedTuple):
    """At least so many of each."""

    kills: int
    freezes: int
    restores: int


class Attack(Owners):
    """One network with an insider, a2. The last agents erase themselves halfway."""

    def __init__(self, net: Processes, seed: int, *, leavers: int = 1, **lies: Any) -> None:
        super().__init__(net, seed)
        self.seed = seed
        self.lies = lies
        self.liar = "a2"
        self.honest = [name for name in net.names if name != self.liar]
        self.leavers = net.names[-leavers:]
        net.children[self.liar] = InsiderChild(net.folder(self.liar))
        self.archives: dict[str, Path] = {}

    # ------------------------------------------------------------------------------------ storm

    def start(self) -> None:
        self.net.start()
        self.net.rest()
        self.began = self.sizes()

    def storm(self, faults: Faults) -> None:
        """Until there were so many faults. The insider lies from the first to the last."""
        rng = self.rng
        order(self.net.folder(self.liar), self.seed, **self.lies)
        for name in self.honest:
            self.back_up(name)
        wanted = {"kill": faults.kills, "freeze": faults.freezes, "restore": faults.restores}
        half = sum(wanted.values()) // 2
        while left := {
            kind: n - self.done[kind] for kind, n in wanted.items() if n > self.done[kind]
        }:
            if sum(self.done[kind] for kind in wanted) >= half:
                for name in set(self.leavers) - self.net.out:
                    self.ask(name)
                    self.net.out.add(name)
            self.work()
            time.sleep(rng.random() * rng.choice((0.05, 0.4, 0.8)))
            (kind,) = rng.choices(list(left), weights=list(left.values()))
            getattr(self, kind)()
            if rng.random() < 0.1:
                self.back_up(rng.choice(self.honest))
        self.net.ready(*self.net.names)

    def kill(self) -> None:
        net, rng = self.net, self.rng
        victims = rng.sample(net.names, rng.choice((1, 1, 2, 3)))  # the insider, too
        net.kill(*victims)
        self.done["kill"] += len(victims)
        if rng.random() < 0.5:
            time.sleep(rng.random())
        for name in victims:
            net.children[name].start()
        if rng.random() < 0.7:
            net.ready(*victims)

    def freeze(self) -> None:
        """Sometimes for longer than the others wait for its token."""
        name = self.rng.choice(self.honest)
        self.net.freeze(name)
        time.sleep(self.rng.choice((0.3, 1.0, 2.0, TIMEOUTS["ack"] + 1.0)))
        self.net.thaw(name)
        self.done["freeze"] += 1

    def restore(self) -> None:
        """The folder as it was when it was last backed up; the data are today's. Certificates that
        are newer are lost with the folder, or are put back."""
        net, name = self.net, self.rng.choice(self.honest)
        folder, aside = net.folder(name), net.root / "aside"
        net.kill(name)
        self.keep_evidence(name)
        # A request that no certificate proves is lost if its removal was, too
        # (docs/explanation/protocol.md).
        mine = {one.request for one in self.asked if one.agent == name}
        self.promised -= mine - set(self.evidence)
        shutil.rmtree(aside, ignore_errors=True)
        folder.rename(aside)
        restore(self.archives[name], folder)
        for file in ("data.csv", "agent.log"):
            shutil.copy2(aside / file, folder / file)
        if (aside / "certificates").exists() and self.rng.random() < 0.5:
            shutil.copytree(aside / "certificates", folder / "certificates", dirs_exist_ok=True)
        net.children[name].start()
        net.ready(name)
        self.done["restore"] += 1

    def back_up(self, name: str) -> None:
        archive = self.net.root / f"{name}.tar"
        if name not in self.net.statuses(name):
            return  # it is down, or starting: a backup would hold its store
        with contextlib.suppress(UnweaveError):
            new = self.net.root / "new.tar"
            new.unlink(missing_ok=True)
            back_up(self.net.folder(name), new)
            new.replace(archive)
            self.archives[name] = archive

    # ------------------------------------------------------------------------------------- work

    def work(self) -> None:
        """Something to do: a walk, changed data, erasures."""
        net, rng = self.net, self.rng
        busy = rng.choice(self.honest)
        if rng.random() < 0.4:
            self.change(busy)
            with contextlib.suppress(UnweaveError):
                net.ask(busy, "learn")
        with contextlib.suppress(UnweaveError):
            net.ask(busy, "wake")
        for name in rng.sample(self.honest, rng.choice((0, 0, 1, 2))):
            left = self.remaining(name)
            if len(left) > FEWEST:
                self.ask(name, *rng.sample(left, rng.choice((1, 1, 2))))

    def change(self, name: str) -> None:
        """A new record, or another value of one that stays."""
        net, rng = self.net, self.rng
        value = rng.choice([v for rows in net.rows.values() for v in rows.values()])
        left = [key for key in net.rows[name] if key not in self.gone[name]]
        if rng.random() < 0.5:
            net.append(name, [value])
        else:
            net.rows[name][rng.choice(left)] = value
            net.append(name, [])
        self.done["data"] += 1

    # -------------------------------------------------------------------------------------- end

    def end(self, how: str) -> None:
        """The insider `stops`; or is voted out, by `votes` of operators or by a `proof`, while it
        goes on lying."""
        net, liar = self.net, self.liar
        for name in self.honest:
            with contextlib.suppress(UnweaveError):
                net.ask(name, "learn")
        self.last_fault = time.monotonic()
        if how == "stops":
            stop_lying(net.folder(liar))
            return
        if how == "proof":
            order(net.folder(liar), self.seed, **{**self.lies, "provable": True, "pace": 10.0})
        else:
            self.vote()
        net.out.add(liar)
        net.wait(f"to see {liar} voted out", self._not_departed)
        self.last_fault = time.monotonic()

    def _not_departed(self) -> list[str]:
        found = self.net.statuses(*self.honest)
        return [n for n in self.honest if self.liar not in found.get(n, {}).get("departed", [])]

    def vote(self) -> None:
        """The operators of a quorum vote, in any order; those that are no neighbours come after."""
        quorum = load(self.net.root / "network.toml").terms().quorum
        voted: set[str] = set()

        def missing() -> list[str]:
            for name in self.honest:
                command = ("vote", self.net.folder(name), self.liar, "--lying")
                if name not in voted and run_command(*command).code == 0:
                    voted.add(name)
            return [] if len(voted) >= quorum else [n for n in self.honest if n not in voted]

        self.net.wait(f"to vote {self.liar} out", missing)

    @property
    def present(self) -> list[str]:
        """All agents, without the insider if it was voted out."""
        return [n for n in self.net.names if n != self.liar or n not in self.net.out]

    def settle(self) -> dict[str, dict[str, Any]]:
        """Wait until everything that was asked is certified and the token rests; returns the
        certificates."""
        certificates = self.certified()
        digests = self.net.rest(*self.present)
        self.seconds = time.monotonic() - self.last_fault
        assert len(set(digests.values())) == 1, digests
        self.digest = digests[self.honest[0]]
        return certificates

    def add_up(self) -> None:
        """I1, on the disks: the parked token is eta_0 and the factors of the included agents, bit
        for bit. Ends the processes."""
        net = self.net
        net.stop()
        states = []
        for name in net.names:
            home = AgentFolder.read(net.folder(name))
            with open_store(home, open_identity(home)) as store:
                states.append(store.load(home.terms, home.me))
        (token,) = (
            s.token.role.token
            for name, s in zip(net.names, states, strict=True)
            if name in self.present and s is not None and isinstance(s.token.role, Parked)
        )
        total = net.model.eta0
        for k, revision in enumerate(token.included):
            if revision.counter:
                state = states[k]
                factor = None if state is None else state.own.factor(revision)
                assert factor is not None, f"{net.names[k]} has lost revision {revision.counter}"
                total = total + factor.units
        assert np.array_equal(total, token.eta)
        assert digest(token.eta).hex() == self.digest

    def keep_evidence(self, name: str) -> None:
        """The certificates in a folder that is about to be replaced, for the requests there."""
        mine = {one.request for one in self.asked if one.agent == name}
        manifest = load(self.net.root / "network.toml")
        check = verifier(manifest.pems())
        for path in (self.net.folder(name) / "certificates").glob("certificate-*.json"):
            raw = path.read_bytes()
            for erased in verify(raw, manifest.terms(), check).erasures:
                if erased.request in mine:
                    self.evidence[erased.request] = json.loads(raw)

    # ---------------------------------------------------------------------------------- measure

    def sizes(self) -> dict[str, dict[str, int]]:
        """Bytes of each honest agent: memory, logs, store."""
        found = {}
        for name in self.honest:
            folder = self.net.folder(name)
            status = Path(f"/proc/{self.net.process(name).pid}/status").read_text()
            found[name] = {
                "memory": int(status.split("VmRSS:")[1].split()[0]) << 10,
                "logs": sum(path.stat().st_size for path in folder.glob("agent.log*")),
                "store": sum(path.stat().st_size for path in folder.glob("store.db*")),
            }
        return found

    def report(self) -> str:
        """What was done, told and measured."""
        lies = lies_told(self.net.folder(self.liar))
        after = self.sizes()
        grown = {
            what: f"{max(self.began[n][what] for n in after) >> 10} → "
            f"{max(one[what] for one in after.values()) >> 10} kB"
            for what in ("memory", "logs", "store")
        }
        return (
            f"seed {self.seed}: {dict(self.done)}; at rest {self.seconds:.1f} s after the last "
            f"fault; {lies.total()} lies: {dict(sorted(lies.items()))}; largest agent: {grown}"
        )
