from __future__ import annotations

import pickle
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.numpy import save_file
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import parametrize_with_checks

from selfexpress.errors import (
    CheckpointError,
    ConfigError,
    DataError,
    DegenerateWarning,
)
from selfexpress.features.whitening import Whitening
from selfexpress.rows.opening import open_rows
from selfexpress.rows.sources import ArraySource


def correlated_rows(seed, n_samples=200, n_features=20):
    """Rows with a mean and with variances over four orders of magnitude."""
    generator = np.random.default_rng(seed)
    mixing = np.linalg.qr(generator.normal(size=(n_features, n_features)))[0]
    strengths = np.logspace(1, -1, n_features)
    rows = generator.normal(size=(n_samples, n_features)) * strengths
    return rows @ mixing + generator.normal(size=n_features)


def full_svd(rows, n_components, *, center, whiten, normalize):
    """The definition, literally: components by a dense SVD of all rows."""
    rows = rows - rows.mean(axis=0) if center else rows
    _, singular_values, vectors = np.linalg.svd(rows, full_matrices=False)
    vectors = vectors[:n_components]
    largest = np.abs(vectors).argmax(axis=1)
    vectors = vectors * np.sign(vectors[np.arange(n_components), largest])[:, None]
    mapped = rows @ vectors.T
    if whiten:
        mapped = mapped / singular_values[:n_components] * np.sqrt(len(rows))
    if normalize:
        mapped = mapped / np.linalg.norm(mapped, axis=1, keepdims=True)
    return mapped


# One row at a time, ragged last block, one exact block, block larger than the data.
@pytest.mark.parametrize("block_size", [1, 7, 200, 1000])
@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("whiten", [False, True])
@pytest.mark.parametrize("normalize", [False, True])
def test_blocks_give_what_a_full_svd_gives(block_size, center, whiten, normalize, seed):
    rows = correlated_rows(seed)
    options = {"center": center, "whiten": whiten, "normalize": normalize}
    actual = Whitening(12, **options, block_size=block_size).fit_transform(rows)
    expected = full_svd(rows, 12, **options)
    np.testing.assert_allclose(actual, expected, rtol=1e-6, atol=1e-8)


def test_single_precision_rows_lose_nothing_on_the_way(seed):
    # The weakest component is lost in single-precision sums of so large a mean.
    rows = (correlated_rows(seed) + 100).astype(np.float32)
    actual = Whitening(20).fit_transform(rows)
    expected = full_svd(
        rows.astype(np.float64), 20, center=False, whiten=True, normalize=True
    )
    assert actual.dtype == np.float32
    assert np.abs(actual - expected).max() < 1e-5


def test_centred_components_equal_those_of_scikit_learn(seed):
    rows = correlated_rows(seed)
    expected = PCA(8, whiten=True, svd_solver="full").fit(rows)
    actual = Whitening(8, center=True, normalize=False).fit(rows)
    np.testing.assert_allclose(actual.components_, expected.components_, atol=1e-7)
    np.testing.assert_allclose(actual.explained_, expected.explained_variance_ratio_)
    np.testing.assert_allclose(actual.singular_values_, expected.singular_values_)
    np.testing.assert_allclose(actual.mean_, expected.mean_)
    # scikit-learn divides by N - 1.
    np.testing.assert_allclose(
        actual.transform(rows),
        expected.transform(rows) * np.sqrt(200 / 199),
        atol=1e-6,
    )


def test_plain_components_equal_those_of_truncated_svd(seed):
    rows = correlated_rows(seed)
    expected = TruncatedSVD(5, algorithm="arpack", random_state=0).fit(rows)
    actual = Whitening(5, whiten=False, normalize=False).fit(rows)
    np.testing.assert_allclose(
        np.abs(actual.transform(rows)), np.abs(expected.transform(rows)), atol=1e-6
    )
    np.testing.assert_allclose(actual.singular_values_, expected.singular_values_)
    energy = (rows**2).sum()
    np.testing.assert_allclose(actual.explained_, actual.singular_values_**2 / energy)


def test_whitened_components_are_uncorrelated_with_mean_square_one(seed):
    rows = correlated_rows(seed)
    white = Whitening(20, normalize=False).fit_transform(rows)
    np.testing.assert_allclose(white.T @ white / len(rows), np.eye(20), atol=1e-7)


def test_a_large_mean_does_not_cancel_a_small_variance(seed):
    rows = correlated_rows(seed)
    near = Whitening(20, center=True).fit(rows)
    far = Whitening(20, center=True, block_size=64).fit(rows + 1e5)
    np.testing.assert_allclose(far.singular_values_, near.singular_values_, rtol=1e-6)


