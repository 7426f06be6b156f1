"""A user's own model, from a Python file in the folder of `network.toml`.

    [model]
    name = "decay:model"      # the object `model` of decay.py
    source = "9f2c…"          # SHA-256 of decay.py, so that all agents run the same code

The owner of an agent puts the file into the agent's folder by hand, after reading it: code never
comes over the network. The object is a model, or a function or class that makes one from the other
settings of the table. Only this file is pinned; it can import installed packages, but no other file
of the folder.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Self

from unweave.bounded import read_bytes
from unweave.errors import ConfigError, UnweaveError
from unweave.text import clip

if TYPE_CHECKING:
    from unweave.models import Model

__all__ = ["PinnedSource", "is_custom", "load_custom"]

_NAME = re.compile(r"([A-Za-z_]\w*):([A-Za-z_]\w*)", re.ASCII)
_MOST_BYTES = 1 << 20


def is_custom(name: str) -> bool:
    """Whether a model's name says "module:object"."""
    return _NAME.fullmatch(name) is not None


@dataclass(frozen=True)
class PinnedSource:
    """A model in a Python file, for a new network: `PinnedSource(Path("decay.py"), "model")`. If
    the object makes a model, `settings` are its arguments."""

    path: Path
    attribute: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def named(cls, text: str, settings: Mapping[str, Any]) -> Self | None:
        """The model of "FILE.py:OBJECT", or of "MODULE:OBJECT" in the working folder; None if the
        text is no such name."""
        file, _, attribute = text.rpartition(":")
        path = Path(file if file.endswith(".py") else f"{file}.py")
        return cls(path, attribute, settings) if is_custom(f"{path.stem}:{attribute}") else None

    def model(self) -> Model:
        """Executes the file."""
        table = self.table()
        return load_custom(table.pop("name"), table, self.path.parent)

    @property
    def raw(self) -> bytes:
        return _read(self.path)

    def table(self) -> dict[str, Any]:
        """The [model] table: name, digest and settings."""
        digest = hashlib.sha256(self.raw).hexdigest()
        name = f"{self.path.stem}:{self.attribute}"
        return {"name": name, "source": digest, **self.settings}


def load_custom(name: str, settings: dict[str, Any], folder: Path) -> Model:
    """The model that the [model] table names; ConfigError if its file is not the pinned one."""
    found = _NAME.fullmatch(name)
    assert found is not None
    path = folder / f"{found[1]}.py"
    raw, digest = _read(path), settings.pop("source", None)
    actual = hashlib.sha256(raw).hexdigest()
    if digest != actual:
        raise ConfigError(
            f"{path.name}: its SHA-256 is {actual[:16]}…, not the source of the manifest. Fix: get "
            "the file that all agents agreed on"
        )
    made = getattr(_module(path, raw, actual), found[2], None)
    from unweave.models import Model

    if callable(made) and not isinstance(made, Model):
        made = made(**settings)
    elif settings:
        raise ConfigError(
            f"{path.name}: {found[2]} is a model and takes no settings. Fix: remove "
            f"{next(iter(settings))}"
        )
    if not isinstance(made, Model):
        raise ConfigError(f"{path.name}: {found[2]} is no model. Fix: name one")
    return made


def _module(path: Path, raw: bytes, digest: str) -> ModuleType:
    """The executed file, once per process. Models that it defines get no names of their own: they
    could hide a model of the library."""
    name = f"unweave_custom_{digest}"
    if name not in sys.modules:
        from unweave.models.base import REGISTRY

        module, known = ModuleType(name), dict(REGISTRY)
        module.__file__ = str(path)
        sys.modules[name] = module  # dataclasses look up the module of their class
        try:
            exec(compile(raw, str(path), "exec"), module.__dict__)
        except UnweaveError:
            del sys.modules[name]
            raise
        except Exception as error:  # the file is the user's
            del sys.modules[name]
            line = error.__traceback__.tb_next if error.__traceback__ else None
            place = f"{path.name}, line {line.tb_lineno}" if line else path.name
            why = f"{type(error).__name__}: {clip(error, 100)}"
            raise ConfigError(f"{place}: {why}. Fix: correct the file, and its digest") from None
        finally:
            REGISTRY.clear()
            REGISTRY.update(known)
    return sys.modules[name]


def _read(path: Path) -> bytes:
    try:
        return read_bytes(path, _MOST_BYTES)
    except ValueError as error:
        raise ConfigError(f"{path.name}: {error}. Fix: give the model's file") from None
    except OSError as error:
        raise ConfigError(
            f"{path}: the model's source cannot be read: {error.strerror or error}. Fix: copy the "
            "file that all agents agreed on into this folder"
        ) from None
