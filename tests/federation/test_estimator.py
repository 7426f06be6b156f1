"""The classifier for scikit-learn: its own checks, and the network behind it."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.model_selection import cross_val_score
from sklearn.utils.estimator_checks import parametrize_with_checks

from unweave.errors import DataError
from unweave.federation import Federation
from unweave.federation.estimator import FederatedClassifier
from unweave.models import LogisticRegression


def not_applicable(estimator):
    why = "a federation is saved as JSON (federation_.save), never by pickle"
    return {"check_estimators_pickle": why}


@parametrize_with_checks([FederatedClassifier(sd=10.0)], expected_failed_checks=not_applicable)
@pytest.mark.filterwarnings("ignore")
def test_scikit_learn_accepts_the_estimator(estimator, check):
    check(estimator)


def cancer():
    x, y = load_breast_cancer(return_X_y=True)
    return (x - x.mean(axis=0)) / x.std(axis=0), y


def test_it_is_the_network_of_a_federation_and_it_forgets():
    x, y = cancer()
    owners = np.array(["east", "north", "west"])[np.arange(len(y)) % 3]
    found = FederatedClassifier(graph="ring").fit(x, y, agents=owners)
    assert found.agents_ == ("east", "north", "west")
    assert found.score(x, y) > 0.97
    shards = {name: (x[owners == name], y[owners == name]) for name in found.agents_}
    names = [f"x{j}" for j in range(30)]
    network = Federation(LogisticRegression(names, intercept=True, sd=1.0), shards, "ring").learn()
    assert found.posterior_ == network.posterior
    found.forget("west", rows=[0, 4])
    network.forget("west", records={"east": [0], "north": [1]})
    assert found.posterior_ == network.posterior
    with pytest.raises(DataError, match="not in fit's X"):
        found.forget(rows=[10_000])
    with pytest.raises(DataError, match="one agent for each"):
        found.fit(x, y, agents=["east"])


def test_more_classes_and_model_selection():
    x, y = load_iris(return_X_y=True)
    classifier = FederatedClassifier(
        center=[5.8, 3.0, 3.8, 1.2], scale=[0.8, 0.4, 1.8, 0.8], sd=3.0
    )
    named = np.array(["setosa", "versicolor", "virginica"])[y]
    found = classifier.fit(x, named)
    assert set(found.predict(x[:3])) == {"setosa"}
    assert np.allclose(found.predict_proba(x).sum(axis=1), 1.0)
    assert cross_val_score(classifier, x, named, cv=3).mean() > 0.93
