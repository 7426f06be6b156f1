"""Draws the pictures of the page and of the report: `python docs/screenshots.py` writes
docs/images/dashboard*.png and report.png.

Ten agents run as processes, learn, and forget one of them. The page shows them in each look. The
report is that of the demonstration. It needs chromium and the packages of the tests; the fonts are
those of the machine.
"""

from __future__ import annotations

import io
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from playwright.sync_api import Browser, Page  # noqa: E402
from tests.support.chromium import launch  # noqa: E402
from tests.support.processes import Processes  # noqa: E402
from tests.support.scenes import CITIES  # noqa: E402

from unweave.address import Address  # noqa: E402
from unweave.models import NormalUnknown  # noqa: E402
from unweave.web.live.network import NetworkSource  # noqa: E402
from unweave.web.server import PageServer  # noqa: E402

IMAGES = ROOT / "docs" / "images"
LOOKS = {
    "dashboard": ("light", 1440, 1060, 1.5),
    "dashboard-dark": ("dark", 1440, 1060, 1.5),
    "dashboard-phone": ("light", 390, 1180, 2.0),
}
GRAPH = {"name": "erdos-renyi", "p": 0.3}
FORGOTTEN = "Dijon"


def opened(browser: Browser, url: str, look: tuple[str, int, int, float]) -> Page:
    theme, width, height, scale = look
    size = {"width": width, "height": height}
    context = browser.new_context(viewport=size, color_scheme=theme, device_scale_factor=scale)
    page = context.new_page()
    page.set_default_timeout(120_000)
    page.goto(url)
    page.locator("#mark[data-state=rest]").wait_for()
    page.locator("#densities canvas").first.wait_for()
    return page


def forget(page: Page, agent: str) -> None:
    """As a person does it."""
    page.get_by_role("button", name="Erase data…").click()
    page.locator("#erase-agent").select_option(agent)
    page.get_by_role("button", name="Show what will happen").click()
    page.get_by_role("button", name=f"Erase {agent}").click()
    page.get_by_role("heading", name="erased and certified").wait_for()


def write(picture: bytes, path: Path) -> None:
    """The picture in 256 colours: a third of the size, and nobody sees a difference."""
    whole = Image.open(io.BytesIO(picture)).convert("RGB")
    few = whole.quantize(256, Image.Quantize.MAXCOVERAGE, kmeans=1, dither=Image.Dither.NONE)
    few.save(path, optimize=True)


def report() -> None:
    """The summary of the demonstration's report."""
    with tempfile.TemporaryDirectory() as folder, launch() as browser:
        out = Path(folder) / "demo-out"
        command = [sys.executable, "-m", "unweave", "demo", "--no-browser", "--out", out]
        subprocess.run(command, check=True)
        page = browser.new_page(viewport={"width": 900, "height": 800}, color_scheme="light")
        page.goto((out / "report.html").as_uri())
        end = page.locator(".details").bounding_box()
        assert end is not None
        clip = {"x": 0, "y": 0, "width": 900, "height": end["y"]}
        write(page.screenshot(full_page=True, clip=clip), IMAGES / "report.png")


def main() -> None:
    report()
    model = NormalUnknown(scale={"x": 10.0}, center={"x": 120.0})
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "Blood pressure, ten clinics"
        draw = lambda rng, rows: np.round(rng.normal(124.0, 11.0, rows), 1)  # noqa: E731
        data = {"model": model, "rows": 60, "seed": 5, "draw": draw}
        Processes(root, CITIES, graph=GRAPH, restart_interval=1.0, **data)
        up = subprocess.Popen([sys.executable, "-m", "unweave", "up", root])
        free = Address("127.0.0.1", 0)
        try:
            with PageServer(NetworkSource(root), free, code=None) as server, launch() as browser:
                forget(opened(browser, server.url, LOOKS["dashboard"]), FORGOTTEN)
                for name, look in LOOKS.items():
                    page = opened(browser, server.url, look)
                    page.get_by_role("button", name=f"{FORGOTTEN}: erased").wait_for()
                    page.get_by_text("No agent and no request waits.").wait_for()
                    page.wait_for_timeout(3000)  # the last hop, and the last line of the charts
                    write(page.screenshot(), IMAGES / f"{name}.png")
        finally:
            up.terminate()
            up.wait()


if __name__ == "__main__":
    main()
