"""A Bayesian neural network learns handwritten digits from ten agents, each of which has seen one
digit only. Then the agent with the threes withdraws.

Needs the extra `jax` and scikit-learn (for its data). Writes the figure whose name is given:

    python digits_network.py [figure.png] [--seed 3]
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from unweave import CustomModel, Federation
from unweave.solvers import Diagonal

arguments = argparse.ArgumentParser()
arguments.add_argument("figure", nargs="?")
arguments.add_argument("--seed", type=int, default=0)
given = arguments.parse_args()

HIDDEN, GONE = 32, 3
PIXELS = [f"p{i}" for i in range(64)]

x, digits = load_digits(return_X_y=True)
x_train, x_test, train, test = train_test_split(
    x / 16, digits, test_size=0.3, random_state=0, stratify=digits
)


def logits(params, x):
    return jnp.tanh(x @ params["w1"] + params["b1"]) @ params["w2"] + params["b2"]


def log_likelihood(params, record):
    """The log-probability of each digit, [N], from pixels [N, 64]."""
    scores = jax.nn.log_softmax(logits(params, record["pixels"]))
    return jnp.take_along_axis(scores, record["digit"][:, None].astype(int), axis=1)[:, 0]


# The prior's mean is random and shared: from zeros, hidden units could not become different.
rng = np.random.default_rng(given.seed)
model = CustomModel(
    log_likelihood,
    params={
        "w1": rng.normal(size=(64, HIDDEN)) / 8,
        "b1": np.zeros(HIDDEN),
        "w2": rng.normal(size=(HIDDEN, 10)) / 4,
        "b2": np.zeros(10),
    },
    prior=1.0,
    records={"pixels": PIXELS, "digit": "count"},
    posterior="diagonal",
)
shards = {f"owner of {d}": (x_train[train == d], train[train == d]) for d in range(10)}
rest = {name: data for name, data in shards.items() if name != f"owner of {GONE}"}
predict = jax.jit(jax.vmap(lambda theta: jax.nn.softmax(logits(model.tree.build(theta), x_test))))


def right(network, draws=1000):
    """Which test digits the average over draws from the posterior classifies correctly. (With 50
    draws the accuracy is off by up to .008.)"""
    theta = np.asarray(network.posterior.sample(draws))
    return np.asarray(predict(theta).mean(axis=0).argmax(axis=1)) == test


def trace(network, passes):
    """Accuracy by digit after each pass."""
    found = []
    for _ in range(passes):
        network.learn(len(network.agents) - len(network.forgotten))
        now = right(network, draws=50)
        found.append([now[test == d].mean() for d in range(10)])
    return np.array(found)


network = Federation(model, shards, seed=given.seed)
learning = trace(network, 20)
network.learn()  # to the end of the solver's passes
learned = right(network)
network.forget(f"owner of {GONE}", method="subtract")
subtracted = right(network)
refining = trace(network, 10)
refined = right(network)
retrained = right(Federation(model, rest, seed=given.seed).learn())
longer = right(Federation(model, shards, seed=given.seed, solver=Diagonal(passes=40)).learn())
central = right(
    Federation(
        model, {"all": (x_train, train)}, seed=given.seed, solver=Diagonal(passes=80)
    ).learn()
)

others = test != GONE
print(f"ten agents, one digit each: accuracy {learned.mean():.3f}")
print(f"the same, 40 passes:        accuracy {longer.mean():.3f}")
print(f"central training:           accuracy {central.mean():.3f}")
for name, found in (
    ("subtracted", subtracted),
    ("and refined, 10 passes", refined),
    ("retrained without it", retrained),
):
    print(f"{name:24} other digits {found[others].mean():.3f}, threes {found[~others].mean():.3f}")

if given.figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3.4), layout="constrained")
    axes = figure.subplots()
    at = np.arange(1, len(learning) + len(refining) + 1)
    curves = np.concatenate([learning, refining])
    for d in range(10):
        axes.plot(
            at,
            curves[:, d],
            color="#d62728" if d == GONE else "#9a9a9a",
            lw=2 if d == GONE else 1,
            label={GONE: "threes", 0: "another digit"}.get(d),
        )
    axes.plot(
        at,
        curves[:, [d for d in range(10) if d != GONE]].mean(axis=1),
        color="#1f4e9c",
        lw=2.5,
        label="mean of the other digits",
    )
    axes.axvline(len(learning) + 0.5, color="k", lw=0.8)
    axes.text(len(learning) + 0.7, 0.5, "the agent with\nthe threes\nis forgotten", va="center")
    axes.axhline(retrained[others].mean(), color="#1f4e9c", ls=":", label="the others, retrained")
    axes.set(xlabel="pass over the agents", ylabel="accuracy on test data", ylim=(-0.02, 1.02))
    axes.legend(loc="lower right", bbox_to_anchor=(0.66, 0.02), frameon=False)
    figure.savefig(given.figure, dpi=120)
