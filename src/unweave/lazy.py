"""Parts of SciPy, imported on the first use of one of their functions.

Importing the models uses no function, nor does building a model whose prior lies on the grid.
Loading SciPy takes a quarter of the CPU time of `unweave verify`, which rarely needs it.
"""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["interpolate", "linalg", "special"]


class _Module:
    """A proxy that imports the module on first use; each name is looked up once."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # tools that inspect objects must not import the module
            raise AttributeError(name)
        value = getattr(importlib.import_module(self._name), name)
        setattr(self, name, value)
        return value


special: Any = _Module("scipy.special")
linalg: Any = _Module("scipy.linalg")
interpolate: Any = _Module("scipy.interpolate")
