"""The owner of erased records finds them in the certificates; nobody else can."""

from importlib import import_module
from pathlib import Path

from tests.support.certificates import fixed_identity
from tests.support.processes import Processes

VECTORS = Path(__file__).parent.parent / "vectors"


def test_the_owner_finds_its_records(unweave, tmp_path):
    with Processes(tmp_path / "net", 2, graph="path") as net:
        net.start()
        assert net.settled() == {net.expected()}
        files = {}
        for name, keys in (("a1", ["a1-0", "a1-3"]), ("a2", ["a2-1"]), ("a1", ["a1-5"])):
            listed = tmp_path / f"{keys[0]}.txt"
            listed.write_text("\n".join(keys) + "\n")
            files[keys[0]] = tmp_path / f"{keys[0]}.json"
            words = ("--records", listed, "--out", files[keys[0]])
            assert unweave("forget", net.root, name, *words).code == 0
        net.stop()
        keys = tmp_path / "keys.txt"

        def find(asked, *certificates, owner="a1", how=()):
            keys.write_text("\n".join(asked) + "\n")
            words = ("-n", net.root, "--records", keys, "--agent", net.folder(owner), *how)
            return unweave("verify", *certificates, *words)

        done = find(["a1-3", "a1-0"], files["a1-0"])
        assert done.code == 0, done.err
        assert "Erased: all 2 keys, as records of a1." in done.out
        done = find(["a1-3", "a1-4", "a2-1"], files["a1-0"])
        assert done.code == 1
        assert "2 of 3 keys not found among the erased records of a1: key number 2, 3" in done.out
        asked = {"agent": "a1", "erased": [1], "not_erased": [2]}
        done = find(["a1-3", "a1-4"], files["a1-0"], how=("--json",))
        assert (done.code, done.json["valid"], done.json["records"]) == (1, True, asked)

        # Of several certificates together; and with another's key nothing is found.
        later = ["a1-0", "a1-3", "a1-5"]
        assert find(later, files["a1-0"]).code == 1
        assert find(later, files["a1-0"], files["a1-5"]).code == 0
        assert find(["a1-0"], files["a1-0"], owner="a2").code == 1
        keys.write_text("a1-0\n")
        stranger = Processes(tmp_path / "other", 1)
        words = ("-n", net.root, "--records", keys, "--agent", stranger.folder("a1"))
        done = unweave("verify", files["a1-0"], *words)
        assert done.code == 2
        assert "the manifest does not pin its key" in done.err

        # Who is there is counted, if there are several.
        text = unweave("verify", files["a1-5"], "-n", net.root)
        assert text.code == 0
        number = len(unweave("verify", files["a1-5"], "-n", net.root, "--json").json["erasures"])
        assert number == 1 or f"{number} erasures, of " in text.out

        net.start()
        whole = tmp_path / "whole.json"
        assert unweave("forget", net.root, "a2", "--out", whole).code == 0
        assert find(["a2-0", "a2-1"], whole, owner="a2").code == 0
        assert find(["a1-9"], whole).code == 1


def test_each_key_is_looked_up_once(unweave, tmp_path, monkeypatch):
    """Counted, not timed: of n keys each may be hashed a few times, but not n times."""
    hashed = []

    class Key(str):
        __slots__ = ()

        def __hash__(self):
            hashed.append(1)
            return super().__hash__()

    keys = [Key(f"p{k}") for k in range(500)]
    forget = import_module("unweave.cli.forget")  # the package has a function of this name
    monkeypatch.setattr(forget, "read_keys", lambda path: list(keys))
    home = tmp_path / "south"
    home.mkdir()
    fixed_identity("south").save(home)
    words = ("-n", VECTORS, "--records", tmp_path / "keys", "--agent", home, "--json")
    done = unweave("verify", VECTORS / "certificate.json", *words)
    assert done.code == 0, done.err
    assert len(done.json["records"]["erased"]) == 500  # south has erased itself
    assert len(hashed) < 20 * len(keys)
