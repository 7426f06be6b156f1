"""What `unweave forget --records` says about keys that it did not find."""

import codecs

import pytest
from tests.support.processes import Processes

from unweave.cli.forget import read_keys
from unweave.errors import ConfigError


def test_a_byte_order_mark_is_no_part_of_a_key(tmp_path):
    file = tmp_path / "keys.txt"
    file.write_bytes(codecs.BOM_UTF8 + "p1\r\n\n p\u00e9 \r\nx\u2028y\n".encode())
    assert read_keys(file) == ["p1", "p\u00e9", "x\u2028y"]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "latin-1"])
def test_other_encodings_are_refused_with_the_fix(tmp_path, encoding):
    file = tmp_path / "keys.txt"
    file.write_bytes("p1\np\u00e9\n".encode(encoding))
    with pytest.raises(ConfigError, match=r"not text in UTF-8\. Fix: save the file as UTF-8"):
        read_keys(file)


def test_no_certificate_claims_what_was_not_found(unweave, tmp_path):
    """Found and remembered keys are told apart by the command, its JSON and the certificate."""
    with Processes(tmp_path / "net", 2, graph="path") as net:
        net.start()
        assert net.settled() == {net.expected()}

        def forget(name, text, *how):
            file = tmp_path / "keys.txt"
            file.write_bytes(codecs.BOM_UTF8 + text.encode())
            words = ("--records", file, "--out", tmp_path / f"{name}.json", *how)
            return unweave("forget", net.root, "a1", *words)

        def proved(name):
            done = unweave("verify", tmp_path / f"{name}.json", "-n", net.root, "--json")
            assert done.code == 0, done.out
            (one,) = (e for e in done.json["erasures"] if e["request"] == asked["request"])
            return one["rows"], one["found"], one["remembered"]

        asked = forget("one", "a1-0\n", "--json", "--missing-ok").json
        assert (asked["found"], asked["remembered"], proved("one")) == (1, 0, (1, 1, 0))
        assert net.settled() == {net.expected({"a1": ["a1-0"]})}

        done = forget("two", "a1-1\ntypo\n", "--missing-ok")
        assert done.code == 0, done.err
        assert "1 of 2 keys found in the data, 1 only remembered." in done.out
        asked = forget("two", "a1-1\ntypo\n", "--missing-ok", "--json").json  # the same request
        assert (asked["found"], asked["remembered"], proved("two")) == (1, 1, (2, 1, 1))
        shown = unweave("verify", tmp_path / "two.json", "-n", net.root).out
        assert "1 record; 1 key only remembered" in shown

        without = {net.expected({"a1": ["a1-0", "a1-1"]})}
        assert net.settled() == without
        for _ in range(2):  # asking again makes it no more true
            done = forget("none", "a1-O\na1-l\n", "--missing-ok", "--json")
            asked = done.json
            assert (done.code, asked["found"], asked["remembered"]) == (1, 0, 2)
            assert "no record was removed" in asked["error"]["message"]
            assert asked["error"]["fix"].startswith("compare the keys file")
            assert proved("none") == (2, 0, 2)
        done = forget("none", "a1-O\na1-l\n", "--missing-ok")
        assert (done.code, "Forgotten" in done.out) == (1, False)
        assert "0 of 2 keys found in the data, 2 only remembered." in done.out
        assert "did not have any of the 2 keys" in done.err
        shown = unweave("verify", tmp_path / "none.json", "-n", net.root).out
        assert "no records; 2 keys only remembered" in shown
        assert net.settled() == without
