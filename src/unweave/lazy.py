"""SciPy's special functions, imported when the first one is called.

Importing the models calls none, nor does building one whose prior lies on the grid. Loading SciPy
is a quarter of the CPU time of `unweave verify`, which rarely needs it.
"""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["linalg", "special"]


class _Module:
    """Stands for a module until it is used; each name is looked up once."""

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
