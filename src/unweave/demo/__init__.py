"""The demonstration: five hospitals learn, one hospital and a few patients are forgotten, and the
result is compared with a network that never had their data.

    scenario.py  the learning and forgetting, in memory
    network.py   the same between real processes
    report.py    the results as JSON, for `unweave report`
"""

from __future__ import annotations

from unweave.demo.scenario import Scenario, Stage, run_scenario

__all__ = ["Scenario", "Stage", "run_scenario"]
