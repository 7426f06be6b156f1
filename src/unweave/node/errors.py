"""Errors that keep the cause apart from the fix: a report shows each of them once."""

from __future__ import annotations

from unweave.errors import ConfigError, DataError, GridOverflow

__all__ = ["ActionableError", "BadData", "BadSetting", "BadSum"]


class ActionableError(Exception):
    """What is wrong and what to do about it; the text says both."""

    def __init__(self, problem: str, fix: str, joint: str = ": ") -> None:
        super().__init__(f"{problem}{joint}{fix}")
        self.problem = problem
        self.fix = fix


class BadData(ActionableError, DataError):
    """An agent's data cannot be used."""


class BadSetting(ActionableError, ConfigError):
    """A file of settings says something impossible."""


class BadSum(ActionableError, GridOverflow):
    """An agent's records, or their sum, do not fit the grid."""
