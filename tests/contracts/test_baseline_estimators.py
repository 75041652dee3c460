"""EnSC, SSCOMP and ESC keep scikit-learn's contract."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

from selfexpress.datasets.synthetic import make_subspaces
from selfexpress.estimators.ensc import EnSC
from selfexpress.estimators.esc import ESC
from selfexpress.estimators.ssc_omp import SSCOMP

# Clean subspaces may fall into more pieces than clusters; that is not tested here.
pytestmark = pytest.mark.filterwarnings(
    "ignore:The affinity graph:selfexpress.errors.DegenerateWarning"
)

ESTIMATORS = [
    EnSC(n_clusters=3),
    # In a plane, any two points express a third: one neighbour each, pieces joined.
    SSCOMP(n_clusters=3, n_nonzero=1, join=True),
    ESC(n_clusters=3),
]


@parametrize_with_checks(ESTIMATORS)
def test_scikit_learn_check_passes(estimator, check):
    check(estimator)


@pytest.mark.parametrize(
    "estimator", ESTIMATORS, ids=lambda model: type(model).__name__
)
def test_a_fitted_model_survives_pickling(estimator, seed):
    data = make_subspaces(3, dimension=2, n_features=9, n_samples=20, random_state=seed)
    model = clone(estimator).set_params(random_state=seed).fit(data.X)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.labels_, model.labels_)
    np.testing.assert_array_equal(
        again.coefficients_.toarray(), model.coefficients_.toarray()
    )
