"""The page in headless Chromium: served by the real server, watched for errors of any kind."""

import re
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.chromium import launch, program
from unweave.address import Address
from unweave.web.server import PageServer

ROOT = Path(__file__).parents[3]
SHOTS = ROOT / "browser-out"  # screenshots, kept as artefacts
SIZES = {"desktop": (1440, 900), "phone": (390, 844)}

BELOW = """() => {
  const end = document.querySelector("footer").getBoundingClientRect().bottom + scrollY;
  return document.documentElement.scrollHeight - Math.max(innerHeight, end);
}"""


def pytest_collection_modifyitems(items):
    here = Path(__file__).parent
    for item in items:
        if here in Path(item.path).parents:
            item.add_marker(pytest.mark.browser)


# Playwright keeps an event loop in this thread while it runs: longer than a module would break the
# other tests of the same process.
@pytest.fixture(scope="module")
def chromium():
    if program() is None:
        pytest.skip("no chromium: install the package chromium to test the page")
    with launch() as browser:
        yield browser


def until(page, expression, arg=None, seconds=15.0):
    """The first true value of an expression. (Playwright's own wait needs `eval`, which the page
    forbids.)"""
    end = time.monotonic() + seconds
    while not (found := page.evaluate(expression, arg)):
        assert time.monotonic() < end, f"never true: {expression}"
        page.wait_for_timeout(20)
    return found


class Visit:
    """One page of one server, and everything that went wrong in it."""

    def __init__(self, context, server):
        self.server, self.errors = server, []
        self.page = context.new_page()
        self.page.set_default_timeout(15_000)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", self._note)
        self.page.on("request", self._request)

    def _note(self, message):
        if message.type in ("error", "warning"):
            self.errors.append(message.text)

    def _request(self, request):
        """Nothing is ever fetched from another place."""
        if not request.url.startswith((self.server.url, "blob:", "data:")):
            self.errors.append(f"asked for {request.url}")

    def open(self, url=None):
        self.page.goto(url or self.server.url)
        self.page.wait_for_selector("body.ready")
        return self.page

    def forgive(self, pattern):
        """Drop errors that the test has caused on purpose; there must be one."""
        kept = [error for error in self.errors if not re.search(pattern, error)]
        assert len(kept) < len(self.errors), f"no error matches {pattern}: {self.errors}"
        self.errors[:] = kept


@pytest.fixture
def visit(chromium):
    """`with visit(source, …) as v`: a server, and a page that has loaded without any error."""

    @contextmanager
    def opened(source, *, code=None, size="desktop", theme="light", motion="no-preference", **how):
        width, height = SIZES[size]
        free = Address("127.0.0.1", 0)  # other tests run beside this one
        with PageServer(source, free, code=code, **how) as server:
            context = chromium.new_context(
                viewport={"width": width, "height": height},
                color_scheme=theme,
                reduced_motion=motion,
                accept_downloads=True,
            )
            try:
                found = Visit(context, server)
                yield found
                assert found.errors == []
            finally:
                context.close()

    return opened


@pytest.fixture
def shot(request):
    """Keep a picture of the page as it is now."""

    def keep(page, name, *, full=True):
        SHOTS.mkdir(exist_ok=True)
        # A hidden text outside of its list would lengthen the page.
        blank = page.evaluate(BELOW)
        assert blank < 1, f"{blank} empty pixels below the page"
        page.screenshot(path=SHOTS / f"{name}.png", full_page=full)

    return keep
