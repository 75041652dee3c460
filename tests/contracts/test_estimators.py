"""SENet, EnSC, SSCOMP and ESC keep scikit-learn's contract, with default settings."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

from selfexpress import ESC, SSCOMP, EnSC, SENet, make_subspaces

# Clean subspaces may fall into more pieces than clusters; that is not tested here.
pytestmark = pytest.mark.filterwarnings(
    "ignore:The affinity graph:selfexpress.errors.DegenerateWarning"
)

ESTIMATORS = [
    SENet(),
    EnSC(),
    SSCOMP(),
    ESC(n_clusters=3),
    SENet(3, refine=None, hidden_sizes=(32,), n_embedding=32, max_iter=200),
]


@parametrize_with_checks(ESTIMATORS)
def test_scikit_learn_check_passes(estimator, check):
    check(estimator)


@pytest.mark.parametrize("estimator", ESTIMATORS[:4], ids=str)
def test_a_fitted_model_survives_pickling(estimator, seed):
    data = make_subspaces(3, dimension=2, n_features=9, n_samples=20, random_state=seed)
    model = clone(estimator).set_params(n_clusters=3, random_state=seed).fit(data.X)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.labels_, model.labels_)
    np.testing.assert_array_equal(
        again.coefficients_.toarray(), model.coefficients_.toarray()
    )
