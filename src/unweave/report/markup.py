"""HTML and SVG as a tree of elements, which cannot leave their page by construction.

Text is a `str` among the children: it is escaped, and made visible (`unweave.text.visible`), when
the tree is written. There is no way to put markup into a text. Only the elements and attributes
below can be made: no script, no handler of an event, no style attribute, no address. A link leads
to a place on the page, or holds a file itself.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from typing import TypeAlias

from unweave.text import visible

__all__ = ["Child", "Element", "document", "download", "el", "link"]

_ELEMENTS = frozenset(
    re.findall(
        r"\w+",
        "a article aside bdi body caption code dd div dl dt em figcaption figure footer h1 h2 h3 "
        "head header html li main meta nav ol p section small span strong style table tbody td th "
        "thead title tr ul "
        "svg g path line circle rect text desc",
    )
)
_ATTRIBUTES = frozenset(
    re.findall(
        r"[\w-]+",
        "aria-hidden aria-label charset class content download href http-equiv id lang name role "
        "scope tabindex "
        "cx cy d height r text-anchor viewbox width x x1 x2 y y1 y2",
    )
)
_EMPTY = frozenset({"meta"})
_CAMEL = {"viewbox": "viewBox"}
_HREF = re.compile(r"#[\w-]+|data:application/json;base64,[A-Za-z0-9+/=]*")

Child: TypeAlias = "str | Element | None"


@dataclass(frozen=True)
class Element:
    """One element: its name, attributes and children. `None` among the children is left out."""

    name: str
    attributes: tuple[tuple[str, str], ...]
    children: tuple[Child, ...]

    def __post_init__(self) -> None:
        if self.name not in _ELEMENTS or (self.name in _EMPTY and self.children):
            raise ValueError(f"no element {self.name!r} on this page")
        for key, value in self.attributes:
            if key not in _ATTRIBUTES:
                raise ValueError(f"no attribute {key!r} on this page")
            if key == "href" and not _HREF.fullmatch(value):
                raise ValueError("a link that leaves the page")
        if self.name == "style" and not all(
            isinstance(one, str) and "<" not in one for one in self.children
        ):
            raise ValueError("a style sheet with markup")

    def parts(self) -> Iterator[str]:
        """The element as pieces of HTML."""
        yield f"<{self.name}"
        for key, value in self.attributes:
            yield f' {_CAMEL.get(key, key)}="{escape(visible(value))}"'
        yield ">"
        if self.name in _EMPTY:
            return
        for child in self.children:
            if isinstance(child, Element):
                yield from child.parts()
            elif child is not None:
                # A browser reads a style sheet as it is; it is ours, and holds no markup.
                yield child if self.name == "style" else escape(visible(child), quote=False)
        yield f"</{self.name}>"

    def text(self) -> str:
        """The text inside, without markup."""
        return "".join(
            one.text() if isinstance(one, Element) else one or "" for one in self.children
        )


def el(element: str, *children: Child, **attributes: str | float | None) -> Element:
    """An element. `class_` and `http_equiv` are written as in HTML; an attribute that is None is
    left out.

    >>> "".join(el("p", "1 < 2", class_="note").parts())
    '<p class="note">1 &lt; 2</p>'
    """
    named = (
        (key.rstrip("_").replace("_", "-"), value if isinstance(value, str) else f"{value:g}")
        for key, value in attributes.items()
        if value is not None
    )
    return Element(element, tuple(named), children)


def link(place: str, *children: Child) -> Element:
    """A link to the element with this id."""
    return el("a", *children, href=f"#{place}")


def download(name: str, content: bytes, *children: Child) -> Element:
    """A link that saves `content`, which the page itself holds, as a file."""
    held = "data:application/json;base64," + base64.b64encode(content).decode()
    return el("a", *children, href=held, download=name)


def document(root: Element) -> bytes:
    """The whole file."""
    return ("<!DOCTYPE html>\n" + "".join(root.parts()) + "\n").encode()
