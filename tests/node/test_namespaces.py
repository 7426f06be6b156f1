"""Several hosts: each agent in a network namespace of its own, wired to one switch.

Needs root and iproute2 (`apt-get install iproute2`). Nothing outside the namespaces is touched: the
switch is in one of its own, and the addresses exist in there only.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.support.processes import Processes, erase

REQUEST = "00" * 4 + "11" * 12  # about a1, the first agent


def ip(*words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["ip", *words], check=check, capture_output=True, text=True)


def unable() -> str | None:
    """Why this machine cannot play several hosts."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "network namespaces need iproute2: apt-get install iproute2"
    probe = f"uw{os.getpid()}p"
    made = ip("netns", "add", probe, check=False)
    if made.returncode:
        return f"no network namespaces here: {made.stderr.strip()}"
    bridge = ip("-n", probe, "link", "add", "br0", "type", "bridge", check=False)
    pair = ip("-n", probe, "link", "add", "v0", "type", "veth", "peer", "name", "v1", check=False)
    ip("netns", "del", probe, check=False)
    for what, result in (("bridges", bridge), ("veth links", pair)):
        if result.returncode:
            return f"no {what} here: {result.stderr.strip()}"
    return None


class Switch:
    """One namespace with a bridge, and one per host with a cable to it."""

    def __init__(self, hosts: int) -> None:
        self.name = f"uw{os.getpid()}sw"
        self.hosts = [f"uw{os.getpid()}h{k + 1}" for k in range(hosts)]

    def build(self) -> None:
        for name in (self.name, *self.hosts):
            ip("netns", "add", name)
        ip("-n", self.name, "link", "add", "br0", "type", "bridge")
        ip("-n", self.name, "link", "set", "br0", "up")
        for k, host in enumerate(self.hosts):
            port = f"p{k + 1}"
            ip("link", "add", "eth0", "netns", host, "type", "veth", "peer", "name", port,
               "netns", self.name)  # fmt: skip
            ip("-n", self.name, "link", "set", port, "master", "br0", "up")
            ip("-n", host, "address", "add", f"{self.address(k)}/24", "dev", "eth0")
            ip("-n", host, "link", "set", "eth0", "up")

    @staticmethod
    def address(host: int) -> str:
        return f"10.213.77.{host + 1}"

    def pull(self, host: int) -> None:
        """The cable."""
        ip("-n", self.name, "link", "set", f"p{host + 1}", "down")

    def plug(self, host: int) -> None:
        ip("-n", self.name, "link", "set", f"p{host + 1}", "up")

    def worsen(self, host: int, *how: str) -> subprocess.CompletedProcess[str]:
        command = ["tc", "-n", self.hosts[host], "qdisc", "add", "dev", "eth0", "root", *how]
        return subprocess.run(command, capture_output=True, text=True)

    def remove(self) -> None:
        for name in (*self.hosts, self.name):
            ip("netns", "del", name, check=False)


@contextmanager
def hosts(root, count: int = 4, **settings) -> Iterator[tuple[Switch, Processes]]:
    if reason := unable():
        pytest.skip(reason)
    switch = Switch(count)
    addresses = [f"{switch.address(k)}:7400" for k in range(count)]
    try:
        switch.build()
        with Processes(root / "net", agents=count, addresses=addresses, **settings) as net:
            for name, host in zip(net.names, switch.hosts, strict=True):
                net.children[name].prefix = ("ip", "netns", "exec", host)
            net.start()
            yield switch, net
    finally:
        switch.remove()


def test_a_partition_heals(tmp_path):
    with hosts(tmp_path) as (switch, net):
        assert net.settled() == {net.expected()}
        gone = {"a1": list(net.rows["a1"])[:4]}

        # One host is cut off, with an erasure to do; the others go on.
        switch.pull(0)
        net.append("a3", [1.0] * 4)
        net.ask("a3", "learn")
        net.ask("a1", "erase", keys=gone["a1"], request=REQUEST)
        net.wait(
            "to carry on without a1",
            lambda: [] if net.ask("a3", "status")["status"]["revision"] > 1 else ["a3"],
        )
        assert net.ask("a1", "erasure", request=REQUEST)["erasure"]["state"] != "certified"
        switch.plug(0)
        net.wait(
            "to certify after the partition",
            lambda: (
                []
                if net.ask("a1", "erasure", request=REQUEST)["erasure"]["state"] == "certified"
                else ["a1"]
            ),
        )
        assert net.settled() == {net.expected(gone)}

        # Two halves, each with something new; one of them has no token.
        switch.pull(0)
        switch.pull(1)
        for name in ("a2", "a4"):
            net.append(name, [0.0, 1.0])
            net.ask(name, "learn")
        switch.plug(0)
        switch.plug(1)
        assert net.settled() == {net.expected(gone)}


@pytest.mark.slow
def test_lossy_slow_links(tmp_path):
    with hosts(tmp_path) as (switch, net):
        for k in range(4):
            made = switch.worsen(k, "netem", "loss", "5%", "delay", "20ms", "10ms")
            if made.returncode:
                pytest.skip(f"this kernel cannot lose packets (tc netem): {made.stderr.strip()}")
        gone = {"a2": list(net.rows["a2"])[:2]}
        erase(net, "a2", gone["a2"])
        assert net.settled() == {net.expected(gone)}


@pytest.mark.slow
def test_partitions_again_and_again(tmp_path):
    with hosts(tmp_path) as (switch, net):
        for k in range(8):
            switch.pull(k % 4)
            net.append(net.names[(k + 1) % 4], [1.0])
            net.ask(net.names[(k + 1) % 4], "learn")
            if k % 2:
                net.kill(net.names[(k + 2) % 4])
                net.start(net.names[(k + 2) % 4])
            switch.plug(k % 4)
        assert net.settled() == {net.expected()}


def test_two_networks_on_one_machine(tmp_path):
    with (
        Processes(tmp_path / "one", agents=2, graph="path", seed=1) as one,
        Processes(tmp_path / "two", agents=2, graph="path", seed=2) as two,
    ):
        for net in (one, two):
            for child in net.children.values():
                child.start()
        one.ready(*one.names)
        two.ready(*two.names)
        erase(one, "a1")
        two.kill("a2")
        assert one.settled() == {one.expected()}
        two.start("a2")
        assert two.settled() == {two.expected()}
        assert one.expected() != two.expected()
        assert not one.statuses()["a2"]["refused"]
