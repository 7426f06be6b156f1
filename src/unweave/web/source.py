"""Where views come from: the port between the server and a network, a simulation or the paper.

A source runs in the server's event loop and never blocks it: calls to agents and long computations
go to threads. It changes its view with `Feed.change`, and adds points with `Feed.points`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from unweave.errors import UnweaveError
from unweave.web.view import (
    AgentDetails,
    Control,
    CurvesAnswer,
    ErasurePreview,
    ErasureWish,
    MomentAnswer,
    Points,
    Verification,
    View,
)

__all__ = ["Feed", "NotFound", "ViewSource"]


class NotFound(UnweaveError):
    """The source has no such agent, parameter, moment or certificate. The page gets status 404."""


class Feed(Protocol):
    """What a source writes to."""

    def change(self, patch: dict[str, object]) -> None:
        """Merge `patch` into the view (RFC 7396) and tell all viewers."""

    def points(self, new: Points) -> None:
        """Append points to the series and tell all viewers."""

    def forget(self) -> None:
        """Drop the kept messages, which may show what was erased."""

    @property
    def viewers(self) -> int:
        """How many pages are open. A source does less work without any."""


class ViewSource(Protocol):
    """A network, a simulation or an experiment, as the page sees it. Methods raise `UnweaveError`
    for what they refuse."""

    def view(self) -> View:
        """The first view, at once: without waiting for any agent."""

    async def run(self, feed: Feed) -> None:
        """Keep the view up to date until cancelled."""

    async def curves(self, names: Sequence[str], moments: Sequence[str]) -> CurvesAnswer: ...

    async def moment(self, moment: str) -> MomentAnswer: ...

    async def agent(self, name: str) -> AgentDetails: ...

    async def certificate(self, request: str) -> tuple[str, bytes]:
        """A file name, and the certificate."""

    async def report(self) -> bytes:
        """The report as one HTML file."""

    async def verify(self, certificate: bytes) -> Verification: ...

    async def preview(self, wish: ErasureWish) -> ErasurePreview: ...

    async def erase(self, wish: ErasureWish) -> str:
        """The id of the request. It returns as soon as the request is durable."""

    async def control(self, control: Control) -> None: ...
