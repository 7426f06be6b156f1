"""What others can do to the page: names that are scripts, other sites, other host names."""

from tests.support.scenes import SceneSource, scene
from tests.web.browser.conftest import until

CODE = "right-code"
HOSTILE = [
    "<img src=x onerror=alert(1)>",
    "</script><script>pwned=1</script>",
    "\"><svg onload='pwned=1'>",
    "javascript:alert(1)",
    "{{constructor.constructor('pwned=1')()}}",
    "__proto__",
    "constructor",
    "‮evil\u0000.exe",
    "a' onfocus='pwned=1' autofocus='",
]

WATCH = """() => {
  window.refused = [];
  addEventListener("securitypolicyviolation", e => window.refused.push(e.effectiveDirective));
}"""


def hostile_view():
    view = scene("waiting", HOSTILE, parameters=HOSTILE)
    view["title"] = view["model"] = view["seen"] = HOSTILE[0]
    view["settings"] = {HOSTILE[1]: HOSTILE[2]}
    view["summary"]["text"] = HOSTILE[1]
    view["timeline"]["7"] = {"at": 1.0, "text": HOSTILE[0], "level": "failure"}
    view["erasures"][HOSTILE[0]] = dict(view["erasures"]["r9"], agent=HOSTILE[2], certificate=True)
    return view


def test_names_are_never_code(visit):
    with visit(SceneSource(hostile_view())) as v:
        page = v.open()
        page.get_by_role("radio", name="Densities").check()
        page.locator("#densities canvas").first.wait_for()
        page.get_by_role("table").get_by_role("button", name=HOSTILE[0]).click()
        page.get_by_text("Address").wait_for()
        page.keyboard.press("Escape")
        assert page.evaluate("typeof pwned") == "undefined"
        assert page.locator("img:not([src^='/static/']), script:not([src])").count() == 0
        assert page.locator("#title").inner_text() == HOSTILE[0]
        assert page.locator("#agents tr").count() == len(HOSTILE)
        link = page.locator("#erasures a:visible").get_attribute("href")
        assert link == "certificates/%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E"


def test_scripts_that_were_not_served_do_not_run(visit):
    with visit(SceneSource(scene("rest"))) as v:
        page = v.open()
        page.evaluate(WATCH)
        assert page.evaluate(
            """async () => {
                 await new Promise(done => setTimeout(done));  // leave the test's own exemption
                 const refused = [];
                 const attempts = [
                   () => { document.body.innerHTML = "<p>"; },
                   () => { const s = document.createElement("script"); s.textContent = "pwned=1";
                           document.body.append(s); },
                   () => { const s = document.createElement("script");
                           s.src = "https://elsewhere.example/x.js"; },
                   () => { (0, eval)("pwned=1"); },
                   () => { new Function("pwned=1")(); },
                   () => { setTimeout("pwned=1"); },
                   () => { document.body.insertAdjacentHTML("beforeend", "<b>"); },
                   () => { document.body.setAttribute("onclick", "pwned=1"); },
                 ];
                 for (const attempt of attempts) {
                   try { attempt(); refused.push(false); } catch (e) { refused.push(e.name); }
                 }
                 return refused;
               }"""
        ) == [
            "TypeError",
            "TypeError",
            "TypeError",
            "EvalError",
            "EvalError",
            "TypeError",
            "TypeError",
            "TypeError",
        ]
        page.evaluate(
            """() => { const p = document.createElement("p");
                       p.setAttribute("style", "color:red");
                       document.body.append(p); }"""
        )
        until(page, "window.refused.includes('style-src-attr')")
        assert page.evaluate("typeof pwned") == "undefined"
        v.errors.clear()  # the browser has named each of them


def test_the_page_reaches_no_other_place(visit):
    with visit(SceneSource(scene("rest"))) as v:
        page = v.open()
        page.evaluate(WATCH)
        found = page.evaluate(
            """async () => {
                 const other = "http://elsewhere.example:9/";
                 const tries = [fetch(other), fetch(other, {mode: "no-cors", method: "POST"})];
                 const image = new Image();
                 image.src = other;
                 const frame = document.createElement("iframe");
                 frame.src = other;
                 document.body.append(image, frame);
                 navigator.sendBeacon(other, "x");
                 return (await Promise.allSettled(tries)).map(t => t.status);
               }"""
        )
        assert found == ["rejected", "rejected"]
        places = "['connect-src', 'img-src', 'frame-src']"
        until(page, f"{places}.every(d => window.refused.includes(d))")
        v.errors.clear()


def test_other_sites_reach_nothing(visit, chromium):
    """A page of another site, in the operator's own browser with the cookie, gets no answer and
    changes nothing; under another host name the server answers nobody."""
    source = SceneSource(scene("rest"))
    with visit(source, code=CODE) as v:
        page = v.open(v.server.link)
        port = v.server.place.address.port
        other = page.context.new_page()
        other.route(
            "http://evil.example/",
            lambda route: route.fulfill(body="<p>", content_type="text/html"),
        )
        other.goto("http://evil.example/")
        found = other.evaluate(
            """async server => {
                 const json = {"content-type": "application/json"};
                 const wish = JSON.stringify({agent: "Cork"});
                 const tries = [
                   fetch(server + "agents/Cork", {credentials: "include"}),
                   fetch(server + "erasures", {method: "POST", body: wish, headers: json,
                                               credentials: "include"}),
                   fetch(server + "erasures", {method: "POST", body: wish, mode: "no-cors",
                                               credentials: "include"}),
                   new Promise((yes, no) => { const events = new EventSource(server + "events",
                       {withCredentials: true}); events.onmessage = yes; events.onerror = no; }),
                 ];
                 return (await Promise.allSettled(tries)).map(
                   t => t.status === "rejected" || t.value.type === "opaque");
               }""",
            v.server.url,
        )
        assert found == [True] * 4
        assert source.wishes == []
        answer = other.goto(f"http://evil.example:{port}/")
        assert answer.status == 421
        answer = other.goto(f"http://evil.example:{port}/agents/Cork")
        assert answer.status == 421
        assert "Records" not in other.content()
