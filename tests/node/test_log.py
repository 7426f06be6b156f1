"""An agent's log: lines for people or machines, in files of bounded size."""

from __future__ import annotations

import io
import json
import logging
import os
import subprocess
import sys

import pytest
from tests.support.processes import Processes

from unweave.node.log import Log, RotatingLog


def test_the_two_forms():
    human, machine = io.StringIO(), io.StringIO()
    for form, stream in (("human", human), ("json", machine)):
        log = Log("north", form, "info", stream)
        log.debug("not told")
        log.warning("100% refused", sender="east", count=3)
    assert human.getvalue()[19:] == " warning north  100% refused  sender=east  count=3\n"
    line = json.loads(machine.getvalue())
    assert isinstance(line.pop("time"), float)
    assert line == {
        "level": "warning",
        "agent": "north",
        "event": "100% refused",
        "sender": "east",
        "count": 3,
    }


@pytest.mark.parametrize("form", ["human", "json"])
def test_what_libraries_log_is_there_too(form):
    stream = io.StringIO()
    log = Log("north", form, stream=stream)
    log.take_over()
    try:
        try:
            raise KeyError("lost")
        except KeyError:
            logging.getLogger("asyncio").exception("a task failed")
        logging.getLogger("asyncio").info("not told")
    finally:
        log.close()
    logging.getLogger("asyncio").info("not told any more")
    text = stream.getvalue()
    assert "a task failed" in text
    assert "KeyError" in text
    assert "not told" not in text


ROTATE = """
import os, sys
from pathlib import Path
from unweave.node.log import Log, RotatingLog
folder = Path(sys.argv[1])
log = Log("a1", handler=RotatingLog(folder, 1000, 2))
for k in range(200):
    log.info("an event", to=k)
os.write(1, b"from stdout\\n")
raise SystemExit("the last words")
"""


def test_the_log_is_rotated_and_keeps_the_last_words(tmp_path):
    done = subprocess.run([sys.executable, "-c", ROTATE, str(tmp_path)], capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (1, b"", b"")
    assert {file.name for file in tmp_path.iterdir()} == {
        "agent.log",
        "agent.log.1",
        "agent.log.2",
    }
    texts = [(tmp_path / name).read_text() for name in ("agent.log.2", "agent.log.1", "agent.log")]
    assert all(len(text) <= 1000 for text in texts[:2])
    *told, out, error = "".join(texts).splitlines()
    numbers = [int(line.rpartition("=")[2]) for line in told]
    assert numbers == list(range(numbers[0], 200))
    assert (out, error) == ("from stdout", "the last words")
    assert texts[-1].endswith("from stdout\nthe last words\n")


def test_a_folder_that_cannot_be_written_does_not_stop_anybody(tmp_path):
    """The next file cannot be made: lines are lost, and nothing else."""
    saved = os.dup(1), os.dup(2)
    try:
        log = Log("a1", handler=RotatingLog(tmp_path, 200, 1))
        log.info("before")
        (tmp_path / "agent.log.1").mkdir()
        (tmp_path / "agent.log.1" / "file").touch()
        for _ in range(20):
            log.info("an event that makes the file too large")
        log.close()
    finally:
        for standard, copy in zip((1, 2), saved, strict=True):
            os.dup2(copy, standard)
            os.close(copy)
    assert "before" in (tmp_path / "agent.log").read_text()


def test_agents_of_a_supervisor_rotate_their_logs(tmp_path):
    with Processes(tmp_path / "net", agents=1) as net:
        settings = net.folder("a1") / "agent.toml"
        text = settings.read_text()
        settings.write_text(
            text.replace("[data]", 'log_level = "debug"\nlog_bytes = 300\nlog_files = 1\n\n[data]')
        )
        for _ in range(3):
            net.start("a1")
            assert net.stop("a1") == [0]
        older = (net.folder("a1") / "agent.log.1").read_text()
        assert "started" in older + net.log("a1")
        assert net.log("a1").endswith("stopped\n")
        assert len(net.log("a1")) <= 300
        assert not (net.folder("a1") / "agent.log.2").exists()

        # What it says before it has a log is there as well.
        settings.write_text(text + "]")
        net.children["a1"].start()
        assert net.process("a1").wait(60.0) == 2
        assert "not TOML" in net.log("a1").splitlines()[-1]
