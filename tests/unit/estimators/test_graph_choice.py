"""Which graph is read is the same if it is chosen on a part of the rows."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import make_blobs

from selfexpress import EnSC, make_subspaces
from selfexpress.estimators import graph_choice
from selfexpress.metrics import adjusted_rand


def blobs(seed):
    return make_blobs(600, centers=4, n_features=20, cluster_std=5.0, random_state=seed)


def subspaces(seed):
    data = make_subspaces(
        10, dimension=10, n_features=20, n_samples=60, random_state=seed
    )
    return data.X, data.labels


@pytest.mark.parametrize(("rows", "joins"), [(blobs, True), (subspaces, False)])
def test_a_part_of_the_rows_chooses_as_all_do(rows, joins, seed, monkeypatch):
    X, truth = rows(seed)
    k = len(np.unique(truth))
    whole = EnSC(k, n_candidates=60, random_state=0).fit(X)
    monkeypatch.setattr(graph_choice, "_MOST_TRIED", 300)
    part = EnSC(k, n_candidates=60, random_state=0).fit(X)
    for model in (whole, part):
        assert model.settings_["similar_rows"] == joins
        assert model.affinity_matrix_.shape == (600, 600)
        assert adjusted_rand(model.labels_, truth) >= 0.8
    assert adjusted_rand(whole.labels_, part.labels_) == 1
