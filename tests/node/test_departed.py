"""An agent that is voted out while its process is stopped is told when it goes on."""

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
        assert (status["digest"], status["complete"], status["included"]) == (None, False, [])
        said = unweave("status", net.root)
        assert "a2: was declared departed by a quorum: it takes part no more" in said.out
        assert {n: s["epoch"] for n, s in net.statuses("a1", "a3", "a4").items()} == epochs
        # It also knows after a start.
        net.stop("a2")
        net.start("a2")
        net.wait(
            "a2",
            lambda: [] if net.statuses("a2").get("a2", {}).get("digest", 1) is None else ["a2"],
        )
        assert unweave("posterior", net.root, "--json").json["digest"] == expected
