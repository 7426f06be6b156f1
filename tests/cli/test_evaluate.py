"""`unweave evaluate`: a table, JSON and a figure; wrong inputs are named."""

from __future__ import annotations

import json

import pytest
from tests.support.commands import run_command as unweave

MANIFEST = """name = "clinics"
graph = "ring"
agents = 4
[model]
name = "beta-exponential"
"""


@pytest.fixture
def network(tmp_path):
    (tmp_path / "network.toml").write_text(MANIFEST)
    return tmp_path


def test_a_report_has_all_methods_and_a_figure(network):
    shown = unweave("evaluate", network, "--records", "a1:0,3", "--sequence", "2",
                    "--membership", "12", "--plot", network / "f.png",
                    "--out", network / "report.json")  # fmt: skip
    assert shown.code == 0, shown.err
    for word in ("subtract", "refine", "retrain", "Membership attack", "After 2 erasures"):
        assert word in shown.out
    report = json.loads((network / "report.json").read_text())
    assert report["forgotten"] == {"agents": [], "records": {"a1": 2}}
    assert [one["method"] for one in report["methods"]] == ["subtract", "refine", "retrain"]
    assert (network / "f.png").read_bytes().startswith(b"\x89PNG")
    again = unweave("evaluate", network / "network.toml", "--json")
    found = json.loads(again.out)
    assert len(found["forgotten"]["agents"]) == 1  # the most influential agent
    assert found["held_out"] == 80


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (("--records", "a1"), "no rows. Fix: write NAME:0,4,7"),
        (("--records", "a1:x"), "no rows. Fix"),
        (("--records", "a1:99999"), "does not exist"),
        (("--agent", "nobody"), "nobody"),
        (("--held-out", "1"), "Fix: a share"),
        (("--membership", "3"), "at least 12"),
    ],
)
def test_wrong_inputs_are_named(network, wrong, told):
    shown = unweave("evaluate", network, *wrong)
    assert shown.code == 2 or shown.code == 1
    assert told in shown.err
