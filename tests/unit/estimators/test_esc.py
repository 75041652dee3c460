from __future__ import annotations

import numpy as np
import pytest
from compare import assert_same_partition

from selfexpress.data.synthetic import make_subspaces
from selfexpress.errors import ConfigError
from selfexpress.estimators.esc import ESC

# Clean subspaces may fall into more pieces than clusters; that is not tested here.
pytestmark = pytest.mark.filterwarnings(
    "ignore:The affinity graph:selfexpress.errors.DegenerateWarning"
)


@pytest.fixture
def data(seed):
    return make_subspaces(
        3, dimension=2, n_features=12, n_samples=30, random_state=seed
    )


def test_subspaces_are_found(data, seed):
    model = ESC(
        3,
        n_exemplars=30,
        gamma=50.0,
        l1_ratio=0.9,
        n_neighbors=5,
        random_state=seed,
    )
    assert_same_partition(model.fit_predict(data.X), data.labels)
    assert model.kkt_violation_.max() <= model.tol


def test_only_exemplars_express(data, seed):
    model = ESC(3, n_exemplars=24, random_state=seed).fit(data.X)
    used = np.unique(model.coefficients_.indices)
    assert set(used) <= set(model.exemplars_)
    assert model.coefficients_.shape == (90, 90)
    own = model.coefficients_[[model.exemplars_[0]]]
    assert own.indices.tolist() == [model.exemplars_[0]]


def test_bad_settings_are_refused_by_name(data):
    for bad in ({"n_exemplars": 0}, {"gamma": 0}, {"l1_ratio": 0}):
        with pytest.raises(ConfigError, match=next(iter(bad))):
            ESC(3, **bad).fit(data.X)
