"""Debian's Chromium, headless, for the tests, benchmarks and pictures of the page."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright

__all__ = ["launch", "program"]

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_ARGUMENTS = (
    "--no-sandbox",  # Chromium has no sandbox for root; it opens only our own page
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--host-resolver-rules=MAP *.example 127.0.0.1",  # other sites are this machine, too
)


def program() -> str | None:
    """The path of the browser, if there is one."""
    return next(filter(None, map(shutil.which, _NAMES)), None)


@contextmanager
def launch() -> Iterator[Browser]:
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program(), args=_ARGUMENTS)
        try:
            yield browser
        finally:
            browser.close()
