"""Forgetting leaves the bits of never having had it: for all conjugate models, in every order.

The truth is computed beside the Federation: the prior plus the factors of the data that are left.
"""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unweave import Federation, graphs
from unweave.testing.models import CASES, Case

TEMPERED = [
    Case(replace(case.model, reduction="mean", alpha=0.7), case.draw)
    for case in CASES
    if case.id in ("beta-bernoulli", "gamma-exponential", "linear-regression")
]
pytestmark = pytest.mark.parametrize(
    "case", [*CASES, *TEMPERED], ids=lambda case: f"{case.id}-{case.model.reduction}"
)

few = settings(max_examples=15)  # for each of the models, whose laws are tested by themselves
seeds = st.integers(0, 2**63)
schedules = st.sampled_from(["metropolis", "sweep"])
ways = st.sampled_from(["seek", "walk"])
topologies = st.sampled_from(
    [graphs.star, graphs.ring, graphs.complete, graphs.path, graphs.grid]
) | st.integers(0, 99).map(lambda s: lambda names: graphs.by_name("erdos-renyi", names, seed=s))


@st.composite
def networks(draw, least=2):
    """Sizes of the agents' shards, and how the token moves among them."""
    sizes = draw(st.lists(st.integers(1, 6), min_size=least, max_size=6))
    names = [f"a{k + 1}" for k in range(len(sizes))]
    return {
        "shards": dict(zip(names, sizes, strict=True)),
        "graph": draw(topologies)(names),
        "schedule": draw(schedules),
        "seed": draw(seeds),
        "forget": draw(ways),
    }


def rows_of(case, network):
    """Records for every agent, each agent's its own."""
    return {
        name: case.rows(size, seed=[k, size, network["seed"] % 1000])
        for k, (name, size) in enumerate(network["shards"].items())
    }


def build(case, network, rows):
    return Federation(
        case.model,
        rows,
        network["graph"],
        network["schedule"],
        seed=network["seed"],
        forget=network["forget"],
    )


def truth(case, rows):
    """The posterior of these records: the prior and the sum of the factors, nothing else."""
    units = [int(v) for v in case.model.eta0]
    for name, part in rows.items():
        if len(part):
            model = case.model
            sums = model.statistics(model.shard(part, name).rows, chunk=2)
            factor = model.grid.rescale(sums, model.weight(len(part)))
            units = [u + int(f) for u, f in zip(units, factor, strict=True)]
    return case.model.posterior(np.array(units))


def never_had(case, rows, seed):
    """A new network of the remaining agents, on another graph, in another order."""
    names = sorted((name for name in rows if len(rows[name])), reverse=True)
    graph = graphs.complete(names)
    return Federation(case.model, {n: rows[n] for n in names}, graph, seed=seed + 1).learn()


@few
@given(network=networks(), data=st.data())
def test_any_visit_order_any_row_order_and_repeated_visits(case, network, data):
    rows = rows_of(case, network)
    federation = build(case, network, rows).learn()
    assert federation.posterior == truth(case, rows)
    assert federation.included == tuple(rows)
    shuffled = {
        name: part[np.array(data.draw(st.permutations(range(len(part)))))]
        for name, part in rows.items()
    }
    other = build(case, {**network, "seed": data.draw(seeds)}, shuffled).learn()
    assert other.posterior.digest == federation.posterior.digest
    federation.learn(iterations=data.draw(st.integers(0, 30)))
    assert federation.posterior == other.posterior


@few
@given(network=networks(least=1), data=st.data())
def test_before_everybody_is_in_the_token_is_the_sum_of_who_is(case, network, data):
    rows = rows_of(case, network)
    federation = build(case, network, rows).learn(iterations=data.draw(st.integers(1, 8)))
    inside = {name: rows[name] for name in federation.included}
    assert federation.posterior == truth(case, inside)
    for step in federation.history:
        assert 1 <= step.included <= len(rows)


