"""What machines read: one JSON document on standard output, also when a command fails."""

import inspect
import json

import numpy as np
import pytest

from unweave.cli import _COMMANDS
from unweave.errors import ConfigError, UnweaveError
from unweave.json_form import as_json, error_report
from unweave.node.errors import BadData

FAILING = {
    "bad input": (("status", "nowhere"), 2, "ConfigError"),
    "refused": (("verify", "{forged}", "-n", "tests/vectors"), 1, None),
    "usage": (("plan", "--agents", "many"), 2, "UsageError"),
    "unknown option": (("forget", "--no-such-option"), 2, "UsageError"),
    "unknown command": (("no-such-command",), 2, "UsageError"),
    "missing argument": (("check",), 2, "UsageError"),
    "graph": (("plan", "--graph", "none", "--agents", "3"), 2, "GraphError"),
}


@pytest.mark.parametrize("case", FAILING)
def test_an_error_is_one_json_object_on_standard_output(unweave, tmp_path, case):
    words, code, kind = FAILING[case]
    forged = tmp_path / "forged.json"
    forged.write_text('{"attestation": {}, "closing": {}}')
    done = unweave(*(str(forged) if word == "{forged}" else word for word in words), "--json")
    assert (done.code, done.err) == (code, "")
    error = done.json["error"]
    assert set(error) == {"kind", "message", "fix", "exit_code"}
    assert error["exit_code"] == code
    assert error["kind"] == (kind or "NotCertified")
    assert error["message"]
    if kind == "UsageError":
        assert error["fix"].startswith("see `unweave")


def test_every_command_with_json_fails_in_json(unweave):
    for commands in _COMMANDS.values():
        for command in commands:
            if "json" in inspect.signature(command).parameters:
                done = unweave(command.__name__, "--json", "--no-such-option")
                assert (done.code, done.err, done.json["error"]["kind"]) == (2, "", "UsageError")


def test_the_fix_is_kept_apart_where_the_error_does():
    for error, fix in (
        (BadData("one is bad", "mend it"), "mend it"),
        (ConfigError("one is bad. Fix: mend it"), "mend it"),
        (ConfigError("one is bad"), None),
    ):
        told = error_report(error)["error"]
        assert (told["fix"], told["message"]) == (fix, str(error))
        assert (told["kind"], told["exit_code"]) in (("DataError", 2), ("ConfigError", 2))
    assert error_report(UnweaveError(""))["error"]["exit_code"] == 1


def test_integers_that_a_reader_could_round_are_text():
    """A double keeps every integer up to 2⁵³ − 1, and not all beyond."""
    most = 2**53 - 1
    value = {"a": [most, -most, most + 1, -most - 1, 2**63, True], "b": np.array([2**62, 7]),
             "c": np.int64(2**60), "d": (1, 2**54), "e": {3, 1}, "f": 2.0**60}  # fmt: skip
    read = json.loads(as_json(value), parse_int=lambda text: int(float(text)))
    assert read == {
        "a": [most, -most, str(most + 1), str(-most - 1), str(2**63), True],
        "b": [str(2**62), 7],
        "c": str(2**60),
        "d": [1, str(2**54)],
        "e": [1, 3],
        "f": 2.0**60,
    }


def test_a_seed_beyond_two_to_the_53(unweave):
    seed = 2**53 + 1
    done = unweave("plan", "--agents", "3", "--graph", "ring", "--seed", seed, "--json")
    assert (done.code, done.json["seed"]) == (0, str(seed))


def test_nothing_but_the_one_function_writes_json():
    for commands in _COMMANDS.values():
        for command in commands:
            source = inspect.getsource(inspect.getmodule(command))
            assert "json.dumps" not in source
            assert "jsonlib.dumps" not in source
    assert as_json({}) == "{}"
