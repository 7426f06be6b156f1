"""Owners that ask for erasures of agents which may be down, and what must come of it in the end:
each request is certified, and its certificate holds."""

from __future__ import annotations

import contextlib
import json
import random
from collections import Counter
from typing import Any, NamedTuple

from tests.support.processes import Processes
from unweave.errors import UnweaveError
from unweave.keys import verifier
from unweave.manifest import load
from unweave.node.api.client import AgentDown
from unweave.protocol.certificate.verify import verify
from unweave.protocol.token import request_id

__all__ = ["Asked", "Owners"]


COVERED = "it has erased itself already"


class Asked(NamedTuple):
    """An erasure that somebody wants, whether or not the agent lived long enough to hear it."""

    agent: str
    request: str
    keys: tuple[str, ...]  # none: the whole agent

    @property
    def what(self) -> dict[str, object]:
        return {"keys": list(self.keys)} if self.keys else {"whole": True}


class Owners:
    """The owners of a network of processes; everything is drawn from the seed."""

    def __init__(self, net: Processes, seed: int) -> None:
        self.net = net
        self.rng = random.Random(seed)
        self.asked: list[Asked] = []
        self.promised: set[str] = set()  # requests that their agent has answered and not lost
        self.evidence: dict[str, dict[str, Any]] = {}  # certificates that operators have put away
        self.done: Counter[str] = Counter()

    @property
    def gone(self) -> dict[str, list[str]]:
        """The keys that were asked for, of each agent."""
        keys: dict[str, list[str]] = {name: [] for name in self.net.names}
        for one in self.asked:
            keys[one.agent] += one.keys
        return keys

    def remaining(self, name: str) -> list[str]:
        """The keys of an agent that nobody has asked for; none if the agent erases itself."""
        if name in self.net.out:
            return []
        return [key for key in self.net.rows[name] if key not in self.gone[name]]

    def ask(self, name: str, *keys: str) -> None:
        agent = self.net.names.index(name)
        asked = Asked(name, request_id(agent, self.rng.randbytes(12)).hex(), keys)
        self.asked.append(asked)
        self.done["erasure"] += 1
        with contextlib.suppress(UnweaveError):  # it is down, or starting: asked again in the end
            self.net.ask(name, "erase", request=asked.request, **asked.what)
            self.promised.add(asked.request)

    def certified(self) -> dict[str, dict[str, Any]]:
        """Wait for the certificate of every request, and repeat what was lost with a folder. Of
        none only if its agent says what covers it."""
        certificates = dict(self.evidence)
        covered: set[str] = set()

        def waiting() -> list[str]:
            missing = set()
            for one in self.asked:
                if one.request in certificates or one.request in covered:
                    continue
                try:
                    found = self.net.ask(one.agent, "erasure", request=one.request)["erasure"]
                except AgentDown:  # it replaces its process
                    missing.add(one.agent)
                    break
                if found["state"] == "certified":
                    certificates[one.request] = found["certificate"]
                    continue
                if found["state"] == "unknown":
                    assert one.request not in self.promised, f"{one.agent} has forgotten {one}"
                    try:
                        self.net.ask(one.agent, "erase", request=one.request, **one.what)
                        self.done["repeated"] += 1
                    except UnweaveError as error:
                        if COVERED not in str(error):
                            raise
                        assert one.agent in self.net.out
                        covered.add(one.request)
                        continue
                missing.add(one.agent)
            return sorted(missing)

        self.net.wait("to certify what was asked", waiting)
        return certificates

    def verify(self, certificates: dict[str, dict[str, Any]]) -> None:
        """Every certificate holds, for the erasure that was asked."""
        manifest = load(self.net.root / "network.toml")
        check = verifier(manifest.pems())
        for one in self.asked:
            if one.request not in certificates:
                continue  # its agent has erased itself
            raw = json.dumps(certificates[one.request]).encode()
            account = verify(raw, manifest.terms(), check)
            scope = "records" if one.keys else "agent"
            proved = {(e.request, e.agent, e.scope) for e in account.erasures}
            assert (one.request, one.agent, scope) in proved
            assert one.keys or one.agent not in account.included
