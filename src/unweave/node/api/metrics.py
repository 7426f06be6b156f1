"""An agent's counters and gauges in Prometheus' text format."""

from __future__ import annotations

from collections.abc import Iterator

from unweave.errors import MissingExtra
from unweave.node.api.report import status_report
from unweave.node.driver import AgentDriver
from unweave.text import visible

__all__ = ["COUNTERS", "GAUGES", "Metrics"]


try:
    from prometheus_client import CollectorRegistry, generate_latest
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
    from prometheus_client.exposition import CONTENT_TYPE_LATEST
    from prometheus_client.registry import Collector
except ImportError:
    raise MissingExtra("prometheus-client", "node", "metrics") from None


GAUGES = {
    "epoch": "the epoch of the newest token",
    "hop": "the hop of the newest token",
    "included_agents": "agents in the newest token",
    "erasures": "erasures that this agent knows",
    "mismatches": "agents that signed a failed audit",
    "complete": "1: every agent is in the newest token",
    "confirmed": "1: every neighbour has answered since the start",
    "up_seconds": "seconds since the start of the process",
    "replaced": "1: this process replaced one with erased values in its memory",
    "memory_clean": "0: erased values may be in the memory; the agent will restart itself",
}

# What an agent counts since the start of its process, by the name that its modules count it under.
COUNTERS = {
    "certificates": "certificates of erasures that this agent completed or received",
    "disk failures": "commits that the disk refused; the agent tries again",
    "epochs opened": "epochs that this agent opened, because a token was lost or had to be rebuilt",
    "errors": "unexpected errors; the log has their place",
    "log lines suppressed": "repeated log lines that were not written",
    "masks failed": "one-time keys that could not be used; the agent enrols again",
    "messages lost": "messages that did not reach a neighbour; those that matter are repeated",
    "messages received": "messages of neighbours that were read",
    "messages refused": "messages and answers that were refused for their content",
    "solves failed": "solves that ended in an error; the log says why",
    "tokens received": "tokens that arrived, repetitions included",
    "tokens sent": "attempts to send a token",
}


class Metrics(Collector):
    """The metrics of one agent, read from the driver at each request."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(self, node: AgentDriver) -> None:
        self.node = node
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def text(self) -> bytes:
        return generate_latest(self._registry)

    @property
    def healthy(self) -> bool:
        return self.node.phase not in ("starting", "audit_failed")

    def describe(self) -> list[Metric]:
        return []  # the names of the counters are known when they are first counted

    def collect(self) -> Iterator[Metric]:
        status = status_report(self.node)
        me = [visible(status["name"])]
        for event, count in sorted(self.node.counts.items()):
            name = f"unweave_{event.replace(' ', '_')}"
            meaning = COUNTERS.get(event, event)
            counter = CounterMetricFamily(name, meaning, labels=["agent"])
            counter.add_metric(me, count)
            yield counter
        refused = CounterMetricFamily(
            "unweave_refused",
            "calls of neighbours that were refused",
            labels=["agent", "sender", "reason"],
        )
        for (sender, reason), count in sorted(self.node.transport.refusals.items()):
            refused.add_metric([*me, visible(sender), reason], count)
        yield refused
        values = {
            **status,
            "included_agents": len(status.get("included", [])),
            "mismatches": len(status.get("mismatches", [])),
            "memory_clean": status.get("memory_holds_erased") is None,
        }
        for gauge, meaning in GAUGES.items():
            family = GaugeMetricFamily(f"unweave_{gauge}", meaning, labels=["agent"])
            family.add_metric(me, float(values.get(gauge, 0)))
            yield family
        phase = GaugeMetricFamily(
            "unweave_phase", "1: the phase that the agent is in", labels=["agent", "phase"]
        )
        phase.add_metric([*me, status["phase"]], 1.0)
        yield phase
