"""The valid sum among many reports, and the posterior in the stores of a stopped network."""

import random
from types import SimpleNamespace

from tests.support.commands import run_command as unweave
from tests.support.processes import Processes, erase
from tests.support.wire import Wire

from unweave.manifest import Manifest, load
from unweave.node.api import report
from unweave.node.api.report import posterior_report
from unweave.operations.reading import newest, read_shards
from unweave.protocol.events import WakeRequested
from unweave.protocol.terms import Batches
from unweave.protocol.token import dead

RING = [(0, 1), (1, 2), (2, 3), (3, 0)]


def moments(seed):
    """All agents' states at several moments: one is stopped, others forget, the one is voted out;
    and when it goes on and hears nobody, it opens epochs from its old copy."""
    rng = random.Random(seed)
    wire = Wire(4, RING, genesis=seed % 4)
    wire.settle()
    seen = [list(wire.disks)]
    gone = rng.randrange(4)
    wire.tell(gone, WakeRequested(wire.now))  # the last that it knows: the rest has ended
    wire.up[gone] = False
    wire.drop(sender=gone)
    for k in rng.sample([k for k in range(4) if k != gone], 2):
        whole = rng.random() < 0.3
        wire.erase(k, rows=[] if whole else [0], whole=whole)
        wire.wait(30.0)
        seen.append(list(wire.disks))
    wire.vote([k for k in range(4) if k != gone], gone)
    wire.wait(60.0)
    seen.append(list(wire.disks))
    wire.up = [k == gone for k in range(4)]
    wire.wait(60.0, hold=lambda flight: True)
    return [*seen, list(wire.disks)]


def test_no_sum_is_shown_that_anybody_knows_to_be_forbidden(monkeypatch):
    monkeypatch.setattr(report, "brief_settings", lambda model: {})
    tempting = sum(show_mixed(moments(seed), random.Random(seed)) for seed in range(8))
    assert tempting  # the largest stamp alone would have shown erased data


def test_an_erasure_that_waits_for_a_batch_is_pending(monkeypatch):
    """Its owner alone knows it."""
    monkeypatch.setattr(report, "brief_settings", lambda model: {})
    publish = Batches(3, 2, 1000.0)
    wire = Wire(4, RING, privacy="masked", min_roster=3, publish=publish)
    wire.checker.private.clock = lambda: wire.now
    wire.settle()
    wire.erase(1, rows=[3])
    wire.wait(30.0)
    found = {s.terms.name(s.me): posterior_report(source(s), erasures=True) for s in wire.disks}
    assert newest(found)["erasure_pending"] == [wire.disks[1].terms.name(1)]


def source(s):
    family = SimpleNamespace(margin=lambda eta: 1.0)
    model = SimpleNamespace(
        decode=s.terms.grid.decode, family=family, name="", marginals=lambda eta: []
    )
    return SimpleNamespace(state=s, terms=s.terms, model=model, mechanism=None)


def show_mixed(seen, rng):
    """Agents report from different moments; how often the largest stamp is a forbidden sum's."""
    tempting = 0
    for _ in range(100):
        states = [rng.choice(seen)[k] for k in range(4)]
        found = {}
        for s in states:
            found[s.terms.name(s.me)] = posterior_report(source(s), erasures=True)
        best = newest(found)
        assert not {"asked", "erasures"} & best.keys()

        def forbidden(told, states=states):
            tokens = [t for s in states for t in (s.token.held, s.token.copy) if t is not None]
            token = next(t for t in tokens if list(t.stamp) == told["stamp"])
            return any(dead(token, s.known.tombs, s.known.retrain_epoch) for s in states)

        whole = [r for r in found.values() if r["state"] in ("complete", "unconfirmed")]
        allowed = [r for r in whole if not forbidden(r)]
        assert ("digest" in best) >= bool(allowed)
        if "digest" in best:
            assert not forbidden(best)
        if allowed:
            assert best["stamp"] == max(r["stamp"] for r in allowed)
        tempting += bool(whole) and forbidden(max(whole, key=lambda r: r["stamp"]))
    return tempting


