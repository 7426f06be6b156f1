"""Models by the names that files and command lines use, and their descriptions."""

from __future__ import annotations

import inspect
import math
import re
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, get_args, get_type_hints

from unweave.arguments import shown
from unweave.errors import ConfigError
from unweave.models.base import REGISTRY, Model
from unweave.models.settings import expected_words
from unweave.text import clip

__all__ = [
    "ModelSetting",
    "as_model",
    "by_name",
    "example",
    "names",
    "predictive_words",
    "resolution_words",
    "settings_of",
]


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


@dataclass(frozen=True)
class ModelSetting:
    """One setting: its expected value and its default."""

    name: str
    expects: str
    default: Any
    required: bool


def settings_of(name: str) -> tuple[ModelSetting, ...]:
    """The settings of a model, in the order of its class."""
    cls = REGISTRY[name]
    words = expected_words(cls)
    return tuple(
        ModelSetting(p.name, words[p.name], None if empty else p.default, empty)
        for p in inspect.signature(cls).parameters.values()
        for empty in (p.default is inspect.Parameter.empty,)
    )


def example(name: str, **given: Any) -> Model:
    """A model to describe; required settings (classes, features, …) not in `given` are 2."""
    known = settings_of(name) if name in REGISTRY else ()
    return by_name(name, **{**{s.name: 2 for s in known if s.required}, **given})


def resolution_words(model: Model) -> str:
    """The columns that are rounded before the sum, and their steps, in words."""
    steps: dict[float, list[str]] = {}
    for column, step in zip(model.columns, model.resolution, strict=True):
        steps.setdefault(step, []).append(f"`{column}`")
    if set(steps) == {0.0}:
        if all(column.whole for column in model.schema):
            return "records are whole numbers: nothing is rounded"
        return f"records are used as they are; the factor is rounded to 2^-{min(model.grid.bits)}"
    return "; ".join(
        f"{', '.join(names)} rounded to {step:.3g} ({_power(step)})"
        for step, names in steps.items()
        if step
    )


def _power(step: float) -> str:
    exponent = math.log2(step)
    return f"2^{exponent:.0f}" if exponent.is_integer() else f"about 2^{exponent:.1f}"


def predictive_words(cls: type[Model]) -> str:
    """The predictive distribution of a new record, and how it is computed."""
    answer = get_type_hints(cls.predictive).get("return", Any)
    answers = get_args(answer) or (answer,)
    names = [getattr(one, "__name__", "") for one in answers]
    if cls.predictive is not Model.predictive and answer is Any:
        return "that of the model of a group"
    if not all(name.endswith("Predictive") for name in names):
        return "none: draw theta, then records"
    words = [" ".join(re.findall(r"[A-Z][a-z]*", n.removesuffix("Predictive"))) for n in names]
    return f"{' or '.join(words)}, {getattr(answers[0], 'how', 'in closed form')}"
