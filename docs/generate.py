"""Writes the pages that follow from the code: `python docs/generate.py` (`make docs`).

cli.md comes from the commands' own help, models.md from the registry of models, http-api.md from
the table of the operator's API, certificate.schema.json from the format's models, python.md from
the public names, metrics.md from the agents' metrics, roles.svg from the protocol's table of moves.
A test compares the files with what this script would write.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import metrics_page
import python_api
import roles
import typer

from unweave.cli import app
from unweave.json_form import SAFE
from unweave.manifest.entries import SolverEntry
from unweave.models import ConjugateModel, Model, names
from unweave.models.registry import example, predictive_words, resolution_words
from unweave.models.scaling import Scaled
from unweave.node.api.routes import openapi
from unweave.protocol.certificate.format import json_schema
from unweave.solvers import ESTIMATORS, SOLVERS
from unweave.testing.models import CASES

HERE = Path(__file__).parent
NOTE = "<!-- written by docs/generate.py: change the code, then run `make docs` -->"


REAL_COLUMNS = """\
## Real columns

Models with real columns (but `beta-exponential`, which uses its records as they are, with a mean
below 1) also take `center` and `scale`, numbers by column (0 and 1 unless given):
a record enters as z = (x − center)/scale and is rounded in these units. All agents must agree on
them, so they are settings, written into network.toml. Choose a scale near the spread of the
column, from public knowledge: `unweave init --scale auto` proposes powers of ten from `--range
column=low:high`, or from the file's range, and `--scale masked` from private rounds, in which no
agent shows its range. The proposed center is the middle of the range, to half a scale: default
priors are at the center. A column that a model needs the zero of (durations, a regression without
an intercept) has no center. Models of atoms use records in their own units; of `grouped`, the model
of each group has the constants.

`noise` is taken as known, so it is yours to confirm: `init` and `check` state it. Unless given, it
is the scale of the target (or of x); with a range of the target, `init --scale` sets it to a sixth
of the range, rounded to 1, 2 or 5 times a power of ten: the standard deviation of the target if
the range spans six, which the noise around a prediction does not exceed. Set it with `--set
noise=…`, or learn it with `linear-regression-unknown-noise` or `normal-unknown`.

Priors are stated in the data's own units, one number for all coefficients or columns, one for
each, or by name (`sd = { dose = 2000 }`); with the noise learned, a coefficient's `sd` is in units
of σ per unit of the feature. What is not stated is the standard prior in z-units. All results are
in the data's own units: `mean`, `sd`, `interval`, `sample`, `log_prob`, `params`, `predict`;
`distribution`, `eta` and digests are those of the grid.

