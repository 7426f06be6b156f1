"""Three registries fit a survival model with censoring; one patient asks to be forgotten.

    python examples/survival.py [figure.png]

A piecewise-exponential model is a Poisson regression: one record for each patient and interval in
which it was at risk, with y = 1 if it died there, and the time at risk as exposure.
"""

import sys
from itertools import pairwise

import numpy as np

from unweave import Federation
from unweave.models import PoissonRegression

CUTS = [0.0, 1.0, 2.0, 4.0, np.inf]  # years
PERIODS = ["year_1", "year_2", "years_3_4", "later"]
rng = np.random.default_rng(8)


def patients(count: int) -> dict[str, np.ndarray]:
    """Age in decades from 60, treatment, time under observation, and whether it ended in death."""
    age, treated = rng.normal(0.0, 1.0, count), rng.integers(0, 2, count)
    death = rng.exponential(1.0 / (0.25 * np.exp(0.5 * age - 0.8 * treated)))
    censored = rng.uniform(0.5, 6.0, count)  # the end of the study
    return {"age": age, "treated": treated, "time": np.minimum(death, censored),
            "died": death <= censored}  # fmt: skip


def intervals(people: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The records of the model: one per patient and interval at risk."""
    rows = []
    for age, treated, time, died in zip(*people.values(), strict=True):
        for j, (low, high) in enumerate(pairwise(CUTS)):
            if time > low:
                at_risk = min(time, high) - low
                rows.append((age, treated, *(np.arange(4) == j), died and time <= high, at_risk))
    return dict(zip(["age", "treated", *PERIODS, "y", "years"], np.array(rows).T, strict=True))


registries = {name: patients(n) for name, n in [("east", 180), ("north", 120), ("west", 250)]}
model = PoissonRegression(["age", "treated", *PERIODS], exposure="years", sd=3.0)
network = Federation(model, {name: intervals(p) for name, p in registries.items()}, "path").learn()
for row in network.posterior.table():
    print(f"{row.name:10} {row.mean:6.2f}  ({row.low:.2f} to {row.high:.2f})")

table = intervals(registries["north"])
first = [row for row, age in enumerate(table["age"]) if age == registries["north"]["age"][0]]
network.forget(records={"north": first})
print(f"{len(first)} records of one patient forgotten, refined in "
      f"{network.erasures[-1].iterations} iterations")  # fmt: skip

if len(sys.argv) > 1:
    from matplotlib.figure import Figure

    draws = network.posterior.sample(2000)
    years = np.linspace(0.0, 6.0, 121)
    figure = Figure(figsize=(5.2, 3.2), layout="constrained")
    axes = figure.subplots()
    for treated, colour in ((0, "#D55E00"), (1, "#0072B2")):
        hazard = np.exp(np.stack([draws[p] for p in PERIODS]) + treated * draws["treated"])
        spent = np.clip(years[:, None] - np.array(CUTS[:-1]), 0.0, np.diff(CUTS))
        survival = np.exp(-spent @ hazard)
        low, middle, high = np.quantile(survival, [0.025, 0.5, 0.975], axis=1)
        axes.fill_between(years, low, high, color=colour, alpha=0.2, linewidth=0)
        axes.plot(years, middle, color=colour, label="treated" if treated else "not treated")
    axes.set(xlabel="years", ylabel="survival at age 60", ylim=(0.0, 1.0), xlim=(0.0, 6.0))
    axes.legend(frameon=False, loc="lower left", title="median and 95% interval")
    figure.savefig(sys.argv[1], dpi=150)
