"""What others will be able to compute from an erasure, told before it is requested."""

from __future__ import annotations

from collections.abc import Collection

from unweave.node.config import AgentFolder
from unweave.operations.cluster import LOOK, Cluster
from unweave.text import count

__all__ = ["disclosed"]


def disclosed(
    agents: Cluster, name: str, keys: Collection[str] | None, *, now: bool = False
) -> str:
    """A warning for the operator; empty: nothing worth telling. `keys` are those of single records;
    None: the whole agent. `now`: they do not wait for a batch."""
    if agents.manifest.privacy.epsilon is not None:
        return _with_noise(agents)
    if agents.manifest.publish is not None and keys is not None:
        return _NOW if now else ""
    if keys is None:
        return _lone_agent(agents, name) if agents.manifest.privacy.masked else ""
    if name not in agents.folders:
        return ""
    number, least = len(set(keys)), AgentFolder.read(agents.folders[name]).config.min_records
    if number >= least:
        return ""
    return (
        f"note: {count(number, 'record')}, fewer than min_records = {least}: the "
        "difference of the posteriors before and after discloses the sum of their statistics, "
        "unless other data change at the same time; "
        "forget more records at a time if possible (docs/explanation/security.md)"
    )


_NOW = (
    "note: with --now the next published sum shows these records, and whatever else waits at this "
    "agent, without the changes of others: the difference of two sums discloses their statistics "
    "(docs/explanation/security.md)"
)


def _with_noise(agents: Cluster) -> str:
    """What an erasure means under differential privacy, or that no sum follows it."""
    budgets = [
        budget["left"]
        for status in agents.statuses(LOOK).values()
        if (budget := status.get("privacy_budget"))
    ]
    if budgets and min(budgets) < 1:
        return (
            "note: a privacy budget is spent: the erasure will be certified with an empty sum, and "
            "this network publishes no posterior any more (docs/explanation/security.md)"
        )
    left = f" ({min(budgets)} left)" if budgets else ""
    return (
        f"note: the new sum takes one value of every agent's privacy budget{left}; an erasure "
        "refunds nothing. What earlier sums show of these records stays, within epsilon and "
        "delta; that an erasure was requested is not hidden (docs/explanation/security.md)"
    )


def _lone_agent(agents: Cluster, name: str) -> str:
    """The difference of two masked sums is the contribution of the agent between them, or no sum
    follows."""
    gone = {name}
    for status in agents.statuses(LOOK).values():
        gone |= {*status.get("erased", ()), *status.get("departed", ())}
    left = len(agents.manifest.topology) - len(gone)
    least = agents.manifest.privacy.min_roster or 0
    if left < least:
        return (
            f"note: without {name} {count(left, 'agent')} remain, fewer than min_roster = {least}: "
            "the erasure will be certified with an empty sum, and this network publishes no "
            "posterior any more (docs/explanation/security.md)"
        )
    return (
        f"note: whoever keeps the sum published before can subtract the next one: the difference "
        f"is the contribution of {name}, unless other data change at the same time "
        "(docs/explanation/security.md)"
    )
