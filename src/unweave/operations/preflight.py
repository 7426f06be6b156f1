"""The checks of `unweave check`: manifest, settings, key, address, store, data, neighbours.

A result has the agent, the checked part, the problem with its place, and the fix. `problem` is None
if there is none; `warning` is not a problem, but should be known.
"""

from __future__ import annotations

import datetime as dt
import errno
import os
import socket
from collections import Counter
from collections.abc import Callable, Collection
from functools import reduce
from pathlib import Path
from typing import Any

from unweave.address import Address
from unweave.errors import StoreError, UnweaveError
from unweave.manifest import Manifest, load
from unweave.models import ConjugateModel, Data, LossModel, Model
from unweave.models.resolution import Measured, rounding_problem, sum_problem
from unweave.node.agent import open_data, open_identity
from unweave.node.api.client import AgentDown, Operator
from unweave.node.config import AGENT_FILE, AgentFolder, agent_name, find_agents
from unweave.node.data.watch import admit
from unweave.node.errors import ActionableError, BadLines
from unweave.node.storage.sqlite import open_store
from unweave.node.transport.pinning import own_pin, tls_problem
from unweave.operations.hosts import host_of, host_problem, reach
from unweave.operations.noise import costs, with_noise, within_share
from unweave.operations.scales import known_noise
from unweave.privacy.mechanism import Mechanism
from unweave.protocol.state import State
from unweave.rng import Stream
from unweave.solvers import Context
from unweave.text import count, quote

__all__ = ["Result", "check_folder"]

_SHOWN = 6  # neighbours by name

Result = dict[str, Any]
Factors = dict[str, tuple[Model, Measured]]  # by agent


def check_folder(folder: Path, tell: Callable[[str], None]) -> list[Result]:
    """Check a network's folder, or one agent's; `tell` is called with each step."""
    host_problem.cache_clear()
    factors: Factors = {}
    homes = find_agents(folder)
    alone = homes == [folder]
    results = [] if alone else _look_at_manifests(folder)
    other = {r["agent"] for r in results}
    for home in homes:
        tell(f"checking {agent_name(home)} …")
        if agent_name(home) not in other:
            results += _look_at_agent(home, factors)
    tell("checking the hosts …")
    if alone:
        return results + _look_at_neighbours(folder) + _assumed(folder)
    told = {r["agent"] for r in results if r["problem"] and r["what"] == "address"}
    results += _look_at_hosts(folder, told)
    return results + _look_at_network(folder, factors) + _assumed(folder)


def _assumed(folder: Path) -> list[Result]:
    """What the model takes as known; a manifest that cannot be read is reported elsewhere."""
    try:
        told = known_noise(load(folder / "network.toml").build_model())
    except UnweaveError:
        return []
    return [] if told is None else [_well("network", "assumption", told)]


def _found(agent: str, what: str, problem: str, fix: str) -> Result:
    return _well(agent, what, "") | {"problem": problem, "fix": fix}


def _well(agent: str, what: str, note: str) -> Result:
    result = {"agent": agent, "what": what, "problem": None, "note": note}
    return result | {"details": [], "warning": "", "fix": ""}


def _look_at_agent(home: Path, factors: Factors) -> list[Result]:
    """Check one agent; all other checks need valid settings. The agent's factor is added to
    `factors`."""
    name = agent_name(home)
    read: list[AgentFolder] = []

    def settings() -> str:
        read.append(AgentFolder.read(home))
        return read[0].manifest.model.name

    fix = f"correct {home / AGENT_FILE}, or the files that it names"
    results = [_result(name, "settings", settings, fix)]
    if not read:
        return results
    agent = read[0]
    again = (
        f"copy key.pem and certificate.pem of {name} from where `unweave init` wrote them to "
        f"{home}; a lost key requires a new network"
    )
    results.append(_result(name, "key", lambda: _identity(agent), again))
    settle = f"correct listen in {home / AGENT_FILE}, or the address in network.toml"
    results.append(_result(name, "address", lambda: _address(agent), settle))
    if results[-1]["problem"] is None:
        results[-1]["warning"] = _metrics(agent)
    states: list[State | None] = []

    def store() -> str:
        states.append(None if _running(agent) else _state(agent))
        return "" if states[0] is None else f"epoch {states[0].token.fence.epoch}"

    if results[1]["problem"] is not None:
        return results  # the store's MACs and the commitments of erased records need the key
    results.append(_result(name, "store", store, f"look at {agent.store}"))
    if states:
        fix = f"correct the data, or their description in {home / AGENT_FILE} ([data])"
        warnings: list[str] = []
        results.append(
            _result(name, "data", lambda: _data(agent, states[0], factors, warnings), fix)
        )
        results[-1]["warning"] = "; ".join(warnings)
    return results


