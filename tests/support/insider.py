"""An agent with a valid key that lies, as a process of its own.

    python -m tests.support.insider - AGENT_DIR

It is a whole agent (store, data, operator's API) with the honest core, whose channel lies as the
file `lying.json` in its folder says, for as long as the file exists: the simulator's lies, at a
real wire, and what only a real wire can carry. `lies.json` counts the lies by kind.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tests.support import flood
from unweave.errors import UnweaveError
from unweave.node import __main__, agent, driver
from unweave.node.config import SUPERVISOR, AgentFolder
from unweave.node.log import LOG_FILE, open_log
from unweave.node.process import RESTART, protect_memory, replace
from unweave.node.storage.atomic import write_atomic
from unweave.node.wire.channel import SecureChannel
from unweave.operations.supervisor import Child
from unweave.protocol.events import Received
from unweave.protocol.messages import Erasures, Hello, Message, Pass, Share
from unweave.protocol.state import State
from unweave.protocol.statements import Intent, Vote
from unweave.protocol.token import request_id
from unweave.simulator.lies import Liar

__all__ = ["ORDERS", "TOLD", "InsiderChild", "lies_told", "order", "stop_lying"]


ORDERS = "lying.json"  # what to tell; removed: nothing more
TOLD = "lies.json"
# Each is a method below or of the simulator's insider. Forgeries are signed by the insider, so they
# prove its lie; it forges the tokens of its honest core, too.
DISTURBANCES = (
    "alive_far", "alive_hop", "alive_clock", "fence", "park_notice", "wake", "opening",
    "unpaid_opening", "forged_opening", "mismatches", "forged_mismatch", "repeat", "intent", "vote",
    "tombs", "incarnations", "proof", "fork", "hostile_text", "restarts", "many_intents",
)  # fmt: skip
FORGERIES = ("token", "token", "token", "revived")
ESCAPES = "\x1b[2J\n2026-01-01 00:00:00 info    a1  certified\u202e\u200b"


class InsiderChild(Child):
    """The process of the lying agent."""

    def start(self, *, replaces: bool = False) -> None:
        self.restarts += 1
        self.close()
        with os.fdopen(open_log(self.folder / LOG_FILE), "ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.insider", "-", str(self.folder)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env={**os.environ, SUPERVISOR: str(os.getpid())},
                start_new_session=True,
            )


def order(folder: Path, seed: int, **settings: Any) -> None:
    """Let the agent lie: `provable` (sign wrong tokens, too), `pace` (lies per second), `without`
    (kinds), `intents` (in one message), `flood` (calls at once)."""
    write_atomic(folder / ORDERS, json.dumps({"seed": seed, **settings}).encode())


def stop_lying(folder: Path) -> None:
    (folder / ORDERS).unlink(missing_ok=True)


def lies_told(folder: Path) -> Counter[str]:
    path = folder / TOLD
    return Counter(json.loads(path.read_bytes()) if path.exists() else {})


class Insider(Liar):
    """The lies of the simulator, told by a running agent, and those of a real wire."""

    def __init__(self, node: LyingDriver) -> None:
        def state() -> State:
            assert node.state is not None
            return node.state

        sign, rng = node.identity.sign, random.Random(0)
        super().__init__(node.terms, node.me, sign, rng, state, time.monotonic, {})
        self.node = node
        self.told = lies_told(node.folder.path)
        self.orders: dict[str, Any] = {}

    def read_orders(self) -> None:
        """The file may come and go."""
        path = self.node.folder.path / ORDERS
        orders = json.loads(path.read_bytes()) if path.exists() else {}
        if orders != self.orders:
            self.orders = orders
            self.rng = random.Random(f"{orders.get('seed')} {self.told.total()}")
            self.swallows = self.withholds = orders.get("swallows", 0.1)
            self.twists = 0.3 if orders.get("provable") else 0.0

    # What only a real wire can carry.

    def hostile_text(self, s: State) -> list[Message]:
        """Statements with control characters in every text."""
        other = self.other(s)
        request = request_id(other, self.rng.randbytes(12)).hex()
        vote = self.write(Vote, agent=other, name=ESCAPES, request=request)
        intent = self.write(
            Intent, request=ESCAPES, agent=self.me, whole=False, rows=[ESCAPES], remembered=0
        )
        key = request_id(self.me, self.rng.randbytes(12))
        erasures = Erasures({}, frozenset(), {}, {(other, self.me): vote})
        return [
            Share(s.token.fence, self.saying(s, intents={key: intent})),
            Share(s.token.fence, self.saying(s, erasures=erasures)),
        ]

    def restarts(self, s: State) -> list[Message]:
        """A neighbour that has started again, hundreds of times."""
        gossip = self.saying(s)
        return [Hello(s.token.fence, gossip, self.rng.getrandbits(60), k % 3) for k in range(200)]

    def many_intents(self, s: State) -> list[Message]:
        """Thousands of requests in one message."""
        who = flood.Attacker(self.node.folder, s.neighbours[0])
        return [flood.gossip(flood.intents(who, self.orders.get("intents", 1000)))]

    def choices(self) -> list[tuple[str, Any]]:
        names = [*DISTURBANCES, *(FORGERIES if self.orders.get("provable") else ())]
        own = [(name.replace("_", " "), getattr(Insider, name)) for name in names]
        wire = [("wire: " + way.__name__.replace("_", " "), way) for way in flood.MESSAGES]
        return [one for one in own + wire if one[0] not in self.orders.get("without", ())]

    async def some_lie(self) -> list[tuple[int, Message]]:
        """One lie, to one neighbour or to all of them; those of the wire are told here."""
        what, lie = self.rng.choice(self.choices())
        s = self.state()
        to = list(s.neighbours) if self.rng.random() < 0.3 else [self.rng.choice(s.neighbours)]
        if what.startswith("wire: "):
            self.told[what] += self.orders.get("flood", 48)
            await lie(flood.Attacker(self.node.folder, to[0]), self.orders.get("flood", 48))
            return []
        if what == "many intents":  # thousands of signatures
            messages, to = await asyncio.to_thread(lie, self, s), to[:1]
        else:
            messages = lie(self, s)
        self.told[what] += len(messages) * len(to)
        return [(n, message) for message in messages for n in to]


class LyingDriver(driver.AgentDriver):
    """The honest driver, and beside it the lies."""

    def __init__(self, folder: AgentFolder, *args: Any) -> None:
        super().__init__(folder, *args)
        self.insider = Insider(self)
        assert isinstance(self._channel, LyingChannel)
        self._channel.insider = self.insider

    async def run(self) -> None:
        lying = asyncio.create_task(self._lie())
        try:
            await super().run()
        finally:
            lying.cancel()

    async def _lie(self) -> None:
        insider, wrote = self.insider, 0.0
        while True:
            insider.read_orders()
            pace = insider.orders.get("pace", 5.0)
            await asyncio.sleep(insider.rng.expovariate(pace) if insider.orders else 0.05)
            if time.monotonic() - wrote > 0.5:
                wrote = time.monotonic()
                write_atomic(self.folder.path / TOLD, json.dumps(insider.told).encode())
            insider.read_orders()
            if not insider.orders or self.state is None or not self.state.peers.synced:
                continue
            try:
                for to, message in await insider.some_lie():
                    await SecureChannel.send(self._channel, to, message, self.state)
            except UnweaveError as error:
                insider.told[f"unwritable: {error}"[:60]] += 1
            except Exception as error:  # a defect of the test, to be seen in the insider's log
                self.log.error("a lie failed", why=repr(error))


class LyingChannel(SecureChannel):
    """Distorts what the honest core sends, and remembers the tokens that it was given."""

    insider: Insider

    async def send(self, to: int, message: Message, state: State | None) -> list[Received]:
        insider = self.insider
        insider.read_orders()
        if not insider.orders or state is None:
            return await super().send(to, message, state)
        answers: list[Received] = []
        for n, said in insider.distort(to, message):
            try:
                answers += await super().send(n, said, state)
            except UnweaveError as error:
                insider.told[f"unwritable: {error}"[:60]] += 1
        return answers

    async def receive(
        self, sender: int, parcel: list[bytes], state: State | None
    ) -> tuple[Received, float]:
        event, seconds = await super().receive(sender, parcel, state)
        if isinstance(event.message, Pass):
            self.insider.given.append((sender, event.message))
        return event, seconds


def main() -> int:
    vars(driver)["SecureChannel"] = LyingChannel
    vars(agent)["AgentDriver"] = LyingDriver
    protect_memory()
    code = __main__.main(sys.argv[-1], 0)
    if code == RESTART:
        replace()
    return code


if __name__ == "__main__":
    raise SystemExit(main())
