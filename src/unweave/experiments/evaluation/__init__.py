"""How well a network forgets: subtraction, refining and retraining, compared on one data set.

methods      one erasure by each method: distance to the optimum of the remaining data, cost
scores       what the posteriors predict: NLL, calibration, difference of predictions
membership   whether an attacker can tell a forgotten record from one that was never there
figure       the picture of a report
"""

from __future__ import annotations

from unweave.experiments.evaluation.membership import Membership, attack
from unweave.experiments.evaluation.methods import MethodScore, compare, deletions

__all__ = ["Membership", "MethodScore", "attack", "compare", "deletions"]
