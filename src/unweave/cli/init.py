"""`unweave init`: a new network on disk."""

from __future__ import annotations

import math
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal
from unicodedata import normalize

import typer

from unweave.address import Address
from unweave.bounded import load_json
from unweave.cli.common import (
    Edges,
    Json,
    command,
    complete_model,
    emit_json,
    pair,
    progress,
    quote,
    say,
    styled,
)
from unweave.errors import ConfigError, UnweaveError
from unweave.text import count, listed

if TYPE_CHECKING:
    from rich.text import Text

    from unweave.manifest.privacy import Mode
    from unweave.models import Model
    from unweave.operations.scales import Proposal

__all__ = ["init", "parse_settings"]


def init(
    place: Annotated[str, typer.Argument(metavar="DIR", help="Where the network is written.")],
    agents: Annotated[
        str | None,
        typer.Option(
            "--agents",
            "-k",
            help="A number (a1 … aK), or names: north,east,south.",
            show_default="5, or those of --edges, or of the files of a folder",
        ),
    ] = None,
    graph: Annotated[
        str | None,
        typer.Option(
            "--graph",
            "-g",
            help="star (the first agent is the hub), ring, complete, path, grid, erdos-renyi, "
            "watts-strogatz or barabasi-albert (random ones: by --seed).",
            show_default="ring",
        ),
    ] = None,
    edges: Edges = None,
    model: Annotated[
        str,
        typer.Option(
            "--model",
            "-m",
            help="The model: a name from `unweave models`, or FILE.py:OBJECT for one of your own, "
            "whose file is executed, pinned by its digest and copied into every folder.",
            autocompletion=complete_model,
        ),
    ] = "beta-bernoulli",
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="A setting of the model, e.g. --set a=1 --set b=1, or of its solver, e.g. --set "
            "solver.name=ep --set solver.tol=1e-6 (repeatable).",
        ),
    ] = None,
    privacy: Annotated[
        str | None,
        typer.Option(
            "--privacy",
            metavar="MODE",
            help="masked: private rounds, only the sum of all agents can be read. plain: the "
            "paper's walk, neighbours see an agent's sums.",
            show_default="masked from four agents on, plain below",
        ),
    ] = None,
    publish: Annotated[
        str | None,
        typer.Option(
            "--publish",
            metavar="RECORDS[,AGENTS[,PERIOD]]",
            help="masked: changes and erasures of records wait until as many have gathered, over "
            "as many agents (2), or the period has passed (30d). Default: nothing waits.",
        ),
    ] = None,
    epsilon: Annotated[
        float | None,
        typer.Option(
            "--epsilon",
            metavar="E",
            help="masked: differential privacy. Every published sum carries noise; 1 is strong, "
            "above 10 is weak. For beta-bernoulli, beta-binomial with trials, "
            "dirichlet-categorical, normal-known-variance and linear-regression.",
        ),
    ] = None,
    delta: Annotated[
        float | None,
        typer.Option(
            "--delta", metavar="D", help="With --epsilon: far below 1/records, for example 1e-6."
        ),
    ] = None,
    releases: Annotated[
        int | None,
        typer.Option(
            "--releases",
            metavar="N",
            help="With --epsilon: how many values each agent may give; every round takes one.",
            show_default="20",
        ),
    ] = None,
    colluders: Annotated[
        int | None,
        typer.Option(
            "--colluders",
            metavar="C",
            help="With --epsilon: how many agents may put together what they know.",
            show_default="0",
        ),
    ] = None,
    bounds: Annotated[
        list[str] | None,
        typer.Option(
            "--bounds",
            metavar="COLUMN=LOW:HIGH",
            help="With --epsilon: the bounds to which records are clipped, from what is known "
            "without looking at records (normal-known-variance).",
        ),
    ] = None,
    norm: Annotated[
        float | None,
        typer.Option(
            "--norm",
            metavar="C",
            help="With --epsilon: the length to which records are shortened, in units of their "
            "scales (linear-regression).",
        ),
    ] = None,
    small_shards: Annotated[
        bool,
        typer.Option(
            "--small-shards",
            help="plain: allow agents with fewer records than the model requires, although "
            "neighbours can then reconstruct records from its factors.",
        ),
    ] = False,
    data: Annotated[
        Path | None,
        typer.Option(
            "--data",
            metavar="PATH",
            help="A file whose records are split among the agents (for a test on one machine), or "
            "a folder with one NAME.csv per agent; CSV, TSV, JSON, NDJSON or Parquet. Without it, "
            "put data.csv into each agent's folder.",
        ),
    ] = None,
    split: Annotated[
        str,
        typer.Option(
            "--split",
            metavar="HOW",
            help="How one file is split: iid, quantity (unequal numbers), or by the model's last "
            "column: dirichlet (unequal shares), by-label, sorted.",
        ),
    ] = "iid",
    key: Annotated[
        str | None, typer.Option("--key", help="The column that names a record, for erasing it.")
    ] = None,
    column: Annotated[
        list[str] | None,
        typer.Option(
            "--column", help="model column=data column, e.g. --column x=diagnosis (repeatable)."
        ),
    ] = None,
    decimal: Annotated[
        str,
        typer.Option("--decimal", metavar="SIGN", help="The decimal sign of CSV files: . or ,"),
    ] = ".",
    missing: Annotated[
        str,
        typer.Option(
            "--missing",
            metavar="RULE",
            help="What becomes of a record with a missing value: refuse (an error) or drop (it is "
            "left out and counted).",
        ),
    ] = "refuse",
    where: Annotated[
        str | None,
        typer.Option(
            "--where",
            metavar="CONDITION",
            help='Use only these records, in SQL over the columns of the file: "age >= 18".',
        ),
    ] = None,
    scale: Annotated[
        list[str] | None,
        typer.Option(
            "--scale",
            metavar="COLUMN=NUMBER",
            help="The scale of a column, in which its records are rounded, e.g. --scale dose=1e-5 "
            "(repeatable). auto proposes powers of ten from --range, else from the order of "
            "magnitude of the range of --data. masked proposes them from private rounds of coarse "
            "counts over --data, in which no agent shows its range.",
        ),
    ] = None,
    center: Annotated[
        list[str] | None,
        typer.Option(
            "--center", metavar="COLUMN=NUMBER", help="The zero point of a column (repeatable)."
        ),
    ] = None,
    ranges: Annotated[
        list[str] | None,
        typer.Option(
            "--range",
            metavar="COLUMN=LOW:HIGH",
            help="A range that may be known publicly, for --scale auto or masked (repeatable).",
        ),
    ] = None,
    hosts: Annotated[
        str | None,
        typer.Option(
            "--hosts",
            help="host:port of each agent, comma-separated in order, or a file with one per line "
            "(# starts a comment). Default: free ports of this machine's loopback.",
        ),
    ] = None,
    schedule: Annotated[
        str, typer.Option("--schedule", help="sweep (depth first) or metropolis (random walk).")
    ] = "sweep",
    forget: Annotated[
        str,
        typer.Option(
            "--forget",
            help="How the token reaches an agent with an erasure: seek (the shortest path) or walk "
            "(by the schedule).",
        ),
    ] = "seek",
    seed: Annotated[int, typer.Option("--seed", help="Seed of all routing draws.")] = 0,
    name: Annotated[str | None, typer.Option("--name", help="Default: the folder's name.")] = None,
    json: Json = False,
) -> None:
    """Write a new network: network.toml, and one folder per agent to copy to its host.

    Each folder holds a private key (mode 0600), a self-signed certificate that network.toml pins,
    and agent.toml, which names a free loopback port for /metrics and /healthz.

    From four agents on the network is **masked**: agents learn in private rounds, and only the sum
    of all of them can be read. With fewer agents, and with `--privacy plain`, **neighbours can
    compute an agent's sufficient statistics** (sums over its records) from two tokens in a row; an
    agent with fewer than `min_records` records (agent.toml, default 10) therefore refuses to start.

    Real columns are rounded in agreed constants (`--scale`, `--center`), which become public.
    `--scale masked` derives them by private rounds of four agents or more. What can be read is how
    many of **all** records are in each power of ten, then in sixteenths of the range without its
    outer hundredths; the smallest and the largest record decide nothing. The data must be here
    (`--data`). For data on other hosts, let a masked network count their powers of ten first
    (docs/how-to/privacy-mode.md), or state what is publicly known (`--range`).

    Examples:

        unweave init clinics --data visits.csv --column x=ill --key patient

        unweave init risk -m logistic-regression --set features=age --set target=ill

        unweave init banks --agents north,east --hosts n.example:7400,e.example:7400

        unweave init clinics --edges consortium.csv --data shards/ --column x=ill

        unweave init stays -m gamma-exponential --data stays.csv --scale auto

        unweave init stays -m gamma-exponential --data stays.csv --scale masked

        unweave init stays -m gamma-exponential --scale auto --range x=0:1e-4

        unweave init clinics --agents 5 --privacy plain

        unweave init clinics --agents 5 --epsilon 1 --delta 1e-6 --releases 20
    """
    from unweave.manifest import PinnedSource
    from unweave.node.data.private import MIN_RECORDS
    from unweave.operations.create import (
        addresses_of,
        check_number,
        create_network,
        free_ports,
        graph_of,
    )
    from unweave.operations.noise import costs
    from unweave.operations.scales import chosen_scales, known_noise, without_units
    from unweave.operations.shares import Columns, agents_of, shares

    if not place.strip():
        raise ConfigError("DIR is empty. Fix: name the folder of the new network (. is this one)")
    folder = Path(place)
    if decimal not in (".", ","):
        raise ConfigError(f"--decimal {decimal}: no such sign. Fix: choose . or ,")
    if agents is None and edges is None and data is not None and data.is_dir():
        names, own_edges = agents_of(data), None
    else:
        names, own_edges = graph_of(agents, graph, edges)
    check_number(len(names))
    mode, reason = _mode(privacy, len(names))
    if small_shards and mode == "masked":
        raise ConfigError(
            "--small-shards: in a masked network agents of any size are hidden. Fix: leave it out, "
            "or add --privacy plain"
        )
    noise = {
        "epsilon": epsilon,
        "delta": delta,
        "releases": releases,
        "colluders": colluders,
        "bounds": {c: list(ends) for c, ends in (_range(b, "--bounds") for b in bounds or [])},
        "norm": norm,
    }
    table = {"mode": mode} | {key: one for key, one in noise.items() if one not in (None, {})}
    stated = parse_settings(settings or [])
    solver = {key: stated.pop(f"solver.{key}") for key in _of_solver(stated)}
    scaling = bool(scale or center or ranges)
    own = PinnedSource.named(model, stated)
    if own is not None and scaling:
        raise ConfigError(
            f"--model {model}: a model of your own has no --scale, --center or --range. Fix: "
            "divide by constants in its file"
        )
    if own is not None:
        chosen = own.model()
    else:
        chosen = _model(model, without_units(model, stated) if scaling else stated)
    if mode == "masked":
        _check_rounds(chosen, solver, len(names))
    columns = dict(pair(item, "--column") for item in column or [])
    for wrong in sorted(set(columns) - set(chosen.inputs)):
        raise ConfigError(
            f"--column {wrong}={columns[wrong]}: {chosen.name} has no column {wrong!r}. "
            f"Fix: choose from {', '.join(chosen.inputs)}"
        )
    if missing not in ("refuse", "drop"):
        raise ConfigError(f"--missing {missing}: no such rule. Fix: choose refuse or drop")
    sign: Literal[".", ","] = "," if decimal == "," else "."
    rule: Literal["refuse", "drop"] = "drop" if missing == "drop" else "refuse"
    asked = Columns(chosen, columns, key, sign, rule, where)
    proposals: list[str] = []
    if scaling:
        constants, proposals = chosen_scales(
            asked,
            stated,
            dict(_number(item, "--scale") for item in scale or [] if item not in _PROPOSALS),
            dict(_number(item, "--center") for item in center or []),
            dict(map(_range, ranges or [])),
            proposal=_proposal(scale or []),
            data=data,
            agents=names,
            split=split,
            seed=seed,
            with_noise=epsilon is not None,
        )
        chosen = _model(model, constants)
    if "noise" not in stated and (assumed := known_noise(chosen)) is not None:
        proposals.append(f"{assumed}.")
    summed = chosen if own is not None else _summed(chosen, table, len(names))
    given = shares(data, names, replace(asked, model=summed), split, seed)
    addresses = addresses_of(hosts, len(names))
    taken = {found.port for one in addresses if (found := Address.parse(one))}
    with progress(quiet=json) as bar:
        task = bar.add_task("making the agents' folders", total=len(names))
        manifest = create_network(
            folder,
            name=name or normalize("NFC", folder.resolve().name)[:64],
            model=own or chosen,
            agents=names,
            addresses=addresses,
            data=given.tables,
            graph=None if own_edges is not None else graph or "ring",
            edges=own_edges,
            metrics=[f"127.0.0.1:{port}" for port in free_ports(len(names), taken)],
            fill=given.fill,
            tell=lambda _: bar.advance(task),
            schedule=schedule,
            forget=forget,
            seed=seed,
            privacy=table,
            **({} if publish is None else {"publish": _publish(publish)}),
            **({"solver": solver} if solver else {}),
            **({"small_shards": "neighbours can reconstruct records"} if small_shards else {}),
        )
    homes = {agent: folder / "agents" / agent for agent in names}
    seen = manifest.privacy.seen + (_points(chosen) if mode == "masked" else "")
    if json:
        emit_json(
            {
                "network": str(folder / "network.toml"),
                "network_id": manifest.digest.hex(),
                "privacy": {
                    **manifest.privacy.model_dump(exclude_none=True),
                    "seen": seen,
                },
                "publish": manifest.publish
                and {**manifest.publish.model_dump(), "waiting": manifest.publish.waiting},
                "scales": proposals,
                "agents": {
                    entry.name: {
                        "folder": str(homes[entry.name]),
                        "address": entry.address,
                        "records": given.counts.get(entry.name),
                    }
                    for entry in manifest.entries
                },
            }
        )
        return
    lines: list[str | Text] = [
        styled(
            ("Wrote", "green"),
            f" {folder}/network.toml and {count(len(names), 'agent folder')}.",
        ),
        *proposals,
        f"Privacy: {mode}{reason}. {seen} See docs/explanation/security.md.",
    ]
    if manifest.publish is not None:
        lines.append(manifest.publish.waiting)
    if (mechanism := manifest.build_mechanism()) is not None:
        lines.append(f"Differential privacy: {costs(mechanism)}.")
    if len(names) == 1:
        alone = " and learns from its own data only; --agents adds others."
        lines.append(styled((f"{names[0]} is the only agent", "yellow"), alone))
    if data is None:
        wanted = ", ".join([*([key] if key else []), *(columns.get(c, c) for c in chosen.inputs)])
        lines.append(f"Next: put each agent's data.csv (columns {wanted}) into its folder, then")
    needed = 1 if small_shards else chosen.min_records()
    least = 1 if mode == "masked" else max(MIN_RECORDS, needed)
    if few := [agent for agent, n in given.counts.items() if n < least]:
        lower = "lower min_records in agent.toml" if needed <= MIN_RECORDS else "--small-shards"
        why = f" will refuse to start with fewer than {least} records: give more" + (
            f", or {lower}." if mode == "plain" else "."
        )
        lines.append(styled((listed(few, 5), "yellow"), why))
    if given.repeated:
        verb = "repeats" if given.repeated == 1 else "repeat"
        why = (
            ": an erasure by that key erases all records with it at the agent. Choose a --key that "
            "is unique to erase single records."
        )
        same = f"{count(given.repeated, 'record')} {verb} the key of another"
        lines.append(styled((same, "yellow"), why))
    say(*lines)
    command(f"unweave check {quote(folder)}", f"unweave up {quote(folder)}")


