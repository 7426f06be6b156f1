"""Clinics compare infection rates per patient-day, without showing a single ward's counts.

    python examples/rates.py [figure.png]

A Poisson regression with `exposure`: the expected count is the exposure times a rate.
"""

import sys

import numpy as np

from unweave import Federation
from unweave.models import PoissonRegression

rng = np.random.default_rng(3)
model = PoissonRegression(["intensive_care", "catheter_days"], exposure="patient_days", sd=5.0,
                          intercept=True)  # fmt: skip


def wards(count: int) -> dict[str, np.ndarray]:
    care, days = rng.integers(0, 2, count), rng.integers(50, 400, count).astype(float)
    catheters = rng.uniform(0.0, 1.0, count)  # catheter days per patient-day
    infections = rng.poisson(days * np.exp(-5.5 + 0.7 * care + 1.2 * catheters))
    return {"intensive_care": care, "catheter_days": catheters, "y": infections,
            "patient_days": days}  # fmt: skip


clinics = {"city": wards(40), "coast": wards(25), "valley": wards(30), "hill": wards(18)}
network = Federation(model, clinics, "ring").learn()
for row in network.posterior.table():
    print(
        f"{row.name:15} × {np.exp(row.mean):.3g}  ({np.exp(row.low):.3g} to {np.exp(row.high):.3g})"
    )

# The next ward: 300 patient-days of intensive care, half of them with a catheter.
ward = network.posterior.predict([[1.0, 0.5]], exposure=300.0)
low, high = ward.interval(0.9)
print(f"expected infections: {ward.mean()[0]:.1f}, between {low[0]:.0f} and {high[0]:.0f} (90%)")

network.forget("hill")
print(f"without hill: rate × {np.exp(network.posterior.mean()[1]):.2f} in intensive care")

if len(sys.argv) > 1:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.6, 3.4), layout="constrained")
    axes = figure.subplots()
    share = np.linspace(0.0, 1.0, 101)
    draws = network.posterior.sample(2000)
    for care, colour in ((1, "#D55E00"), (0, "#0072B2")):
        level = draws["intercept"] + care * draws["intensive_care"]
        rate = 1000 * np.exp(level + share[:, None] * draws["catheter_days"])
        low, middle, high = np.quantile(rate, [0.025, 0.5, 0.975], axis=1)
        axes.fill_between(share, low, high, color=colour, alpha=0.2, linewidth=0)
        label = "intensive care" if care else "other wards"
        axes.plot(share, middle, color=colour, label=label)
        own = clinics["city"]  # a clinic sees its own wards only
        at = own["intensive_care"] == care
        seen = 1000 * own["y"][at] / own["patient_days"][at]
        size = own["patient_days"][at] / 8
        axes.scatter(own["catheter_days"][at], seen, s=size, color=colour, alpha=0.4, lw=0)
    axes.set(xlim=(0.0, 1.0), ylim=(0.0, None), xlabel="catheter days per patient-day",
             ylabel="infections per 1,000 patient-days")  # fmt: skip
    axes.legend(
        frameon=False, loc="upper left", title="median and 95% interval; dots: wards of city"
    )
    figure.savefig(sys.argv[1], dpi=150)