def test_signs_make_the_largest_entry_positive_and_ignore_the_order_of_rows(seed):
    rows = correlated_rows(seed)
    first = Whitening(10).fit(rows)
    second = Whitening(10).fit(-rows[::-1])
    largest = np.abs(first.components_).argmax(axis=1)
    assert (first.components_[np.arange(10), largest] > 0).all()
    np.testing.assert_allclose(first.components_, second.components_, atol=1e-9)


def test_arrays_tensors_and_sources_give_the_same(seed):
    rows = correlated_rows(seed).astype(np.float32)
    whitening = Whitening(6, block_size=33).fit(rows)
    expected = whitening.transform(rows)

    tensor = torch.from_numpy(rows)
    source = ArraySource(tensor)
    for other in (tensor, source):
        fitted = Whitening(6, block_size=50).fit(other)
        result = fitted.transform(other)
        assert isinstance(result, torch.Tensor)
        assert result.dtype == torch.float32
        np.testing.assert_allclose(result.numpy(), expected, atol=1e-6)


def test_inverse_undoes_the_transform_but_for_the_lengths(seed):
    rows = correlated_rows(seed)
    for center in (False, True):
        exact = Whitening(20, center=center, normalize=False).fit(rows)
        restored = exact.inverse_transform(exact.transform(rows))
        np.testing.assert_allclose(restored, rows, rtol=1e-7)

        unit = Whitening(20, center=center).fit(rows)
        lengths = np.linalg.norm(exact.transform(rows), axis=1, keepdims=True)
        restored = unit.inverse_transform(torch.from_numpy(unit.transform(rows)))
        expected = (rows - unit.mean_) / lengths + unit.mean_
        np.testing.assert_allclose(restored.numpy(), expected, rtol=1e-7)


def test_fewer_components_give_the_nearest_row_of_their_span(seed):
    rows = correlated_rows(seed)
    whitening = Whitening(5, normalize=False).fit(rows)
    restored = whitening.inverse_transform(whitening.transform(rows))
    projector = whitening.components_.T @ whitening.components_
    np.testing.assert_allclose(restored, rows @ projector, atol=1e-9)