def _mode(asked: str | None, agents: int) -> tuple[Mode, str]:
    """The privacy mode, and the reason if the number of agents decided it."""
    from unweave.manifest.privacy import LEAST_AGENTS, default_mode

    if asked is None:
        small = f", because masks hide nothing among fewer than {LEAST_AGENTS} agents"
        return (mode := default_mode(agents)), "" if mode == "masked" else small
    if asked == "masked":
        return "masked", ""
    if asked == "plain":
        return "plain", ", the paper's walk, by choice"
    raise ConfigError(f"--privacy {asked}: no such mode. Fix: choose masked or plain")


def _publish(text: str) -> dict[str, int | str]:
    """20 or 20,3,14d: the table `publish`."""
    records, _, rest = text.partition(",")
    agents, _, period = rest.partition(",")
    if not records.isdecimal() or not (agents or "2").isdecimal():
        raise ConfigError(
            f"--publish {text}: no number of records. Fix: write RECORDS, or "
            "RECORDS,AGENTS,PERIOD, for example 20,2,30d"
        )
    found: dict[str, int | str] = {"records": int(records), "agents": int(agents or 2)}
    return found | ({"at_most": period} if period else {})


def _points(model: Model) -> str:
    """Where the masks of a model that learns in several rounds end."""
    from unweave.models.glm import GLM

    if not isinstance(model, GLM):
        return ""
    return (
        " An agent that lies can choose the points at which this model's sums are published: of "
        "1,000 points that were tried, none singled out a record with a prior sd of 1 (features "
        "standardised), up to 133 did with 10; a narrower prior hides more."
    )


