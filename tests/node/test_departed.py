"""An agent whose process is stopped does not know what happens meanwhile: it may be voted out. When
it goes on, it says so, and is told."""

import time
from concurrent.futures import ThreadPoolExecutor

from tests.support.commands import run_command as unweave
from tests.support.processes import Processes

TIMEOUTS = {"welcome": 1.5, "resend": 0.5, "ack": 2.0, "alive": 1.0, "loss": 4.0}


def test_an_agent_that_was_voted_out_while_it_was_stopped_is_told(tmp_path):
    with Processes(tmp_path / "net", 4, timeouts=TIMEOUTS) as net:
        net.start()
        net.rest()
        key = net.append("a4", [1.0, 1.0])[0]
        net.ask("a4", "learn")
        net.settled()
        net.freeze("a2")
        pid = net.process("a2").pid
        # A record is forgotten, which a2 still has in its sum; then a2 is voted out.
        (tmp_path / "keys").write_text(f"{key}\n")
        records = ("--records", tmp_path / "keys")
        assert unweave("forget", net.root, "a4", *records, "--timeout", "2").code == 1
        gone = unweave("forget", net.root, "a2", "--departed", "--timeout", "60")
        assert gone.code == 0, gone.err
        assert unweave("forget", net.root, "a4", *records, "--timeout", "60").code == 0
        net.out.add("a2")
        expected = net.expected({"a4": [key]})
        epochs = {name: s["epoch"] for name, s in net.statuses("a1", "a3", "a4").items()}
        net.thaw("a2")
        assert net.process("a2").pid == pid

        polls = 0

        def untold():
            nonlocal polls
            polls += 1
            shown = unweave("posterior", net.root, "--json").json
            assert shown["digest"] == expected  # never the sum that a2 woke with
            return [] if net.statuses("a2")["a2"].get("phase") == "departed" else ["a2"]

        net.wait("to be told", untold)
        alone = unweave("posterior", net.folder("a2"), "--json")
        assert (alone.code, alone.json["state"]) == (1, "departed")
        assert "digest" not in alone.json
        status = net.statuses("a2")["a2"]
        assert (status["commitment"], status["complete"], status["included"]) == (None, False, [])
        said = unweave("status", net.root)
        assert "a2: was declared departed by a quorum: it takes part no more" in said.out
        assert {n: s["epoch"] for n, s in net.statuses("a1", "a3", "a4").items()} == epochs
        # It also knows after a start.
        net.stop("a2")
        net.start("a2")
        net.wait(
            "a2",
            lambda: [] if net.statuses("a2").get("a2", {}).get("commitment", 1) is None else ["a2"],
        )
        assert unweave("posterior", net.root, "--json").json["digest"] == expected


def test_who_stood_still_vouches_for_nothing_until_it_is_answered(tmp_path):
    """Asked alone, by a request that was waiting for it, while nobody can tell it anything."""
    with Processes(tmp_path / "net", 3, timeouts={**TIMEOUTS, "loss": 3.0}) as net:
        net.start()
        assert net.settled() == {net.expected()}
        net.wait(
            "to be confirmed",
            lambda: [n for n, s in net.statuses().items() if not s["confirmed"]],
        )
        assert net.ask("a2", "posterior")["posterior"]["state"] == "complete"
        visits = net.ask("a2", "changes")["changes"]["visits"]
        net.freeze("a2")
        net.kill("a1", "a3")
        time.sleep(4.0)  # longer than the loss timeout: that is the point
        with ThreadPoolExecutor(2) as asking:
            answers = [asking.submit(net.ask, "a2", what) for what in ("posterior", "status")]
            time.sleep(0.5)
            net.thaw("a2")
            posterior, status = (answer.result(60) for answer in answers)
        assert posterior["posterior"]["state"] == "unconfirmed"
        assert posterior["posterior"]["digest"] == net.expected()
        assert status["status"]["confirmed"] is False
        assert "the process stood still" in net.log("a2")
        # To read the state again is no visit of the token.
        assert net.ask("a2", "changes")["changes"]["visits"] == visits
        shown = unweave("posterior", net.folder("a2"), "--json")
        assert shown.json["state"] == "unconfirmed"
        net.start("a1", "a3")
        net.wait(
            "to be answered",
            lambda: [n for n, s in net.statuses().items() if not s["confirmed"]],
        )
        assert net.settled() == {net.expected()}
        assert net.ask("a2", "posterior")["posterior"]["state"] == "complete"
