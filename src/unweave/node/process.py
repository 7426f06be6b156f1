"""An agent's process as the system sees it: no core dumps, and a new process in its place."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import sys
import time
from pathlib import Path
from typing import NoReturn

from unweave.errors import UnweaveError

__all__ = ["REPLACED", "RESTART", "RESTART_FILE", "is_restarting", "protect_memory", "replace"]


RESTART = 75  # exit code of an agent that its supervisor must start again at once
REPLACED = "UNWEAVE_REPLACED"  # environment: this process replaces one that ended for an erasure
RESTART_FILE = "agent.restarting"  # exists while an agent replaces its process: commands wait
_DUMPABLE = 4  # Linux: PR_SET_DUMPABLE
_LONGEST = 30.0  # seconds; an agent that has not started again by then does not run


def protect_memory() -> None:
    """No core dump, and no access by other processes of the same user: a core file would outlive
    the erasure of what it holds."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):  # a C library without prctl
            ctypes.CDLL(None).prctl(_DUMPABLE, 0, 0, 0, 0)


def replace() -> NoReturn:
    """Run this command again in this process, with the same id, standard streams and environment.
    All other descriptors are closed, also those that a library left open."""
    for descriptor in os.listdir("/proc/self/fd") if sys.platform == "linux" else ():
        if int(descriptor) > 2:
            with contextlib.suppress(OSError):  # the one that listed the folder
                os.set_inheritable(int(descriptor), False)
    sys.stdout.flush()
    sys.stderr.flush()
    os.environ[REPLACED] = "1"
    try:
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
    except OSError as error:
        raise UnweaveError(
            f"{sys.executable}: the agent cannot start again ({error.strerror}). Fix: install "
            "unweave, then start the agent"
        ) from None


def is_restarting(folder: Path) -> bool:
    """Whether the agent replaces its process now."""
    try:
        age = time.time() - (folder / RESTART_FILE).stat().st_mtime
    except OSError:
        return False
    return abs(age) < _LONGEST
