"""An agent's log: stdlib `logging`, one line per event, as text or as JSON, in a rotated file or on
a stream.

`log.info("certified", request="…")` writes an event and its fields. The formatters make all text
safe: one event is one line, a field cannot look like another one, and its length is bounded. A
limiter bounds the number of lines. Never log a value of a data record: `log.failure` writes an
exception of a library without its text, which may quote one.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import sys
import threading
from asyncio import AbstractEventLoop
from collections import Counter
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import IO, Any, Literal

from unweave.errors import UnweaveError
from unweave.node.log_limiter import LineLimiter
from unweave.node.recent import Recent
from unweave.text import clip, fault, visible

__all__ = ["LOG_FILE", "Log", "RotatingLog", "open_log"]

LOG_FILE = "agent.log"

_LONGEST = 600  # characters of an event or a field
_SPACE = re.compile("^ | $|(?<= ) ")
_THREAD_HOOK = threading.excepthook


def open_log(path: str | Path) -> int:
    """A descriptor that appends to a log which only its owner can read; an older one becomes
    private, too."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
    handle = os.open(path, flags, 0o600)
    with contextlib.suppress(PermissionError):  # a file of another user
        os.fchmod(handle, 0o600)
    return handle


class _Formatter(logging.Formatter):
    """2026-01-31 12:00:00 info    north  certified  request=…"""

    def __init__(self, agent: str) -> None:
        super().__init__(datefmt="%Y-%m-%d %H:%M:%S")
        self.agent = agent

    def format(self, record: logging.LogRecord) -> str:
        """The only place where an event becomes text."""
        facts: dict[str, Any] = dict(getattr(record, "facts", {}))
        if record.exc_info and record.exc_info[1] is not None:  # set by libraries
            facts["error"] = fault(record.exc_info[1])
        facts = {
            key: value if isinstance(value, int | float) else clip(value, _LONGEST)
            for key, value in facts.items()
        }
        event = clip(record.getMessage(), _LONGEST)
        return self.line(record, record.levelname.lower(), event, facts)

    def line(self, record: logging.LogRecord, level: str, event: str, facts: dict[str, Any]) -> str:
        words = [self.agent, event, *(f"{key}={value}" for key, value in facts.items())]
        when = self.formatTime(record, self.datefmt)
        return f"{when} {level:<7} " + "  ".join(map(_one_field, words))


def _one_field(text: str) -> str:
    """Two spaces separate fields, so no field holds two, or begins or ends with one."""
    return _SPACE.sub(r"\\x20", visible(text))


class _JsonFormatter(_Formatter):
    """{"time": …, "level": "info", "agent": "north", "event": "certified", "request": "…"}"""

    def line(self, record: logging.LogRecord, level: str, event: str, facts: dict[str, Any]) -> str:
        head = {"time": round(record.created, 3), "level": level, "agent": self.agent}
        # JSON permits the character DEL in a text, a terminal obeys it.
        return json.dumps({**head, "event": event, **facts}).replace("\x7f", "\\u007f")


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
    holds the last words of a process.
    """

    def __init__(self, folder: Path, size: int, count: int) -> None:
        super().__init__(folder / LOG_FILE, maxBytes=size, backupCount=count, encoding="utf-8")
        self._redirect()

    def _open(self) -> TextIOWrapper:
        return TextIOWrapper(os.fdopen(open_log(self.baseFilename), "ab"), encoding=self.encoding)

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
        self.counts: Counter[str] = Counter()  # events of this agent, for its metrics
        self.recent = Recent()  # the last lines, whatever the level of the file
        self._limiter = LineLimiter(self.handler.handle, self.counts)
        self.handler.addFilter(self._limiter)
        # Not in the process-wide tree of loggers: tests run several agents in one process.
        self._logger = logging.Logger(f"unweave.{agent}", level.upper())
        self._logger.addHandler(self.handler)

    def debug(self, what: str, **facts: Any) -> None:
        self._logger.debug("%s", what, extra={"facts": facts})

    def info(self, what: str, **facts: Any) -> None:
        self.recent.event("info", what, facts)
        self._logger.info("%s", what, extra={"facts": facts})

    def warning(self, what: str, **facts: Any) -> None:
        self.recent.event("warning", what, facts)
        self._logger.warning("%s", what, extra={"facts": facts})

    def error(self, what: str, **facts: Any) -> None:
        self.recent.event("error", what, facts)
        self._logger.error("%s", what, extra={"facts": facts})

    def failure(self, what: str, error: BaseException, **facts: Any) -> None:
        """An error, with the text of an exception only if it is one of unweave's."""
        why = str(error) if isinstance(error, UnweaveError) else fault(error)
        self.error(what, **facts, error=why)

    def take_over(self) -> None:
        """Write what libraries and Python itself report, too; for a process with one agent."""
        logging.getLogger().addHandler(self.handler)
        logging.captureWarnings(True)
        sys.unraisablehook = self._on_unraisable
        threading.excepthook = self._on_thread

    def on_loop_error(self, loop: AbstractEventLoop, context: dict[str, Any]) -> None:
        """For `loop.set_exception_handler`: asyncio's own handler quotes the exception."""
        what, error = str(context.get("message")).partition("<")[0], context.get("exception")
        why = {} if error is None else {"error": fault(error)}
        self.error("the event loop reports an error", message=what.strip(), **why)

    def _on_unraisable(self, failed: sys.UnraisableHookArgs) -> None:
        if failed.exc_value is not None:
            self.failure("an exception was ignored", failed.exc_value)

    def _on_thread(self, failed: threading.ExceptHookArgs) -> None:
        if failed.exc_value is not None and not isinstance(failed.exc_value, SystemExit):
            self.failure("a thread has failed", failed.exc_value)

    def flush(self) -> None:
        """Write the summaries of suppressed lines that are due."""
        self._limiter.flush()

    def close(self) -> None:
        self._limiter.flush(now_at_once=True)
        if self.handler in logging.getLogger().handlers:
            logging.getLogger().removeHandler(self.handler)
            logging.captureWarnings(False)
            sys.unraisablehook, threading.excepthook = sys.__unraisablehook__, _THREAD_HOOK
        self.handler.close()
