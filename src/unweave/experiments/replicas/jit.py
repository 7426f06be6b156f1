"""Compiles kernels where numba is installed.

A kernel is a plain Python function on scalars and arrays. With numba (`unweave[fast]`) a kernel is
compiled at its first call and cached on disk. Without numba the same function runs in Python, which
is slow. Other modules import kernels within functions, so numba loads only when replicas run.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar, cast

__all__ = ["COMPILED", "inline", "jit"]


_Kernel = TypeVar("_Kernel", bound=Callable[..., Any])


def _drop_stale() -> None:
    """Delete each cache index that is older than a kernel source.

    numba compares the index with the kernel's own file only, but kernels call kernels of other
    files.
    """
    here = Path(__file__).parent
    others = ("rng.py", "models/beta_exponential.py", "solvers/steps.py")
    package = here.parents[1]
    sources = [here / "kernels.py", *(package / name for name in others)]
    newest = max(source.stat().st_mtime for source in (*sources, *here.glob("beta_*.py")))
    for index in here.glob("__pycache__/*.nbi"):
        # Another process may delete the same file.
        with suppress(OSError):
            if index.stat().st_mtime < newest:
                index.unlink()


def _numba() -> Any:
    try:
        numba = import_module("numba")
    except ImportError:
        return None
    if numba.config.DISABLE_JIT:
        return None
    _drop_stale()
    return numba


_NUMBA = _numba()
COMPILED = _NUMBA is not None
# nogil: rows run in threads. error_model: division by zero follows IEEE, as in NumPy.
_OPTIONS = {"cache": True, "nogil": True, "error_model": "numpy"}


def jit(function: _Kernel) -> _Kernel:
    """The kernel, compiled where numba is installed."""
    return function if _NUMBA is None else cast("_Kernel", _NUMBA.njit(**_OPTIONS)(function))


def inline(function: _Kernel) -> _Kernel:
    """A small kernel on a hot path, compiled into its callers."""
    if _NUMBA is None:
        return function
    return cast("_Kernel", _NUMBA.njit(inline="always", **_OPTIONS)(function))
