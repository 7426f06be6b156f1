"""The command line in this process, as a fixture."""

import contextlib
import io
import json
import sys
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest

from unweave.cli import common, main


class Result(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture(scope="session")
def unweave():
    def run(*words: object, width: int = 200) -> Result:
        out, err = io.StringIO(), io.StringIO()
        code: Any = 0
        with (
            patch.object(sys, "argv", ["unweave", *map(str, words)]),
            patch.object(common.console, "_width", width),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            try:
                main()
            except SystemExit as done:
                code = done.code or 0
        assert "Traceback" not in err.getvalue()
        return Result(code, out.getvalue(), err.getvalue())

    return run
