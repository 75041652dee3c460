"""Inputs of every kind: each works, or is refused in one clear sentence.

Every test here is a row of the table in ``docs/reliability.md``.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.exceptions import NotFittedError

from selfexpress import ESC, SSCOMP, EnSC, SENet, make_subspaces
from selfexpress.errors import ConfigError, DataError, DegenerateError
from selfexpress.errors import DegenerateWarning as Degenerate
from selfexpress.features import Scattering2D, Trajectories, Whitening
from selfexpress.rows.sources import ArraySource

pytestmark = pytest.mark.filterwarnings(
    # A handful of rows is often disconnected; that is not the question here.
    "ignore:The affinity graph should have:selfexpress.errors.DegenerateWarning"
)


def senet(n_clusters=3, **changes):
    settings = {"hidden_sizes": (16,), "n_embedding": 16, "max_iter": 40, "n_init": 3}
    settings |= {"affinity": "symmetric", "device": "cpu", "random_state": 0}
    settings |= {"start": "random"}  # the other would leave rows without coefficients
    return SENet(n_clusters, **{**settings, **changes})


@pytest.fixture(scope="module")
def rows():
    return make_subspaces(3, dimension=2, n_features=10, n_samples=15, random_state=0).X


@pytest.fixture(scope="module")
def labels(rows):
    return senet().fit(rows).labels_


def every_estimator():
    options = {"device": "cpu", "random_state": 0}
    exact = [SENet(3, **options), EnSC(3, **options)]
    return [senet(), *exact, SSCOMP(3, **options), ESC(3, **options)]


def refused(rows, words, error=DataError, **fit):
    """Check that every estimator refuses rows in one line with these words."""
    for estimator in every_estimator():
        with pytest.raises(error, match=words) as caught:
            estimator.fit(rows, **fit)
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 500


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_nan_and_infinity(rows, value):
    spoiled = rows.copy()
    spoiled[7, 3] = value
    refused(spoiled, "contains (NaN|infinity).* X must be finite")
    for transformer in (
        Whitening(2),
        Scattering2D(1, image_shape=(2, 5)),
        Trajectories(),
    ):
        with pytest.raises(DataError, match="X must be finite") as found:
            transformer.fit(spoiled)
        assert len(str(found.value).splitlines()) == 1


def test_a_row_of_zeros(rows):
    with pytest.warns(Degenerate, match="1 of 46 have none and stay isolated"):
        model = EnSC(3, device="cpu", random_state=0).fit(
            np.vstack([rows, np.zeros((1, 10))])
        )
    assert len(model.labels_) == 46
    assert model.coefficients_[[45]].nnz == 0


def test_only_zeros():
    refused(np.zeros((20, 5)), "all are", DegenerateError)


def test_constant_and_equal_rows():
    for rows in (np.ones((20, 5)), np.outer(np.arange(1.0, 21), np.ones(5))):
        for estimator in every_estimator():
            assert set(estimator.fit(rows).labels_) <= {0, 1, 2}


def test_duplicates(rows):
    model = senet().fit(np.vstack([rows, rows]))
    first, second = np.split(model.predict(np.vstack([rows, rows])), 2)
    np.testing.assert_array_equal(first, second)
    assert len(model.labels_) == 90


def test_one_sample(rows):
    refused(rows[:1], "1 sample.*minimum of 2")


def test_no_samples_or_no_features():
    refused(np.empty((0, 5)), "0 sample")
    refused(np.empty((5, 0)), "0 feature")


def test_one_feature(rows):
    for estimator in every_estimator():
        assert len(estimator.fit(rows[:, :1]).labels_) == 45


def test_more_clusters_than_rows(rows):
    for estimator in every_estimator():
        estimator.set_params(n_clusters=46)
        with pytest.raises(ConfigError, match=r"n_clusters must be at most.*got 46"):
            estimator.fit(rows)


def test_integers_and_booleans(rows):
    whole = np.round(100 * rows)
    expected = senet().fit(whole).labels_
    for dtype in (np.int16, np.int32, np.float32):
        labels = senet().fit(whole.astype(dtype)).labels_
        np.testing.assert_array_equal(labels, expected)
    assert len(senet().fit(rows > 0).labels_) == 45


def test_masked_entries(rows):
    masked = np.ma.masked_array(rows, mask=rows > 0.5)
    refused(masked, "masked entries. Fill or drop them")
    with pytest.raises(DataError, match="masked entries"):
        Whitening(2).fit(masked)


def test_half_precision(rows):
    half = rows.astype(np.float16)
    np.testing.assert_array_equal(
        senet().fit(half).labels_, senet().fit(half.astype(np.float32)).labels_
    )


@pytest.mark.parametrize("exponent", [-900, 900])
def test_huge_and_tiny_scales(rows, labels, exponent):
    """2^900 is far beyond single precision, but no bit of a direction is lost."""
    np.testing.assert_array_equal(senet().fit(2.0**exponent * rows).labels_, labels)


def test_fortran_order_and_read_only(rows, labels):
    turned = np.asfortranarray(rows)
    turned.flags.writeable = False
    np.testing.assert_array_equal(senet().fit(turned).labels_, labels)


def test_text_and_complex_numbers(rows):
    refused(np.array([["a", "b"]] * 5), "could not convert string")
    refused(rows + 1j, "Complex data not supported")


def test_one_or_three_dimensions(rows):
    refused(rows[:, 0], "Expected 2D array, got 1D")
    refused(rows[None], "dim 3")


def test_lists_of_unequal_length():
    refused([[1.0, 2.0], [3.0], [4.0, 5.0]], "inhomogeneous")


def test_sparse_matrices(rows):
    from scipy import sparse

    for estimator in every_estimator():
        with pytest.raises(TypeError, match=r"[Ss]parse data"):
            estimator.fit(sparse.csr_array(rows))


def test_another_width_at_predict(rows):
    model = senet().fit(rows)
    for narrow in (rows[:, :5], ArraySource(rows[:, :5]), torch.tensor(rows[:, :5])):
        with pytest.raises(DataError, match=r"expecting 10 .*that fit saw"):
            model.predict(narrow)


def test_use_before_fit(rows):
    for use in (senet().predict, senet().predict_proba, senet().self_expression):
        with pytest.raises(NotFittedError, match="not fitted yet"):
            use(rows)
    with pytest.raises(NotFittedError):
        senet().save("nowhere.selfexpress")


def test_settings_out_of_range(rows):
    for name, value in (
        ("gamma", -1.0), ("gamma", np.nan), ("l1_ratio", 2), ("max_iter", 0),
        ("batch_size", 1.5), ("hidden_sizes", (0,)), ("affinity", "none"),
        ("device", "abacus"), ("n_clusters", 0),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=f"{name} must") as caught:
            senet(**{name: value}).fit(rows)
        assert "\n" not in str(caught.value)


def test_too_small_a_gamma(rows):
    with pytest.raises(DegenerateError, match="gamma must exceed"):
        senet(gamma=1e-6).fit(rows)


def test_the_same_random_state_twice(rows, labels):
    np.testing.assert_array_equal(senet().fit(rows).labels_, labels)


def test_a_path_is_not_a_matrix():
    for path in ("rows.csv", Path("rows.csv")):
        refused(path, "got the path 'rows.csv'. Use selfexpress.open_rows")


def test_the_seed(rows):
    for seed in (-1, "foo", 2.5):
        with pytest.raises(ConfigError, match=f"random_state must be .* got {seed!r}"):
            EnSC(3, device="cpu", random_state=seed).fit(rows)


def test_a_row_of_a_source_that_is_not_finite_is_named(rows):
    spoiled = rows.copy()
    spoiled[[17, 30], 2] = np.nan
    with pytest.raises(DataError, match="row 17, counted from 0, contains NaN"):
        senet().fit(ArraySource(spoiled))
