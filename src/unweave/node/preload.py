"""Imported once, by the fork server alone: loads the modules that all agents of a machine share.

A new interpreter spends a second on imports and holds its own copy of the modules. No socket, key,
file or thread exists before the fork, and gRPC is imported but not initialised, so agents share
code and nothing else.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import os

from setproctitle import setproctitle

__all__: list[str] = []

# Before NumPy is imported. One thread for linear algebra: agents of one machine share its cores.
for _library in ("OPENBLAS", "OMP", "MKL"):
    os.environ.setdefault(f"{_library}_NUM_THREADS", "1")
for _module in ("forked", "__main__"):
    importlib.import_module(f"unweave.node.{_module}")
for _module in ("uvicorn.lifespan.off", "encodings.idna"):  # imported when a server starts
    importlib.import_module(_module)
os.environ["SPT_NOENV"] = "1"  # setproctitle leaves the environment where `ps e` reads it
setproctitle("unweave fork server")
gc.collect()
gc.freeze()  # else collections in the agents would copy the shared pages
atexit.register(gc.unfreeze)  # else DuckDB reports leaks when the fork server ends
