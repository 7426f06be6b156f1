"""Three laboratories measure the square of a signed quantity: its posterior has two modes.

No Gaussian describes it, and no solver needs to: the log-likelihood is summed at atoms, in one
ellipsoid per mode. A laboratory withdraws, and nothing of its measurements is left. Writes
bimodal.png.
"""

import sys

import numpy as np
from matplotlib.figure import Figure

from unweave import Federation, StagedAtomModel

NOISE = 0.5


def log_likelihood(theta, record):
    """y ~ Normal(a², 0.5²): parameters are arrays [1, M], columns are arrays [B, 1]."""
    return -0.5 * ((record["y"] - theta["a"] ** 2) / NOISE) ** 2 - np.log(NOISE)


model = StagedAtomModel(log_likelihood, {"a": "normal(0.2, 1)"}, ["y"], modes=2)
rng = np.random.default_rng(7)
laboratories = {
    "north": rng.normal(1.4, NOISE, 6),
    "south": rng.normal(1.4, NOISE, 8),
    "west": rng.normal(0.4, NOISE, 10),  # badly calibrated
}

network = Federation(model, laboratories, "complete").learn()
before = network.posterior
network.forget("west")
after = network.posterior
rest = {name: y for name, y in laboratories.items() if name != "west"}
assert after == Federation(model, rest, "path", seed=5).learn().posterior  # bit for bit


def exact(data, a):
    """The density on a grid."""
    y = np.concatenate(list(data.values()))[:, None]
    log_p = -0.5 * (a - 0.2) ** 2 - 0.5 * (((y - a**2) / NOISE) ** 2).sum(axis=0)
    p = np.exp(log_p - log_p.max())
    return p / (p.sum() * (a[1] - a[0]))


a = np.linspace(-2, 2, 2001)
figure = Figure(figsize=(7, 3.2), layout="constrained")
for axes, posterior, data, title in zip(
    figure.subplots(1, 2, sharey=True),
    (before, after),
    (laboratories, rest),
    ("three laboratories", "west withdrawn"),
    strict=True,
):
    density, truth = posterior.marginals[0].pdf(a), exact(data, a)
    error = np.abs(density - truth).max() / truth.max()
    share = 1 - float(posterior.marginals[0].cdf(0.0))
    print(f"{title}: P(a > 0) = {share:.3f}, largest error of the density {error:.1e} of its peak")
    axes.fill_between(a, truth, color="#bbbbbb", label="exact, by quadrature")
    axes.plot(a, density, color="#D55E00", label="atoms")
    axes.set(title=title, xlabel="a")
    axes.legend(frameon=False, fontsize=8)
figure.axes[0].set_ylabel("density")
figure.savefig(sys.argv[1] if len(sys.argv) > 1 else "bimodal.png", dpi=150)
