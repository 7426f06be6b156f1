"""Markup is safe by construction: no text becomes an element, and no element leaves the page."""

import pytest
from hypothesis import given
from tests.support.hostile import TEXTS, visible_line
from tests.support.page import HTMLParser

from unweave.report.markup import download, el, link
from unweave.text import visible

MARKUP = (
    "<script>alert(1)</script>",
    "</p><img src=x onerror=alert(1)>",
    "<svg/onload=alert(1)>",
    "]]><!--",
    "&lt;b&gt;&amp;#60;",
    '" onclick="alert(1)',
    "' onmouseover='alert(1)",
    "</title><base href=//evil>",
    "javascript:alert(1)",
)


class Reader(HTMLParser):
    def __init__(self, markup):
        super().__init__(convert_charrefs=True)
        self.seen, self.read = [], []
        self.feed(markup)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))

    def handle_comment(self, data):
        self.seen.append(("comment", data))

    def handle_data(self, data):
        self.read.append(data)


def written(element):
    return "".join(element.parts())


def check(text):
    found = Reader(written(el("p", text, el("bdi", text), id=text, class_="note")))
    shown = visible(text)
    assert found.seen == [("p", {"id": shown, "class": "note"}), ("bdi", {})]
    assert "".join(found.read) == 2 * shown
    visible_line("".join(found.read))


@pytest.mark.parametrize("text", MARKUP)
def test_markup_in_a_text_is_text(text):
    check(text)


@given(TEXTS)
def test_any_text_is_shown_as_itself(text):
    check(text)


@pytest.mark.parametrize(
    "name", ["script", "iframe", "img", "link", "base", "form", "object", "use"]
)
def test_no_element_that_loads_or_runs(name):
    with pytest.raises(ValueError, match="no element"):
        el(name)


@pytest.mark.parametrize("name", ["onclick", "style", "src", "srcset", "xlink_href", "target"])
def test_no_attribute_that_loads_or_runs(name):
    with pytest.raises(ValueError, match="no attribute"):
        el("p", **{name: "x"})


@pytest.mark.parametrize(
    "address",
    [
        "https://example.org/",
        "//example.org",
        "file:///etc/passwd",
        "javascript:alert(1)",
        "data:text/html;base64,PGI+",
        "data:application/json;base64,a\nb",
        "#a b",
        "x.html",
        "",
    ],
)
def test_no_link_that_leaves_the_page(address):
    with pytest.raises(ValueError, match="leaves the page"):
        el("a", href=address)


def test_links_stay_on_the_page():
    assert written(link("all-erasures", "below")) == '<a href="#all-erasures">below</a>'
    held = written(download('a".json', b'{"x": "</a>"}', "save"))
    assert held == (
        '<a href="data:application/json;base64,eyJ4IjogIjwvYT4ifQ==" '
        'download="a&quot;.json">save</a>'
    )


def test_a_style_sheet_holds_no_markup():
    assert written(el("style", "a > b { color: red; }")) == "<style>a > b { color: red; }</style>"
    for wrong in ("</style><script>", el("p")):
        with pytest.raises(ValueError, match="style sheet"):
            el("style", wrong)
