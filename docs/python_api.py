"""Writes docs/reference/python.md: every public name, with the place of its docstring.

A table names everything with its first sentence, so the page can be read as it is. The lines that
begin with `:::` are filled in by mkdocstrings when the site is built.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from typing import Any

import unweave
from unweave import families, solvers
from unweave import models as model_room
from unweave.graph import graphs

# Names beside the top level that pages use.
ALSO = (
    "unweave.datasets.load",
    "unweave.experiments.replicas.Forget",
    "unweave.experiments.replicas.Replicas",
    "unweave.federation.history.History",
    "unweave.privacy.mechanism.Mechanism",
    "unweave.privacy.terms.Bounds",
    "unweave.privacy.terms.PrivacyTerms",
    "unweave.report.html_of",
)
INTRODUCTION = """\
`import unweave` is cheap: a name is loaded when it is first used. The names below are public; other
modules may change without notice. Models have [a page of their own](models.md) with columns, priors
and predictives, and so have [solvers](models.md#solvers)."""


def page(note: str) -> str:
    """The page, in sections."""
    names = [name for name in unweave.__all__ if not inspect.ismodule(getattr(unweave, name))]
    models = [name for name in names if name in unweave.models.__all__ and name != "Posterior"]
    rest = [name for name in names if name not in models]
    lines = ["# Python", note, "", INTRODUCTION, ""]
    lines += _section(
        "Networks and posteriors", [_path(getattr(unweave, n)) for n in rest], members=True
    )
    lines += _section("Graphs", [_path(f) for f in _graph_functions()], members=False)
    lines += _section("Also used in these pages", list(ALSO), members=True)
    lines += _section("Models", [_path(getattr(unweave, name)) for name in models], members=False)
    shown = {*names, "by_name", "names"}
    for title, module, members in (
        ("Models of your own (`unweave.models`)", model_room, True),
        ("Distributions (`unweave.families`)", families, False),
        ("Solvers (`unweave.solvers`)", solvers, False),
    ):
        others = [getattr(module, name) for name in module.__all__ if name not in shown]
        paths = [_path(one) for one in others if inspect.isclass(one) or inspect.isroutine(one)]
        lines += _section(title, paths, members=members)
    return "\n".join(lines).rstrip() + "\n"


def _graph_functions() -> Iterator[Any]:
    for name in sorted(graphs.__all__):
        if inspect.isroutine(getattr(graphs, name)):
            yield getattr(graphs, name)


def _path(thing: Any) -> str:
    return f"{thing.__module__}.{thing.__qualname__}"


def _section(title: str, paths: list[str], *, members: bool) -> list[str]:
    lines = [f"## {title}", "", "| name | what it is |", "|---|---|"]
    lines += [f"| [`{path.rpartition('.')[2]}`](#{path}) | {_sentence(path)} |" for path in paths]
    for path in paths:
        lines += ["", f"::: {path}"]
        if not members:
            lines += ["    options:", "      members: false"]
    return [*lines, ""]


def _sentence(path: str) -> str:
    """The first sentence of a docstring."""
    home, _, name = path.rpartition(".")
    if "." in home and home.rpartition(".")[2][0].isupper():  # a static method
        home, _, cls = home.rpartition(".")
        thing = getattr(getattr(importlib.import_module(home), cls), name)
    else:
        thing = getattr(importlib.import_module(home), name)
    text = " ".join(inspect.cleandoc(thing.__doc__ or "").split("\n\n")[0].split())
    return text.replace("|", "\\|")
