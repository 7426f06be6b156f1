"""Agents as processes: frozen, robbed of their disk, set back, stopped, started twice."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import shutil
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.support.processes import Processes, erase

from unweave import Federation
from unweave.errors import UnweaveError
from unweave.node.__main__ import main
from unweave.node.api.client import AgentDown, Operator
from unweave.node.log import Log


@pytest.fixture
def net(tmp_path):
    with Processes(tmp_path / "net", agents=3, graph="complete", rows=15) as network:
        yield network


def agent(folder: Path) -> tuple[int, str]:
    """Run an agent that cannot start: its exit code, and what it says."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        code = main(str(folder))
    return code, said.getvalue()


def fill(folder: Path) -> Path:
    """Use the last byte of a file system."""
    path = folder / "filler"
    with path.open("wb", buffering=0) as file:
        for size in (1 << 16, 1 << 10, 1):
            try:
                while True:
                    file.write(b"\0" * size)
            except OSError:
                continue
    return path


def test_bit_for_bit_as_in_memory_through_frost_loss_and_an_old_backup(net, tmp_path):
    gone: dict[str, list[str]] = {}
    net.start()
    data = {name: list(rows.values()) for name, rows in net.rows.items()}
    memory = Federation(net.model, data, "complete").learn().posterior.digest
    assert net.settled() == {memory} == {net.expected()}

    # Frozen: the others go on without it, and it is taken in again.
    net.freeze("a1")
    net.append("a2", [1.0, 1.0, 0.0])
    net.ask("a2", "learn")
    net.wait("to go on", lambda: [] if net.ask("a2", "status")["status"]["included"] else ["a2"])
    time.sleep(6.0)  # longer than the timeouts for an answer
    net.thaw("a1")
    assert net.settled() == {net.expected()}

    # Stopped: an exit code of 0, no socket and no log of the database are left.
    assert net.stop("a2") == [0]
    assert "stopped" in net.log("a2")
    left = {file.name for file in net.folder("a2").iterdir()}
    assert "agent.sock" not in left
    assert not {"store.db-wal", "store.db-journal", "store.db-shm"} & left

    # An old backup after an erasure: the rows are in it, and do not come back.
    net.backup("a2", tmp_path / "old")
    net.start("a2")
    gone["a2"] = list(net.rows["a2"])[3:7]
    erase(net, "a2", gone["a2"])
    assert net.settled() == {net.expected(gone)}
    net.stop("a2")
    net.restore("a2", tmp_path / "old")
    net.start("a2")
    assert net.settled() == {net.expected(gone)}
    net.append("a2", [1.0])  # the file still has the erased rows, and is read again
    assert net.ask("a2", "learn") == {"changed": True}
    assert net.settled() == {net.expected(gone)}

    # A lost store: its neighbours know what was erased.
    net.kill("a2")
    net.lose("a2")
    net.start("a2")
    assert net.settled() == {net.expected(gone)}

    # Rows that are added while the agent is down count when it is back.
    net.stop("a3")
    net.append("a3", [1.0, 1.0])
    net.start("a3")
    assert "the data have changed" in net.log("a3")
    assert net.settled() == {net.expected(gone)}
    assert net.ask("a3", "learn") == {"changed": False}

    # Rows that cannot be used are refused, and change nothing.
    net.append("a3", [7.0])
    with pytest.raises(Exception, match=r"a3.*line 19.*column"):
        net.ask("a3", "learn")
    net.rows["a3"].popitem()
    net.append("a3", [])
    assert net.settled() == {net.expected(gone)}

    # All at once: a power cut.
    net.kill(*net.names)
    net.start()
    assert net.settled() == {net.expected(gone)}

    # An agent that has erased itself needs no data any more, and still relays and attests.
    erase(net, "a1")
    assert net.settled() == {net.expected(gone)}
    net.stop("a1")
    (net.folder("a1") / "data.csv").unlink()
    net.start("a1")
    net.ask("a2", "wake")
    assert net.settled() == {net.expected(gone)}


