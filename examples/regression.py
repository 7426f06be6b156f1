"""Hospitals learn a regression together; a patient withdraws; everybody attests."""

import numpy as np

from unweave import Federation, LinearRegressionUnknownNoise, graphs, partition
from unweave.datasets import load

data = load("breast_cancer")
columns = {
    "radius": (data["mean_radius"] - 14.0) / 3.5,  # fixed units: a mean of the data could not be
    "texture": (data["mean_texture"] - 19.0) / 4.0,  # unlearned
    "diagnosis": data["diagnosis"],
}
names = ["harbour", "hillside", "lakeview", "university"]
hospitals = partition(columns, names, how="quantity", concentration=3.0, seed=1)
model = LinearRegressionUnknownNoise(["radius", "texture"], intercept=True, target="diagnosis")

network = Federation(model, hospitals, graphs.ring(names))
network.learn()
print("learned ", network.posterior)
network.forget(records={"lakeview": [4]})
print("withdrew", network.posterior)
print("attested by", ", ".join(network.audit().attested))

rest = {**hospitals}
rest["lakeview"] = {name: np.delete(column, 4) for name, column in rest["lakeview"].items()}
assert network.posterior == Federation(model, rest, "complete").learn().posterior
