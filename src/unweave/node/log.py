"""Structured logs: one line per event, for people or for machines."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from typing import IO, Any, Literal

from unweave.text import visible

__all__ = ["Log"]

_RANK = {"debug": 0, "info": 1, "warning": 2, "error": 3}


class Log:
    """`log.info("certified", request="…")`. Never give it a value from anybody's data."""

    def __init__(
        self,
        agent: str,
        form: Literal["human", "json"] = "human",
        level: str = "info",
        stream: IO[str] | None = None,
    ) -> None:
        self.agent = agent
        self.form = form
        self.level = _RANK[level]
        self.stream = sys.stderr if stream is None else stream

    def _write(self, level: str, what: str, facts: dict[str, Any]) -> None:
        if _RANK[level] < self.level:
            return
        now = time.time()
        if self.form == "json":
            line = json.dumps(
                {"time": round(now, 3), "level": level, "agent": self.agent, "event": what, **facts}
            )
        else:
            clock = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now))
            more = "".join(f"  {key}={value}" for key, value in facts.items())
            line = visible(f"{clock} {level:<7} {self.agent}  {what}{more}")
        with contextlib.suppress(OSError, ValueError):
            # A full disk or a closed pipe must not stop an agent that can go on without its log.
            self.stream.write(line + "\n")
            self.stream.flush()

    def debug(self, what: str, **facts: Any) -> None:
        self._write("debug", what, facts)

    def info(self, what: str, **facts: Any) -> None:
        self._write("info", what, facts)

    def warning(self, what: str, **facts: Any) -> None:
        self._write("warning", what, facts)

    def error(self, what: str, **facts: Any) -> None:
        self._write("error", what, facts)
