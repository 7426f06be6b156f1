"""An agent's log: lines for people or machines, in files of bounded size."""

from __future__ import annotations

import io
import json
import logging
import os
import subprocess
import sys
from collections import Counter

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.support.hostile import TEXTS, visible_line
from tests.support.processes import Processes

from unweave.errors import UnweaveError
from unweave.node.log import Log, RotatingLog
from unweave.node.log_limiter import ALL_PEERS, BURST, EVERY, RATE, LineLimiter
from unweave.text import clip


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


@given(TEXTS, TEXTS, TEXTS)
@example("a  sender=a1", "b\n2026-01-01 00:00:00 info    a1  certified", " c ")
def test_no_text_becomes_a_line_or_a_field(event, one, other):
    human, machine = io.StringIO(), io.StringIO()
    for form, stream in (("human", human), ("json", machine)):
        log = Log("north", form, stream=stream)
        log.warning(event, one=one, other=other)
        log.failure("failed", ValueError(one), other=other)
        log.failure("failed", UnweaveError(one))
    first, second, third = human.getvalue().splitlines()
    for line in (first, second, third, *machine.getvalue().splitlines()):
        visible_line(line)
    head, _, *fields = first.split("  ")
    assert head.endswith("warning north")
    assert [field.partition("=")[0] for field in fields] == ["one", "other"]
    assert second.partition(" north")[2].count("  ") == 3  # the event and two fields
    told = json.loads(machine.getvalue().splitlines()[0])
    assert (told["event"], told["one"], told["other"]) == (
        clip(event, 600),
        clip(one, 600),
        clip(other, 600),
    )


def test_an_exception_of_a_library_is_not_quoted():
    """Its text may hold a record; its type and its place do not."""
    stream = io.StringIO()
    log = Log("north", stream=stream)
    log.take_over()
    try:
        try:
            raise ValueError("could not convert 17.25")
        except ValueError as error:
            log.failure("unexpected", error)
            logging.getLogger("asyncio").exception("a task failed")
            log.on_loop_error(None, {"message": "Task exception <17.25>", "exception": error})
    finally:
        log.close()
    assert "17.25" not in stream.getvalue()
    assert stream.getvalue().count("ValueError < test_log.py:") == 3


# --------------------------------------------------------------------------------- the limiter


class Limited:
    """A log with a limiter that reads `now`."""

    def __init__(self):
        self.now = 0.0
        self.stream = io.StringIO()
        self.log = Log("north", stream=self.stream)
        self.log.handler.filters.clear()
        limiter = LineLimiter(self.log.handler.handle, self.log.counts, lambda: self.now)
        self.log._limiter = limiter
        self.log.handler.addFilter(limiter)

    def lines(self, what="  refused  "):
        return [line for line in self.stream.getvalue().splitlines() if what in line]

    def suppressed(self):
        """As the summaries say."""
        return sum(int(line.split("… ")[1].split()[0]) for line in self.lines("more suppressed"))


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 200), st.floats(0, 90)), max_size=30))
def test_every_line_is_written_or_counted(flood):
    limited, sent = Limited(), Counter()
    for peer, count, pause in flood:
        for _ in range(count):
            limited.log.warning("refused", sender=f"a{peer}", why="…")
        sent[peer] += count
        limited.now += pause
    limited.log.close()
    written = len(limited.lines())
    assert written + limited.suppressed() == sum(sent.values())
    assert limited.log.counts["log lines suppressed"] == limited.suppressed()
    assert written <= ALL_PEERS * (BURST + RATE * limited.now)
    for peer, count in sent.items():
        told = len(limited.lines(f"  refused  sender=a{peer} "))
        assert told <= BURST + RATE * limited.now
        assert told >= min(count, 1) or written >= ALL_PEERS * BURST


def test_one_peer_does_not_hide_another_nor_another_kind():
    limited = Limited()
    for _ in range(10_000):
        limited.log.warning("refused", sender="a1", reason="message", why="…")
    limited.log.warning("refused", sender="a2", reason="message", why="…")
    limited.log.warning("refused", sender="a1", reason="imposter", why="…")
    limited.log.info("started")
    assert len(limited.lines("sender=a1  reason=message")) == BURST
    assert limited.lines("sender=a2")
    assert limited.lines("imposter")
    assert limited.lines("started")
    assert limited.suppressed() == 0
    limited.now += EVERY
    limited.log.flush()
    (line,) = limited.lines("suppressed")
    assert line.endswith("  … 9940 more suppressed  of=refused: message  sender=a1")


def test_many_peers_and_libraries_are_bounded():
    limited = Limited()
    logger = logging.getLogger("a library")
    logging.getLogger().addHandler(limited.log.handler)
    try:
        for k in range(20_000):
            limited.log.warning("refused", sender=f"a{k}", why="…")
            logger.error(f"number {k}")
    finally:
        limited.log.close()
    assert len(limited.lines()) == ALL_PEERS * BURST
    assert len(limited.lines("  number ")) == BURST
    assert len(limited.stream.getvalue().splitlines()) < ALL_PEERS * BURST + BURST + 25
    assert len(limited.log._limiter._pairs) < 1100
    assert limited.suppressed() == 40_000 - ALL_PEERS * BURST - BURST


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