@pytest.mark.skipif(os.geteuid() != 0, reason="a full disk needs root, to mount a small tmpfs")
def test_a_full_disk_delays_and_breaks_nothing(net):
    folder = net.folder("a1")
    aside = folder.with_name("aside")
    folder.rename(aside)
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=768k", "tmpfs", str(folder)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip(f"a small tmpfs cannot be mounted here: {mounted.stderr.decode().strip()}")
    try:
        for file in aside.iterdir():
            shutil.copy2(file, folder / file.name)
        net.start()
        assert net.settled() == {net.expected()}
        filler = fill(folder)
        net.append("a2", [1.0] * 5)
        net.ask("a2", "learn")
        net.wait(
            "to notice its disk",
            lambda: (
                [] if net.ask("a1", "status")["status"]["counts"].get("disk failures") else ["a1"]
            ),
        )
        assert net.running() == net.names, "it waits for space; it does not die"
        assert "the disk is full" in net.log("a1")
        filler.unlink()
        assert net.settled() == {net.expected()}
    finally:
        net.close()
        subprocess.run(["umount", str(folder)], check=True)


def test_a_log_that_cannot_be_written_stops_nobody():
    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    for form in ("human", "json"):
        Log("a1", form, stream=Full()).error("the disk refuses")


def test_clocks_may_say_what_they_like(net, tmp_path):
    """One agent's clock of the day jumps by decades, one was never set, one counts from another
    zero."""
    missing = [tool for tool in ("cc", "unshare") if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"to change a clock this test needs {' and '.join(missing)}")
    source, shim = tmp_path / "clock.c", tmp_path / "clock.so"
    source.write_text(CLOCK)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(shim), str(source), "-ldl"], check=True)
    net.children["a1"].prefix = ("env", f"LD_PRELOAD={shim}")
    net.children["a3"].prefix = ("env", f"LD_PRELOAD={shim}", "SINCE_1970=1")
    other = ("unshare", "--time", "--fork", "--kill-child", "--monotonic", "1000000")
    if subprocess.run([*other, "true"], capture_output=True).returncode == 0:
        net.children["a2"].prefix = other
    else:
        sys.stderr.write("no time namespaces here (they need root): a2 keeps its clock\n")
    net.start()
    gone = {"a1": list(net.rows["a1"])[:2]}
    erase(net, "a1", gone["a1"])
    assert net.settled() == {net.expected(gone)}
    net.kill("a1")
    net.start("a1")
    net.ask("a3", "wake")
    assert net.settled() == {net.expected(gone)}
    assert "unexpected" not in net.log("a1") + net.log("a2")


CLOCK = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
/* Every two seconds the clock of the day jumps: fifty years ahead, and back to 1970, where a
   host without a battery begins. With SINCE_1970 it stays there. */
