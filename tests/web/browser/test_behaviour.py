"""What a person does with the page: watch, choose, erase, verify, control; with keys alone, too."""

import asyncio
import json
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.scenes import CITIES, SceneSource, controls, scene
from tests.web.browser.conftest import until
from unweave.address import Address
from unweave.errors import ConfigError
from unweave.web import feed
from unweave.web.patches import merge
from unweave.web.server import PageServer

CODE = "right-code"


# The places of the token's element in its running animation.
PATH = """() => document.getElementById("token").getAnimations()
            .flatMap(a => a.effect.getKeyframes().map(k => k.transform))"""
AT_REST = "() => document.getElementById('token').getAnimations().length === 0"


def place_of(page, name):
    """Where the token's element is when it is at this agent."""
    found = page.locator(f'.node[aria-label^="{name}:"]').get_attribute("transform")
    x, y = found.removeprefix("translate(").removesuffix(")").split(",")
    return f"translate({x}px, {y}px) translate(-50%, -50%)"


def start_token(page, source, visits, state="moving"):
    source.change({"token": {"state": state, "at": visits[-1][0], "visits": visits}})


def test_every_hop_is_shown_in_order_without_drawing_the_graph_again(visit):
    source = SceneSource(scene("learning"))
    with visit(source) as v:
        page = v.open()
        page.evaluate(
            """() => {
                 window.drawn = 0;
                 new MutationObserver(found => { window.drawn += found.length })
                   .observe(document.querySelector("svg.graph"),
                            {childList: true, subtree: true, attributes: true});
               }"""
        )
        walk = [3, 8, 5, 0, 9, 1]
        old = source.view()["token"]["visits"]
        start_token(page, source, [*old, *((k, 10.0**10 + n) for n, k in enumerate(walk))])
        wanted = [place_of(page, CITIES[k]) for k in (2, *walk)]
        assert until(page, f"() => {{ const p = ({PATH})(); return p.length && p }}") == wanted
        assert page.evaluate("window.drawn") == 0
        until(page, AT_REST)
        assert page.evaluate("document.getElementById('token').style.transform") == wanted[-1]


def test_the_token_jumps_where_motion_is_unwanted(visit):
    source = SceneSource(scene("learning"))
    with visit(source, motion="reduce") as v:
        page = v.open()
        start_token(page, source, [(7, 10.0**10)])
        until(
            page,
            "wanted => document.getElementById('token').style.transform === wanted",
            place_of(page, CITIES[7]),
        )
        assert page.evaluate(PATH) == []


def test_changes_reach_the_page(visit):
    source = SceneSource(scene("learning"))
    with visit(source) as v:
        page = v.open()
        page.evaluate(
            """() => {
                 window.said = [];
                 const live = document.getElementById("live");
                 new MutationObserver(() => window.said.push(live.textContent))
                   .observe(live, {childList: true, characterData: true, subtree: true});
               }"""
        )
        source.change(
            {
                "summary": {"state": "waiting", "text": "The network waits for Jena."},
                "agents": {"Jena": {"state": "down", "why": "Jena does not answer; start it."}},
                "waits": {
                    "w": {"what": "The pass stops.", "why": "Jena is away.", "fix": "Start."}
                },
                "timeline": {"99": {"at": 0.0, "text": "Jena failed.", "level": "failure"}},
            }
        )
        page.get_by_text("The network waits for Jena.").first.wait_for()
        page.get_by_role("button", name="Jena: down").wait_for()
        assert page.get_by_role("heading", name="The pass stops.").is_visible()
        assert page.locator("#waits .fix").inner_text() == "What to doStart."
        row = page.locator(".entry", has_text="Jena failed.")
        assert row.locator(".words").evaluate("e => getComputedStyle(e).fontWeight") == "650"
        # A screen reader hears each of it once.
        until(page, "window.said.length >= 2")
        wait = "Waiting: The pass stops. Jena is away."
        assert sorted(page.evaluate("window.said")) == ["The network waits for Jena.", wait]
        source.change({"waits": {"w": None}})
        page.get_by_text("No agent and no request waits.").wait_for()


