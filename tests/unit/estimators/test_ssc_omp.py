from __future__ import annotations

import numpy as np
import pytest
from compare import assert_same_partition
from sklearn.linear_model import orthogonal_mp

from selfexpress.datasets.synthetic import make_subspaces
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


@pytest.mark.parametrize(("n_features", "most"), [(2, 1), (9, 4), (60, 10)])
def test_a_row_is_expressed_by_no_more_than_half_as_many_as_features(n_features, most):
    X = np.random.default_rng(0).normal(size=(80, n_features))
    model = SSCOMP(3, random_state=0).fit(X)
    assert np.diff(model.coefficients_.indptr).max() == most


def test_rows_that_nothing_expresses_are_an_error():
    with pytest.raises(DegenerateError, match="coefficient"):
        SSCOMP(2).fit(np.eye(6))


def test_bad_settings_are_refused_by_name(seed):
    data = make_subspaces(2, dimension=2, n_features=6, n_samples=9, random_state=seed)
    for bad in ({"n_nonzero": 0}, {"tol": -1.0}, {"n_neighbors": 0}):
        with pytest.raises(ConfigError, match=next(iter(bad))):
            SSCOMP(2, **bad).fit(data.X)


@pytest.mark.parametrize("value", ["foo", None, 1])
@pytest.mark.parametrize("name", ["join", "normalize"])
def test_flags_are_bools(name, value):
    data = make_subspaces(3, dimension=2, n_features=10, n_samples=20, random_state=0)
    with pytest.raises(ConfigError, match=f"{name} must be a bool"):
        SSCOMP(3, random_state=0, **{name: value}).fit(data.X)


def lengthened(seed):
    """Return rows of three subspaces, each with a length of its own."""
    data = make_subspaces(
        3, dimension=5, n_features=25, n_samples=50, random_state=seed
    )
    lengths = np.random.default_rng(seed).uniform(0.5, 2, (len(data.X), 1))
    return data.X * lengths, data.labels


# Whatever unit the rows are in, also where squares would overflow float32 or float64.
@pytest.mark.parametrize("unit", [1, 1e30, 1e-30, 1e200])
def test_rows_as_they_come_are_pursued_by_their_length(unit, seed):
    X, labels = lengthened(seed)
    model = SSCOMP(3, n_nonzero=5, normalize=False, random_state=seed).fit(unit * X)
    assert_same_partition(model.labels_, labels)
    for j in range(0, len(X), 10):
        others = np.delete(np.arange(len(X)), j)
        expected = np.zeros(len(X))
        expected[others] = orthogonal_mp(X[others].T, X[j], n_nonzero_coefs=5)
        np.testing.assert_allclose(
            model.coefficients_[[j]].toarray()[0], expected, atol=1e-4
        )


def test_lengths_count_only_if_told(seed):
    X, _ = lengthened(seed)
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    plain, same, other = (
        SSCOMP(3, n_nonzero=3, normalize=normalize, random_state=0)
        .fit(rows)
        .coefficients_.toarray()
        for rows, normalize in ((unit, True), (X, True), (X, False))
    )
    np.testing.assert_allclose(plain, same, atol=1e-5)
    assert ((plain != 0) != (other != 0)).any()


def test_rows_of_zeros_are_an_error_at_any_scaling():
    with pytest.raises(DegenerateError, match="coefficient"):
        SSCOMP(2, normalize=False).fit(np.zeros((6, 3)))


def test_graphs_of_rows_as_they_come_are_joined_by_their_direction(seed):
    X, labels = lengthened(seed)
    model = SSCOMP(3, n_nonzero=1, normalize=False, join=True, random_state=0)
    assert len(model.fit(1e3 * X).labels_) == len(labels)
    assert model.affinity_matrix_.data.max() <= 1
