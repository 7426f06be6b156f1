"""Settings of a model, read by their declared types.

The fields of a model are annotated (`float`, `int | None`, `float | Sequence[float]`, …). A user's
value is converted to a plain Python value of the annotated type, or refused with the model's name,
the setting and the expected values. With plain values, models can be compared, hashed and written
as JSON.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

from unweave.arguments import is_whole, number, shown, whole_number
from unweave.errors import ConfigError
from unweave.models.columns import truth

__all__ = ["SettingTable", "expected_words", "read_settings"]


V = TypeVar("V")


@dataclass(frozen=True, eq=False, repr=False)
class SettingTable(Mapping[str, V]):
    """Values by name, e.g. by column: a hashable mapping, because settings must be hashable."""

    pairs: tuple[tuple[str, V], ...]

    def __getitem__(self, name: str) -> V:
        return dict(self.pairs)[name]

    def __iter__(self) -> Iterator[str]:
        return (name for name, _ in self.pairs)

    def __len__(self) -> int:
        return len(self.pairs)

    def __hash__(self) -> int:
        return hash(frozenset(self.pairs))

    def __repr__(self) -> str:
        return repr(dict(self.pairs))


def read_settings(model: Any) -> None:
    """Replace every field of the frozen dataclass `model` by its plain value."""
    cls: type = type(model)
    hints = _hints(cls)
    for field in fields(model):
        hint = hints.get(field.name, Any)
        value = getattr(model, field.name)
        plain = _read(value, hint, f"{model.name}: {field.name}")
        if plain is not value:
            object.__setattr__(model, field.name, plain)


@lru_cache(maxsize=256)
def _hints(cls: type) -> dict[str, Any]:
    try:
        return get_type_hints(cls)
    except NameError:  # a user's model with annotations that do not exist at run time
        return {}


def _read(value: Any, hint: Any, what: str) -> Any:
    choices = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    if value is None and type(None) in choices:
        return None
    single, several, table = None, None, None
    for choice in choices:
        if get_origin(choice) is Sequence:
            several = choice
        elif get_origin(choice) is Mapping:
            table = choice
        elif choice in _SINGLE or get_origin(choice) is Literal:
            single = choice
        elif choice is not type(None):
            return value  # a type that only the model knows: the model checks the value
    if several == Sequence[str] and isinstance(value, str):
        value = (value,)  # one name, as in `--set features=dose`
    if table is not None and (isinstance(value, Mapping) or single is several is None):
        return _table(value, what, table)
    if several is not None and _is_several(value):
        (inner,) = get_args(several)
        return tuple(_read(v, inner, f"{what}[{i}]") for i, v in enumerate(value))
    if several is not None and not _fits(value, single):
        one = "" if single is None else f"{_SINGLE_NAMES[single]} or "
        raise ConfigError(f"{what} = {shown(value)}. Fix: give {one}{_listed(several)}")
    if single in _SINGLE:
        return _SINGLE[single](value, what)
    return value  # a Literal: the model checks the choice


def expected_words(cls: type) -> dict[str, str]:
    """The expected values of each setting of a model, in words."""
    hints = _hints(cls)
    return {f.name: _words(hints.get(f.name, Any)) for f in fields(cls)}


def _words(hint: Any) -> str:
    if get_origin(hint) in (Union, types.UnionType):
        return " or ".join(_words(one) for one in get_args(hint) if one is not type(None))
    if get_origin(hint) is Literal:
        return " or ".join(map(str, get_args(hint)))
    if get_origin(hint) is Sequence:
        return _listed(hint)
    if get_origin(hint) is Mapping:
        return _TABLES.get(get_args(hint)[1], "a table")
    if getattr(hint, "__name__", "") == "Model":
        return "a model"
    return _SINGLE_NAMES.get(hint, getattr(hint, "__name__", "anything"))


def _table(value: Any, what: str, hint: Any) -> SettingTable[Any]:
    inner = get_args(hint)[1]
    if not isinstance(value, Mapping):
        raise ConfigError(f"{what} = {shown(value)}. Fix: give {_TABLES[inner]}")
    return SettingTable(
        tuple((str(key), _read(v, inner, f"{what}[{key}]")) for key, v in value.items())
    )


def _is_several(value: Any) -> bool:
    if isinstance(value, str | bytes | Mapping | Set) or not hasattr(value, "__len__"):
        return False
    return getattr(value, "ndim", 1) > 0


def _fits(value: Any, single: Any) -> bool:
    if single is int:
        return is_whole(value)
    if single is float:
        return not isinstance(value, str | bytes) and np.ndim(value) == 0 and value is not None
    return False


def _float(value: Any, what: str) -> float:
    found = number(value, what)
    # An int stays an int, so that Beta(a=2) is not shown as Beta(a=2.0).
    return int(value) if is_whole(value) else found


def _bool(value: Any, what: str) -> bool:
    parsed = truth(value) if isinstance(value, str) else None
    if parsed is not None:
        return bool(parsed)  # text from a command line
    if not isinstance(value, bool | np.bool_):
        raise ConfigError(f"{what} = {shown(value)}. Fix: True or False")
    return bool(value)


def _str(value: Any, what: str) -> str:
    # Data frames may have numbers as names of columns.
    if not (isinstance(value, str) or is_whole(value)) or not str(value).strip():
        raise ConfigError(f"{what} = {shown(value)}. Fix: give a name")
    return str(value)


_SINGLE: dict[Any, Callable[[Any, str], Any]] = {
    float: _float,
    int: whole_number,
    bool: _bool,
    str: _str,
}
_SINGLE_NAMES = {float: "a number", int: "a whole number", bool: "True or False", str: "a name"}
_TABLES = {
    float: "numbers by name, e.g. {dose = 1e-5}",
    Sequence[str]: 'levels by name, e.g. {ward = ["north", "south"]}',
}
_LISTS = {float: "a list of numbers", int: "a list of whole numbers", str: "a list of names"}


def _listed(several: Any) -> str:
    (inner,) = get_args(several)
    return _LISTS.get(inner, "a matrix, row by row")