MEMORY_SCRIPT = """
import resource
import torch
from selfexpress.rows.sources import RowBlock
from selfexpress.features.whitening import Whitening

class Generated:
    'Rows made when asked for: a source of any length that occupies no memory.'
    n_features = 40

    def __init__(self, n_samples):
        self.n_samples = n_samples

    def __len__(self):
        return self.n_samples

    def blocks(self, block_size):
        for start in range(0, self.n_samples, block_size):
            index = torch.arange(start, min(start + block_size, self.n_samples))
            yield RowBlock(self.take(index), index)

    def take(self, index):
        return torch.sin(index[:, None] * torch.arange(1.0, 41.0).sqrt())

for n_samples in (2_000, 400_000):
    Whitening(10, block_size=1000).fit(Generated(n_samples))
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts kilobytes")
def test_peak_memory_of_fit_does_not_grow_with_the_rows():
    done = subprocess.run(
        [sys.executable, "-c", MEMORY_SCRIPT],
        capture_output=True,
        text=True,
        check=True,
    )
    small, large = (int(kilobytes) for kilobytes in done.stdout.split())
    # The rows alone would be 64,000 kilobytes.
    assert large - small < 8_000


def test_rows_of_zeros_stay_zero():
    rows = np.vstack([np.eye(4), np.zeros((1, 4))])
    white = Whitening(2).fit_transform(rows)
    assert not white[-1].any()


def test_components_beyond_the_rank_are_zero_with_a_warning(seed):
    generator = np.random.default_rng(seed)
    rows = generator.normal(size=(50, 3)) @ generator.normal(size=(3, 8))
    with pytest.warns(DegenerateWarning, match="got 5 for rank 3"):
        whitening = Whitening(5, normalize=False).fit(rows)
    white = whitening.transform(rows)
    assert not white[:, 3:].any()
    np.testing.assert_allclose(whitening.inverse_transform(white), rows, atol=1e-8)


def test_explained_shares_of_all_components_add_up_to_one(seed):
    rows = correlated_rows(seed)
    for center in (False, True):
        explained = Whitening(20, center=center).fit(rows).explained_
        assert explained.sum() == pytest.approx(1)
        assert (np.diff(explained) <= 0).all()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_components": 21}, "must not exceed the 20 features .* got 21"),
        ({"n_components": 0}, "n_components must be a positive integer, got 0"),
        ({"n_components": 2, "block_size": 0.5}, "block_size must be a positive int"),
    ],
)
def test_settings_out_of_range_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        Whitening(**settings).fit(correlated_rows(0))


def test_unusable_rows_are_refused():
    rows = correlated_rows(0)
    whitening = Whitening(3).fit(rows)
    with pytest.raises(DataError, match="20 features seen by fit, got 19"):
        whitening.transform(torch.zeros(5, 19))
    with pytest.raises(DataError, match="20 features seen by fit, got 19"):
        whitening.transform(ArraySource(torch.zeros(5, 19)))
    with pytest.raises(DataError, match=r"got shape \(20,\)"):
        whitening.transform(torch.zeros(20))
    with pytest.raises(DataError, match="NaN"):
        whitening.transform(torch.full((2, 20), torch.nan))
    rows[3, 3] = np.inf
    with pytest.raises(DataError, match="row 3, counted from 0"):
        Whitening(3).fit(ArraySource(rows))
    with pytest.raises(DataError, match="at least one row"):
        Whitening(3).fit(ArraySource(torch.zeros(0, 20)))
    with pytest.raises(NotFittedError):
        Whitening(3).transform(rows)


def test_a_pickled_whitening_maps_the_same(seed):
    rows = correlated_rows(seed)
    whitening = Whitening(4).fit(rows)
    restored = pickle.loads(pickle.dumps(whitening))
    np.testing.assert_array_equal(restored.transform(rows), whitening.transform(rows))


@pytest.mark.gpu
def test_whitening_on_a_gpu_equals_that_on_the_processor(seed):
    rows = torch.from_numpy(correlated_rows(seed))
    expected = Whitening(12).fit_transform(rows)
    actual = Whitening(12).fit_transform(rows.cuda())
    assert actual.is_cuda
    torch.testing.assert_close(actual.cpu(), expected, rtol=1e-6, atol=1e-8)


@parametrize_with_checks([Whitening(1), Whitening(1, center=True, normalize=False)])
def test_whitening_passes_the_checks_of_scikit_learn(estimator, check):
    check(estimator)


def test_a_file_larger_than_a_block_is_whitened_as_it_is_read(tmp_path, seed):
    rows = np.random.default_rng(seed).normal(size=(50, 6)).astype(np.float32)
    np.save(tmp_path / "rows.npy", rows)
    source = open_rows(tmp_path / "rows.npy")
    whitening = Whitening(4, block_size=7).fit(source)
    expected = Whitening(4).fit(rows).transform(rows)
    streamed = whitening.stream(source)
    assert (len(streamed), streamed.n_features) == (50, 4)
    found = torch.cat([block.rows for block in streamed.blocks(11)])
    assert found.dtype == torch.float32
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(
        whitening.transform(source), expected, rtol=1e-4, atol=1e-6
    )


def test_a_source_of_other_width_is_not_streamed(seed):
    rows = np.random.default_rng(seed).normal(size=(20, 6))
    whitening = Whitening(4).fit(rows)
    with pytest.raises(DataError, match="6 features"):
        whitening.stream(ArraySource(rows[:, :5]))


def test_auto_keeps_no_component_without_energy(seed):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(400, 5)) @ rng.normal(size=(5, 60))
    assert Whitening().fit(rows).n_components_ == 5


@pytest.mark.parametrize(
    ("shape", "n_components"), [((40, 30), 10), ((400, 30), 30), ((1100, 260), 250)]
)
def test_auto_keeps_what_the_rows_can_tell(shape, n_components, seed):
    """A component for every four rows, all that there are, or 250."""
    rows = np.random.default_rng(seed).normal(size=shape)
    whitening = Whitening().fit(rows)
    assert whitening.n_components_ == n_components
    assert whitening.transform(rows).shape == (shape[0], n_components)


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("whiten", [True, False])
def test_components_that_were_saved_transform_the_same(center, whiten, seed, tmp_path):
    rows = np.random.default_rng(seed).normal(size=(40, 6)) + 1
    frame = pd.DataFrame(rows, columns=list("abcdef"))
    fitted = Whitening(3, center=center, whiten=whiten).fit(frame)
    fitted.save(tmp_path / "kept")
    loaded = Whitening.load(tmp_path / "kept")
    np.testing.assert_array_equal(loaded.transform(frame), fitted.transform(frame))
    assert loaded.get_feature_names_out().tolist() == ["whitening0", "whitening1",
                                                       "whitening2"]  # fmt: skip
    assert loaded.n_samples_seen_ == 40
    with pytest.raises(ValueError, match="feature names"):
        loaded.transform(frame[list("fedcba")])
    loaded.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "kept").read_bytes()


@pytest.mark.parametrize("damage", ["missing", "short", "foreign", "nan", "shape"])
def test_files_that_hold_no_components_are_refused(damage, tmp_path):
    path = tmp_path / "kept"
    fitted = Whitening(2).fit(np.random.default_rng(0).normal(size=(20, 4)))
    if damage == "nan":
        fitted.mean_ = fitted.mean_ * np.nan
    if damage == "shape":
        fitted.scale_ = fitted.scale_[:1]
    if damage != "missing":
        fitted.save(path)
    if damage == "short":
        path.write_bytes(path.read_bytes()[:-5])
    if damage == "foreign":
        save_file({"x": np.zeros(3)}, path)
    with pytest.raises(CheckpointError, match="must be the components") as found:
        Whitening.load(path)
    assert len(str(found.value).splitlines()) == 1


def test_rows_whose_squares_vanish_are_refused(seed):
    rows = np.random.default_rng(seed).normal(size=(20, 4))
    with pytest.raises(DataError, match=r"must not all vanish .* Scale the rows up"):
        Whitening(3, whiten=False).fit(1e-165 * rows)


def test_rows_of_a_source_must_be_finite(seed):
    rows = np.random.default_rng(seed).normal(size=(20, 4))
    fitted = Whitening(2).fit(rows)
    rows[7, 1] = np.nan
    for use in (fitted.transform, lambda source: list(fitted.stream(source).blocks(8))):
        with pytest.raises(DataError, match="row 7, counted from 0"):
            use(ArraySource(rows))


def test_names_of_an_earlier_fit_are_forgotten(seed, tmp_path):
    frame = pd.DataFrame(correlated_rows(seed)).add_prefix("f")
    rows = torch.from_numpy(correlated_rows(seed, n_features=6))
    for source in (rows, ArraySource(rows)):
        whitening = Whitening(2).fit(frame).fit(source)
        whitening.save(tmp_path / "w")
        loaded = Whitening.load(tmp_path / "w")
        assert not hasattr(loaded, "feature_names_in_")


@pytest.mark.parametrize("center", [False, True])
def test_rows_without_a_part_along_the_components_are_zero(center, seed):
    generator = np.random.default_rng(seed)
    basis = np.linalg.qr(generator.normal(size=(10, 10)))[0]
    rows = generator.normal(size=(100, 3)) @ basis[:3] + 0.1
    whitening = Whitening(3, center=center).fit(rows)
    away = whitening.mean_ + (0 if center else 1) * basis[5]
    away -= away @ whitening.components_.T @ whitening.components_ * (not center)
    np.testing.assert_array_equal(whitening.transform(away[None]), np.zeros((1, 3)))
    lengths = np.linalg.norm(whitening.transform(1e-9 * rows), axis=1)
    np.testing.assert_allclose(lengths, 1)


def test_columns_of_a_file_are_known_by_their_names(tmp_path, seed):
    table = pd.DataFrame(correlated_rows(seed, n_features=4), columns=[*"abcd"])
    table.to_parquet(tmp_path / "rows.parquet")
    table[[*"dcba"]].to_parquet(tmp_path / "turned.parquet")
    right, wrong = (open_rows(tmp_path / f"{n}.parquet") for n in ("rows", "turned"))
    for fitted in (Whitening(2).fit(table), Whitening(2).fit(right)):
        assert fitted.feature_names_in_.tolist() == [*"abcd"]
        np.testing.assert_allclose(
            fitted.transform(right), fitted.transform(table), atol=1e-6
        )
        for read in (fitted.transform, fitted.stream):
            with pytest.raises(DataError, match="columns that fit saw, in their order"):
                read(wrong)


@pytest.mark.parametrize("unit", [1e-300, 1e-170, 1e155, 1e300])
def test_rows_of_any_size_have_the_same_direction(unit, seed):
    rows = correlated_rows(seed)
    fitted = Whitening(5).fit(rows)
    np.testing.assert_allclose(
        fitted.transform(unit * rows), fitted.transform(rows), atol=1e-12
    )


def test_what_cannot_be_squared_or_mapped_is_refused(seed):
    rows = correlated_rows(seed)
    with pytest.raises(DataError, match="Scale the rows down"):
        Whitening(5).fit(1e160 * rows)
    fitted = Whitening(5).fit(rows)
    with pytest.raises(DataError, match="must have the 5 components of transform"):
        fitted.inverse_transform(rows)
    with pytest.raises(DataError, match=r"Use X.to_dense\(\)"):
        fitted.transform(torch.from_numpy(rows).to_sparse())