def test_an_agent_is_erased_and_its_certificate_verified(visit, tmp_path):
    source = SceneSource(scene("rest"))
    with visit(source, code=CODE) as v:
        page = v.open()
        page.get_by_role("button", name="Cork: in, attested").click()
        for turn in range(8):  # what changes often is not asked for as often
            source.change({"agents": {"Cork": {"posterior": f"epoch 4, hop {turn}"}}})
            page.get_by_role("dialog").get_by_text(f"epoch 4, hop {turn}").wait_for()
        assert source.looked_at in (["Cork"] * 2, ["Cork"] * 3)
        page.get_by_role("button", name="Erase data of this agent…").click()
        assert page.locator("#erase-agent").input_value() == "Cork"
        page.get_by_role("button", name="Show what will happen").click()
        page.get_by_text("Neighbours that saw the sum before and after").wait_for()
        page.get_by_role("button", name="Erase Cork").click()

        # Without the code nothing happens; a wrong one is named.
        page.get_by_label("Code", exact=True).fill("wrong")
        page.get_by_role("button", name="Continue").click()
        page.locator("#access-error:not([hidden])").wait_for()
        assert source.wishes == []
        v.forgive("401")
        page.get_by_label("Code", exact=True).fill(CODE)
        page.get_by_role("button", name="Continue").click()
        page.get_by_role("heading", name="Cork: erased and certified").wait_for()
        assert source.wishes == [{"agent": "Cork"}]

        with page.expect_download() as download:
            page.locator("#erase-certificate").click()
        file = tmp_path / download.value.suggested_filename
        download.value.save_as(file)
        assert file.name == "certificate-r1.json"
        page.keyboard.press("Escape")
        page.get_by_role("button", name="Cork: erased").wait_for()
        assert page.locator("#erasures .steps li[data-state=done]").count() == 3

        drop(page, file.read_bytes())
        page.get_by_role("heading", name="The certificate is valid").wait_for()
        assert page.get_by_text("Files of Dijon are deleted from its disks.").is_visible()
        page.keyboard.press("Escape")
        drop(page, b"something else")
        page.get_by_role("heading", name="Not verified").wait_for()
        assert page.get_by_text("Fix: drop the file that was downloaded").is_visible()
        v.forgive("400")


def drop(page, content):
    """Drop a file onto the middle of the page."""
    page.evaluate(
        """content => {
             const held = new DataTransfer();
             held.items.add(new File([new Uint8Array(content)], "certificate.json"));
             for (const name of ["dragenter", "dragover", "drop"]) {
               document.body.dispatchEvent(
                 new DragEvent(name, {dataTransfer: held, bubbles: true, cancelable: true}));
             }
           }""",
        list(content),
    )


def test_records_are_erased_by_their_keys(visit):
    source = SceneSource(scene("rest"))
    with visit(source) as v:
        page = v.open()
        wait = page.get_by_label("Do not wait for a batch")
        page.get_by_role("button", name="Erase data…").click()
        page.locator("#erase-agent").select_option("Faro")
        page.get_by_text("Single records").click()
        page.get_by_role("button", name="Show what will happen").click()
        assert page.get_by_text("No key was entered.").is_visible()
        page.get_by_label("Keys, one per line").fill(" 17\n\n23 \n17")
        page.get_by_label("Keys that do not exist are no error").check()
        page.get_by_role("button", name="Show what will happen").click()
        page.get_by_role("button", name="Erase 2 records of Faro").wait_for()
        assert wait.is_hidden()  # nothing waits in this network
        page.get_by_role("button", name="Back").click()
        source.batched = True
        page.get_by_role("button", name="Show what will happen").click()
        wait.check()
        page.get_by_role("button", name="Erase 2 records of Faro").click()
        page.get_by_role("heading", name="erased and certified").wait_for()
        wish = {"agent": "Faro", "keys": ["17", "23"], "missing_ok": True, "now": True}
        assert source.wishes == [wish]


