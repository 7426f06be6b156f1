"""Where a walk of the paper is: who is in the sum, the token, the posterior."""

from __future__ import annotations

import math
from collections.abc import Sequence

from unweave.models import Posterior
from unweave.text import count
from unweave.web.densities import parameters
from unweave.web.paper.chapters import EARLIER, Chapter, Walked
from unweave.web.view import VISITS, AgentView, ErasureView, PosteriorView, Summary, TokenView

__all__ = ["LEAVER", "PaperWalk", "shown_number"]

LEAVER = "a10"  # who is forgotten


class PaperWalk:
    """A chapter at one of its hops. `walked` is None while its curves are computed."""

    def __init__(self, chapter: Chapter, walked: Walked | None) -> None:
        self.chapter, self.walked = chapter, walked
        self.at = -1  # the column that is shown; −1: before the first hop

    @property
    def ended(self) -> bool:
        return self.walked is not None and self.at >= self.walked.last

    @property
    def requested(self) -> bool:
        """Agent 10 is to be forgotten."""
        walked = self.walked
        return walked is not None and walked.request is not None and self.at >= walked.request

    @property
    def removed(self) -> bool:
        """Agent 10 was forgotten."""
        column = None if self.walked is None else self.walked.removed_at()
        return column is not None and self.at >= column

    @property
    def clock(self) -> float:
        """In hops."""
        return float(max(self.at + 1, 0) + (self.walked.before if self.walked else 0))

    def agents(self, names: Sequence[str]) -> dict[str, AgentView]:
        walked = self.walked
        inside: frozenset[int] = frozenset()
        if walked is not None:
            inside = walked.included(self.at) if self.at >= 0 else walked.inside
        views: dict[str, AgentView] = {}
        for k, name in enumerate(names):
            view: AgentView = {"index": k, "state": "in", "attested": False}
            if walked is not None and (k in walked.absent or (name == LEAVER and self.removed)):
                view["state"] = "erased"
            elif k not in inside:
                view["state"] = "pending"
                view["why"] = "The walk has not come here yet."
            elif name == LEAVER and self.requested:
                view["why"] = "To be forgotten, when the walk comes here."
            views[name] = view
        return views

    def summary(self, agents: dict[str, AgentView]) -> Summary:
        states = [one["state"] for one in agents.values()]
        view: Summary = {
            "state": "starting",
            "text": "The curves are computed.",
            "agents": {one: states.count(one) for one in dict.fromkeys(states)},
            "hops": int(self.clock),
        }
        walked = self.walked
        if walked is None:
            return view
        kl = math.nan if self.at < 0 else float(walked.kl[self.at])
        shown = "" if math.isnan(kl) else f" KL to the exact posterior: {shown_number(kl)}."
        view["state"] = "learning"
        if self.ended:
            view["state"], view["text"] = "done", f"The walk has ended.{shown}"
        elif self.requested and not self.removed:
            view["text"] = f"The token is forwarded until the walk comes to agent 10.{shown}"
        else:
            inside = states.count("in")
            are = "is" if inside == 1 else "are"
            view["text"] = f"The token walks; {count(inside, 'agent')} {are} in the sum.{shown}"
        return view

    def token_view(self) -> TokenView:
        walked = self.walked
        if walked is None or self.at < 0:
            return {"state": "none"}
        first = max(0, self.at - VISITS + 1)
        visits = [
            (int(walked.path[i]), float(walked.before + i + 1)) for i in range(first, self.at + 1)
        ]
        return {
            "state": "moving",
            "at": int(walked.path[self.at]),
            "epoch": 1,
            "hop": walked.before + self.at + 1,
            "visits": visits,
        }

    @property
    def now(self) -> Posterior | None:
        walked = self.walked
        if walked is None or self.at < 0 or not walked.model.inside(walked.units[self.at]):
            return None
        return walked.model.posterior(walked.units[self.at])

    def posterior_view(self) -> PosteriorView:
        walked, now = self.walked, self.now
        if walked is None:
            why = "The curves of this chapter are computed: the walk begins by itself after that."
            return {"state": "none", "why": why}
        if self.at < 0:
            return {"state": "none", "why": "The walk has not made its first hop yet."}
        if now is None:
            return {"state": "none", "why": "The sum is no posterior. Fix: let the walk go on."}
        complete = len(walked.included(self.at)) + len(walked.absent) + self.removed >= 10
        return {
            "state": "complete" if complete else "incomplete",
            "version": self.version,
            "at": self.clock,
            "total": len(now.marginals),
            "parameters": parameters(now, walked.model.posterior(walked.model.eta0)),
            "moments": [
                {"id": name, "label": label}
                for name, (label, _) in walked.moments.items()
                if name != EARLIER or self.requested  # until then it is the posterior itself
            ],
        }

    @property
    def version(self) -> str:
        return "prior" if self.at < 0 else f"hop {self.clock:.0f}"

    def erasures(self) -> dict[str, ErasureView]:
        if not self.requested:
            return {}
        view: ErasureView = {
            "agent": LEAVER,
            "scope": "everything",
            "state": "removed" if self.removed else "asked",
            "text": "Taken out of the sum. The paper has no certificates."
            if self.removed
            else "Requested; the walk goes on until it comes to agent 10.",
            "certificate": False,
        }
        return {"agent10": view}


def shown_number(kl: float) -> str:
    if kl == 0.0:
        return "0"
    return f"{kl:.3g}" if math.isfinite(kl) else "infinite"
