"""`unweave models`: the models, with their columns and settings."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.table import Table

from unweave.cli.common import Json, complete_model, console, emit_json, say
from unweave.errors import ConfigError

__all__ = ["models"]

_SHARED = ("alpha", "reduction", "bits")  # settings of every model


def models(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="One model, in detail.", autocompletion=complete_model),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="With NAME: a setting, e.g. --set features=dose,age (repeatable)."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """List the models, with the columns of a record and the settings; or one of them in detail.

    A column may have another name in the data (`unweave init --column x=diagnosis`), and data may
    have more columns. Settings are given as `unweave init --set a=1`.

    Examples:

        unweave models

        unweave models linear-regression --set features=dose,age --json
    """

    from unweave.cli.init import parse_settings
    from unweave.models import names

    if name is None:
        if settings:
            raise ConfigError("--set: a setting belongs to one model. Fix: unweave models NAME …")
        entries = [_entry(one, {}) for one in names()]
        if json:
            emit_json({"models": entries})
            return
        table = Table("name", "columns of a record", "settings", "posterior", "exact")
        for entry in entries:
            table.add_row(
                entry["name"],
                ", ".join(column["name"] for column in entry["columns"]),
                ", ".join(_setting(s) for s in entry["settings"] if s["name"] not in _SHARED),
                entry["posterior"],
                "yes" if entry["exact"] else "no",
            )
        console.print(table)
        say(
            "Columns where a setting is required: those for 2. All models also have "
            f"{', '.join(_SHARED)}. More: unweave models NAME",
        )
        return
    entry = _entry(name, parse_settings(settings or []))
    if json:
        emit_json(entry)
        return
    say(*entry["summary"].split("\n"), "")
    for title, kind in (("columns of a record", "columns"), ("settings", "settings")):
        table = Table(title, "expects", *(("default",) if kind == "settings" else ()))
        for row in entry[kind]:
            cells = [row["name"], row["expects"]]
            if kind == "settings":
                cells.append("required" if row["required"] else _default(row["default"]))
            table.add_row(*cells)
        console.print(table)
    for key in ("class", "posterior", "prior", "quantities", "resolution", "predictive"):
        value = entry[key]
        shown = ", ".join(value) if isinstance(value, list) else value
        say(f"{key}: {shown}")


def _entry(name: str, given: dict[str, Any]) -> dict[str, Any]:
    """A model's JSON description; columns and prior depend on the given settings."""
    import inspect

    from unweave.models.registry import example, predictive_words, resolution_words, settings_of

    model = example(name, **given)
    cls = type(model)
    text = inspect.cleandoc(cls.__doc__ or "").partition("\n\n>>>")[0]
    return {
        "name": name,
        "class": cls.__name__,
        "summary": text,
        "posterior": model.family.name,
        "exact": model.conjugate or model.settles,
        "columns": [{"name": c.name, "expects": c.expects} for c in model.schema],
        "settings": [
            {"name": s.name, "expects": s.expects, "required": s.required, "default": s.default}
            for s in settings_of(name)
        ],
        "example": model.settings(),
        "prior": repr(model.prior),
        "quantities": list(model.quantities),
        "resolution": resolution_words(model).replace("`", ""),
        "predictive": predictive_words(cls),
    }


def _default(value: Any) -> str:
    """As `--set` would write it."""
    return "none" if value is None else str(value).lower() if value is False else str(value)


def _setting(setting: dict[str, Any]) -> str:
    name = setting["name"]
    if setting["required"]:
        return f"{name} (required)"
    given = setting["default"] is not None
    return f"{name}={_default(setting['default'])}" if given else f"{name} (optional)"
