from __future__ import annotations

import numpy as np
import pytest
from compare import assert_same_partition

from selfexpress.datasets.synthetic import make_subspaces
from selfexpress.errors import ConfigError, DegenerateWarning
from selfexpress.estimators.esc import ESC
from selfexpress.metrics import clustering_accuracy, subspace_preserving_error

# Clean subspaces may fall into more pieces than clusters; that is not tested here.
pytestmark = pytest.mark.filterwarnings(
    "ignore:The affinity graph:selfexpress.errors.DegenerateWarning"
)


@pytest.fixture
def data(seed):
    return make_subspaces(
        3, dimension=2, n_features=12, n_samples=30, random_state=seed
    )


def orthogonal_cones(seed):
    """Three orthogonal subspaces, positive in their own coordinates: connected."""
    blocks = np.random.default_rng(seed).uniform(0, 1, size=(3, 40, 3))
    X = np.zeros((120, 9))
    for k, block in enumerate(blocks):
        X[40 * k : 40 * (k + 1), 3 * k : 3 * (k + 1)] = block
    return X, np.repeat(np.arange(3), 40)


def test_orthogonal_subspaces_are_found(seed):
    X, labels = orthogonal_cones(seed)
    model = ESC(3, n_exemplars=12, l1_ratio=0.9, n_neighbors=5, random_state=seed)
    assert_same_partition(model.fit_predict(X), labels)
    assert model.kkt_violation_.max() <= model.tol
    # Every class has exemplars, and no row leans on another class.
    assert set(labels[model.exemplars_]) == {0, 1, 2}
    assert subspace_preserving_error(model.coefficients_, labels) < 1e-6


def test_only_exemplars_express(data, seed):
    model = ESC(3, n_exemplars=24, random_state=seed).fit(data.X)
    used = np.unique(model.coefficients_.indices)
    assert set(used) <= set(model.exemplars_)
    assert model.coefficients_.shape == (90, 90)
    own = model.coefficients_[[model.exemplars_[0]]]
    assert own.indices.tolist() == [model.exemplars_[0]]


def test_bad_settings_are_refused_by_name(data):
    for bad in (
        {"n_exemplars": 0},
        {"n_exemplars": "many"},
        {"gamma": 0},
        {"l1_ratio": 0},
    ):
        with pytest.raises(ConfigError, match=next(iter(bad))):
            ESC(3, **bad).fit(data.X)


@pytest.mark.parametrize(("n_rows", "expected"), [(3, 1), (250, 50), (10_000, 300)])
def test_exemplars_are_few_among_few_rows(n_rows, expected):
    assert ESC()._n_chosen(n_rows) == expected


def test_the_defaults_suit_few_rows(seed):
    data = make_subspaces(
        5, dimension=4, n_features=20, n_samples=50, random_state=seed
    )
    model = ESC(5, random_state=seed).fit(data.X)
    assert len(model.exemplars_) == 50
    assert clustering_accuracy(data.labels, model.labels_) >= 0.95


def test_as_many_exemplars_as_rows_are_warned_of():
    with pytest.warns(DegenerateWarning, match="n_samples=40, but is 300"):
        assert ESC(n_exemplars=300)._n_chosen(40) == 40
