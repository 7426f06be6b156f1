"""An agent's folder and its `agent.toml`: the settings of one agent beside the manifest.

network = "network.toml"
name = "north"
listen = "0.0.0.0:7400"          # default: the address in the manifest
min_records = 10                 # a first contribution from fewer is refused
auto_vote = false                # true: vote out an agent whose lie is proved, without asking
watch = 0                        # seconds between readings of the data; 0: only `unweave learn`
solve_limit = 3600               # seconds for one solve; then the token goes on without it
restart_interval = 60            # least seconds between restarts after erasures; 0: no restarts
metrics = "127.0.0.1:9400"       # /metrics and /healthz; "" or absent: off
metrics_hosts = ["m.example"]    # names under which they are asked for, beside IP addresses
log = "human"                    # or "json"
log_level = "info"               # debug, info, warning or error
log_bytes = 10000000             # agent.log is rotated when it would be larger; 0: never
log_files = 3                    # rotated files that are kept: agent.log.1 is the newest

[data]
path = "north.csv"
key = "id"
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from unweave.bounded import load_toml, read_bytes
from unweave.errors import ConfigError
from unweave.manifest import Manifest, load
from unweave.node.data.commitments import KEY_FILE
from unweave.node.data.source import SEEN_FILE, DataSource, is_file
from unweave.node.errors import BadSetting
from unweave.node.log import LOG_FILE
from unweave.node.process import RESTART_FILE
from unweave.protocol.terms import Terms
from unweave.text import clip, listed, quote

__all__ = [
    "AGENT_FILE",
    "SUPERVISOR",
    "AgentConfig",
    "AgentFolder",
    "agent_name",
    "find_agents",
    "refuse_links",
]


AGENT_FILE = "agent.toml"
_MOST_BYTES = 1 << 20  # of agent.toml
STORE_FILE = "store.db"
LEDGER_FILE = "ledger.db"
SUPERVISOR = "UNWEAVE_SUPERVISOR"  # environment: the process that restarts this agent
_WRITTEN = (
    STORE_FILE,
    LEDGER_FILE,
    SEEN_FILE,
    KEY_FILE,
    LOG_FILE,
    RESTART_FILE,
    "agent.sock",
    "certificates",
)
_Seconds = Annotated[float, Field(ge=0, le=1e9)]


class AgentConfig(BaseModel):
    """The settings in agent.toml."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    network: str = "network.toml"
    name: Annotated[str, Field(max_length=64)]
    listen: str | None = None
    min_records: Annotated[int, Field(ge=1, lt=2**63)] = 10
    auto_vote: bool = False
    watch: _Seconds = 0.0
    solve_limit: Annotated[float, Field(gt=0, le=1e9)] = 3600.0
    restart_interval: _Seconds = 60.0
    metrics: str = ""
    metrics_hosts: Annotated[list[str], Field(max_length=100)] = []
    log: Literal["human", "json"] = "human"
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_bytes: Annotated[int, Field(ge=0, lt=2**63)] = 10_000_000
    log_files: Annotated[int, Field(ge=1, le=1000)] = 3
    data: DataSource


@dataclass(frozen=True)
class AgentFolder:
    """One agent's folder, read and checked."""

    path: Path
    config: AgentConfig
    manifest: Manifest
    terms: Terms

    @property
    def me(self) -> int:
        return self.manifest.topology.index(self.config.name)

    @property
    def least_records(self) -> int:
        """The records that a first contribution needs. Under masks nobody sees the sums of one
        agent, so they may be over a single record."""
        return 1 if self.terms.masked else self.config.min_records

    @property
    def store(self) -> Path:
        return self.path / STORE_FILE

    @property
    def ledger(self) -> Path:
        return self.path / LEDGER_FILE

    @property
    def socket(self) -> Path:
        return self.path / "agent.sock"

    @property
    def certificates(self) -> Path:
        return self.path / "certificates"

    @classmethod
    def read(cls, folder: str | Path, like: AgentFolder | None = None) -> AgentFolder:
        """`like` is another folder of the network, whose manifest need not be checked twice."""
        path = Path(folder)
        refuse_links(path)
        file = path / AGENT_FILE
        try:
            values = load_toml(read_bytes(file, _MOST_BYTES))
        except OSError as error:
            raise BadSetting(f"{file}: cannot be read ({error.strerror})", _suggest(path)) from None
        except ValueError as error:
            problem = f"{file}: not TOML: {clip(error, 200)}"
            raise BadSetting(problem, "correct that line", "; ") from None
        config = _validated(values, file)
        if not is_file(path / config.network):
            raise BadSetting(
                f"{path / clip(config.network, 200)}: no such file",
                "copy the network's manifest there (every agent has the same one), or name it in "
                f"{file} (network = …)",
            )
        manifest = load(path / config.network, known=None if like is None else like.manifest)
        if config.name not in manifest.topology.agents:
            raise BadSetting(
                f'{file}: name = "{config.name}", but the manifest has no such agent',
                f"correct the name; the agents are {listed(manifest.topology.agents)}",
            )
        same = like is not None and like.manifest is manifest
        terms = like.terms if like is not None and same else manifest.terms()
        return cls(path, config, manifest, terms)


