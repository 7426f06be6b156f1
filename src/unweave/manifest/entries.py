"""The tables of `network.toml`."""

from __future__ import annotations

from typing import Annotated, Any, Self
from unicodedata import normalize

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from unweave.address import ADDRESS, Address
from unweave.errors import ConfigError
from unweave.protocol.terms import Timeouts
from unweave.text import visible

__all__ = [
    "AgentEntry",
    "GraphEntry",
    "ModelEntry",
    "Name",
    "SolverEntry",
    "StrictTable",
    "TimeoutsEntry",
    "look_alike",
]


def _checked(name: str) -> str:
    """A name that people see as it is: two names that look the same would be taken for one."""
    if (shown := visible(name)) != name:
        raise ConfigError(
            f'"{shown}": a name holds no character that is invisible, a space of another width, or '
            "reverses the text. Fix: remove the escaped characters"
        )
    if (normal := normalize("NFC", name)) != name:
        raise ConfigError(f"{name!a}: a name has one spelling (Unicode NFC). Fix: write {normal!a}")
    return name


def look_alike(name: str) -> str:
    """The same text for names that differ in case, spaces or the width of letters only. Letters of
    other alphabets that look alike are not found: certificates tell agents apart, not names."""
    return " ".join(normalize("NFKC", name).casefold().split())


_NAME = r"^[^\x00-\x20\x7f/\\\"](?:[^\x00-\x1f\x7f/\\\"]*[^\x00-\x20\x7f/\\\"])?$"
_NAME_BYTES = 64  # the limit of a common name in X.509
_Seconds = Annotated[float, Field(gt=0, le=1e9)]
_Size = Annotated[int, Field(ge=0, le=1_000_000)]
_Name = Annotated[str, Field(max_length=_NAME_BYTES)]
Name = Annotated[str, Field(pattern=_NAME, max_length=1 << 10), AfterValidator(_checked)]
_Pem = Annotated[str, Field(max_length=1 << 14)]
_Probability = Annotated[float, Field(ge=0, le=1)]


class StrictTable(BaseModel):
    """A table that rejects unknown keys and values of another type."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class AgentEntry(StrictTable):
    """One agent. Its identity is a certificate, a public key, or a key id alone."""

    name: Name
    address: Annotated[str, Field(pattern=ADDRESS, max_length=300)] | None = None
    certificate: _Pem | None = None
    public_key: _Pem | None = None
    keyid: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None
    data: str | None = None

    @property
    def pem(self) -> str | None:
        """The certificate or public key that pins the agent's key."""
        return self.certificate or self.public_key

    @model_validator(mode="after")
    def _check(self) -> Self:
        if len(self.name.encode()) > _NAME_BYTES:
            raise ConfigError(
                f"the name has {len(self.name.encode())} bytes in UTF-8, and a certificate holds "
                f"{_NAME_BYTES}. Fix: choose a shorter name"
            )
        if self.certificate and self.public_key:
            raise ConfigError(
                "has a certificate and a public_key. Fix: keep the certificate, it holds the key"
            )
        found = None if self.address is None else Address.parse(self.address)
        if self.address is not None and (found is None or not found.port):
            raise ConfigError(f"address {self.address!r} has no port. Fix: a port from 1 to 65535")
        return self


class ModelEntry(BaseModel):
    """The model's name and its settings; `model.settings()` writes them."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)

    name: _Name

    @property
    def settings(self) -> dict[str, Any]:
        return dict(self.__pydantic_extra__ or {})


class SolverEntry(StrictTable):
    """How agents compute their factors, for a model that is not conjugate: the solver's name and
    settings (unless given, the model's default), and when to stop and to retrain."""

    name: _Name | None = None
    estimator: _Name | None = None
    steps: Annotated[int, Field(ge=1, le=100_000)] | None = None
    rho: Annotated[float, Field(gt=0, le=1)] | None = None
    samples: Annotated[int, Field(ge=2, le=1_000_000)] | None = None
    passes: Annotated[int, Field(ge=1, lt=2**31)] | None = None
    relax: Annotated[float, Field(ge=1, le=1.1)] | None = None
    tol: Annotated[float, Field(gt=0, le=1)] = 1e-4
    retrain_above: Annotated[float, Field(ge=0)] | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of the solver itself."""
        return self.model_dump(exclude_none=True, exclude={"name", "tol", "retrain_above"})


class GraphEntry(StrictTable):
    """A graph by name; `p`, `k` and `m` are settings of random graphs."""

    name: _Name
    p: _Probability | None = None
    k: _Size | None = None
    m: _Size | None = None


class TimeoutsEntry(StrictTable):
    """Timeouts in seconds; every positive value is safe."""

    welcome: _Seconds = Timeouts.welcome
    resend: _Seconds = Timeouts.resend
    ack: _Seconds = Timeouts.ack
    alive: _Seconds = Timeouts.alive
    loss: _Seconds = Timeouts.loss
