"""`unweave up --dashboard` and `unweave dashboard`, as processes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.request

from tests.support.processes import Processes


def test_the_page_of_agents_that_up_starts(tmp_path):
    net = Processes(tmp_path / "net", agents=3)
    command = [sys.executable, "-m", "unweave", "up", str(net.root)]
    more = ["--dashboard", "--port", "0", "--json"]
    with subprocess.Popen([*command, *more], stdout=subprocess.PIPE, text=True) as up:
        try:
            page = json.loads(up.stdout.readline())
            assert page["link"] == f"{page['url']}#code={page['code']}"
            with urllib.request.urlopen(page["url"] + "events", timeout=60) as events:
                lines = [events.readline().decode() for _ in range(3)]
            assert lines[1] == "event: snapshot\n"
            assert json.loads(lines[2].removeprefix("data: "))["title"] == "net"
            assert "agents" in json.loads(up.stdout.readline())
        finally:
            up.send_signal(signal.SIGTERM)
            up.communicate(timeout=60)
    assert up.returncode == 0
    assert (net.root / "dashboard" / "timeline.json").exists()


def test_a_page_ends_with_its_process(tmp_path):
    net = Processes(tmp_path / "net", agents=1)
    command = [sys.executable, "-m", "unweave", "dashboard", str(net.root), "--port", "0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as page:
        try:
            told = json.loads(page.stdout.readline())
            with urllib.request.urlopen(told["url"] + "session", timeout=60) as answer:
                assert json.load(answer) == {"operator": False}
        finally:
            page.send_signal(signal.SIGTERM)
            page.wait(60)
    assert page.returncode == 0


def test_a_port_without_a_page_is_refused(tmp_path):
    net = Processes(tmp_path / "net", agents=1)
    command = [sys.executable, "-m", "unweave", "up", str(net.root), "--port", "1", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert "add --dashboard" in json.loads(done.stdout)["error"]["message"]
