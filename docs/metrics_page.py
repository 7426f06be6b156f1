"""Writes docs/reference/metrics.md from the tables of node/api/metrics.py."""

from __future__ import annotations

from unweave.node.api.metrics import COUNTERS, GAUGES

INTRODUCTION = """\
`metrics = "127.0.0.1:9400"` in agent.toml serves `/metrics` in Prometheus' text format, and
`/healthz`, which answers 200 while the agent works and 503 while it starts or after an audit
failure. Every metric has the label `agent`. Counters start at zero with each process; one that has
counted nothing yet is absent."""

ALERTS = {
    '`unweave_phase{phase="audit_failed"}` is 1': "the network has stopped: `unweave audit` names "
    "the agents that found the mismatches",
    "`unweave_complete` stays 0": "an agent is missing: `unweave status` says which one, and why",
    "`unweave_memory_clean` stays 0 for longer than `restart_interval`": "the token is never "
    "parked, or the agent has a token to solve for, so it cannot restart",
    "`unweave_disk_failures_total` or `unweave_errors_total` grows": "read `agent.log`",
    "`unweave_refused_total` grows for one `sender`": "this neighbour sends what is not accepted: "
    "its log and yours say why",
    "`unweave_mismatches` is above 0": "run `unweave audit`",
}


def page(note: str) -> str:
    lines = ["# Metrics", note, "", INTRODUCTION, "", "## Gauges", ""]
    lines += ["| metric | meaning |", "|---|---|"]
    lines += [f"| `unweave_{name}` | {text} |" for name, text in GAUGES.items()]
    lines += ["| `unweave_phase{phase=…}` | 1: the phase that the agent is in |"]
    lines += ["", "## Counters", "", "| metric | counts |", "|---|---|"]
    lines += [
        f"| `unweave_{name.replace(' ', '_')}_total` | {text} |" for name, text in COUNTERS.items()
    ]
    lines += [
        "| `unweave_refused_total{sender=…, reason=…}` | calls of neighbours that were refused |",
        "",
        "## What to watch",
        "",
        "| if | then |",
        "|---|---|",
        *(f"| {sign} | {then} |" for sign, then in ALERTS.items()),
    ]
    return "\n".join(lines).rstrip() + "\n"