def _look_at_manifests(folder: Path) -> list[Result]:
    """A problem for each copy of the manifest that differs from most others: the bytes identify
    the network. Such an agent is not checked further."""
    names = {folder / "network.toml": "network"}
    for home in sorted(folder.glob("agents/*")):
        if (home / "network.toml").is_file():
            names[home / "network.toml"] = agent_name(home)
    copies = {path: path.read_bytes() for path in names}
    copied = Counter(copies.values())
    right = max(copies, key=lambda path: copied[copies[path]])  # the network's own among equals
    more = copied[copies[right]] - 1
    return [
        _found(
            names[path],
            "same manifest",
            f"{path} differs from {right}" + ("" if not more else f" and {more} more"),
            f"copy it again: cp {quote(right)} {quote(path)}",
        )
        for path in copies
        if copies[path] != copies[right]
    ]


def _look_at_network(folder: Path, factors: Factors) -> list[Result]:
    """Every folder must be an agent's, the grid must hold the sum of all factors, and rounding
    must not move the posterior."""
    results, here = [], set()
    for home in sorted(path for path in folder.glob("agents/*") if path.is_dir()):
        if not (home / AGENT_FILE).is_file():
            missing = f"{home}: {AGENT_FILE} is missing"
            fix = "copy it from where `unweave init` wrote it, or remove the folder"
            results.append(_found(home.name, "settings", missing, fix))
        here.add(agent_name(home))
    manifest = load(folder / "network.toml")
    size = len(manifest.topology)
    for name in manifest.topology.agents:
        if name not in here:
            results.append(_well(name, "settings", "no folder here"))
            if problem := _certificate_problem(manifest, name):
                results.append(_found(name, "key", *problem))
    if factors:
        model = next(model for model, _ in factors.values())
        total = reduce(Measured.plus, (one for _, one in factors.values()))
        problem = sum_problem(model, total.units, f"all {len(factors)} agents here")
        if problem is None and (moved := rounding_problem(model, total)) is not None:
            problem = moved, "make the network with a scale (`unweave init --scale auto`)"
        if problem is not None:
            results.append(_found("network", "data", *problem))
        shared = manifest.privacy.masked and problem is None
        for name, (model, one) in factors.items() if shared else ():
            # Nobody sees whether a masked sum wraps, so an agent may use 1/K of the grid.
            units = [size * unit for unit in within_share(manifest.build_mechanism(), one)]
            if problem := sum_problem(model, units, f"{size} agents with the data of {name}"):
                results.append(_found(name, "data", *problem))
    if (mechanism := manifest.build_mechanism()) is not None:
        results.append(_noise(mechanism, [one for _, one in factors.values()], size))
    return results


def _noise(mechanism: Mechanism, sums: list[Measured], size: int) -> Result:
    """What the noise costs, and how wide it is against the records that were read here."""
    if not sums:
        return _well("network", "noise", costs(mechanism))
    widths, remark = with_noise(mechanism, reduce(Measured.plus, sums), size)
    whose = "these records" if len(sums) == size else f"the records of {count(len(sums), 'agent')}"
    note = f"{costs(mechanism)}. With {whose}: {widths or 'nothing is known'}"
    return _well("network", "noise", note) | {"warning": remark}


def _look_at_neighbours(home: Path) -> list[Result]:
    """A problem for each neighbour whose host cannot be found; else a note on which answer."""
    try:
        agent = AgentFolder.read(home)
    except UnweaveError:
        return []  # another check reports this
    topology, me = agent.manifest.topology, agent.config.name
    given = {name: agent.manifest.agent(name).address for name in topology.neighbours(me)}
    wanted = {name: address for name, address in given.items() if address is not None}
    reached = reach(wanted.values())
    results = [
        _found(me, "neighbours", *problem)
        for name in given
        if (problem := _certificate_problem(agent.manifest, name))
    ]
    results += [
        _unfound(me, name, address, reached[address].problem)
        for name, address in wanted.items()
        if reached[address].problem
    ]
    if results or not wanted:
        return results
    silent = [name for name in wanted if not reached[wanted[name]].answers]
    said = [f"{name} answers" for name in wanted if name not in silent]
    said += [f"{name} does not answer yet" for name in silent]
    more = f", … ({len(silent)} of {len(wanted)} do not answer yet)" if len(said) > _SHOWN else ""
    return [_well(me, "neighbours", ", ".join(said[:_SHOWN]) + more)]


