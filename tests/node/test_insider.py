"""An insider lies while agents are killed, frozen and restored from old backups, and their owners
change and erase data. Afterwards every accepted erasure is certified, all agents have one sum, and
it is the sum of a computation that never had the erased data."""

from __future__ import annotations

import os
import re
import sys

import numpy as np
import pytest
from tests.support.attack import TIMEOUTS, Attack, Faults
from tests.support.processes import Processes

from unweave import Federation
from unweave.models import BetaExponential

LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d (debug|info|warning|error) +a\d+  \S")
REST = 30.0  # seconds from the last fault, on a machine that has time for the agents


def exponential(rng, n):
    return rng.exponential(1.5, n)


MODELS = {"conjugate": {}, "beta-exponential": {"model": BetaExponential(), "draw": exponential}}


def pooled(net, gone):
    """Mean and standard deviation without what is gone, in memory."""
    data = {
        name: np.array([value for key, value in rows.items() if key not in gone[name]])
        for name, rows in net.rows.items()
        if name not in net.out
    }
    posterior = Federation(net.model, data, "complete").learn().refine().posterior
    return float(np.ravel(posterior.mean())[0]), float(np.ravel(posterior.sd())[0])


def survive(tmp_path, model, ending, seed, faults, **settings):
    # Only wrong tokens are proofs. A proof ends the insider by itself, so it comes last.
    proof = ending == "proof"
    lies = {"provable": not proof} | settings.pop("lies", {})
    with Processes(
        tmp_path / "net",
        graph="complete",
        timeouts=TIMEOUTS,
        seed=seed,
        **settings,
        **MODELS[model],
    ) as net:
        for name in net.names:
            toml = net.folder(name) / "agent.toml"
            toml.write_text(f"auto_vote = {str(proof).lower()}\n" + toml.read_text())
        attack = Attack(net, seed, **lies)
        try:
            attack.start()
            attack.storm(faults)
            attack.end(ending)
            certificates = attack.settle()
            sys.stdout.write(attack.report() + "\n")
            attack.verify(certificates)
            if model == "conjugate":
                assert attack.digest == net.expected(attack.gone)
            else:
                marginal = net.ask("a1", "posterior")["posterior"]["marginals"][0]
                found = marginal["mean"], marginal["sd"]
                assert found == pytest.approx(pooled(net, attack.gone), rel=0.02)
            attack.add_up()
            logs_are_ours(net, attack)
        except BaseException as error:
            error.add_note(
                f"seed {seed}, {dict(attack.done)}; the logs: {net.root}/agents/*/agent.log"
            )
            raise
        return attack


def logs_are_ours(net, attack):
    for name in attack.honest:
        for line in net.log(name).splitlines():
            assert LINE.match(line), (name, line[:300])
            assert line.isprintable(), (name, line[:300])
            for never in ("Traceback", "never retrieved", "unexpected"):
                assert never not in line, (name, line[:300])


@pytest.mark.parametrize(
    ("model", "ending"), [("conjugate", "proof"), ("beta-exponential", "votes")]
)
def test_an_insider_and_a_few_faults(tmp_path, model, ending):
    lies = {"intents": 300, "flood": 24}
    survive(tmp_path, model, ending, 1, Faults(6, 1, 1), agents=4, rows=12, lies=lies)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "ending", "intents", "seed"),
    [
        ("conjugate", "stops", 20_000, 1),
        ("conjugate", "votes", 40, 2),
        ("conjugate", "proof", 40, 3),
        ("beta-exponential", "stops", 40, 4),
        ("beta-exponential", "votes", 40, 5),
        ("beta-exponential", "proof", 40, 6),
    ],
)
def test_an_insider_and_two_hundred_kills(tmp_path, model, ending, intents, seed):
    lies = {"intents": intents, "flood": 96}
    faults = Faults(kills=200, freezes=30, restores=20)
    attack = survive(tmp_path, model, ending, seed, faults, agents=5, rows=40, lies=lies)
    busy = os.getloadavg()[0] / (os.cpu_count() or 1)
    assert attack.seconds < REST * max(1.0, busy / 3.0)
