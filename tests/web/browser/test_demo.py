"""The page of `unweave demo --dashboard`: five real hospitals learn and forget, and the posterior
is compared with earlier moments."""

import json
import subprocess
import sys
from types import SimpleNamespace

import pytest

from tests.web.browser.conftest import visited


@pytest.fixture
def demo(tmp_path):
    """The command, as a process: what its page told first."""
    command = [sys.executable, "-m", "unweave", "demo", "--dashboard", "--json", "--port", "0"]
    with subprocess.Popen(
        [*command, "--out", str(tmp_path / "demo")], stdout=subprocess.PIPE, text=True
    ) as process:
        yield process
        process.terminate()
        process.communicate(timeout=60)


def test_the_demonstration_is_watched_and_compared(demo, profile, shot):
    told = json.loads(demo.stdout.readline())
    with visited(profile, SimpleNamespace(url=told["url"])) as v:
        v.page.set_default_timeout(30_000)
        page = v.open(told["link"])
        assert page.get_by_role("heading", name="hospitals").is_visible()
        labels = page.locator("#compare-with option").all_inner_texts
        page.locator("#compare-with option", has_text="that never had").wait_for(state="attached")
        assert any("was forgotten" in label for label in labels())
        # One hospital and three patients of another one.
        page.locator("#erasures > li", has_text="Certified as").nth(1).wait_for()
        page.locator("#mark[data-state=rest]").wait_for()
        shot(page, "demo")
        # Compared at once, and in either form.
        page.locator("#intervals-before", has_text="was forgotten").wait_for()
        for form, legend in (
            ("Intervals", "#intervals-before"),
            ("Densities", "#posterior-legend"),
        ):
            page.get_by_role("radio", name=form).check()
            for label in labels():
                page.locator("#compare-with").select_option(label=label)
                if "forgotten" in label or "never" in label:
                    page.locator(legend, has_text=label).wait_for()
        page.locator("#densities canvas").first.wait_for()
        shot(page, "demo-compared")
