"""The page in headless Chromium: the summary is the first printed page, and nothing is blocked."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace

import pytest
from tests.support.certificates import CONJUGATE, OTHER, Bench

from unweave.report import report_of
from unweave.report.facts import ErasureFact, Moments, QuantityFact
from unweave.report.page import page

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed"),
]


def chromium(*words, profile):
    assert CHROMIUM is not None
    flags = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")
    command = [CHROMIUM, *flags, f"--user-data-dir={profile}", *map(str, words)]
    return subprocess.run(command, capture_output=True, timeout=120, check=True)


def pages(raw, tmp_path):
    """The number of printed pages (US Letter, the shortest usual paper)."""
    file, pdf = tmp_path / "report.html", tmp_path / "report.pdf"
    file.write_bytes(raw)
    how = ("--no-pdf-header-footer", f"--print-to-pdf={pdf}", file.as_uri())
    chromium(*how, profile=tmp_path / "profile")
    content = pdf.read_bytes()
    assert content.startswith(b"%PDF")
    return len(re.findall(rb"/Type\s*/Page\b", content))


def longest(folder):
    """A report with as much on its first page as a report can have."""
    bench = Bench([f"{letter * 20} hospital" for letter in "abcd"], model=OTHER)
    names = bench.terms.topology.agents
    bench.erase(names[1], "one")
    bench.erase(names[0], "two", rows=[1, 2])
    bench.manifest.write(folder / "network.toml")
    content = bench.declare_departed(names[2], "three")
    (folder / "certificate-1.json").write_bytes(content)
    report = report_of(folder)
    assert {e.kind for e in report.erasures} <= {"refined", "retrained"}
    assert len(report.limits) == 5
    more = tuple(
        ErasureFact(
            names[3],
            "records",
            "certified",
            records=1000 + k,
            remembered=17,
            by="owner",
            kind="refined",
            requested="2026-01-31 12:00 UTC",
            carried_out="2026-01-31 12:00 UTC",
            certified="2026-01-31 12:00 UTC",
        )
        for k in range(20)
    )
    law = Moments(-1234.56, 123.45, -1476.52, -992.6)
    quantities = tuple(
        QuantityFact(f"column {k} of the table", {"posterior": law, "prior": law}) for k in range(3)
    )
    settings = {f"a setting of the model (setting_{k})": "a long value " * 9 for k in range(9)}
    model = replace(report.models[0], quantities=quantities, total=3, settings=settings)
    return replace(report, erasures=(*report.erasures, *more), models=(model,))


def test_the_summary_is_the_first_page(tmp_path):
    raw = page(longest(tmp_path))
    start, end = raw.index(b'<section class="details">'), raw.index(b"</main>")
    assert pages(raw[:start] + raw[end:], tmp_path) == 1


@pytest.fixture
def short(tmp_path):
    bench = Bench(model=CONJUGATE)
    bench.manifest.write(tmp_path / "network.toml")
    (tmp_path / "certificate-1.json").write_bytes(bench.erase("b", "one"))
    return page(report_of(tmp_path))


def test_the_details_begin_on_the_second_page(short, tmp_path):
    """Also if there were room for them on the first one."""
    start, end = short.index(b'<section class="details">'), short.index(b"</main>")
    assert pages(short[:start] + b"<section><p>room</p></section>" + short[end:], tmp_path) == 1
    little = b'<section class="details"><p>details</p></section>'
    assert pages(short[:start] + little + short[end:], tmp_path) == 2


def test_the_policy_blocks_nothing_of_the_page(short, tmp_path):
    """The style sheet applies; a script that somebody puts into the file does not run."""
    file = tmp_path / "report.html"
    script = b'<p id="told">untouched</p><script>document.title = "altered"</script>'
    file.write_bytes(short.replace(b"</main>", script + b"</main>"))
    done = chromium("--enable-logging=stderr", "--dump-dom", file.as_uri(), profile=tmp_path / "p")
    assert b"<title>altered" not in done.stdout
    log = done.stderr.decode(errors="replace")
    blocked = [line for line in log.splitlines() if "Content Security Policy" in line]
    assert blocked  # the script
    assert all("inline script" in line for line in blocked)