int clock_gettime(clockid_t id, struct timespec *at) {
    static int (*real)(clockid_t, struct timespec *);
    struct timespec up;
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int code = real(id, at);
    real(CLOCK_MONOTONIC, &up);
    if (id != CLOCK_REALTIME) return code;
    if ((up.tv_sec / 2) % 2 && !getenv("SINCE_1970")) at->tv_sec += 50L * 31557600;
    else at->tv_sec = up.tv_sec;
    return code;
}
int gettimeofday(struct timeval *at, void *zone) {
    struct timespec now;
    int code = clock_gettime(CLOCK_REALTIME, &now);
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return code;
}
time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at) *at = now.tv_sec;
    return now.tv_sec;
}
"""


def test_what_cannot_start_says_why(net, tmp_path):
    """Each with its message and its exit code: 1 refused, 2 something must be mended."""
    net.children["a1"].start()
    net.ready("a1")
    folder = net.folder("a1")
    code, said = agent(folder)
    assert code == 1
    assert "in use by another agent" in said
    with Operator(folder) as operator:
        assert operator.ask("status")["status"]["pid"] == net.process("a1").pid
    assert stat.S_IMODE((folder / "agent.sock").stat().st_mode) == 0o600
    assert net.stop("a1") == [0]

    key = folder / "key.pem"
    key.chmod(0o640)
    code, said = agent(folder)
    assert code == 2
    assert "others can read this key" in said
    key.chmod(0o600)

    key.rename(folder / "away")
    code, said = agent(folder)
    assert code == 2
    assert "restore this agent's key" in said
    shutil.copy2(net.folder("a2") / "key.pem", key)
    code, said = agent(folder)
    assert code == 2
    assert "belongs to another key" in said
    key.unlink()
    (folder / "away").rename(key)

    settings = folder / "agent.toml"
    right = settings.read_text()
    for wrong, told in {
        right.replace("min_records = 10", "min_record = 10"): "min_record",
        right.replace("min_records = 10", 'min_records = "x"'): "min_records",
        right.replace('name = "a1"', 'name = "nobody"'): "no such agent",
        right.replace("min_records = 10", "min_records = 16"): "min_records = 16",
        right.replace("data.csv", "missing.csv"): "missing.csv",
        right + "]": "not TOML",
    }.items():
        settings.write_text(wrong)
        code, said = agent(folder)
        assert (code, told in said) == (2, True), (told, said)
        assert "Traceback" not in said
    settings.write_text(right)

    (folder / "agent.sock").mkdir()
    code, said = agent(folder)
    assert code == 2
    assert "control socket" in said
    assert "Traceback" not in said
    (folder / "agent.sock").rmdir()

    # A flipped bit in the store.
    store = folder / "store.db"
    raw = bytearray(store.read_bytes())
    intact = bytes(raw)
    at = raw.rfind(b"a1")  # its owner
    raw[at] ^= 1
    store.write_bytes(raw)
    code, said = agent(folder)
    assert code == 1
    assert "store.db" in said
    assert "Traceback" not in said
    store.write_bytes(intact)

    # A taken port.
    deep = tmp_path.joinpath(*["a long name of a folder"] * 6)
    deep.mkdir(parents=True)
    shutil.copytree(folder, deep / "a1")
    net.start("a1")
    code, said = agent(deep / "a1")
    assert code == 1
    assert "the port is taken" in said
    net.stop("a1")

    # A folder with a long name works like any other.
    net.children["a1"].folder = deep / "a1"
    net.children["a1"].start()
    end = time.monotonic() + 60
    while time.monotonic() < end:
        try:
            with Operator(deep / "a1") as operator:
                assert operator.ask("status")["status"]["name"] == "a1"
            break
        except AgentDown:
            time.sleep(0.1)
    else:
        raise AssertionError((deep / "a1" / "agent.log").read_text())


def test_certificates_remember_what_every_store_has_forgotten(net):
    """All disks are lost at once: nobody could tell what was erased, but for the owners' files."""
    net.start()
    gone = {"a2": list(net.rows["a2"])[:3]}
    erase(net, "a2", gone["a2"])
    assert (net.folder("a3") / "data.seen").exists()
    erase(net, "a3", list(net.rows["a3"])[:1])
    assert (net.folder("a3") / "data.key").read_text() == "id"
    erase(net, "a3")
    net.out.add("a3")
    assert net.settled() == {net.expected(gone)}
    # Nothing is kept of its data, not even what the files looked like.
    assert not {"data.seen", "data.key"} & {file.name for file in net.folder("a3").iterdir()}
    net.stop(*net.names)
    for name in net.names:
        net.lose(name)
    net.start()
    net.wait("to forget again", lambda: [] if net.settled() == {net.expected(gone)} else ["a2"])
    assert "erasure requested again" in net.log("a2")
    assert net.ask("a3", "status")["status"]["erased"] == ["a3"]


def test_without_its_data_an_agent_still_takes_part_and_can_be_forgotten(net):
    """Whoever deletes records first and asks for their erasure then does nothing wrong."""
    net.start()
    assert net.settled() == {net.expected()}
    net.kill("a2")
    (net.folder("a2") / "data.csv").unlink()
    net.start("a2")
    assert net.settled() == {net.expected()}
    assert "the data cannot be used" in net.log("a2")
    assert "no file 'data.csv'" in net.ask("a2", "status")["status"]["data_problem"]
    erase(net, "a2")
    net.out.add("a2")
    assert net.settled() == {net.expected()}
    assert net.ask("a2", "status")["status"]["data_problem"] is None  # it needs none any more
    # Data that are bad for a while.
    good = (net.folder("a3") / "data.csv").read_text()
    (net.folder("a3") / "data.csv").write_text(good + "x,2\n")
    with pytest.raises(UnweaveError):
        net.ask("a3", "learn")
    assert "column 'x'" in net.ask("a3", "status")["status"]["data_problem"]
    (net.folder("a3") / "data.csv").write_text(good)
    net.ask("a3", "learn")
    assert net.ask("a3", "status")["status"]["data_problem"] is None
    # Nobody starts without data that has nothing to say.
    net.stop("a1")
    net.lose("a1")
    (net.folder("a1") / "data.csv").unlink()
    code, said = agent(net.folder("a1"))
    assert code == 2
    assert "no file 'data.csv'" in said
