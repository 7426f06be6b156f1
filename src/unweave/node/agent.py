"""Builds one agent from its folder and runs it until it is stopped.

`serve` checks the key and the data, starts the driver, the operator's API, the metrics and the data
watch. With `auto_vote`, `keep_votes` casts this agent's votes.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from unweave.address import Address
from unweave.errors import ConfigError, DataError, GridOverflow, StoreError, UnweaveError
from unweave.keys import keyid_of, public_key
from unweave.node.api.server import Api, Monitoring
from unweave.node.compute import DataWorker
from unweave.node.config import AgentFolder
from unweave.node.data.private import PrivateData
from unweave.node.data.watch import DataWatch, admit
from unweave.node.driver import AgentDriver, NotReady
from unweave.node.erasures import Remembered, remember
from unweave.node.errors import BadSetting
from unweave.node.identity import Identity
from unweave.node.log import Log, RotatingLog
from unweave.node.memory import ErasedInMemory, keep_clean
from unweave.node.process import REPLACED, RESTART_FILE
from unweave.node.storage.sqlite import open_store
from unweave.node.transport.server import GrpcTransport
from unweave.protocol.membership import automatic_votes
from unweave.protocol.state import State

if TYPE_CHECKING:
    from unweave.privacy.release import NoisyRelease

__all__ = ["open_data", "open_identity", "open_release", "serve"]


def open_identity(folder: AgentFolder) -> Identity:
    """The key in the folder, if it is the one that the manifest pins for this name."""
    identity = Identity.load(folder.path)
    pinned = keyid_of(public_key(folder.manifest.pems()[folder.me]))
    if identity.keyid != pinned:
        raise BadSetting(
            f"{folder.path}: this key is not the one that the manifest pins for "
            f'"{folder.config.name}"',
            "copy the right folder to this host, or make a new network",
        )
    return identity


def open_data(folder: AgentFolder, identity: Identity) -> PrivateData:
    """The agent's private data, not read yet."""
    config, model = folder.config, folder.manifest.build_model()
    return PrivateData(
        folder.path,
        config.data,
        model,
        config.name,
        identity.row_secret,
        agents=len(folder.manifest.topology.agents),
        small_shards=folder.terms.masked or folder.manifest.small_shards != "refuse",
    )


def open_release(folder: AgentFolder, identity: Identity, log: Log) -> NoisyRelease | None:
    """The noise and the ledger of this agent; None without differential privacy."""
    mechanism = folder.manifest.build_mechanism()
    if mechanism is None:
        return None
    # Most networks have no noise.
    from unweave.node.storage.ledger import open_ledger
    from unweave.privacy.release import NoisyRelease

    def restored(missing: int) -> None:
        log.warning(
            "the ledger had forgotten given values, which are charged now",
            values=missing,
            why="it is older than the store, or than what other agents remember",
        )

    def unsure(charged: int) -> None:
        log.error(
            "the privacy budget counts as spent: nobody knows how many values this agent has given",
            values=charged,
            why="its ledger was lost or restored, and a neighbour remembers nothing of it. Fix: "
            "erase this agent, so that the others go on, or make a new network",
        )

    ledger = open_ledger(folder, identity, mechanism.budget)
    return NoisyRelease(mechanism, ledger, on_missing=restored, on_unsure=unsure)


async def serve(
    path: str | Path, *, level: str | None = None, supervisor: int | None = None
) -> bool:
    """Run the agent in this folder; returns after SIGTERM, SIGINT or `stop`. True: the process must
    be replaced by a new one, because erased values may be in its memory (`memory`).

    `supervisor` is a descriptor that becomes readable when the supervisor ends. With it the agent
    ends with the supervisor and logs to agent.log; without it the log goes to standard error.
    """
    os.umask(0o077)  # whatever this process writes is private, temporary files of engines, too
    folder = AgentFolder.read(path)
    config = folder.config
    handler = None
    if supervisor is not None:
        handler = RotatingLog(folder.path, config.log_bytes, config.log_files)
    log = Log(config.name, config.log, level or config.log_level, handler=handler)
    log.take_over()
    try:
        return await _serve(folder, log, supervisor)
    finally:
        log.close()


