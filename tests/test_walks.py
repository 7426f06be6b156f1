"""The script that counts modules still finds its way."""

from tests.support.walks import csv_walk, hop_walks


def rooms(walk):
    return {module.split(".")[1] for module in walk.modules}


def test_a_hop_and_a_sum_pass_through_the_rooms_that_they_need(tmp_path):
    hops = sorted(hop_walks(tmp_path), key=lambda walk: len(walk.modules))
    hop = hops[-1]  # it also reads the agent's data and computes its factor
    assert {"node", "protocol", "models", "grid"} <= rooms(hop)
    # An agent is no simulation, and its commands run elsewhere.
    assert not rooms(hop) & {"simulator", "experiments", "operations", "cli", "federation"}
    # When node was one flat room, the widest hop had 54, and the reader of files was one module of
    # 800 lines; it is three. A page asks for the last visits: they are recorded. The driver's
    # effects, and statements on the wire, are modules of their own.
    assert len(hop.modules) < 54 + 5
    assert len(hops[0].modules) < 40 + 2
    total = csv_walk(tmp_path)
    assert rooms(total) == {"node", "models", "grid"}
    assert total.crossings.total() >= len(total.modules) - 1