Where rounding would move a posterior mean by more than 0.01 of its standard deviation, or a
standard deviation by 1%, `Federation`, `simulate`, `init`, `check` and agents refuse the data, and
name the scale that would do.
"""


# ------------------------------------------------------------------------------------- commands


def cli() -> str:
    """One section per command: its help, its arguments and options."""
    group: Any = typer.main.get_command(app)
    lines = [
        "# Commands",
        NOTE,
        "",
        f"{app.info.help} Every command has `--json` for machines where it has an "
        "answer, and `--help`. Exit codes: 0 done, 1 refused or a check failed, 2 bad input. "
        "With `--json` standard output holds one JSON document, also for [errors](errors.md) "
        "(`up`: one per line); integers beyond ±(2⁵³ − 1) are written as strings, because many "
        "readers would round them.",
        "",
        "| command | what it does |",
        "|---|---|",
    ]
    commands = group.commands
    lines += [
        f"| [`{name}`](#unweave-{name}) | {_first_sentence(command.help)} |"
        for name, command in commands.items()
    ]
    for name, command in commands.items():
        lines += ["", f"## unweave {name}", "", *_help(command.help), "", *_parameters(command)]
    return "\n".join(lines) + "\n"


def _first_sentence(text: str | None) -> str:
    return " ".join(inspect.cleandoc(text or "").split("\n\n")[0].split())


def _help(text: str | None) -> list[str]:
    """The docstring; indented examples become a block."""
    lines: list[str] = []
    for block in inspect.cleandoc(text or "").split("\n\n"):
        if block.startswith("    "):
            code = [line.strip() for line in block.splitlines()]
            if lines and lines[-1] == "```":
                lines[-1:] = [*code, "```"]
            else:
                lines += ["```sh", *code, "```"]
        else:
            lines += [*_linked(block).splitlines(), ""]
    return lines


def _linked(text: str) -> str:
    """With a link to every page that the text names by its path."""
    return re.sub(r"\bdocs/([\w/-]+\.md)", r"[docs/\1](../\1)", text)


def _parameters(command: Any) -> list[str]:
    rows = []
    for parameter in command.params:
        if parameter.opts[0].startswith("-"):
            names = ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))
            takes = "" if parameter.is_flag else f" {_metavar(parameter)}"
            rows.append(f"| {names}{takes} | {_cell(parameter.help)} | {_default(parameter)} |")
        else:
            text = _cell(getattr(parameter, "help", None))
            rows.append(f"| `{_metavar(parameter)}` | {text} | {_default(parameter)} |")
    return ["| argument or option | meaning | default |", "|---|---|---|", *rows]


def _metavar(parameter: Any) -> str:
    if parameter.metavar:
        return str(parameter.metavar).replace("|", "\\|")
    annotation = parameter.type_descriptor.annotation
    return str(getattr(annotation, "__name__", "VALUE")).upper()


def _default(parameter: Any) -> str:
    shown = getattr(parameter, "show_default", None)
    if isinstance(shown, str):
        return shown
    if parameter.required:
        return "required"
    value = parameter.default
    if value is None or value is False or value == () or callable(value):
        return ""
    return f"`{value}`"


def _cell(text: str | None) -> str:
    return " ".join((text or "").split()).replace("|", "\\|")


# --------------------------------------------------------------------------------------- models


def models() -> str:
    """One section per model: records, prior, what one record adds, settings, predictive."""
    shown: dict[str, Model] = {case.model.name: case.model for case in CASES}
    shown.update({name: example(name) for name in names() if name not in shown})
    records = {case.model.name: case.rows(1, seed=2) for case in CASES}
    lines = [
        "# Models",
        NOTE,
        "",
        "A model is a family, a prior and a likelihood. Every model also takes `alpha` (the "
        'temperature: factors carry 1/alpha), `reduction` (`"sum"`, or `"mean"`: an agent\'s loss '
        "is the mean over its records) and `bits` (the resolution of the grid: fractional bits of "
        "a factor's components). **Resolution** says to what step a record is rounded before it is "
        "added, with the settings shown: the posterior is exact for the rounded records. "
        "`unweave.models.by_name(name, **settings)` makes a model from its name, as in files.",
        "",
        *REAL_COLUMNS.splitlines(),
        "",
        "## All models",
        "",
        "| name | class | posterior | exact |",
        "|---|---|---|---|",
    ]
    for name in names():
        model = shown[name]
        exact = "yes" if model.conjugate else "in stages" if model.settles else "no: variational"
        lines.append(
            f"| [`{name}`](#{name}) | `{type(model).__name__}` | {model.family.name} | {exact} |"
        )
    lines += ["", "## Solvers", "", *_solvers()]
    for name in names():
        lines += ["", f"## {name}", "", *_model(shown[name], records.get(name))]
    return "\n".join(lines) + "\n"


def _solvers() -> list[str]:
    """The settings that `[solver]` accepts, by solver."""
    lines = [
        "A model that is not conjugate has a solver. `[solver]` in network.toml chooses another "
        "one, or other settings; agents, `simulate` and `evaluate` follow it, and `Federation` "
        "takes the same as `solver=`. `tol` and `retrain_above` belong to every solver "
        "([configuration](configuration.md)).",
        "",
        "| name | class | settings |",
        "|---|---|---|",
    ]
    accepted = SolverEntry.model_fields
    for name, kind in SOLVERS.items():
        takes = inspect.signature(kind).parameters.values()
        shown = ", ".join(f"`{p.name} = {p.default}`" for p in takes if p.name in accepted)
        lines.append(f"| `{name}` | `{kind.__name__}` | {shown or '–'} |")
    return [
        *lines,
        "",
        f"Any other name is an estimator of `natural-gradient`: {', '.join(ESTIMATORS)}.",
    ]


def _model(model: Model, record: Any) -> list[str]:
    cls = type(model)
    settings = inspect.signature(cls).parameters.values()
    # Of all models, and of those with real columns: the page states them once.
    common = {f.name for kind in (Model, Scaled) for f in fields(kind) if issubclass(cls, kind)}
    shown = ", ".join(
        p.name if p.default is inspect.Parameter.empty else f"{p.name}={p.default!r}"
        for p in settings
        if p.name not in common
    )
    summary = _unindent(cls.__doc__ or "")
    lines = [
        summary,
        "",
        f"`{cls.__name__}({shown})`, in `{cls.__module__}`",
        "",
        f"- **records**: {'; '.join(f'`{c.name}`: {c.expects}' for c in model.schema)}",
        f"- **prior** (here): `{model.prior!r}`",
    ]
    if isinstance(model, ConjugateModel) and record is not None:
        values = ", ".join(
            f"{c} = {v:g}" for c, v in zip(model.columns, record[0].tolist(), strict=True)
        )
        added = model.grid.decode(model.factor(model.shard(record)))
        parts = [f"{n} {v:+.6g}" for n, v in zip(model.grid.names, added, strict=True)]
        more = ", …" if len(parts) > 8 else ""
        lines.append(f"- **one record** ({values}) adds: {', '.join(parts[:8])}{more}")
    scaled = ", of z: the scale is 1 here" if isinstance(model, Scaled) else ""
    lines.append(f"- **resolution**: {resolution_words(model)}{scaled}")
    lines.append(f"- **quantities**: {', '.join(f'`{name}`' for name in model.quantities)}")
    lines.append(f"- **predictive**: {predictive_words(cls)}")
    if not model.conjugate:
        lines.append("- **factor**: found by a solver from the cavity; see `unweave.solvers`")
    return lines


def _unindent(doc: str) -> str:
    """The docstring without its doctest; indented formulas become blocks."""
    blocks = [b for b in inspect.cleandoc(doc).split("\n\n") if not b.startswith(">>>")]
    return "\n\n".join(
        "```text\n" + "\n".join(line.strip() for line in b.splitlines()) + "\n```"
        if b.startswith("    ")
        else b
        for b in blocks
    )


# ------------------------------------------------------------------------------------------ API


# A refusal is an exit code (-f), as for the commands.
CURL = "curl -f --unix-socket clinics/agents/a1/agent.sock"


def api() -> str:
    """One section per request, from the OpenAPI document that agents serve."""
    document = openapi()
    operations = [
        (f"{method.upper()} {path}", operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    lines = [
        "# The operator's API of an agent",
        NOTE,
        "",
        "An agent serves HTTP and JSON on the Unix socket `agent.sock` in its folder (mode 0600: "
        "only its own user may connect). Every command of `unweave` that talks to agents uses it; "
        "so can `curl`:",
        "",
        "```sh",
        f"{CURL} http://agent/status",
        f'{CURL} "http://agent/posterior?brief=true"',
        f"{CURL} http://agent/learn -X POST",
        f"{CURL} \\",
        """    http://agent/erasures -d '{"keys": ["p003", "p005"]}'""",
        f"{CURL} http://agent/metrics",
        "```",
        "",
        "`/openapi.json` describes every request and answer for machines (OpenAPI 3.1). A POST "
        "takes one JSON object; an empty body is `{}`. An unknown key is refused. A failure has "
        'the status 400 (bad input), 409 (refused), 413 or 500 and answers `{"error": {"kind", '
        '"message", "exit_code"}}`; the codes are those of the [errors](errors.md).',
        "",
        f"Integers beyond ±{SAFE} (2^53 − 1) are strings, because many readers of JSON would round "
        "them: stamps and grid units.",
        "",
        "The TCP address `metrics` in agent.toml serves `/metrics` and `/healthz`, and nothing "
        "else.",
        "",
        "| request | what it does |",
        "|---|---|",
        *(f"| `{where}` | {operation['summary']} |" for where, operation in operations),
    ]
    for where, operation in operations:
        taken, answered = _taken(operation), _answered(operation, document)
        if taken or answered:
            lines += ["", f"## {where}", "", operation["summary"], *taken, *answered]
    return "\n".join(lines) + "\n"