def _look_at_hosts(folder: Path, told: Collection[str]) -> list[Result]:
    """A problem for each host of the network that cannot be found, except those of the agents
    `told`, which have one already; and a note on whether agents without a folder in DIR answer."""
    here = {agent_name(home) for home in folder.glob("agents/*") if home.is_dir()}
    entries = {e.name: e.address for e in load(folder / "network.toml").entries if e.address}
    # One address of each host is enough where the agents are here; what runs is told elsewhere.
    hosts = {host_of(address): address for address in entries.values()}
    away = {name: address for name, address in entries.items() if name not in here}
    reached = reach([*hosts.values(), *away.values()])
    results, known = [], set()
    for name, address in entries.items():
        host = host_of(address)
        problem = reached[hosts[host]].problem
        if problem and name not in told and host not in known:
            results.append(_unfound(name, name, address, problem))
        elif not problem and name in away:
            said = "answers" if reached[address].answers else "does not answer yet"
            results.append(_well(name, "neighbours", said))
        known.add(host)
    return results


def _unfound(agent: str, neighbour: str, address: str, why: str) -> Result:
    return _found(
        agent,
        "neighbours",
        f"{neighbour} at {address}: the host cannot be found ({why})",
        "add the name to DNS or /etc/hosts; if it is wrong, correct the address in network.toml "
        "in every agent's folder",
    )


def _result(agent: str, what: str, probe: Callable[[], str], fix: str) -> Result:
    """Run one check. `fix` is used for errors that have none of their own."""
    try:
        note = probe()
    except BadLines as error:
        details = [line.strip() for line in error.details]
        return _found(agent, what, error.problem, error.fix or fix) | {"details": details}
    except ActionableError as error:
        return _found(agent, what, error.problem, error.fix)
    except UnweaveError as error:
        return _found(agent, what, str(error), fix)
    except OSError as error:
        place = error.filename or "a file"
        return _found(agent, what, f"{place}: cannot be read ({error.strerror or error})", fix)
    return _well(agent, what, note)


def _identity(agent: AgentFolder) -> str:
    key = agent.path / "key.pem"
    if key.is_file() and (mode := key.stat().st_mode & 0o777) & 0o077:
        raise ActionableError(
            f"{key}: others can read this key (mode {mode:04o})", f"chmod 600 {quote(key)}"
        )
    identity = open_identity(agent)
    name = agent.config.name
    if problem := _certificate_problem(agent.manifest, name):
        raise ActionableError(*problem)
    if agent.manifest.agent(name).address is not None:  # `_address` reports a missing one
        own_pin(agent.manifest, agent.me, identity)
    return identity.keyid[:8]


def _certificate_problem(manifest: Manifest, name: str) -> tuple[str, str] | None:
    """Why TLS cannot use the certificate that the manifest pins for this agent, and the fix."""
    pem = manifest.agent(name).certificate
    problem = None if pem is None else tls_problem(pem, dt.datetime.now(dt.UTC))
    if pem is not None and problem is None:
        return None
    said = "has no certificate" if pem is None else f"has a certificate that {problem}"
    return (
        f'network.toml: agent "{name}" {said}: no neighbour could open a connection',
        f"write the text of {name}'s certificate.pem, as `unweave init` made it, into every copy "
        "of network.toml",
    )


def _address(agent: AgentFolder) -> str:
    address = agent.manifest.agent(agent.config.name).address
    where = agent.path / "agent.toml"
    if address is None:
        raise ActionableError(
            f'agent "{agent.config.name}" has no address',
            "add address to its table in network.toml, in every agent's folder",
        )
    listen = agent.config.listen or address
    if _running(agent):
        return f"{listen}, running"
    here = _free(listen, f"listen in {where}, or the address in network.toml")
    if agent.config.metrics:
        _where(agent.config.metrics, f"metrics in {where}")
    return f"{listen}, {here}"


