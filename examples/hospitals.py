"""Six hospitals fit a logistic regression together, and one of them withdraws.

    python examples/hospitals.py [figure.png]

The model is not conjugate: subtracting the hospital's factor is not enough, because the others were
fitted in its presence. They refine; the result is the one that retraining without it gives.
"""

import sys

import numpy as np

from unweave import Federation, graphs, partition
from unweave.datasets import load
from unweave.models import LogisticRegression

# Public ranges of the measurements, not statistics of the data: those could not be unlearned.
UNITS = {
    "mean_radius": (14.0, 3.5),
    "mean_texture": (19.0, 4.0),
    "mean_smoothness": (0.1, 0.015),
    "mean_concavity": (0.1, 0.08),
}
data = load("breast_cancer")
columns = {name: data[name] for name in (*UNITS, "diagnosis")}
names = ["city", "harbour", "hillside", "lakeview", "riverside", "university"]
hospitals = partition(columns, names, how="quantity", concentration=1.0, seed=4)
model = LogisticRegression(
    list(UNITS),
    target="diagnosis",
    intercept=True,
    center={name: centre for name, (centre, _) in UNITS.items()},
    scale={name: scale for name, (_, scale) in UNITS.items()},
)

network = Federation(model, hospitals, graphs.ring(names)).learn()
before = network.posterior
print(before)
leaver, influence = next(iter(network.influence().items()))
print(f"{leaver} withdraws, the most influential: KL {influence:.2g} without it")
network.forget(leaver, method="subtract")
subtracted = network.posterior
refined = network.refine().posterior
rest = {name: part for name, part in hospitals.items() if name != leaver}
retrained = Federation(model, rest).learn(tol=1e-8).posterior
print(f"KL to retraining: subtracted {subtracted.kl(retrained):.2g}, "
      f"refined {refined.kl(retrained):.2g}")  # fmt: skip
assert refined.kl(retrained) < 1e-4 < subtracted.kl(retrained)

left = hospitals[leaver]
chance = refined.predict(np.column_stack([left[name] for name in UNITS])).proba[:, 1]
right = np.mean((chance > 0.5) == (left["diagnosis"] == 1))
print(f"Without its data, {right:.0%} of its {len(chance)} patients are classified right.")

if len(sys.argv) > 1:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 3.2), layout="constrained")
    axes = figure.subplots()
    kinds = {f"with {leaver}": before, "subtracted": subtracted, "refined": refined,
             "retrained": retrained}  # fmt: skip
    rows = np.arange(len(model.quantities))
    scale = np.array([1.0, *(scale for _, scale in UNITS.values())])  # effect of one unit's step
    colours = ("#999999", "#E69F00", "#0072B2", "#000000")  # told apart by everybody
    for j, (label, q) in enumerate(kinds.items()):
        low, high = (end * scale for end in q.interval(0.95))
        centre = q.mean() * scale
        error = [centre[1:] - low[1:], high[1:] - centre[1:]]
        axes.errorbar(centre[1:], rows[1:] + 0.18 * j - 0.27, xerr=error, fmt="o", ms=4, capsize=2,
                      color=colours[j], label=label)  # fmt: skip
    axes.set_yticks(rows[1:], [name.replace("_", " ") for name in UNITS])
    axes.invert_yaxis()
    axes.axvline(0, color="0.7", linewidth=0.8, zorder=0)
    axes.set_xlabel("log odds of a malignant tumour per step of the unit (95% interval)")
    axes.legend(frameon=False, loc="lower right")
    figure.savefig(sys.argv[1], dpi=150)