class Late(SceneSource):
    """Answers questions about erasures when `answer` is called."""

    why = ""  # why it refuses

    async def run(self, feed):
        self._gates = asyncio.Queue()
        await super().run(feed)

    async def _wait(self):
        gate = asyncio.Event()
        self._gates.put_nowait(gate)
        await gate.wait()
        if self.why:
            raise ConfigError(self.why)

    def answer(self, why=""):
        async def next_one():
            self.why = why
            (await self._gates.get()).set()

        asyncio.run_coroutine_threadsafe(next_one(), self.loop).result(10)

    async def preview(self, wish):
        await self._wait()
        return await super().preview(wish)

    async def erase(self, wish):
        await self._wait()
        return await super().erase(wish)


def test_an_answer_for_a_closed_dialog_opens_none(visit):
    source = Late(scene("rest"))
    with visit(source) as v:
        page = v.open()
        page.get_by_role("button", name="Erase data…").click()
        page.locator("#erase-agent").select_option("Cork")
        page.get_by_role("button", name="Show what will happen").click()
        page.keyboard.press("Escape")
        with page.expect_response("**/erasures/preview"):
            source.answer()
        page.wait_for_timeout(100)
        assert page.locator("dialog[open]").count() == 0

        # Nor does it replace what another dialog asks.
        page.get_by_role("button", name="Erase data…").click()
        page.get_by_role("button", name="Show what will happen").click()
        page.keyboard.press("Escape")
        page.get_by_role("button", name="Erase data…").click()
        page.locator("#erase-agent").select_option("Faro")
        with page.expect_response("**/erasures/preview"):
            source.answer()
        page.wait_for_timeout(100)
        page.get_by_role("button", name="Show what will happen").click()
        source.answer()
        page.get_by_role("button", name="Erase Faro").click()
        page.keyboard.press("Escape")
        source.answer("Faro is asleep. Fix: wake it")  # who has closed it must learn that
        page.locator("#problem", has_text="Faro is asleep. Fix: wake it").wait_for()
        assert page.locator("dialog[open]").count() == 0
        v.forgive("400")


def test_only_what_was_foreseen_is_requested(visit):
    source = Late(scene("rest"))
    source.batched = True
    with visit(source) as v:
        page = v.open()
        page.get_by_role("button", name="Erase data…").click()
        page.locator("#erase-agent").select_option("Faro")
        page.get_by_text("Single records").click()
        page.get_by_label("Keys, one per line").fill("17")
        page.get_by_role("button", name="Show what will happen").click()
        source.answer()
        wait = page.get_by_label("Do not wait for a batch")
        wait.click()
        source.answer("Faro is asleep. Fix: wake it")
        page.locator("#erase-error", has_text="Faro is asleep").wait_for()
        v.forgive("400")
        assert not wait.is_checked()
        wait.click()  # the answer to an earlier question does not count
        wait.click()
        source.answer()
        source.answer()
        page.get_by_role("button", name="Erase 1 record of Faro").click()
        source.answer()
        page.get_by_role("heading", name="erased and certified").wait_for()
        assert source.wishes == [{"agent": "Faro", "keys": ["17"]}]


