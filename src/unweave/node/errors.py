"""Errors with cause and fix as separate fields, for reports that show them in two columns."""

from __future__ import annotations

from unweave.errors import ConfigError, DataError, GridOverflow

__all__ = ["ActionableError", "BadData", "BadSetting", "BadSum"]


class ActionableError(Exception):
    """`problem` and `fix`; the text is both, joined by `joint`."""

    def __init__(self, problem: str, fix: str, joint: str = ": ") -> None:
        super().__init__(f"{problem}{joint}{fix}")
        self.problem = problem
        self.fix = fix


class BadData(ActionableError, DataError):
    """An agent's data cannot be used."""


class BadSetting(ActionableError, ConfigError):
    """A settings file holds an invalid value."""


class BadSum(ActionableError, GridOverflow):
    """An agent's records, or their sum, do not fit the grid."""
