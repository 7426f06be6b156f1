"""The command line in this process: what it prints, and how it ends."""

from __future__ import annotations

import contextlib
import io
import json
import sys
from typing import Any, NamedTuple

from unweave.cli import common, main

__all__ = ["Result", "run_command"]


class Result(NamedTuple):
    """The exit code and both streams."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def run_command(*words: object, width: int = 200) -> Result:
    """`unweave WORDS…`; a traceback is never an answer."""
    out, err = io.StringIO(), io.StringIO()
    code: Any = 0
    argv, before = sys.argv, common.console._width
    sys.argv, common.console._width = ["unweave", *map(str, words)], width
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main()
    except SystemExit as done:
        code = done.code or 0
    finally:
        sys.argv, common.console._width = argv, before
    if "Traceback" in err.getvalue() or "an error in unweave: " in out.getvalue() + err.getvalue():
        raise AssertionError(out.getvalue() + err.getvalue())
    return Result(code, out.getvalue(), err.getvalue())
