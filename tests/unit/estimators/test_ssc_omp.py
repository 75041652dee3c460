from __future__ import annotations

import numpy as np
import pytest
from compare import assert_same_partition

from selfexpress.data.synthetic import make_subspaces
from selfexpress.errors import ConfigError, DegenerateError
from selfexpress.estimators.ssc_omp import SSCOMP

# Clean subspaces may fall into more pieces than clusters; that is not tested here.
pytestmark = pytest.mark.filterwarnings(
    "ignore:The affinity graph:selfexpress.errors.DegenerateWarning"
)


@pytest.mark.parametrize("affinity", ["nearest_neighbors", "symmetric"])
def test_subspaces_are_found(affinity, seed):
    data = make_subspaces(
        3, dimension=5, n_features=25, n_samples=50, random_state=seed
    )
    model = SSCOMP(3, n_nonzero=5, affinity=affinity, random_state=seed)
    assert_same_partition(model.fit_predict(data.X), data.labels)
    assert np.diff(model.coefficients_.indptr).max() <= 5


def test_rows_that_nothing_expresses_are_an_error():
    with pytest.raises(DegenerateError, match="coefficient"):
        SSCOMP(2).fit(np.eye(6))


def test_bad_settings_are_refused_by_name(seed):
    data = make_subspaces(2, dimension=2, n_features=6, n_samples=9, random_state=seed)
    for bad in ({"n_nonzero": 0}, {"tol": -1.0}, {"n_neighbors": 0}):
        with pytest.raises(ConfigError, match=next(iter(bad))):
            SSCOMP(2, **bad).fit(data.X)


@pytest.mark.parametrize("join", ["foo", None, 1])
def test_join_is_a_bool(join):
    data = make_subspaces(3, dimension=2, n_features=10, n_samples=20, random_state=0)
    with pytest.raises(ConfigError, match="join must be a bool"):
        SSCOMP(3, join=join, random_state=0).fit(data.X)