def refuse_links(folder: Path) -> None:
    """ConfigError if a file that the agent writes is a link: its content would go elsewhere, and
    erased data might stay there."""
    for name in _WRITTEN:
        if (folder / name).is_symlink():
            raise BadSetting(
                f"{folder / name}: a link, but the agent writes there, and what it writes stays "
                "in its folder",
                "remove the link, or move what it names into the folder",
            )


def _validated(values: dict[str, Any], file: Path) -> AgentConfig:
    try:
        return AgentConfig.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(clip(part, 80) for part in first["loc"])
        if first["type"] == "extra_forbidden":
            table = DataSource if first["loc"][0] == "data" else AgentConfig
            known = list(table.model_fields)
            near = get_close_matches(clip(first["loc"][-1], 80), known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"the keys are {', '.join(known)}"
            raise BadSetting(f"{file}: {place}: unknown key", hint, "; ") from None
        if first["type"] == "missing":
            raise BadSetting(f"{file}: {place} is missing", "add it") from None
        text = first["msg"].removeprefix("Value error, ")
        raise ConfigError(f"{file}: {place}: {text[0].lower()}{text[1:]}") from None


def agent_name(folder: str | Path) -> str:
    """The name in agent.toml; the folder's name if agent.toml cannot be read."""
    path = Path(folder)
    try:
        name = load_toml(read_bytes(path / AGENT_FILE, _MOST_BYTES)).get("name")
    except (OSError, ValueError):
        name = None
    return name if isinstance(name, str) else path.resolve().name


def find_agents(folder: str | Path) -> list[Path]:
    """The agent folders of DIR: itself if it is one, else those below it, in network order."""
    path = Path(folder)
    try:
        if (path / AGENT_FILE).is_file():
            return [path]
        found = [home for home in _below(path / "agents") if (home / AGENT_FILE).is_file()]
    except OSError as error:
        raise ConfigError(
            f"{error.filename or path}: cannot be read ({error.strerror or error}). Fix: run the "
            "command as the user who owns it"
        ) from None
    if not found:
        raise ConfigError(f"{path}: {_describe(path)}. Fix: {_suggest(path)}")
    manifest = load(path / "network.toml")
    order = {name: k for k, name in enumerate(manifest.topology.agents)}
    homes: dict[str, Path] = {}
    for home in found:
        name = agent_name(home)
        if name in homes:
            raise ConfigError(
                f"{homes[name]} and {home} are both the folder of {name!r}. Fix: move one away"
            )
        homes[name] = home
    return [homes[name] for name in sorted(homes, key=lambda n: order.get(n, len(order)))]


def _below(path: Path) -> list[Path]:
    return sorted(path.iterdir()) if path.is_dir() else []


def _describe(path: Path) -> str:
    if not path.exists():
        return "no such folder"
    if not path.is_dir():
        return "a file, not a folder"
    return (
        f"neither an agent's folder (no {AGENT_FILE}) nor a network's (no agents/ with agent "
        "folders)"
    )


def _suggest(path: Path) -> str:
    """A nearby folder that the user probably meant, or how to make one."""
    here = path.resolve()
    for near in (here.parent, here.parent.parent):
        if here.exists() and (near / "network.toml").is_file() and (near / "agents").is_dir():
            return f"give {near}"
    if (path / "network.toml").is_file() and (path / "agents").is_dir():
        return f"give an agent's folder below {path / 'agents'}"
    if path.is_file():
        return "give the folder of a network, or of an agent"
    return f"check the path, or make a network with `unweave init {quote(path)}`"
