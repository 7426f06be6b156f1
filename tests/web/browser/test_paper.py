"""The paper's page: its walks hop by hop, the controls, and the unlearning of figure 5."""

from tests.web.browser.conftest import until
from unweave.web.paper.player import PaperSource

HOPS = """() => Number([...document.querySelectorAll('#figures > div')]
  .find(one => one.textContent.startsWith('Hops')).querySelector('dd').textContent)"""


def open_walk(v):
    """The page of a walk, when its curves are there."""
    page = v.open()
    page.locator("#mark[data-state=learning]").wait_for(timeout=60_000)
    return page


def fast(page):
    speed = page.locator("#speed")
    speed.fill(speed.get_attribute("max"))


def test_a_walk_of_figure_3_is_stepped_and_played_to_its_end(visit, shot):
    with visit(PaperSource("fig3", replicas=5), theme="dark") as v:
        page = open_walk(v)
        assert page.get_by_role("heading", name="Figure 3: star").is_visible()
        page.get_by_role("button", name="Pause").click()
        page.get_by_role("button", name="Play").wait_for()
        before = page.evaluate(HOPS)
        page.get_by_role("button", name="Step").click()
        until(page, f"{HOPS[6:]} === {before + 1}")
        page.get_by_role("button", name="Restart").click()
        until(page, f"{HOPS[6:]} <= 1")
        page.get_by_role("button", name="Figure 3: complete graph").click()
        page.get_by_role("heading", name="Figure 3: complete graph").wait_for()
        fast(page)
        page.locator(
            "#summary", has_text="The walk has ended. KL to the exact posterior: 0"
        ).wait_for()
        assert page.locator("#legend", has_text="In10").is_visible()
        assert page.locator("#finished").is_visible()
        # Nothing of this page belongs to a network with certificates.
        assert not page.get_by_text("Drop a certificate").is_visible()
        shot(page, "paper-fig3")


def test_figure_5_forgets_an_agent_and_loses_its_trace(visit, shot):
    with visit(PaperSource("fig5", replicas=5), size="phone") as v:
        page = open_walk(v)
        chapter = "Figure 5: forget an unusual agent, then refine"
        page.get_by_role("button", name=chapter).click()
        page.get_by_role("heading", name=chapter).wait_for()
        page.locator("#mark[data-state=learning]").wait_for()
        page.get_by_role("button", name="Forget a10").click()
        page.locator("#erasures", has_text="a10").wait_for()
        fast(page)
        page.locator("#erasures", has_text="Taken out of the sum").wait_for()
        page.locator("#legend", has_text="Erased1").wait_for()
        page.locator("#summary", has_text="The walk has ended").wait_for()
        page.locator(".series canvas").first.wait_for()
        page.locator("#densities canvas").first.wait_for()
        wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert wide <= 0
        shot(page, "paper-fig5-phone")