def test_a_stopped_network_is_read_from_its_stores(tmp_path):
    with Processes(tmp_path / "net", 3) as net:
        never = unweave("posterior", net.root)
        assert never.code == 1
        assert "unweave up" in never.err
        net.start()
        net.rest()
        live = unweave("posterior", net.root, "--json").json
        assert (live["stopped"], live["state"], "as_of" in live) == (False, "complete", False)
        net.stop("a1", "a3")
        net.kill("a2")  # its last steps are in the log of its store
        files = {file: file.stat().st_mtime_ns for file in net.root.rglob("store.db")}
        told = unweave("posterior", net.root, "--json")
        assert told.code == 0
        assert (told.json["stopped"], told.json["state"]) == (True, "complete")
        assert told.json["digest"] == live["digest"] == net.expected()
        assert told.json["marginals"] == live["marginals"]
        text = unweave("posterior", net.root).out
        assert f"as of {told.json['as_of']}: the network is stopped" in text
        assert {file: file.stat().st_mtime_ns for file in files} == files
        # One folder alone cannot know what the others have done since.
        alone = unweave("posterior", net.folder("a1"), "--json").json
        assert (alone["state"], alone["stopped"]) == ("unconfirmed", True)
        # A store that something else has written to is refused, as its agent would.
        store = net.folder("a3") / "store.db"
        good = store.read_bytes()
        store.write_bytes(good[:-200] + bytes(200))
        assert unweave("posterior", net.root).code != 0
        store.write_bytes(good)
        assert unweave("posterior", net.root).code == 0


def test_what_was_erased_is_not_read_from_an_old_store(tmp_path):
    with Processes(tmp_path / "net", 3) as net:
        net.start()
        net.rest()
        net.stop("a2")
        net.backup("a2", tmp_path / "old")
        net.start("a2")
        net.rest()
        (key, *_) = net.rows["a1"]
        erase(net, "a1", [key])
        net.rest()
        expected = net.expected({"a1": [key]})
        net.stop(*net.names)
        net.restore("a2", tmp_path / "old")
        told = unweave("posterior", net.root, "--json").json
        assert (told["digest"], told["known_to"].count("a2")) == (expected, 0)
        for name in ("a1", "a3"):
            assert unweave("posterior", net.folder(name), "--json").json["digest"] == expected


def test_a_sum_with_an_erasure_pending_is_marked(tmp_path):
    with Processes(tmp_path / "net", 3, graph="complete") as net:
        net.start()
        net.rest()
        holder = net.statuses()["a1"]["parked"]
        asker = next(name for name in net.names if name != holder)
        net.freeze(holder)  # the token cannot come
        (key, *_) = net.rows[asker]
        rows = net.ask(asker, "erase", keys=[key])
        told = unweave("posterior", net.root, "--json").json
        assert (told["state"], told["erasure_pending"]) == ("complete", [asker])
        assert told["digest"] == net.expected()
        marked = f"an erasure is pending: the sum still has the data of {asker}"
        assert marked in unweave("posterior", net.root).out
        net.thaw(holder)
        net.wait(
            "the certificate",
            lambda: (
                []
                if net.ask(asker, "erasure", request=rows["request"])["erasure"]["state"]
                == "certified"
                else [asker]
            ),
        )
        told = unweave("posterior", net.root, "--json").json
        assert (told["digest"], told["erasure_pending"]) == (net.expected({asker: [key]}), [])


def test_the_manifest_that_all_folders_hold_is_checked_once(tmp_path, monkeypatch):
    """2,000 copies for 2,000 agents would take the better part of an hour."""
    root = tmp_path / "net"
    rows = "".join(f"{k},{k % 2}\n" for k in range(40))
    (tmp_path / "all.csv").write_text(f"key,x\n{rows}")
    assert unweave("init", root, "--agents", 5, "--data", tmp_path / "all.csv").code == 0
    manifest, checked = load(root / "network.toml"), []
    parse = Manifest.parse
    monkeypatch.setattr(Manifest, "parse", lambda *given: checked.append(given) or parse(*given))
    shards, _, problem = read_shards(manifest, root)
    assert (len(shards), problem) == (5, "")
    assert (once := len(checked)) <= 3  # the cluster's, for what was forgotten, for the records
    other = root / "agents" / "a3" / "network.toml"
    other.write_bytes(other.read_bytes() + b"# another manifest\n")
    read_shards(manifest, root)
    assert len(checked) > 2 * once  # one with other bytes is not taken for granted
