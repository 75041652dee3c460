"""SENet keeps scikit-learn's contract."""

from __future__ import annotations

from sklearn.utils.estimator_checks import parametrize_with_checks

from selfexpress import SENet


@parametrize_with_checks(
    [SENet(n_clusters=3, hidden_sizes=(32,), n_embedding=32, max_iter=200)]
)
def test_scikit_learn_check_passes(estimator, check):
    check(estimator)
