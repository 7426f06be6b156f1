"""Errors with cause and fix as separate fields, for reports that show them in two columns."""

from __future__ import annotations

from collections.abc import Sequence

from unweave.errors import ConfigError, DataError, GridOverflow
from unweave.text import count

__all__ = ["LISTED", "ActionableError", "BadData", "BadLines", "BadSetting", "BadSum"]

LISTED = 20  # bad lines in one error


class ActionableError(Exception):
    """`problem` and `fix`; the text is both, joined by `joint`."""

    def __init__(self, problem: str, fix: str, joint: str = ": ") -> None:
        super().__init__(f"{problem}{joint}{fix}")
        self.problem = problem
        self.fix = fix


class BadData(ActionableError, DataError):
    """An agent's data cannot be used."""


class BadLines(BadData):
    """Records that cannot be used. The text explains the first and names the places of others;
    `listed` explains the first `LISTED` of all `total`, one line each."""

    def __init__(
        self,
        problem: str,
        fix: str,
        joint: str,
        listed: Sequence[str],
        total: int,
        notes: Sequence[str] = (),
    ) -> None:
        super().__init__(problem, fix, joint if fix else "")
        self.listed, self.total, self.notes = list(listed), total, list(notes)
        self.joint = joint

    def __str__(self) -> str:
        more = [place.partition(": ")[0].partition(", column")[0] for place in self.listed[1:]]
        if self.total > len(self.listed):
            more.append("…")
        said = [f"{self.total - 1} more: {', '.join(more)}", *self.notes] if more else self.notes
        if self.joint != ". Fix: ":
            return "; ".join([super().__str__(), *said])
        return "; ".join([self.problem, *said]) + f". Fix: {self.fix}"

    @property
    def lines(self) -> list[str]:
        return [super().__str__(), *self.details]

    @property
    def details(self) -> list[str]:
        """What a terminal shows below the first problem."""
        if self.total == 1:
            return []
        left = self.total - len(self.listed)
        rest = [f"… and {left} more"] if left else []
        bad = f"{count(self.total, 'bad record')}:"
        return [f"  {line}" for line in (*self.notes, bad, *self.listed, *rest)]


class BadSetting(ActionableError, ConfigError):
    """A settings file holds an invalid value."""


class BadSum(ActionableError, GridOverflow):
    """An agent's records, or their sum, do not fit the grid."""