def test_a_page_that_was_hidden_does_not_show_old_ages_as_new(visit):
    """It gets no frame while it is hidden, and draws the last news when it is shown again."""
    view = scene("rest")
    with visit(SceneSource(view), apart=True) as v:
        v.page.add_init_script(
            """{
                 const frame = window.requestAnimationFrame.bind(window), now = Date.now;
                 let hidden = false, held = [], late = 0;
                 window.requestAnimationFrame = draw => hidden ? held.push(draw) : frame(draw);
                 Date.now = () => now() + late;
                 window.hide = () => { hidden = true; };
                 window.show = after => {
                   hidden = false; late += after; held.splice(0).forEach(draw => frame(draw));
                 };
               }"""
        )
        page = v.open()
        page.evaluate("window.hide()")
        entry = {"at": time.time(), "text": "While nobody looked.", "level": "info"}
        with page.expect_event("console") as arrived:
            page.evaluate(
                """new EventSource("events").addEventListener("snapshot", event => {
                     if (event.data.includes("nobody looked")) console.log("arrived");
                   });
                   new EventSource("events").addEventListener("change", event => {
                     if (event.data.includes("nobody looked")) console.log("arrived");
                   })"""
            )
            v.server._source.change({"timeline": {"900": entry}})
        assert arrived.value.text == "arrived"
        page.wait_for_timeout(100)
        page.evaluate("window.show(600_000)")
        row = page.locator("#timeline li", has_text="While nobody looked.")
        row.wait_for()
        assert row.locator("time").inner_text() == "10 min ago"


def test_the_page_asks_for_the_code_where_reading_needs_it(visit):
    source = SceneSource(scene("rest"))
    with visit(source, code=CODE, lock=True) as v:
        v.page.goto(v.server.url)
        v.page.get_by_label("Code", exact=True).fill(CODE)
        assert v.page.get_by_role("heading", name="Hospitals of the coast").count() == 0
        v.page.get_by_role("button", name="Continue").click()
        v.page.get_by_role("heading", name="Hospitals of the coast").wait_for()
        v.forgive("401")

        # A restart has another code: the page asks for it, and a link with it suffices.
        address = Address("127.0.0.1", v.server.place.address.port)
        v.server.stop()
        view = scene("rest") | {"title": "Hospitals of the coast, again"}
        with PageServer(SceneSource(view), address, code="other-code", lock=True) as again:
            v.page.get_by_label("Code", exact=True).wait_for()
            v.page.keyboard.press("Escape")  # not now: what was there can still be read
            v.page.get_by_role("button", name="Enter the code").click()
            v.page.get_by_label("Code", exact=True).wait_for()
            v.page.goto(again.link)
            v.page.get_by_role("heading", name=view["title"]).wait_for()
            assert v.page.get_by_label("Code", exact=True).is_hidden()
            assert v.page.url == again.url
            assert v.page.locator("#lost").is_hidden()
            v.forgive("401")
            v.forgive("ERR_")


def test_the_link_of_the_terminal_opens_a_session_and_hides_the_code(visit):
    source = SceneSource(scene("rest"))
    with visit(source, code=CODE) as v:
        page = v.open(v.server.link)
        assert page.url == v.server.url
        asked = """fetch("session", {headers: {"x-unweave-proof":
                     localStorage.getItem("unweave-proof")}}).then(r => r.json())"""
        assert page.evaluate(asked) == {"operator": True}
        assert CODE not in page.evaluate("document.cookie + JSON.stringify(localStorage)")


