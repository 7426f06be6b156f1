"""A page as a browser reads it: well-formed, self-contained, and its text."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser

__all__ = ["Page"]

_VOID = {"meta"}
_FORBIDDEN = {"script", "iframe", "object", "embed", "img", "link", "base", "form", "image", "use"}
_ADDRESSES = {"src", "srcset", "href", "action", "formaction", "data", "poster", "xlink:href"}


class Page(HTMLParser):
    """Parses `raw`; an assertion fails if a tag is open at the end, anything leaves the file, or
    anything can run."""

    def __init__(self, raw: bytes) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[str] = []
        self.pieces: list[str] = []
        self.styles: list[str] = []
        self.policy = ""
        self.attributes: list[tuple[str, str, str]] = []
        self.files: dict[str, bytes] = {}  # attachments: name → content
        text = raw.decode("utf-8")
        assert text.startswith("<!DOCTYPE html>\n<html")
        self.feed(text)
        self.close()
        assert not self.open, self.open
        self._check_policy()

    @property
    def text(self) -> str:
        """All text, one piece per line."""
        return "\n".join(self.pieces)

    @property
    def flat(self) -> str:
        """All text in one line."""
        return re.sub(r"\s+", " ", "".join(self.pieces))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag not in _FORBIDDEN, tag
        self.tags.append(tag)
        found = {key: value or "" for key, value in attrs}
        assert len(found) == len(attrs), tag  # no attribute twice
        for key, value in found.items():
            assert not key.startswith("on"), key
            assert key != "style"
            self.attributes.append((tag, key, value))
            if key in _ADDRESSES:
                assert key == "href", key
                assert re.fullmatch(r"#[\w-]+|data:application/json;base64,[\w+/=]*", value), value
        if found.get("http-equiv") == "Content-Security-Policy":
            self.policy = found["content"]
        else:
            assert "http-equiv" not in found
        if "download" in found:
            self.files[found["download"]] = base64.b64decode(found["href"].partition(",")[2])
        if tag not in _VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open, tag
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "style":
            self.styles.append(data)
        elif self.open:
            self.pieces.append(data)
        else:
            assert data == "\n"  # around the root

    def _check_policy(self) -> None:
        """Nothing may be loaded, and the one style sheet is the one that the policy names."""
        (style,) = self.styles
        digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
        assert "url(" not in style
        assert "@import" not in style
        assert self.policy.split("; ") == [
            "default-src 'none'",
            f"style-src 'sha256-{digest}'",
            "base-uri 'none'",
            "form-action 'none'",
        ]
        assert "script" not in self.tags
