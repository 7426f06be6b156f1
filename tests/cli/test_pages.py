"""`--dashboard` of simulate and paper: the address as JSON, the page behind it, errors."""

import importlib
import json
import os
import signal
import subprocess
import sys
import urllib.request

import pytest
from tests.support.commands import run_command

MANIFEST = (
    'name = "clinics"\nseed = 7\ngraph = "ring"\nagents = 4\n[model]\nname = "beta-bernoulli"\n'
)


@pytest.fixture
def network(tmp_path):
    (tmp_path / "network.toml").write_text(MANIFEST)
    return tmp_path


@pytest.mark.parametrize(("command", "kind"), [("simulate", "simulation"), ("paper", "paper")])
def test_the_page_is_served_until_it_is_stopped(command, kind, network):
    what = str(network) if command == "simulate" else "fig3"
    process = subprocess.Popen(
        [sys.executable, "-m", "unweave", command, what, "--dashboard", "--json", "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONWARNINGS": ""},
    )
    try:
        assert process.stdout is not None
        told = json.loads(process.stdout.readline())
        assert told["link"] == told["url"]  # no access code on loopback
        with urllib.request.urlopen(told["url"] + "events", timeout=30) as events:
            lines = [events.readline().decode() for _ in range(3)]
        assert lines[1] == "event: snapshot\n"
        view = json.loads(lines[2].removeprefix("data: "))
        assert view["kind"] == kind
        assert view["controls"]["repeat"].startswith(f"unweave {command}")
    finally:
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (0, b"", b"")


def test_a_stop_while_the_address_is_told_ends_the_page(network, monkeypatch):
    def unhandled(*_: object) -> None:
        raise AssertionError("the address is told before SIGTERM is handled")

    module = importlib.import_module("unweave.cli.dashboard")
    monkeypatch.setattr(module, "_tell", lambda *_: signal.raise_signal(signal.SIGTERM))
    before = signal.signal(signal.SIGTERM, unhandled)
    try:
        assert run_command("simulate", network, "--dashboard", "--port", "0") == (0, "", "")
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_stop_while_a_text_is_executed_is_no_sigint():
    program = """
import signal
from unweave.cli.common import stop_on_sigterm
stop_on_sigterm()
try:
    exec("signal.raise_signal(signal.SIGTERM)")
except KeyboardInterrupt:
    print("stopped")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "stopped\n")


def test_options_of_a_page_are_checked(network):
    code, _, err = run_command("simulate", network, "--dashboard", "--port", "70000")
    assert code == 2
    assert "--port 70000" in err
    code, _, err = run_command("paper", "fig4", "--dashboard")
    assert code == 2
    assert "fig3 and fig5" in err