def test_a_simulation_is_controlled(visit):
    view = controls(scene("learning", simulated=True))
    view["controls"] |= {"chapters": {"f3": "Figure 3", "f5": "Figure 5"}, "chapter": "f3"}
    view["controls"]["story"] = "The walk of figure 3."
    source = SceneSource(view)
    with visit(source) as v:
        page = v.open()
        page.get_by_role("button", name="Step").click()
        page.get_by_role("button", name="Play").click()
        page.get_by_role("button", name="Pause").click()
        page.get_by_role("button", name="Play").wait_for()
        page.get_by_role("button", name="Cut the network in two").click()
        page.locator("#fault-agent").select_option("Ghent")
        page.get_by_role("button", name="Crash").click()
        page.get_by_role("button", name="Figure 5").click()
        page.get_by_label("Speed").fill("100")
        page.wait_for_timeout(100)
        assert source.pressed == [
            {"do": "step"},
            {"do": "play"},
            {"do": "pause"},
            {"do": "fault", "value": "partition"},
            {"do": "fault", "value": "crash", "agent": "Ghent"},
            {"do": "chapter", "value": "f5"},
            {"do": "speed", "value": "1000"},
        ]
        assert page.get_by_text("The walk of figure 3.").is_visible()
        # A speed that is refused is not shown as if it were true.
        source.refuses = "speed: too slow. Fix: give more"
        page.get_by_label("Speed").fill("0")
        page.get_by_text("Speed: too slow.").wait_for()
        assert source.pressed[-1] == {"do": "speed", "value": "0.1"}
        assert page.locator("#speed-text").inner_text() == "2.0× real time"
        v.forgive("400")
        source.change(
            {"controls": {"finished": "An invariant was violated.", "repeat": "unweave x"}}
        )
        page.get_by_text("unweave x").wait_for()
        assert page.get_by_role("button", name="Play").is_disabled()


def test_agents_of_whom_nothing_is_known_are_in_the_picture(visit):
    view = scene("starting")
    view["agents"] = {}
    source = SceneSource(view)
    with visit(source) as v:
        page = v.open()
        node = page.get_by_role("button", name="Cork: not known yet")
        assert node.locator("path.pending").is_visible()
        source.change({"agents": {"Cork": {"index": 2, "state": "down", "attested": False}}})
        page.get_by_role("button", name="Cork: down").wait_for()


def test_a_change_says_of_how_many_parameters_it_is(visit):
    with visit(SceneSource(scene("erased", parameters=["age", "bmi", "dose"]))) as v:
        v.open().locator("#erasures .footnote", has_text="1 of 3 parameters.").wait_for()
    with visit(SceneSource(scene("erased"))) as v:
        page = v.open()
        page.locator("#erasures .change").first.wait_for()
        assert not page.locator("#erasures .footnote", has_text="parameters").count()


def test_no_token_is_drawn_when_no_agent_answers(visit):
    source = SceneSource(scene("rest"))
    with visit(source) as v:
        page = v.open()
        page.locator("#token").wait_for()
        assert "parked" in page.locator("#token-text").text_content()
        source.change(
            {
                "token": {"state": "none", "at": None, "epoch": None, "hop": None, "visits": None},
                "summary": {"state": "down", "text": "No agent answers."},
            }
        )
        page.locator("#token").wait_for(state="hidden")
        assert page.locator("#token-text").text_content() == ""


def test_details_say_nothing_before_the_answer(visit):
    class Slow(SceneSource):
        async def agent(self, name):
            await asyncio.sleep(1.0)
            return await super().agent(name)

    with visit(Slow(scene("rest"))) as v:
        page = v.open()
        page.get_by_role("button", name="Cork: in").click()
        page.get_by_role("dialog", name="Cork").wait_for()
        assert page.locator("#details-no-receipts").text_content() == "…"
        page.locator("#details-receipts > li").first.wait_for()


def test_keys_alone_suffice(visit):
    with visit(SceneSource(scene("rest"))) as v:
        page = v.open()
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.id") == "main"
        page.keyboard.press("Tab")  # from the content, the first agent of the picture
        label = "document.activeElement.getAttribute('aria-label')"
        assert page.evaluate(label).startswith("Aachen: ")
        page.keyboard.press("ArrowUp")
        above = page.evaluate(label)
        assert not above.startswith("Aachen: ")
        page.keyboard.press("Enter")
        name = above.partition(":")[0]
        page.get_by_role("dialog", name=name).wait_for()
        assert page.evaluate("document.activeElement.textContent") == name
        page.keyboard.press("Escape")
        assert page.evaluate(label) == above  # where the person was


