"""Models by the names that files and command lines use."""

from __future__ import annotations

import inspect
from difflib import get_close_matches
from typing import Any

from unweave.arguments import shown
from unweave.errors import ConfigError
from unweave.models.base import REGISTRY, Model
from unweave.text import clip

__all__ = ["as_model", "by_name", "names"]


def by_name(name: str, **settings: Any) -> Model:
    """The model with this name and these settings."""
    if name not in REGISTRY:
        close = get_close_matches(clip(name, 80), REGISTRY, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"choose from {', '.join(names())}"
        raise ConfigError(f"unknown model {name!r}. Fix: {hint}")
    cls = REGISTRY[name]
    known = inspect.signature(cls).parameters
    for setting in settings:
        if setting not in known:
            close = get_close_matches(clip(setting, 80), known, n=1)
            hint = f"did you mean {close[0]}? " if close else ""
            raise ConfigError(
                f"model {name!r} has no setting {shown(setting)}. Fix: {hint}its settings are "
                f"{', '.join(known)}"
            )
    try:
        inspect.signature(cls).bind(**settings)
    except TypeError as error:
        raise ConfigError(f"model {name!r}: {error}. Fix: choose from {', '.join(known)}") from None
    return cls(**settings)


def as_model(model: Any) -> Model:
    """`model` itself, or the model of this name with its default settings."""
    if isinstance(model, str):
        return by_name(model)
    if isinstance(model, Model):
        return model
    if isinstance(model, type) and issubclass(model, Model):
        needed = [
            p.name
            for p in inspect.signature(model).parameters.values()
            if p.default is inspect.Parameter.empty
        ]
        settings = ", ".join(f"{name}=…" for name in needed)
        raise ConfigError(
            f"model = {shown(model)}: a class, not a model. Fix: write {model.__name__}({settings})"
        )
    raise ConfigError(
        f"model = {shown(model)}: not a model. Fix: give a model such as BetaBernoulli(a=2, b=2), "
        f"or a name: {', '.join(names())}"
    )


def names() -> tuple[str, ...]:
    """The names of all models."""
    return tuple(sorted(REGISTRY))
