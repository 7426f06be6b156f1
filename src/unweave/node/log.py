"""An agent's log: stdlib `logging`, one line per event, as text or as JSON, in a rotated file or on
a stream.

`log.info("certified", request="…")` writes an event and its fields. Never log a value of a data
record.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import IO, Any, Literal

from unweave.text import visible

__all__ = ["LOG_FILE", "Log", "RotatingLog"]

LOG_FILE = "agent.log"


class _Formatter(logging.Formatter):
    """2026-01-31 12:00:00 info    north  certified  request=…"""

    def __init__(self, agent: str) -> None:
        super().__init__(datefmt="%Y-%m-%d %H:%M:%S")
        self.agent = agent

    def format(self, record: logging.LogRecord) -> str:
        """The only place where an event becomes text."""
        facts: dict[str, Any] = dict(getattr(record, "facts", {}))
        if record.exc_info:  # set by libraries; the events of unweave have fields instead
            facts["trace"] = self.formatException(record.exc_info)
        return self.line(record, record.levelname.lower(), record.getMessage(), facts)

    def line(self, record: logging.LogRecord, level: str, event: str, facts: dict[str, Any]) -> str:
        more = "".join(f"  {key}={value}" for key, value in facts.items())
        when = self.formatTime(record, self.datefmt)
        return visible(f"{when} {level:<7} {self.agent}  {event}{more}")


class _JsonFormatter(_Formatter):
    """{"time": …, "level": "info", "agent": "north", "event": "certified", "request": "…"}"""

    def line(self, record: logging.LogRecord, level: str, event: str, facts: dict[str, Any]) -> str:
        head = {"time": round(record.created, 3), "level": level, "agent": self.agent}
        return json.dumps({**head, "event": event, **facts})


class _Lenient(logging.Handler):
    def handleError(self, record: logging.LogRecord) -> None:
        """A full disk or a closed pipe does not stop the agent."""
        if not isinstance(sys.exc_info()[1], OSError | ValueError):
            raise  # `emit` calls this in its except clause


class _Stream(_Lenient, logging.StreamHandler[IO[str]]):
    pass


class RotatingLog(_Lenient, RotatingFileHandler):
    """The file agent.log and `count` older ones (agent.log.1 is the newest of them), each of at
    most `size` bytes; 0 bytes: no limit.

    Standard output and standard error go to the same file, also after a rotation, so that agent.log
    holds the traceback of a crash.
    """

    def __init__(self, folder: Path, size: int, count: int) -> None:
        super().__init__(folder / LOG_FILE, maxBytes=size, backupCount=count, encoding="utf-8")
        self._redirect()

    def doRollover(self) -> None:
        super().doRollover()
        self._redirect()

    def _redirect(self) -> None:
        if self.stream is not None:
            for standard in (1, 2):
                os.dup2(self.stream.fileno(), standard)


class Log:
    """The log of one agent, on `stream` (default: standard error) unless it has a `handler`."""

    def __init__(
        self,
        agent: str,
        form: Literal["human", "json"] = "human",
        level: str = "info",
        stream: IO[str] | None = None,
        handler: logging.Handler | None = None,
    ) -> None:
        self.stream = sys.stderr if stream is None else stream
        self.handler = _Stream(self.stream) if handler is None else handler
        self.handler.setFormatter((_JsonFormatter if form == "json" else _Formatter)(agent))
        # Not in the process-wide tree of loggers: tests run several agents in one process.
        self._logger = logging.Logger(f"unweave.{agent}", level.upper())
        self._logger.addHandler(self.handler)

    def debug(self, what: str, **facts: Any) -> None:
        self._logger.debug("%s", what, extra={"facts": facts})

    def info(self, what: str, **facts: Any) -> None:
        self._logger.info("%s", what, extra={"facts": facts})

    def warning(self, what: str, **facts: Any) -> None:
        self._logger.warning("%s", what, extra={"facts": facts})

    def error(self, what: str, **facts: Any) -> None:
        self._logger.error("%s", what, extra={"facts": facts})

    def take_over(self) -> None:
        """Write the warnings and errors of libraries, too; for a process with one agent."""
        logging.getLogger().addHandler(self.handler)

    def close(self) -> None:
        logging.getLogger().removeHandler(self.handler)
        self.handler.close()