def test_the_report_is_downloaded(visit):
    with visit(SceneSource(scene("rest"))) as v:
        page = v.open()
        with page.expect_download() as download:
            page.get_by_role("link", name="Report").click()
        assert download.value.suggested_filename == "report.html"
        assert b"A report." in download.value.path().read_bytes()


def test_a_report_that_fails_says_why(visit):
    class Unready(SceneSource):
        async def report(self):
            raise ConfigError("report: the run has not ended. Fix: wait until it is at rest")

    with visit(Unready(scene("learning"))) as v:
        page = v.open()
        page.get_by_role("link", name="Report").click()
        page.get_by_text("Report: the run has not ended. Fix: wait until it is at rest").wait_for()
        v.forgive("400")
        page.locator("#problem").get_by_role("button", name="Close").click()
        assert page.locator("#problem").is_hidden()


def test_a_panel_that_fails_does_not_stop_the_page(visit):
    source = SceneSource(scene("rest"))
    with visit(source) as v:
        page = v.open()
        source.change({"agents": {"Cork": {"state": "no such state"}}})
        page.get_by_text("A part of this page failed").wait_for()
        source.change({"summary": {"text": "Later."}})
        page.locator("#summary", has_text="Later.").wait_for()
        v.errors.clear()


# Every later connection of the page, by its address.
OPENED = """() => {
  window.opened = [];
  const Real = EventSource;
  window.EventSource = class extends Real {
    constructor(url) { super(url); window.opened.push(url); }
  };
}"""


def test_a_silent_connection_is_lost(visit):
    """After a sleep a connection may stay open for ever, and nothing comes: no error, either."""
    source = SceneSource(scene("rest"))
    with visit(source, apart=True) as v:
        v.page.clock.install()
        page = v.open()
        assert page.locator("#connection-text").inner_text() == "Live"
        page.evaluate(OPENED)
        page.clock.run_for(30_000)
        assert page.evaluate("window.opened") == []
        page.clock.run_for(15_000)
        assert page.evaluate("window.opened") == ["events"]
        until(page, "document.getElementById('connection-text').textContent === 'Live'")


def test_a_heartbeat_keeps_a_connection(visit, monkeypatch):
    monkeypatch.setattr(feed, "_HEARTBEAT", 0.02)
    with visit(SceneSource(scene("rest")), apart=True) as v:
        v.page.clock.install()
        page = v.open()
        page.evaluate(OPENED)
        for _ in range(3):
            page.clock.run_for(30_000)
            page.wait_for_timeout(300)  # of the real clock: some heartbeats arrive
        assert page.evaluate("window.opened") == []


def test_densities_that_are_refused_are_not_asked_for_without_end(visit):
    class Refusing(SceneSource):
        asked = 0

        async def curves(self, names, moments):
            self.asked += 1
            raise ConfigError("curves: none. Fix: wait")

    source = Refusing(scene("rest", parameters=("a", "b")))
    with visit(source, apart=True) as v:
        v.page.clock.install()
        page = v.open()
        page.get_by_text("Curves: none. Fix: wait").wait_for()
        for _ in range(30):
            page.clock.run_for(1000)
        assert source.asked == 1
        source.change({"posterior": {"version": "epoch 3, hop 152"}})
        until(page, "document.getElementById('posterior-version').textContent.endsWith('152')")
        for _ in range(5):
            page.clock.run_for(1000)
            page.wait_for_timeout(50)
        assert source.asked == 2
        v.forgive("400")


def test_the_theme_is_remembered(visit):
    with visit(SceneSource(scene("rest")), apart=True, theme="light") as v:
        page = v.open()
        shade = "getComputedStyle(document.body).backgroundColor"
        light = page.evaluate(shade)
        page.get_by_role("button", name="Switch to the dark theme").click()
        dark = page.evaluate(shade)
        assert dark != light
        page.reload()
        page.wait_for_selector("body.ready")
        assert page.evaluate(shade) == dark
        page.emulate_media(color_scheme="dark")
        page.get_by_role("button", name="Switch to the light theme").click()
        assert page.evaluate(shade) == light