def _taken(operation: dict[str, Any]) -> list[str]:
    """A table of the parameters."""
    body = operation.get("requestBody", {"content": {"application/json": {"schema": {}}}})
    fields = body["content"]["application/json"]["schema"].get("properties", {})
    rows = [(name, one.get("description", ""), one) for name, one in fields.items()]
    rows += [(p["name"], p["description"], p["schema"]) for p in operation.get("parameters", ())]
    if not rows:
        return []
    lines = []
    for name, text, one in rows:
        default = f"`{json.dumps(one['default'])}`" if "default" in one else "required"
        lines.append(f"| `{name}` | {text} | {default} |")
    return ["", "| takes | meaning | default |", "|---|---|---|", *lines]


def _answered(operation: dict[str, Any], document: dict[str, Any]) -> list[str]:
    """The fields of the answer, and of the report in it."""
    content = operation["responses"]["200"].get("content")
    if content is None:
        return []
    schema = content["application/json"]["schema"]
    lines = []
    for name, one in schema["properties"].items():
        inner = document["components"]["schemas"].get(one.get("$ref", "").rpartition("/")[2])
        if inner is None:
            lines.append(f"`{name}`")
        else:
            fields = ", ".join(f"`{field}`" for field in inner["properties"])
            lines.append(f"`{name}` ({inner.get('description', '').strip()}): {fields}")
    if not lines:
        return ["", "Answers an empty object."]
    about = " ".join(schema.get("description", "").split())
    return ["", f"Answers {'; '.join(lines)}. {about}".strip()]


