"""Every state of the page: no error, nothing beyond its edges, nothing that axe-core finds."""

from itertools import cycle

import pytest
from axe_playwright_python.sync_playwright import Axe

from tests.support.scenes import CITIES, SceneSource, controls, masked, scene

LONG = [f"department-of-the-general-hospital-{k:05d}" for k in range(12)]
COLUMNS = ("intercept", *(f"x{k}, mean radius in mm of the kind {k}" for k in range(1, 40)))


def eventful(view):
    """The same after many events."""
    entry = {"at": view["clock"], "text": "The token moved on.", "level": "good"}
    view["timeline"] |= {str(100 + k): entry for k in range(60)}
    return view


VIEWS = {
    "starting": lambda: scene("starting"),
    "learning": lambda: scene("learning"),
    "waiting": lambda: scene("waiting"),
    "failed": lambda: scene("failed"),
    "erased": lambda: scene("erased"),
    "masked": lambda: masked(scene("rest")),
    "five": lambda: scene("rest", CITIES[:5], parameters=("mean", "variance")),
    "fifty": lambda: eventful(
        scene("rest", [f"clinic-{k:02}" for k in range(50)], parameters=COLUMNS)
    ),
    "many": lambda: scene("waiting", [f"clinic-{k:04}" for k in range(2000)], parameters=COLUMNS),
    "long": lambda: scene("waiting", LONG, parameters=COLUMNS[:3]),
    "simulation": lambda: controls(scene("learning", simulated=True)),
}
LOOKS = [("light", "desktop"), ("dark", "phone"), ("light", "phone"), ("dark", "desktop")]
# Every view is loaded in one look; views with most on them then change to the others.
CASES = [
    (name, LOOKS[place % 4 :] + LOOKS[: place % 4] if name in ("waiting", "erased") else [one])
    for place, (name, one) in enumerate(zip(VIEWS, cycle(LOOKS), strict=False))
]


# What follows a change of size or theme is drawn in the next frame; its end is in the one after.
DRAWN = "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"


def check(page):
    """Nothing to complain about, for people who see little and for those who hear."""
    found = Axe().run(page).response["violations"]
    assert [(one["id"], [node["html"] for node in one["nodes"]]) for one in found] == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    # Nothing that only screen readers see makes the page longer than what is seen.
    end = "document.querySelector('footer').getBoundingClientRect().bottom + scrollY"
    assert (
        page.evaluate(f"document.documentElement.scrollHeight - Math.max(innerHeight, {end})") < 2
    )


@pytest.mark.parametrize(("name", "looks"), CASES, ids=VIEWS)
def test_a_state_is_shown_without_fault(visit, shot, name, looks):
    theme, size = looks[0]
    with visit(SceneSource(VIEWS[name]()), theme=theme, size=size, motion="reduce") as v:
        page = v.open()
        if name == "fifty":
            page.get_by_role("button", name="Show older").click()
            page.get_by_text("Words on this page").click()
        if name == "waiting":
            page.wait_for_selector("#densities canvas")
        for theme, size in looks:
            v.look(theme, size, "reduce")
            page.evaluate(DRAWN)
            check(page)
            shot(page, f"{name}-{theme}-{size}")


def test_the_dialogs_are_shown_without_fault(visit, shot, tmp_path):
    source = SceneSource(scene("rest"))
    with visit(source, code="right-code", theme="dark", size="phone", motion="reduce") as v:
        page = v.open()
        page.get_by_role("button", name="Erase data…").click()
        check(page)
        shot(page, "dialog-erase", full=False)
        page.get_by_role("button", name="Show what will happen").click()
        page.get_by_text("What others will be able to compute").wait_for()
        check(page)
        shot(page, "dialog-preview", full=False)
        page.get_by_role("button", name="Erase Aachen").click()
        page.get_by_label("Code", exact=True).wait_for()
        check(page)
        shot(page, "dialog-code", full=False)
        v.forgive("401")
        page.keyboard.press("Escape")
        page.keyboard.press("Escape")
        page.get_by_role("table").get_by_role("button", name="Bergen").click()
        page.get_by_text("Address").wait_for()
        check(page)
        shot(page, "dialog-agent", full=False)
        page.keyboard.press("Escape")
        file = tmp_path / "certificate.json"
        file.write_text('{"certificate": true}')
        page.set_input_files("#verify-file", file)
        page.get_by_role("heading", name="The certificate is valid").wait_for()
        check(page)
        shot(page, "dialog-verify", full=False)


def test_what_is_empty_says_so(visit):
    with visit(SceneSource(scene("starting"))) as v:
        page = v.open()
        for text in (
            "No erasure yet.",
            "Nothing has happened yet.",
            "No agent and no request waits.",
        ):
            assert page.get_by_text(text).is_visible()
        assert page.get_by_text("No posterior yet: the first pass has not ended.").is_visible()
        assert page.get_by_text("No visit has been measured yet.").count() == 3
        assert page.get_by_text("There is no token yet.").is_visible()
