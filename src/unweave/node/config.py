"""`agent.toml`: what one agent needs to know beside the network's manifest.

network = "network.toml"
name = "north"
listen = "0.0.0.0:7400"          # default: the address in the manifest
min_records = 10                 # a smaller shard is refused
auto_vote = false                # vote for every agent that is asked about and not heard
watch = 0                        # seconds between looks at the data; 0: only `unweave learn`
metrics = "127.0.0.1:0"          # /metrics and /healthz; "" turns them off

[data]
path = "north.csv"
key = "id"
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from unweave.errors import ConfigError
from unweave.manifest import Manifest, load
from unweave.node.data_source import DataSource
from unweave.protocol.terms import Terms

__all__ = ["AGENT_FILE", "AgentConfig", "AgentFolder", "agent_name", "find_agents"]

AGENT_FILE = "agent.toml"
_Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class AgentConfig(BaseModel):
    """The settings in agent.toml."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    network: str = "network.toml"
    name: str
    listen: str | None = None
    min_records: Annotated[int, Field(ge=1)] = 10
    auto_vote: bool = False
    watch: _Seconds = 0.0
    metrics: str = ""
    log: Literal["human", "json"] = "human"
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
    def store(self) -> Path:
        return self.path / "store.db"

    @property
    def socket(self) -> Path:
        return self.path / "agent.sock"

    @property
    def certificates(self) -> Path:
        return self.path / "certificates"

    @classmethod
    def read(cls, folder: str | Path) -> AgentFolder:
        path = Path(folder)
        file = path / AGENT_FILE
        try:
            values = tomllib.loads(file.read_text())
        except OSError as error:
            raise ConfigError(
                f"{file}: cannot be read ({error.strerror}): `unweave init` writes agent folders"
            ) from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ConfigError(f"{file}: not TOML: {error}") from None
        config = _validated(values, file)
        manifest = load(path / config.network)
        if config.name not in manifest.topology.agents:
            raise ConfigError(
                f'{file}: name = "{config.name}", but the manifest has no such agent; its agents '
                f"are {', '.join(manifest.topology.agents[:8])}"
            )
        return cls(path, config, manifest, manifest.terms())


def _validated(values: dict[str, Any], file: Path) -> AgentConfig:
    try:
        return AgentConfig.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        known = ", ".join(AgentConfig.model_fields)
        hint = f"; the keys are {known}" if first["type"] == "extra_forbidden" else ""
        raise ConfigError(f"{file}: {place}: {first['msg'].lower()}{hint}") from None


def agent_name(folder: str | Path) -> str:
    """The name in agent.toml: the folder may be called anything on its host."""
    path = Path(folder)
    try:
        name = tomllib.loads((path / AGENT_FILE).read_text()).get("name")
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError):
        name = None
    return name if isinstance(name, str) else path.resolve().name


def find_agents(folder: str | Path) -> list[Path]:
    """The agent folders of DIR: itself if it is one, else those below it, in network order."""
    path = Path(folder)
    if (path / AGENT_FILE).is_file():
        return [path]
    found = sorted(path.glob(f"agents/*/{AGENT_FILE}"))
    if not found:
        raise ConfigError(
            f"{path}: neither an agent's folder (no {AGENT_FILE}) nor a network's (no agents/ with "
            f"agent folders): make one with `unweave init {path}`"
        )
    manifest = load(path / "network.toml")
    order = {name: k for k, name in enumerate(manifest.topology.agents)}
    folders = [file.parent for file in found]
    return sorted(folders, key=lambda f: order.get(agent_name(f), len(order)))