# ---------------------------------------------------------------------------------- certificate


def certificate_schema() -> str:
    """The JSON Schema of a certificate, for other tools."""
    return json.dumps(json_schema(), indent=2) + "\n"


PAGES = {
    "images/roles.svg": roles.diagram,
    "reference/certificate.schema.json": certificate_schema,
    "reference/cli.md": cli,
    "reference/http-api.md": api,
    "reference/metrics.md": lambda: metrics_page.page(NOTE),
    "reference/models.md": models,
    "reference/python.md": lambda: python_api.page(NOTE),
}
# Pages with one table that follows from the code, between two comments.
PARTS = {"explanation/protocol.md": ("roles", roles.table)}


def with_part(text: str, name: str, lines: list[str]) -> str:
    """The page with its generated part."""
    before, begin, rest = text.partition(f"<!-- {name}: written by docs/generate.py -->\n")
    _, end, after = rest.partition(f"<!-- end of {name} -->\n")
    assert begin, name
    assert end, name
    return f"{before}{begin}\n{chr(10).join(lines)}\n\n{end}{after}"


def written() -> dict[Path, str]:
    """Every generated file with its text."""
    files = {HERE / page: write() for page, write in PAGES.items()}
    for page, (name, write) in PARTS.items():
        text = (HERE / page).read_text(encoding="utf-8")
        files[HERE / page] = with_part(text, name, write())
    return files


def main(arguments: list[str]) -> int:
    """Write the pages; with --check, name those that are not as they would be written."""
    stale = []
    for path, text in written().items():
        if "--check" not in arguments:
            path.write_text(text, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(path.name)
    if stale:
        sys.stderr.write(f"not current: {', '.join(stale)}; run `make docs`\n")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