def _check_rounds(model: Model, solver: dict[str, Any], agents: int) -> None:
    """Raise before anything is written if private rounds cannot learn the model."""
    from unweave.solvers import as_solver, in_rounds

    try:
        in_rounds(model, as_solver(solver.get("name"), model), agents)
    except ConfigError as error:
        raise ConfigError(f"--privacy masked: {error}") from None


def _model(name: str, settings: dict[str, Any]) -> Model:
    from unweave.models import by_name

    try:
        return by_name(name, **settings)
    except (TypeError, ValueError) as error:
        if isinstance(error, UnweaveError):
            if not settings or error.exit_code == ConfigError.exit_code:
                raise
            raise ConfigError(f"--set: {error}") from None
        raise ConfigError(
            f"--set: a setting of {name} has the wrong type ({error}). "
            f"Fix: see `unweave models {name}`"
        ) from None


_PROPOSALS: tuple[Proposal, ...] = ("auto", "masked")


def _proposal(scale: list[str]) -> Proposal | None:
    found = [one for one in _PROPOSALS if one in scale]
    if len(found) > 1:
        raise ConfigError("--scale auto and --scale masked: two sources. Fix: choose one")
    return found[0] if found else None


def _summed(model: Model, table: dict[str, Any], agents: int) -> Model:
    """The model whose sums the agents give: with noise, that of clipped records. Raises before
    anything is written."""
    from unweave.manifest.errors import read_privacy

    mechanism = read_privacy(table, agents, "--epsilon").mechanism(model)
    return model if mechanism is None else mechanism.model


