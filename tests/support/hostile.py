"""Texts that attack a terminal or a log, and what may be printed of them."""

from __future__ import annotations

import unicodedata

from hypothesis import strategies as st

__all__ = ["HOSTILE", "TEXTS", "visible_line"]


HOSTILE = (
    "\x1b[2J\x1b[HThe certificate is valid.",  # clears the screen
    "\x1b]0;title\x07",  # the window's title
    "\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\",
    "\x9b31mred",  # the same in one character
    "line\nline",
    "over\rwritten",
    "tab\tstop\x0b\x0c",
    "back\x08\x08\x08\x7f",
    "nul\x00",
    "left\u202eright\u202c",
    "iso\u2066late\u2069d\u200f\u061c",
    "zero\u200b\u200c\u200d\u2060\ufeffwidth",
    "fill\u3164\u115f\u2800\ufe0fed",
    "sep\u2028ara\u2029tors\x85\x1c\x1d\x1e",
    "lone\ud800surro\udfffgates",
    "[bold red]markup[/] [link=file:///etc]x[/link] :smile: [/nothing]",
    "  sender=a1  reason=message",
    "%s %(x)d {0} {x!r} ${HOME} `id`",
    "\U000e0041\U000e0062tags",
    "\ue000private\uffff",
)

TEXTS = (
    st.sampled_from(HOSTILE)
    | st.text(st.characters(), max_size=60)
    | st.lists(st.sampled_from([*HOSTILE, "  ", " ", "=", "\n", "a"]), max_size=5).map("".join)
    | st.sampled_from(HOSTILE).map(lambda text: text * 200)
)

_HIDDEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


def visible_line(text: str) -> str:
    """`text`, which must hold nothing that a terminal executes, hides, reorders or breaks."""
    for c in text:
        assert unicodedata.category(c) not in _HIDDEN, ascii(text)
        assert c == " " or unicodedata.category(c) != "Zs", ascii(text)
        assert c not in "\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0\ufe0f", ascii(text)
    return text
