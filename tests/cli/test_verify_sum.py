"""A certificate is opened with the sum and its secret, which an operator exports; nothing that a
live network prints names the sum otherwise."""

import hmac
import re
import shutil
import stat
import subprocess
from pathlib import Path

import numpy as np
import pytest
from tests.support.processes import Processes

from unweave.grid import digest

VECTORS = Path(__file__).parent.parent / "vectors"
FILES = ("--sum", VECTORS / "sum.bin", "--secret", VECTORS / "secret.txt")


def verify(unweave, *words):
    return unweave("verify", VECTORS / "certificate.json", "-n", VECTORS / "network.toml", *words)


def test_the_certificate_of_the_vectors_is_opened(unweave, tmp_path):
    done = verify(unweave, *FILES)
    assert done.code == 0, done.err
    assert "The certified sum is the one in" in done.out
    assert verify(unweave, *FILES, "--json").json["opened"] is True
    assert "opened" not in verify(unweave, "--json").json

    units = np.fromfile(VECTORS / "sum.bin", dtype="<i8")
    (units + 1).tofile(tmp_path / "sum.bin")
    (tmp_path / "secret.txt").write_text("00" * 32 + "\n")
    for files in (
        ("--sum", tmp_path / "sum.bin", *FILES[2:]),
        (*FILES[:2], "--secret", tmp_path / "secret.txt"),
    ):
        done = verify(unweave, *files)
        assert done.code == 1
        assert "is not its sum" in done.err
        told = verify(unweave, *files, "--json")
        assert (told.code, told.json["valid"], told.json["opened"]) == (1, True, False)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the openssl command")
def test_other_tools_open_it(unweave):
    """As docs/explanation/protocol.md says."""
    key = (VECTORS / "secret.txt").read_text().strip()
    words = ("openssl", "dgst", "-sha256", "-mac", "HMAC", "-macopt", f"hexkey:{key}")
    said = subprocess.run([*words, VECTORS / "sum.bin"], capture_output=True, text=True, check=True)
    assert said.stdout.split()[-1] == verify(unweave, "--json").json["commitment"]


@pytest.mark.parametrize(
    ("files", "why"),
    [
        (FILES[:2], "only one of --sum and --secret"),
        (("--sum", VECTORS / "keys.json", *FILES[2:]), "larger than 16 bytes"),
        (("--sum", VECTORS / "none", *FILES[2:]), "cannot be read"),
        (("--sum", VECTORS / "secret.txt", *FILES[2:]), "larger than 16 bytes"),
        ((*FILES[:2], "--secret", VECTORS / "sum.bin"), "no secret, which has 64 hex digits"),
    ],
)
def test_other_files_are_refused(unweave, files, why):
    done = verify(unweave, *files)
    assert done.code == 2
    assert why in " ".join(done.err.split())


def test_an_operator_exports_what_opens_a_certificate(unweave, tmp_path):
    files = sum_file, secret_file = tmp_path / "sum.bin", tmp_path / "secret.txt"
    words = ("--sum", sum_file, "--secret", secret_file)
    seen = []  # what the network prints

    def run(*asked):
        done = unweave(*asked)
        seen.append(done.out + done.err)
        return done

    with Processes(tmp_path / "net", 3) as net:
        net.start()
        before = net.settled()
        assert "belong together" in unweave("posterior", net.root, *words[:2]).err
        keys = tmp_path / "keys.txt"
        keys.write_text("a1-0\n")
        certificate = tmp_path / "c.json"
        done = run("forget", net.root, "a1", "--records", keys, "--out", certificate)
        assert done.code == 0, done.err
        check = ("verify", certificate, "-n", net.root)
        after = net.settled()
        done = unweave("posterior", net.root, *words)
        assert done.code == 0, done.err
        assert "Wrote the sum to" in done.out
        assert [stat.S_IMODE(file.stat().st_mode) for file in files] == [0o600, 0o600]
        assert run(*check, *words, "--json").json["opened"] is True

        # The sum is that of the posterior; the commitment is on every page in its place.
        units, secret = np.fromfile(sum_file, dtype="<i8"), bytes.fromhex(secret_file.read_text())
        assert {digest(units).hex()} == after == {net.expected({"a1": ["a1-0"]})}
        named = hmac.digest(secret, sum_file.read_bytes(), "sha256").hex()
        assert {s["commitment"] for s in net.statuses().values()} == {named}
        for asked in (("status", net.root), ("status", net.root, "--json"), (*check, "--json")):
            assert named[:12] in run(*asked).out
        assert "secret" not in unweave("posterior", net.root, "--json").json

        # A new round has a new secret; the old certificate stays closed.
        assert run("audit", net.root, "--json").json["commitment"] != named
        run("audit", net.root)
        net.settled()
        assert unweave("posterior", net.root, *words).code == 0
        assert run(*check, *words, "--json").json["opened"] is False

        # From the stores of stopped agents, too.
        old = [file.read_bytes() for file in files]
        net.stop()
        seen += [net.log(name) for name in net.names]
        assert any("commitment" in text for text in seen)
        for file in files:
            file.unlink()
        assert unweave("posterior", net.root, *words).code == 0
        assert [file.read_bytes() for file in files] == old

    hexes = set(re.findall("[0-9a-f]{12,}", " ".join(seen)))
    for plain in before | after:
        assert not any(plain.startswith(text) or plain in text for text in hexes)
