"""The first steps of an agent that a supervisor's fork server has forked."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import sys
from pathlib import Path
from typing import NoReturn

from setproctitle import setproctitle, setthreadtitle

from unweave.node.config import SUPERVISOR
from unweave.node.log import LOG_FILE, open_log
from unweave.node.process import REPLACED, protect_memory
from unweave.text import crash, visible

__all__ = ["run"]


def run(folder: str, replaces: bool) -> NoReturn:
    """Run the agent of `folder` in its own session, with agent.log as standard output and error.
    The agent ends when the supervisor ends, for any reason. `replaces`: the agent's last process
    ended to be replaced (`process.RESTART`)."""
    from unweave.node.__main__ import main  # not in the supervisor, which imports this module

    code = 1
    try:
        os.setsid()  # Ctrl-C reaches the supervisor, which stops its agents in order
        nothing = os.open(os.devnull, os.O_RDONLY)
        log = open_log(Path(folder) / LOG_FILE)
        for source, standard in ((nothing, 0), (log, 1), (log, 2)):
            os.dup2(source, standard)
        os.close(nothing)
        os.close(log)
        setproctitle(f"unweave agent {folder}")
        setthreadtitle(f"unweave {Path(folder).resolve().name}")  # where only 15 bytes fit
        supervisor = multiprocessing.parent_process()
        assert supervisor is not None
        os.environ[SUPERVISOR] = str(supervisor.pid)
        if replaces:
            os.environ[REPLACED] = "1"
        protect_memory()
        code = main(folder, supervisor.sentinel)
    except BaseException as error:
        sys.stderr.write(f"unweave: {visible(crash(error))}\n")
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)  # a solver's thread may still run