def _metrics(agent: AgentFolder) -> str:
    """Why the agent could not serve its metrics: a warning, because it runs without them."""
    if not agent.config.metrics or _running(agent):
        return ""
    try:
        _free(agent.config.metrics, f"metrics in {agent.path / 'agent.toml'}")
    except ActionableError as error:
        return f"no metrics: {error.problem}: {error.fix}"
    return ""


def _running(agent: AgentFolder) -> bool:
    try:
        with Operator(agent.path, 2.0):
            return True
    except AgentDown:
        return False


def _status(agent: AgentFolder) -> dict[str, Any]:
    """What a running agent says of itself; nothing if none runs."""
    try:
        with Operator(agent.path, 2.0) as operator:
            return operator.ask("status")
    except AgentDown:
        return {}
    except UnweaveError:
        return {"phase": "running"}


def _where(listen: str, setting: str) -> Address:
    found = Address.parse(listen)
    if found is None:
        raise ActionableError(f'"{listen}" is not an address', f'write "host:port": {setting}')
    return found


def _free(listen: str, setting: str) -> str:
    """Raise unless the agent can listen on this address."""
    host, port = _where(listen, setting)
    if problem := host_problem(host):
        raise ActionableError(
            f"{listen}: the host cannot be found ({problem})", f"correct the name: {setting}"
        )
    family, kind, proto, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    with socket.socket(family, kind, proto) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(where)
        except PermissionError:
            raise ActionableError(
                f"{listen}: ports below 1024 need root", f"choose another port: {setting}"
            ) from None
        except OSError as error:
            if error.errno == errno.EADDRNOTAVAIL:  # the address of another machine
                return "on another machine"
            raise ActionableError(
                f"{listen}: another process listens there",
                f"stop it, or choose another port: {setting}",
            ) from None
    return "free"


def _data(agent: AgentFolder, state: State | None, factors: Factors, warnings: list[str]) -> str:
    """Check the data as the agent does when it starts; `warnings` are added to."""
    name = agent.config.name
    status = _status(agent)
    if name in status.get("erased", ()) if state is None else state.own.detached:
        return "none needed: all erased"
    data = open_data(agent, open_identity(agent))
    dropped = frozenset[bytes]() if state is None else state.own.dropped
    # A running agent was admitted when it started; erasures since may leave it few records.
    number = data.check() if status else admit(data, agent.least_records, state)
    if isinstance(data.model, ConjugateModel) and not status:
        factors[name] = data.model, data.measured(dropped)
    if isinstance(data.model, LossModel) and not status:
        warnings += _concerns(agent, data.model, data.shard(dropped))
    nameless, repeated = data.named()
    if nameless:
        key, settings = agent.config.data.key, agent.path / "agent.toml"
        raise ActionableError(
            f"{count(nameless, 'record')} with an empty key ({key!r}), which could never be "
            "erased alone",
            f"give every record its own key, or name another column in {settings} ([data] key)",
        )
    said = [count(number, "record")]
    if data.missing is not None and data.missing.records:
        said.append(str(data.missing))
    if repeated:
        said.append(f"{repeated} with the key of another: erased together")
    if data.clipped:
        said.append(f"{data.clipped} outside of the declared bounds: counted as at the bound")
    return ", ".join(said)


def _concerns(agent: AgentFolder, model: LossModel, data: Data) -> list[str]:
    """What a nearly flat prior makes of these records alone. Other priors cost no solve."""
    if not data.n or not model.flatness([data]):
        return []
    solver = agent.manifest.build_solver(model)
    try:
        factor = solver.solve(model, data, model.eta0, None, Context(Stream(0))).factor
        concern = model.concern(model.eta0 + factor, [data])
    except UnweaveError as error:
        return [f"data: alone they cannot be learned: {error}"]
    return [] if concern is None else [f"data: {concern} (unless other agents' records overlap)"]


def _state(agent: AgentFolder) -> State | None:
    if not os.access(agent.path, os.W_OK):
        raise ActionableError(
            f"{agent.path}: this user may not write there, but the agent must",
            f"check and run it as the folder's owner, or: chmod u+w {quote(agent.path)}",
        )
    if not agent.store.exists():
        return None
    try:
        with open_store(agent, open_identity(agent)) as store:
            return store.load(agent.terms, agent.me)
    except StoreError as error:
        problem, _, fix = str(error).partition(". Fix: ")
        if "belongs to the network" in problem:
            manifest = agent.path / agent.config.network
            fix = f"copy {manifest} from another agent's folder: all agents have the same file"
        raise ActionableError(problem, fix) from None
