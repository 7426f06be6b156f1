"""The page over a real simulation: to convergence, with a fault, an erasure and its certificate."""

import pytest

from tests.web.browser.conftest import until
from tests.web.browser.test_many import LONGEST, WATCH
from unweave.manifest import load
from unweave.simulator.run import draw_shards
from unweave.web.simulated.simulation import SimulationSource
from unweave.web.simulated.specification import Simulated


@pytest.fixture
def simulation(tmp_path):
    def build(agents, graph, speed):
        path = tmp_path / "network.toml"
        head = f'name = "clinics"\nseed = 7\ngraph = {graph}\nagents = {agents}\n'
        path.write_text(f'{head}[model]\nname = "beta-bernoulli"\n')
        manifest = load(path)
        model = manifest.build_model()
        shards = draw_shards(model, manifest.topology.agents, 3)
        repeat = "unweave simulate network.toml --seed {}".format
        return SimulationSource(
            Simulated(manifest, model, shards, "synthetic", None, None, 3, None, repeat),
            speed=speed,
        )

    return build


def test_a_simulation_is_watched_disturbed_and_erased(visit, shot, simulation, tmp_path):
    with visit(simulation(6, '"ring"', 2.0)) as v:
        v.page.set_default_timeout(60_000)
        page = v.open()
        page.locator("#mark[data-state=rest]").wait_for()
        for k in range(1, 7):
            page.get_by_role("button", name=f"a{k}: in, attested").wait_for()
        page.locator("#figures", has_text="Complete").wait_for()
        until(page, "document.querySelectorAll('.series canvas').length > 0")
        page.locator("#densities canvas").first.wait_for()

        # A fault: the agent is down, and the page says so, with a reason.
        page.locator("#fault-agent").select_option("a3")
        page.get_by_role("button", name="Crash", exact=True).click()
        page.locator(".entry", has_text="a3").first.wait_for()
        page.locator("#mark[data-state=rest]").wait_for()

        page.get_by_role("button", name="Erase data…").click()
        page.locator("#erase-agent").select_option("a5")
        page.get_by_role("button", name="Show what will happen").click()
        page.get_by_role("button", name="Erase a5").click()
        page.get_by_role("heading", name="a5: erased and certified").wait_for()
        with page.expect_download() as download:
            page.locator("#erase-certificate").click()
        file = tmp_path / "certificate.json"
        download.value.save_as(file)
        page.keyboard.press("Escape")
        page.get_by_role("button", name="a5: erased").wait_for()
        # Before and after: the moment before the erasure is in the chart by itself.
        page.locator("#posterior-legend", has_text="before a5 was forgotten").wait_for()
        shot(page, "simulated-erased")
        page.set_input_files("#verify-file", file)
        page.get_by_role("heading", name="The certificate is valid").wait_for()
        page.keyboard.press("Escape")

        page.get_by_role("button", name="Restart").click()
        page.get_by_role("button", name="a5: in, attested").wait_for()
        assert page.get_by_text("No erasure yet.").is_visible()


def test_two_thousand_simulated_agents_do_not_block_the_page(visit, shot, simulation):
    """The best of three: another process may hold the processor in one of them."""
    longest = []
    while len(longest) < 3 and min(longest, default=LONGEST) >= LONGEST:
        source = simulation(2000, '{ name = "watts-strogatz", k = 4, p = 0.05 }', 20.0)
        with visit(source, apart=True) as v:
            v.page.add_init_script(f"({WATCH})()")
            page = v.open()
            until(
                page,
                "document.getElementById('legend').textContent.includes('Pending1,9')",
                None,
                60,
            )
            page.get_by_label("Search agents").fill("a19")
            page.get_by_label("Search agents").fill("")
            page.get_by_role("button", name="Pause").click()
            page.get_by_role("button", name="Step").click()
            page.get_by_role("button", name="Play").click()
            page.wait_for_timeout(2000)
            longest.append(max(page.evaluate("window.tasks"), default=0))
            shot(page, "simulated-2000")
    assert min(longest) < LONGEST, longest
