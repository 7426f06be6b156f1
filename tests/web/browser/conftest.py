"""The page in headless Chromium: served by the real server, watched for errors of any kind."""

import re
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Error

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


# Playwright keeps an event loop in this thread while it runs: longer than this package would break
# the other tests of the same process.
@pytest.fixture(scope="package")
def chromium():
    if program() is None:
        pytest.skip("no chromium: install the package chromium to test the page")
    with launch() as browser:
        yield browser


@pytest.fixture(scope="package")
def profile(chromium):
    """The profile of most visits. They use its one page in turn: another profile, and another
    process for a page, cost more processor time than the page itself."""
    context = chromium.new_context()
    yield context
    context.close()


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

    def __init__(self, context, server, size="desktop", theme="light", motion="no-preference"):
        self.server, self.errors = server, []
        self.page = context.pages[0] if context.pages else context.new_page()
        self.look(theme, size, motion)
        self.page.set_default_timeout(15_000)
        self._heard = {
            "pageerror": lambda error: self.errors.append(str(error)),
            "console": self._note,
            "request": self._request,
        }
        for event, handler in self._heard.items():
            self.page.on(event, handler)

    def _note(self, message):
        if message.type in ("error", "warning"):
            self.errors.append(message.text)

    def _request(self, request):
        """Nothing is ever fetched from another place."""
        if not request.url.startswith((self.server.url, "blob:", "data:")):
            self.errors.append(f"asked for {request.url}")

    def look(self, theme, size, motion):
        width, height = SIZES[size]
        self.page.set_viewport_size({"width": width, "height": height})
        self.page.emulate_media(color_scheme=theme, reduced_motion=motion)

    def open(self, url=None):
        self.page.goto(url or self.server.url)
        self.page.wait_for_selector("body.ready")
        return self.page

    def leave(self):
        """Stay in the same process, on a file without scripts; nothing else is left."""
        for event, handler in self._heard.items():
            self.page.remove_listener(event, handler)
        for other in self.page.context.pages[1:]:
            other.close()
        self.page.context.clear_cookies()
        self.page.mouse.move(0, 0)
        try:
            self.page.goto(f"{self.server.url}static/icon.svg")
        except Error:  # the server has ended; the next visit opens another page
            self.page.close()

    def forgive(self, pattern):
        """Drop errors that the test has caused on purpose; there must be one."""
        kept = [error for error in self.errors if not re.search(pattern, error)]
        assert len(kept) < len(self.errors), f"no error matches {pattern}: {self.errors}"
        self.errors[:] = kept


@contextmanager
def visited(context, server, **look):
    """A page of this server that makes no error."""
    found = Visit(context, server, **look)
    try:
        yield found
        assert found.errors == []
    finally:
        found.leave()


@pytest.fixture
def visit(chromium, profile):
    """`with visit(source, …) as v`: a server, and a page of it.

    `apart`: in a profile of its own, for what would stay: a clock, a script, a chosen theme.
    """

    @contextmanager
    def opened(source, *, code=None, lock=False, apart=False, **look):
        free = Address("127.0.0.1", 0)  # other tests run beside this one
        with PageServer(source, free, code=code, lock=lock) as server:
            context = chromium.new_context() if apart else profile
            try:
                with visited(context, server, **look) as found:
                    yield found
            finally:
                if apart:
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