def test_a_lost_connection_is_said_and_mended(visit, chromium):
    view = scene("rest")
    with visit(SceneSource(view)) as v:
        page = v.open()
        port = v.server.place.address.port
        v.server.stop()
        page.get_by_text("The connection to the server is lost.").first.wait_for()
        assert page.locator("#connection-text").inner_text() == "Connection lost"
        view["title"] = "Hospitals of the coast, again"
        with PageServer(SceneSource(view), Address("127.0.0.1", port), code=None):
            page.get_by_role("heading", name="Hospitals of the coast, again").wait_for()
            assert page.locator("#connection-text").inner_text() == "Live"
            assert page.locator("#lost").is_hidden()
            v.forgive("ERR_")


def test_parameters_are_chosen_and_compared(visit):
    view = scene("rest", parameters=tuple(f"weight {k}" for k in range(40)))
    view["kind"], view["clock"] = "simulation", 12.0
    view["posterior"]["moments"] = [{"id": "m1", "label": "before Cork was forgotten"}]
    with visit(SceneSource(view)) as v:
        page = v.open()
        assert page.get_by_role("radio", name="Intervals").is_checked()
        assert page.locator("#intervals li").count() == 40
        # The newest moment is compared by itself, in words and as a bar of its own.
        page.locator("#intervals-before", has_text="before Cork was forgotten").wait_for()
        row = page.locator("#intervals li", has_text="weight 39")
        assert row.locator(".earlier").inner_text().startswith("before Cork was forgotten: 0.")
        now, before = (
            row.locator(f".track .{one}").bounding_box() for one in ("interval", "before")
        )
        assert before["x"] > now["x"]
        assert before["y"] >= now["y"] + now["height"]
        page.get_by_label("Compare with").select_option("the prior only")
        row.locator(".earlier").wait_for(state="hidden")
        assert page.locator("#intervals .before:visible").count() == 0
        page.get_by_label("Compare with").select_option("before Cork was forgotten")
        # What is ticked is what is shown, and nothing but a person ticks.
        page.get_by_text("Parameters 40 of 40").click()
        page.get_by_label("weight 39").uncheck()
        assert page.locator("#intervals li").count() == 39
        page.get_by_role("button", name="None").click()
        assert page.get_by_text("No parameter is chosen.").is_visible()
        assert page.locator("#parameters-count").inner_text() == "0 of 40"
        page.get_by_label("weight 7").check()
        assert page.locator("#intervals .name").all_inner_texts() == ["weight 7"]
        page.get_by_role("radio", name="Densities").check()
        page.locator("#densities canvas").wait_for()
        page.locator("#posterior-legend", has_text="m1").wait_for()  # the newest moment, by itself
        page.get_by_label("Search parameters").fill("weight 39")
        page.get_by_label("weight 39").check()
        page.locator("#densities h3", has_text="weight 39").wait_for()
        assert page.locator("#densities h3").all_inner_texts() == ["weight 7", "weight 39"]
        assert page.locator("#parameters-count").inner_text() == "2 of 40"
        page.get_by_label("Compare with").select_option("the prior only")
        until(page, "!document.getElementById('posterior-legend').textContent.includes('m1')")


def test_the_timeline_is_folded_and_filtered(visit):
    with visit(SceneSource(scene("failed"))) as v:
        page = v.open()
        assert page.locator("#timeline .entry").count() == 6
        assert page.get_by_text("214 times").is_visible()
        page.get_by_label("Which entries").select_option("Failures")
        assert page.locator("#timeline .entry").count() == 1
        page.get_by_label("Which entries").select_option("Everything")
        page.get_by_label("Search what happened").fill("bergen")
        assert page.locator("#timeline .entry").count() == 1


