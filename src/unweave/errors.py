"""The errors of unweave.

Each message names the cause, the place and the fix, and can be shown to a user unchanged.

    UnweaveError
    ├── DataError        a shard is not what the model expects (agent, row, column, expectation)
    ├── DomainError      natural parameters lie outside the family's domain
    ├── GridOverflow     a sum does not fit the integer grid (component, remedy)
    ├── GraphError       a topology that cannot carry a token (unknown agent, disconnected, ...)
    ├── SolverError      a local solve cannot proceed (divergence, moments that do not exist)
    ├── WireError        bytes that are no message of this network
    ├── TransportError   a message that did not reach its neighbour, or a port that cannot be opened
    ├── StoreError       an agent's store that cannot be opened or written
    ├── ConfigError      a setting or a file with an invalid value
    ├── NotACertificate  a file that is not a certificate
    ├── NotCertified     a certificate that does not prove what it claims, and why
    ├── UsageError       a command line that cannot be parsed
    └── MissingExtra     an optional dependency is needed and not installed
"""

from __future__ import annotations

__all__ = [
    "ConfigError",
    "DataError",
    "DomainError",
    "GraphError",
    "GridOverflow",
    "MissingExtra",
    "NotACertificate",
    "NotCertified",
    "SolverError",
    "StoreError",
    "TransportError",
    "UnweaveError",
    "UsageError",
    "WireError",
]


class UnweaveError(Exception):
    """Base of all errors of unweave; `exit_code` is the exit code of the command line."""

    exit_code = 1

    @property
    def lines(self) -> list[str]:
        """The lines of the text for a terminal: one, unless an error lists several problems."""
        return [str(self)]


class DataError(UnweaveError, ValueError):
    """A shard of data is not what the model expects."""

    exit_code = 2


class DomainError(UnweaveError, ValueError):
    """Natural parameters outside the family's domain."""


class GridOverflow(UnweaveError, OverflowError):
    """A sum that does not fit the integer grid."""


class GraphError(UnweaveError, ValueError):
    """A topology that cannot carry a token."""

    exit_code = 2


class SolverError(UnweaveError, ArithmeticError):
    """A local solve that cannot proceed."""


class WireError(UnweaveError, ValueError):
    """Bytes that are no message of this network, or a value that no message can carry."""


class TransportError(UnweaveError):
    """A message that did not reach its neighbour, or a port that cannot be opened."""


class StoreError(UnweaveError):
    """A store that cannot be opened or written; the file is left as it was."""


class ConfigError(UnweaveError, ValueError):
    """A setting or a file with an invalid value."""

    exit_code = 2


class NotACertificate(UnweaveError, ValueError):
    """A file that is not a certificate."""

    exit_code = 2


class NotCertified(UnweaveError, ValueError):
    """A certificate that was altered, is incomplete, or was signed by the wrong key."""


class UsageError(UnweaveError, ValueError):
    """A command line with an unknown option, a missing argument or a value of the wrong type."""

    exit_code = 2


class MissingExtra(UnweaveError, ImportError):
    """An optional dependency that is needed and not installed."""

    exit_code = 2

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(
            f"{purpose} needs {package}: not installed. Fix: pip install 'unweave[{extra}]'"
        )
