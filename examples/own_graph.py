"""A consortium that only talks along its contracts: a networkx graph, planned and then used."""

import networkx

from unweave import Federation, GammaPoisson, Topology
from unweave.graph.forecast import forecast

contracts = networkx.Graph(
    [("mill", "farm"), ("farm", "dairy"), ("dairy", "mill"), ("dairy", "shop")]
)
graph = Topology.from_networkx(contracts)
for schedule, times in forecast(graph, graph.index("shop"), 1000, 0, 10_000).items():
    print(f"{schedule:10} reaches the shop after {times.forget.value:.2f} iterations on average")

complaints = {"mill": [0, 2, 1], "farm": [1, 1], "dairy": [4, 3, 5, 2], "shop": [9]}
network = Federation(GammaPoisson(a=1, b=1), complaints, graph).learn()
print(network.posterior)
print({name: round(kl, 3) for name, kl in network.influence().items()})
print(network.forget("shop").posterior)