# ------------------------------------------------------------------------- the view in JavaScript


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text("ab_", max_size=2),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(["a", "b", "__proto__", "constructor"]), inner, max_size=3
        )
    ),
    max_leaves=8,
)
objects = st.dictionaries(st.sampled_from(["a", "b", "__proto__"]), json_values, max_size=3)


@pytest.fixture(scope="module")
def modules(chromium):
    """A page of the server, for tests that call its modules."""
    source = SceneSource(scene("rest", CITIES[:5]))
    with PageServer(source, Address("127.0.0.1", 0), code=None) as server:
        context = chromium.new_context()
        page = context.new_page()
        page.goto(server.url)
        yield page
        context.close()


@pytest.fixture
def merged_in_browser(modules):
    """`merge` of state.js on pairs of (target, patch), as JSON texts."""

    def run(pairs):
        return modules.evaluate(
            """async pairs => {
                 const {merge} = await import("/static/js/state.js");
                 const own = value => merge(null, JSON.parse(value));
                 return pairs.map(([a, b]) => JSON.stringify(merge(own(a), JSON.parse(b))));
               }""",
            pairs,
        )

    return run


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.tuples(objects, objects), min_size=5, max_size=20))
def test_both_sides_merge_alike(merged_in_browser, pairs):
    """The page and the server apply patches by the same rule, whatever the keys are."""
    pairs = [(merge({}, target), patch) for target, patch in pairs]
    found = merged_in_browser([[json.dumps(a), json.dumps(b)] for a, b in pairs])
    wanted = [merge(json.loads(json.dumps(a)), b) for a, b in pairs]
    assert [json.loads(text) for text in found] == wanted


def test_the_examples_of_the_standard(merged_in_browser):
    """RFC 7396, appendix A: those whose target is an object."""
    cases = [
        ('{"a":"b"}', '{"a":"c"}', {"a": "c"}),
        ('{"a":"b"}', '{"b":"c"}', {"a": "b", "b": "c"}),
        ('{"a":"b"}', '{"a":null}', {}),
        ('{"a":"b","b":"c"}', '{"a":null}', {"b": "c"}),
        ('{"a":["b"]}', '{"a":"c"}', {"a": "c"}),
        ('{"a":"c"}', '{"a":["b"]}', {"a": ["b"]}),
        ('{"a":{"b":"c"}}', '{"a":{"b":"d","c":null}}', {"a": {"b": "d"}}),
        ('{"a":[{"b":"c"}]}', '{"a":[1]}', {"a": [1]}),
        ("{}", '{"a":{"bb":{"ccc":null}}}', {"a": {"bb": {}}}),
    ]
    found = merged_in_browser([[target, patch] for target, patch, _ in cases])
    assert [json.loads(text) for text in found] == [wanted for *_, wanted in cases]


def test_numbers_have_sensible_digits(modules):
    found = modules.evaluate(
        """async () => {
             const {number, at, signed} = await import("/static/js/format.js");
             return [number(0), number(9.9996), number(1234567), number(0.00001234),
                     number(-0.5), at(0.37012, 0.0341), at(12345.6, 150), at(1.5e9, 2.3e7),
                     signed(0.0123), signed(-4), signed(1e-4), signed(0),
                     signed(-2e-9), number(undefined)];
           }"""
    )
    assert found == [
        "0",
        "10.0",
        "1,234,567",
        "1.23 × 10⁻⁵",
        "−0.500",
        "0.370",
        "12,346",
        "1.500 × 10⁹",
        "+0.0123",  # as it was rounded
        "−4",
        "+0.0001",
        "too small to show",
        "−2 × 10⁻⁹",
        "–",
    ]


def test_points_arrive_in_the_charts(visit):
    source = SceneSource(scene("rest"))
    with visit(source) as v:
        page = v.open()
        source.points({"rate": [(time.time() + 1, 77.0)]})
        page.get_by_text("77.0 hops/s").wait_for()