@few
@given(network=networks(), data=st.data())
def test_agents_forgotten_are_agents_never_had(case, network, data):
    """One or several, before or after everybody was in; those who stay learn on."""
    rows = rows_of(case, network)
    names = sorted(rows)
    gone = data.draw(st.lists(st.sampled_from(names), min_size=1, unique=True))
    if len(gone) == len(names):
        gone = gone[1:]
    federation = build(case, network, rows)
    early = data.draw(st.none() | st.integers(0, 6))
    federation.learn(iterations=early)
    if data.draw(st.booleans()):
        federation.forget(gone)
    else:
        for name in gone:
            federation.forget(name)
    assert federation.forgotten == tuple(sorted(gone, key=names.index))
    federation.learn()
    left = {name: part for name, part in rows.items() if name not in gone}
    assert federation.posterior == truth(case, left)
    assert federation.posterior == never_had(case, left, network["seed"]).posterior
    assert federation.included == tuple(left)
    assert {e.kind for e in federation.erasures} == {"exact"}
    federation.learn(iterations=data.draw(st.integers(0, 20)))
    assert federation.posterior == truth(case, left)


@few
@given(network=networks(), data=st.data())
def test_records_forgotten_are_records_never_had(case, network, data):
    """Of one or several agents, by number or by mask, in one request or one after the other."""
    rows = rows_of(case, network)
    federation = build(case, network, rows).learn(iterations=data.draw(st.none() | st.just(3)))
    left = dict(rows)
    for name in data.draw(st.lists(st.sampled_from(sorted(rows)), min_size=1, unique=True)):
        n = len(rows[name])
        chosen = data.draw(st.lists(st.integers(0, n - 1), min_size=1, unique=True))
        mask = np.isin(np.arange(n), chosen)
        federation.forget(records={name: mask if data.draw(st.booleans()) else chosen})
        left[name] = rows[name][~mask]
        assert federation.erasures[-1].records == {name: len(chosen)}
    federation.learn()
    assert federation.posterior == truth(case, left)
    assert federation.included == tuple(name for name in left if len(left[name]))
    assert federation.forgotten == ()
    if any(map(len, left.values())):
        assert federation.posterior == never_had(case, left, network["seed"]).posterior


@few
@given(network=networks(), data=st.data())
def test_records_first_and_then_their_agent(case, network, data):
    rows = rows_of(case, network)
    name = data.draw(st.sampled_from(sorted(rows)))
    federation = build(case, network, rows).learn()
    federation.forget(records={name: [0]})
    federation.forget(name)
    left = {other: part for other, part in rows.items() if other != name}
    assert federation.posterior == truth(case, left)
    audit = federation.audit()
    assert audit.digest == truth(case, left).digest
    assert audit.included == tuple(left)
    assert audit.attested == federation.agents


@few
@given(network=networks(), data=st.data())
def test_agents_and_records_in_one_request(case, network, data):
    rows = rows_of(case, network)
    first, second = data.draw(st.permutations(sorted(rows)))[:2]
    federation = build(case, network, rows).learn()
    federation.forget(first, records={second: [len(rows[second]) - 1]})
    left = {name: part for name, part in rows.items() if name != first}
    left[second] = left[second][:-1]
    assert federation.posterior == truth(case, left)


@few
@given(network=networks(), data=st.data())
def test_the_same_data_under_a_new_name(case, network, data):
    """Whoever was forgotten may join anew: it is counted once, and can be taken out again."""
    rows = rows_of(case, network)
    name = data.draw(st.sampled_from(sorted(rows)))
    again = {**{n: p for n, p in rows.items() if n != name}, "newcomer": rows[name]}
    whole = build(case, network, rows).learn()
    federation = Federation(case.model, {**rows, "newcomer": rows[name]}, "ring", seed=1)
    federation.learn(iterations=data.draw(st.integers(0, 10))).forget(name)
    federation.learn()
    assert federation.posterior == truth(case, again) == whole.posterior
    federation.forget("newcomer")
    assert federation.posterior == truth(case, {n: p for n, p in rows.items() if n != name})


@few
@given(network=networks(), data=st.data())
def test_new_data_replace_the_old_as_if_they_had_never_been(case, network, data):
    rows = rows_of(case, network)
    name = data.draw(st.sampled_from(sorted(rows)))
    federation = build(case, network, rows).learn(iterations=data.draw(st.none() | st.just(2)))
    fresh = case.rows(data.draw(st.integers(1, 6)), seed=99)
    federation.update(name, fresh).learn()
    assert federation.posterior == truth(case, {**rows, name: fresh})
    assert np.array_equal(federation.factor(name), case.model.factor(case.model.shard(fresh)))
    federation.forget(records={name: [0]}).update(name, rows[name]).learn()
    assert federation.posterior == truth(case, rows)  # another row 0 than the forgotten one
