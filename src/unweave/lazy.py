"""SciPy's special functions, imported when the first one is called.

Reading a manifest builds the model, and importing `unweave` imports the families; neither calls a
special function. So `unweave verify` runs without SciPy, and other commands start sooner.
"""

from __future__ import annotations

import importlib
from typing import Any

from unweave.errors import MissingExtra

__all__ = ["special"]


class _Module:
    """Stands for a module until it is used; each name is looked up once."""

    def __init__(self, module: str, extra: str, purpose: str) -> None:
        self._where = (module, extra, purpose)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # tools that inspect objects must not import SciPy
            raise AttributeError(name)
        module, extra, purpose = self._where
        try:
            value = getattr(importlib.import_module(module), name)
        except ImportError:
            raise MissingExtra("scipy", extra, purpose) from None
        setattr(self, name, value)
        return value


special: Any = _Module("scipy.special", "fit", "computing with a posterior")
