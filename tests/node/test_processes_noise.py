"""Real processes with differential privacy: they learn, forget, verify, forget their ledgers, and
spend their budgets."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from tests.support.commands import run_command
from tests.support.processes import Processes, erase

from unweave.errors import UnweaveError
from unweave.keys import verifier
from unweave.manifest import load
from unweave.node.agent import open_identity
from unweave.node.config import AgentFolder
from unweave.node.storage.ledger import open_ledger
from unweave.operations.backup import back_up, restore
from unweave.privacy.noisy import NoisyPosterior
from unweave.protocol.certificate.verify import verify


def network(tmp_path, releases):
    promise = {"mode": "masked", "epsilon": 2.0, "delta": 1e-6, "releases": releases}
    return Processes(tmp_path / "net", agents=5, rows=60, privacy=promise, restart_interval=0)


def account(net, certificate):
    manifest = load(net.root / "network.toml")
    return verify(json.dumps(certificate).encode(), manifest.terms(), verifier(manifest.pems()))


def given(net):
    """What the ledgers of running agents say."""
    return {name: s["privacy_budget"]["given"] for name, s in net.statuses().items()}


def exact(net, without=()):
    kept = [v for rows in net.rows.values() for key, v in rows.items() if key not in without]
    return np.array([sum(kept), len(kept) - sum(kept)])


def test_a_network_with_noise_learns_forgets_verifies_and_is_set_back(tmp_path):
    with network(tmp_path, 20) as net:
        net.start()
        (first,) = net.settled()
        manifest = load(net.root / "network.toml")
        mechanism = manifest.build_mechanism()
        assert given(net) == dict.fromkeys(net.names, 1)

        report = net.ask("a4", "posterior")["posterior"]
        assert report["state"] == "complete"
        noisy = NoisyPosterior.from_json(report)
        assert np.array_equal(noisy.noise, mechanism.noise_variances(5))
        counts = noisy.units / 2.0 ** np.array(mechanism.model.grid.bits) - 1
        sd = np.sqrt(mechanism.noise_variances(5))
        assert (counts != exact(net)).all()
        assert (np.abs(counts - exact(net)) < 8 * sd).all()
        assert report["marginals"][0]["sd"] == float(noisy.sd())

        back_up(net.folder("a2"), tmp_path / "old.tar")
        found = account(net, erase(net, "a2", ["a2-0", "a2-7"]))
        assert [(e.agent, e.kind) for e in found.erasures] == [("a2", "exact_before_noise")]
        assert found.noise == mechanism.statement()
        (second,) = net.settled()
        assert second != first
        net.append("a1", [1.0] * 40)
        assert net.ask("a1", "learn") == {"changed": True}
        net.settled()
        assert given(net) == dict.fromkeys(net.names, 3)

        # All processes end: their one-time keys are lost, and no value of the next round is.
        net.kill(*net.names)
        net.start()
        net.settled()
        assert given(net) == dict.fromkeys(net.names, 3)

        # A backup from before two of the rounds, and no ledger: the network remembers.
        net.kill("a2")
        data = (net.folder("a2") / "data.csv").read_bytes()
        shutil.rmtree(net.folder("a2"))
        restore(tmp_path / "old.tar", net.folder("a2"))
        (net.folder("a2") / "data.csv").write_bytes(data)
        net.start("a2")
        net.settled()
        assert given(net)["a2"] >= 3
        assert "had forgotten given values" in net.log("a2")
        assert "the privacy budget counts as spent" not in net.log(
            "a2"
        )  # all neighbours have vouched

        shown = run_command("status", net.root)
        assert "epsilon 2, delta 1e-06 for each record" in shown.out
        shown = run_command(
            *("posterior", net.root, "--draws", "7", "--out", tmp_path / "draws.csv"),
            *("--covariance", "--sum", tmp_path / "sum.bin", "--secret", tmp_path / "key.txt"),
        )
        assert shown.code == 0, shown
        assert "the intervals know of it" in shown.out
        assert len((tmp_path / "draws.csv").read_text().splitlines()) == 8
        assert "of 20 values of each agent" in run_command("check", net.root).out
        before = given(net)
        net.stop()
        for name in net.names:
            home = AgentFolder.read(net.folder(name))
            with open_ledger(home, open_identity(home), mechanism.budget) as ledger:
                assert ledger.given == before[name]
        assert "(without noise ±" in run_command("check", net.root).out
        shown = run_command("posterior", net.root, "--json")  # from the stores
        assert shown.json["noise"] == mechanism.noise_variances(5).tolist()


def charge_without_giving(folder):
    """A process that is killed between the charge and the gift."""
    home = AgentFolder.read(folder)
    mechanism = home.manifest.build_mechanism()
    with open_ledger(home, open_identity(home), mechanism.budget) as ledger:
        ledger.charge(b"k" * 32, mechanism.rho)


def learned(net, name, values):
    """Another round."""
    before = given(net)[name]
    net.append(name, values)
    assert net.ask(name, "learn") == {"changed": True}
    net.wait("to give", lambda: [] if given(net)[name] > before else [name])
    net.settled()


def test_a_ledger_that_is_lost_foreign_or_damaged_never_pays_twice(tmp_path):
    with network(tmp_path, 20) as net, network(tmp_path / "other", 20) as other:
        net.start()
        net.settled()
        learned(net, "a1", [1.0] * 30)
        ledger = net.folder("a2") / "ledger.db"

        # Killed after a charge: it counts, and the next value is paid for again.
        net.kill("a2")
        charge_without_giving(net.folder("a2"))
        net.start("a2")
        net.settled()
        assert given(net) == {name: 3 if name == "a2" else 2 for name in net.names}

        # Damaged, or of another network: refused, and not changed.
        net.stop("a2")
        good = ledger.read_bytes()
        other.start()
        other.settled()
        other.stop()
        foreign = (other.folder("a2") / "ledger.db").read_bytes()
        for wrong in (good.replace(b"k" * 32, b"j" * 32), foreign, good[:3000], b""):
            for file in net.folder("a2").glob("ledger.db*"):
                file.unlink()
            ledger.write_bytes(wrong)
            with pytest.raises(UnweaveError, match="exited with"):
                net.start("a2")
            assert ledger.read_bytes() == wrong

        # Moved away: the store and the neighbours tell what was given.
        ledger.unlink()
        net.start("a2")
        learned(net, "a1", [0.0] * 30)
        assert given(net)["a2"] == 4
        assert "had forgotten given values" in net.log("a2")
        assert "the privacy budget counts as spent" not in net.log("a2")

        # A restored agent, whose neighbours have lost their stores: nobody knows any more.
        net.kill(*net.names)
        back_up(net.folder("a3"), tmp_path / "a3.tar", data=True)
        shutil.rmtree(net.folder("a3"))
        assert restore(tmp_path / "a3.tar", net.folder("a3")).noise
        for name in net.names:
            if name != "a3":
                net.lose(name)
        net.start()

        def unsaid():
            return [] if "the privacy budget counts as spent" in net.log("a3") else ["a3"]

        net.wait("to say that its budget is spent", unsaid)
        assert net.statuses("a3")["a3"]["privacy_budget"]["left"] == 0


def test_a_backup_restored_before_the_first_round_leaves_its_budget_spent_and_says_so(tmp_path):
    """Its neighbours have seen no enrolment of it, so none can vouch for the number of values."""
    with network(tmp_path, 20) as net:
        net.start("a2")
        net.kill("a2")
        back_up(net.folder("a2"), tmp_path / "a2.tar", data=True)
        shutil.rmtree(net.folder("a2"))
        done = run_command("restore", tmp_path / "a2.tar", net.folder("a2"))
        assert "restored before the first round is complete" in " ".join(done.out.split())
        net.start()

        def unsaid():
            return [] if "the privacy budget counts as spent" in net.log("a2") else ["a2"]

        net.wait("to say that its budget is spent", unsaid)
        assert net.statuses("a2")["a2"]["privacy_budget"]["left"] == 0


def test_a_spent_budget_is_said_in_words_and_erasures_are_still_certified(tmp_path):
    with network(tmp_path, 1) as net:
        net.start()
        net.settled()
        left = {name: s["privacy_budget"]["left"] for name, s in net.statuses().items()}
        assert left == dict.fromkeys(net.names, 0)
        shown = run_command("status", net.root)
        assert "is spent: changes of data are not learned any more" in shown.out
        (tmp_path / "keys").write_text("a3-4\n")
        to = tmp_path / "certificate.json"
        shown = run_command(
            *("forget", net.root, "a3", "--records", tmp_path / "keys", "--out", to)
        )
        assert shown.code == 0, shown
        assert "certified with an empty sum" in shown.err
        found = account(net, json.loads(to.read_text()))
        assert found.included == ()
        shown = run_command("verify", to, "--network", net.root)
        assert "A privacy budget is spent" in shown.out
        assert "an erasure refunds nothing" in shown.out
        shown = run_command("posterior", net.root)
        assert shown.code == 1, shown
        assert "is spent: no posterior is served any more. Fix:" in shown.out
        assert "--wait" not in shown.out, "no later posterior will come"
        assert given(net) == dict.fromkeys(net.names, 1)