def _range(item: str, option: str = "--range") -> tuple[str, tuple[float, float]]:
    name, text = pair(item, option)
    low, _, high = text.partition(":")
    ends = _number(f"{name}={low}", option)[1], _number(f"{name}={high}", option)[1]
    if not ends[0] < ends[1]:
        raise ConfigError(f"{option} {item}: not a range. Fix: write COLUMN=LOW:HIGH, LOW < HIGH")
    return name, ends


def _number(item: str, option: str) -> tuple[str, float]:
    name, text = pair(item, option)
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ConfigError(f"{option} {item}: not a number. Fix: give a finite number")
    return name, value


def _of_solver(stated: dict[str, Any]) -> list[str]:
    """The settings of the solver among those that are given."""
    return [key.removeprefix("solver.") for key in stated if key.startswith("solver.")]


def _value(text: str) -> Any:
    """A value in the notation of network.toml or in JSON; else the text itself."""
    try:
        return load_json(text.encode())
    except ValueError:
        pass
    if not text.startswith(("[", "{")):
        return text
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (tomllib.TOMLDecodeError, RecursionError):
        return text


def parse_settings(items: list[str]) -> dict[str, Any]:
    """The settings of `--set name=value`: a value of TOML or JSON, a text, or texts with commas."""
    values: dict[str, Any] = {}
    for item in items:
        key, text = pair(item, "--set")
        value = _value(text)
        if isinstance(value, str) and "," in value:
            value = [part.strip() for part in value.split(",")]
        values[key] = tuple(value) if isinstance(value, list) else value
    return values