async def _serve(folder: AgentFolder, log: Log, supervisor: int | None) -> bool:
    config = folder.config
    replaced = bool(os.environ.pop(REPLACED, ""))
    identity = open_identity(folder)
    model = folder.manifest.build_model()
    data = open_data(folder, identity)
    memory = ErasedInMemory(config.restart_interval)
    loop = asyncio.get_running_loop()
    data.watch_reading = lambda *read: loop.call_soon_threadsafe(memory.watch_reading, *read)
    found = _check_data(folder, data, identity, replaced)
    if replaced:
        log.info("this process replaces one that may have held erased values")
    for one in found.again:
        why = "a certificate proves it, but the store does not hold it"
        log.warning("erasure requested again", why=why, file=one.file, request=one.request.hex())
    if found.problem is not None:
        log.error("the data cannot be used; the current factor stays", why=found.problem)
    solver = folder.manifest.solver
    worker = DataWorker(
        model,
        folder.manifest.build_solver(model),
        data,
        folder.terms,
        solver.tol,
        solver.retrain_above,
    )
    transport = GrpcTransport(folder.manifest, folder.me, identity, listen=config.listen, log=log)
    release = open_release(folder, identity, log)
    node = AgentDriver(folder, identity, transport, worker, model, log, memory, release)
    node.data_problem = found.problem
    node.missing = lambda: data.missing
    node.clipped = lambda: data.clipped
    node.replaced = replaced
    freshness = DataWatch(node, data)
    api = Api(node, data, freshness)
    monitoring = Monitoring(node, config.metrics, config.metrics_hosts) if config.metrics else None

    loop.set_exception_handler(log.on_loop_error)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, node.stop)
    if supervisor is not None:
        loop.add_reader(supervisor, node.stop)
    running = asyncio.create_task(node.run())
    helpers = [
        asyncio.create_task(keep_votes(node)),
        asyncio.create_task(_restart(node, api, freshness)),
        asyncio.create_task(_watch_source(memory, data, config.restart_interval)),
    ]
    if config.watch:
        helpers.append(asyncio.create_task(_watch(freshness, config.watch, log)))
    try:
        await _until_open(node, running)
        # If the disk failed, the data watch sees the change later.
        with contextlib.suppress(NotReady, StoreError):
            if found.read and found.problem is None and await freshness.begin():
                log.info("the data have changed since this agent last ran")
        await api.start()
        if monitoring is not None:
            await _monitor(monitoring, log)
        await running
    finally:
        if not node.restarting:
            node.stop()
        for task in helpers:
            task.cancel()
        await asyncio.gather(running, *helpers, return_exceptions=True)
        await asyncio.gather(api.stop(), *([] if monitoring is None else [monitoring.stop()]))
        if release is not None:
            release.ledger.close()
        log.info("stopped")
    return bool(node.restarting)


async def _watch_source(memory: ErasedInMemory, data: PrivateData, every: float) -> None:
    """Notice that erased records were deleted from the data, also if nobody asks to learn."""
    while every:
        await asyncio.sleep(every)
        with contextlib.suppress(UnweaveError):  # unreadable now: the records may come back
            memory.watch_source(data.fingerprint)


async def _restart(node: AgentDriver, api: Api, freshness: DataWatch) -> None:
    """End the process for a new one when erased values may be in its memory."""
    why = await keep_clean(
        node.memory,
        lambda: node.state,
        lambda: api.busy or freshness.busy,
        lambda: node.memory.delay(node.terms.topology, node.me),
    )
    with contextlib.suppress(OSError):  # without the file, a command finds no agent for a moment
        (node.folder.path / RESTART_FILE).touch()
    node.log.info("restarts, to remove erased values from its memory", why=why)
    await api.stop()  # first: a request without a state behind it would be refused, not repeated
    node.restart(why)


async def _monitor(monitoring: Monitoring, log: Log) -> None:
    """An agent takes part also if its metrics cannot be served."""
    try:
        await monitoring.start()
    except ConfigError as error:
        log.error("metrics cannot be served", why=str(error))
    else:
        address = Address(monitoring.host, monitoring.port)
        log.info("metrics are served", url=f"http://{address}/metrics")


class _Findings(NamedTuple):
    """Why the data cannot be used, if so; the erasures that were requested again; and whether the
    data were read."""

    problem: str | None = None
    again: Sequence[Remembered] = ()
    read: bool = True


def _check_data(
    folder: AgentFolder, data: PrivateData, identity: Identity, replaced: bool
) -> _Findings:
    """Refuse unusable data before the agent starts. An agent that has contributed starts without
    them: it still relays, attests and erases. A process that replaces another does not read the
    data: they may still hold the erased records."""
    state: State | None = None
    again: list[Remembered] = []
    if folder.store.exists() or folder.certificates.is_dir():
        with open_store(folder, identity) as store:
            state = store.load(folder.terms, folder.me)
            at = State(folder.terms, folder.me) if state is None else state
            at, again = remember(folder.certificates, store, at, identity.sign, identity.signed)
            state = at if again else state
    if state is not None and (state.own.detached or any(i.whole for i in state.own_intents())):
        return _Findings(again=again)
    dropped = frozenset[bytes]() if state is None else state.own.dropped
    try:
        if replaced and state is not None and (state.own.counter or dropped):
            return _Findings(again=again, read=False)
        admit(data, folder.least_records, state)
        return _Findings(again=again)
    except (DataError, GridOverflow) as error:
        if state is None or not (state.own.counter or dropped or state.tomb.ids):
            raise
        return _Findings(problem=str(error), again=again)


async def _until_open(node: AgentDriver, running: asyncio.Task[None]) -> None:
    """Wait until the store is open, and so locked by this process, or the start has failed."""
    while node.state is None and not running.done():
        await asyncio.sleep(0.01)
    if running.done():
        running.result()


async def _watch(freshness: DataWatch, every: float, log: Log) -> None:
    """Read the data every `every` seconds; changed data become a new revision. The same problem is
    logged once."""
    logged = ""
    while True:
        await asyncio.sleep(every)
        try:
            if await freshness.look(anew=False):
                log.info("the data have changed")
            logged = ""
        except UnweaveError as error:
            if str(error) != logged:
                log.error("the data cannot be used; the current factor stays", why=str(error))
            logged = str(error)


_LOOK = 30.0  # seconds between looks at the votes, if no news comes


async def keep_votes(node: AgentDriver) -> None:
    """With `auto_vote`: vote out an agent that has lied, by a proof that this one has checked."""
    while True:
        await node.changed(_LOOK)
        try:
            if node.state is not None and node.folder.config.auto_vote:
                for vote in automatic_votes(node.state, time.monotonic()):
                    await node.tell(vote)
        except UnweaveError as error:
            node.log.warning("the vote was not cast", why=str(error))
