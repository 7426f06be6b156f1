"""Errors that keep the cause apart from the fix: a report shows each of them once."""

from __future__ import annotations

from unweave.errors import ConfigError, DataError, GridOverflow

__all__ = ["BadData", "BadSetting", "BadSum", "Mendable"]


class Mendable(Exception):
    """What is wrong and what to do about it; the text says both."""

    def __init__(self, problem: str, fix: str, joint: str = ": ") -> None:
        super().__init__(f"{problem}{joint}{fix}")
        self.problem = problem
        self.fix = fix


class BadData(Mendable, DataError):
    """An agent's data cannot be used."""


class BadSetting(Mendable, ConfigError):
    """A file of settings says something impossible."""


class BadSum(Mendable, GridOverflow):
    """An agent's records, or their sum, do not fit the grid."""
