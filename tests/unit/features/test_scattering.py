from __future__ import annotations

import gzip
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.utils import estimator_checks
from sklearn.utils.estimator_checks import parametrize_with_checks

from selfexpress.errors import ConfigError, DataError
from selfexpress.features import cascade
from selfexpress.features.resize import resize_bilinear
from selfexpress.features.scattering import Scattering2D
from selfexpress.features.wavelets import filter_bank
from selfexpress.features.whitening import Whitening

# Square, odd, non-square, side equal to 2**J, larger than the dense low-pass filter.
CASES = [
    ((32, 32), 3, 8),
    ((28, 28), 2, 6),
    ((33, 21), 2, 4),
    ((16, 8), 3, 8),
    ((17, 2), 1, 3),
    ((64, 50), 4, 2),
    ((40, 72), 1, 1),
]


def kymatio_coefficients(images, J, L, max_order=2):
    """Scatter (N, ..., H, W) with kymatio, in the precision of the images."""
    from kymatio.scattering2d.frontend.torch_frontend import ScatteringTorch2D

    reference = ScatteringTorch2D(J, images.shape[-2:], L=L, max_order=max_order)
    return reference.to(images.dtype)(images).flatten(1)


def random_images(seed, *shape, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)


@pytest.mark.parametrize(("shape", "J", "L"), CASES)
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [("float32", 1e-5), ("float64", 1e-10)]
)
def test_coefficients_equal_those_of_kymatio(shape, J, L, dtype, tolerance, seed):
    images = random_images(seed, 3, *shape, dtype=getattr(torch, dtype))
    transformer = Scattering2D(J, L, normalize=None, dtype=dtype)

    actual = transformer.fit_transform(images)

    expected = kymatio_coefficients(images, J, L)
    assert actual.shape == expected.shape
    assert actual.dtype == expected.dtype
    assert float((actual - expected).abs().max()) < tolerance


def test_first_order_alone_equals_kymatio(seed):
    images = random_images(seed, 2, 16, 24, dtype=torch.float64)
    transformer = Scattering2D(2, 5, max_order=1, normalize=None, dtype="float64")
    actual = transformer.fit_transform(images)
    expected = kymatio_coefficients(images, 2, 5, max_order=1)
    assert float((actual - expected).abs().max()) < 1e-10


def test_channels_are_scattered_one_by_one_and_stay_in_order(seed):
    images = random_images(seed, 2, 3, 16, 16, dtype=torch.float64)
    transformer = Scattering2D(2, 4, normalize=None, dtype="float64")
    actual = transformer.fit_transform(images)
    assert transformer.output_shape_ == (3, 25, 4, 4)
    assert float((actual - kymatio_coefficients(images, 2, 4)).abs().max()) < 1e-10


def test_low_pass_by_matrix_and_by_transforms_agree(seed, monkeypatch):
    images = random_images(seed, 2, 24, 16, dtype=torch.float64)
    transformer = Scattering2D(2, 3, dtype="float64").fit(images)
    dense = transformer.transform(images)
    monkeypatch.setattr(cascade, "_MAX_DENSE_OUTPUTS", 0)
    spectral = transformer.transform(images)
    torch.testing.assert_close(dense, spectral, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("shape", "J", "L"), CASES)
def test_compiled_passes_and_torch_agree(shape, J, L, seed, monkeypatch):
    pytest.importorskip("numba")
    images = random_images(seed, 2, *shape, dtype=torch.float64)
    transformer = Scattering2D(J, L, normalize=None, dtype="float64").fit(images)
    compiled = transformer.transform(images)
    monkeypatch.setattr(cascade, "_compiled", lambda: None)
    plain = transformer.transform(images)
    torch.testing.assert_close(compiled, plain, rtol=0, atol=1e-12)


def test_threads_share_the_batches_and_their_number_is_restored(seed):
    images = random_images(seed, 21, 16, 16)
    transformer = Scattering2D(2, 4, batch_size=2).fit(images)
    expected = transformer.transform(images)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        actual = transformer.transform(images)
        with ThreadPoolExecutor(1) as pool:
            later = pool.submit(torch.get_num_threads).result()
        assert torch.get_num_threads() == later == 3
    finally:
        torch.set_num_threads(before)
    torch.testing.assert_close(actual, expected, rtol=0, atol=0)


def test_wavelets_have_zero_mean_and_the_low_pass_filter_has_unit_mean():
    bank = filter_bank((48, 40), n_scales=3, n_angles=8)
    for wavelets in bank.wavelets:
        assert np.abs(wavelets[:, 0, 0]).max() < 1e-6
    # 3.1415 stands for pi in the bank, hence not 1e-6.
    assert bank.lowpass[0, 0] == pytest.approx(np.pi / 3.1415, abs=1e-6)


def exact_morlet(size, scale, theta, n_angles):
    """The wavelet by its definition, in double precision and in Fourier space."""
    sigma, frequency, slant = 0.8 * 2**scale, 0.75 * np.pi / 2**scale, 4 / n_angles
    axis = np.arange(-2 * size, 3 * size)
    y, x = np.meshgrid(axis, axis, indexing="ij")
    along = np.cos(theta) * y + np.sin(theta) * x
    across = -np.sin(theta) * y + np.cos(theta) * x
    gaussian = np.exp(-(along**2 + slant**2 * across**2) / (2 * sigma**2))
    gaussian *= slant / (2 * 3.1415 * sigma**2)
    wave = gaussian * np.exp(1j * frequency * along)
    morlet = wave - gaussian * wave.sum() / gaussian.sum()
    return np.fft.fft2(morlet.reshape(5, size, 5, size).sum(axis=(0, 2)))


@pytest.mark.parametrize("scale", [0, 1, 2])
def test_wavelets_are_the_morlet_functions_of_their_scale_and_angle(scale):
    bank = filter_bank((24, 24), n_scales=3, n_angles=6)
    for angle in range(6):
        expected = exact_morlet(24, scale, (2 - angle) * np.pi / 6, 6)
        assert np.abs(bank.wavelets[scale][angle] - expected).max() < 1e-6


def test_a_constant_image_has_its_value_at_order_zero_and_nothing_above():
    image = np.full((1, 16, 16), 2.5)
    transformer = Scattering2D(2, 4, normalize=None, dtype="float64")
    maps = transformer.fit_transform(image).reshape(25, 16)
    np.testing.assert_allclose(maps[0], 2.5 * np.pi / 3.1415, rtol=1e-6)
    np.testing.assert_allclose(maps[1:], 0, atol=1e-6)


def test_coefficients_scale_with_the_image_and_normalised_ones_do_not(seed):
    images = random_images(seed, 3, 16, 16, dtype=torch.float64)
    plain = Scattering2D(2, 4, normalize=None, dtype="float64").fit(images)
    torch.testing.assert_close(
        plain.transform(7 * images), 7 * plain.transform(images), rtol=1e-10, atol=0
    )
    scaled = Scattering2D(2, 4, dtype="float64").fit(images)
    torch.testing.assert_close(
        scaled.transform(7 * images), scaled.transform(images), rtol=1e-10, atol=0
    )


def test_each_map_is_divided_by_its_largest_absolute_value(seed):
    images = random_images(seed, 4, 16, 16)
    plain = Scattering2D(2, 4, normalize=None).fit_transform(images).view(4, 25, 16)
    actual = Scattering2D(2, 4).fit_transform(images).view(4, 25, 16)
    for image in range(4):
        for channel in range(25):
            expected = plain[image, channel] / plain[image, channel].abs().max()
            torch.testing.assert_close(actual[image, channel], expected)


def test_a_black_image_stays_zero_when_normalised():
    rows = Scattering2D(2, 4).fit_transform(np.zeros((2, 16, 16)))
    assert not rows.any()


def test_rows_images_arrays_and_tensors_give_the_same_features(seed):
    images = random_images(seed, 5, 12, 12).numpy()
    transformer = Scattering2D(2, 4).fit(images)
    expected = transformer.transform(images)
    assert isinstance(expected, np.ndarray)
    assert expected.dtype == np.float32
    for other in (
        images.reshape(5, 144),
        images[:, None],
        images.reshape(5, 144).tolist(),
        images.astype(np.float64),
        np.asfortranarray(images),
    ):
        np.testing.assert_allclose(transformer.transform(other), expected, atol=1e-6)
    tensor = transformer.transform(torch.from_numpy(images))
    assert isinstance(tensor, torch.Tensor)
    np.testing.assert_array_equal(tensor.numpy(), expected)


def test_declared_shape_tells_the_layout_of_rows(seed):
    images = random_images(seed, 2, 3, 8, 16).numpy()
    transformer = Scattering2D(2, 2, image_shape=(3, 8, 16))
    from_rows = transformer.fit_transform(images.reshape(2, -1))
    np.testing.assert_array_equal(from_rows, transformer.fit_transform(images))


@pytest.mark.parametrize("batch_size", [1, 4, 9, 100])
def test_features_do_not_depend_on_the_batch_size(batch_size, seed):
    images = random_images(seed, 9, 12, 12, dtype=torch.float64)
    expected = Scattering2D(2, 4, dtype="float64").fit_transform(images)
    transformer = Scattering2D(2, 4, dtype="float64", batch_size=batch_size)
    actual = transformer.fit_transform(images)
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-12)


def test_input_is_never_written_to(seed, tmp_path):
    images = (random_images(seed, 4, 12, 12).numpy() * 50).astype(np.uint8)
    for name, array in (("bytes", images), ("floats", images.astype(np.float32))):
        path = tmp_path / f"{name}.npy"
        np.save(path, array)
        # Read-only: writing would raise.
        Scattering2D(2, 2).fit_transform(np.load(path, mmap_mode="r"))
        tensor = torch.from_numpy(array.copy())
        Scattering2D(2, 2, normalize=None).fit_transform(tensor)
        np.testing.assert_array_equal(tensor.numpy(), array)


@pytest.mark.parametrize(
    ("before", "after"),
    [((28, 28), (32, 32)), ((64, 64), (32, 32)), ((5, 7), (5, 9)), ((9, 31), (4, 31))],
)
def test_8_bit_images_are_resized_as_by_pillow(before, after, seed):
    image_module = pytest.importorskip("PIL.Image")
    generator = np.random.default_rng(seed)
    images = generator.integers(0, 256, (6, *before), dtype=np.uint8)
    expected = [
        np.asarray(
            image_module.fromarray(image).resize(
                after[::-1], image_module.Resampling.BILINEAR
            )
        )
        for image in images
    ]
    actual = resize_bilinear(torch.from_numpy(images), after)
    np.testing.assert_array_equal(actual.numpy(), np.stack(expected))


def test_floating_images_are_resized_without_rounding():
    # Pixel centres of the new grid lie at -1/4, 1/4, 3/4, 5/4 of the old.
    image = torch.tensor([[[0.0, 1.0]]])
    actual = resize_bilinear(image, (1, 4))
    torch.testing.assert_close(actual, torch.tensor([[[0.0, 0.25, 0.75, 1.0]]]))


def test_resizing_inside_the_transformer_equals_resizing_before(seed):
    generator = np.random.default_rng(seed)
    images = generator.integers(0, 256, (3, 14, 14), dtype=np.uint8)
    before = resize_bilinear(torch.from_numpy(images), (16, 24)).numpy()
    actual = Scattering2D(2, 4, resize=(16, 24)).fit_transform(images)
    np.testing.assert_array_equal(actual, Scattering2D(2, 4).fit_transform(before))


def test_the_paper_recipe_has_3472_features(data_folder):
    with gzip.open(data_folder / "mnist" / "t10k-images-idx3-ubyte.gz") as stream:
        digits = np.frombuffer(stream.read(), np.uint8, offset=16)
    digits = digits.reshape(-1, 28, 28)[:20].copy()
    transformer = Scattering2D(J=3, L=8, resize=32)
    features = transformer.fit_transform(digits)
    assert features.shape == (20, 3472)
    assert transformer.output_shape_ == (1, 217, 4, 4)
    resized = resize_bilinear(torch.from_numpy(digits), (32, 32)).float()
    maps = kymatio_coefficients(resized, 3, 8).view(20, 217, 16)
    expected = maps / maps.abs().amax(dim=2, keepdim=True)
    np.testing.assert_allclose(features, expected.flatten(1).numpy(), atol=1e-5)


def test_scattering_and_whitening_form_a_pipeline(seed):
    images = random_images(seed, 30, 8, 8).numpy()
    pipeline = make_pipeline(Scattering2D(2, 4), Whitening(10))
    white = pipeline.fit_transform(images)
    assert white.shape == (30, 10)
    np.testing.assert_allclose(np.linalg.norm(white, axis=1), 1, rtol=1e-5)
    np.testing.assert_allclose(pipeline.transform(images[:7]), white[:7], atol=1e-5)
    assert len(pipeline.get_feature_names_out()) == 10


def test_a_pickled_or_cloned_transformer_computes_the_same(seed):
    images = random_images(seed, 3, 8, 8).numpy()
    transformer = Scattering2D(2, 4).fit(images)
    expected = transformer.transform(images)
    restored = pickle.loads(pickle.dumps(transformer))
    np.testing.assert_array_equal(restored.transform(images), expected)
    np.testing.assert_array_equal(clone(transformer).fit_transform(images), expected)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"J": 0}, "J must be a positive integer, got 0"),
        ({"J": 5}, r"2\*\*J must not exceed .* got J=5 for images of 16 x 16"),
        ({"L": 2.5}, "L must be a positive integer, got 2.5"),
        ({"max_order": 3}, r"max_order must be one of \(1, 2\), got 3"),
        ({"normalize": "l2"}, "normalize must be one of .* got 'l2'"),
        ({"dtype": "float16"}, "dtype must be one of .* got 'float16'"),
        ({"batch_size": 0}, "batch_size must be a positive integer, got 0"),
        ({"resize": (32, 32, 1)}, "resize must have 1 or 2 entries"),
        ({"resize": (32, 0)}, "each entry of resize must be a positive integer, got 0"),
        ({"image_shape": 16}, "image_shape must have 2 or 3 entries, got 16"),
    ],
)
def test_settings_out_of_range_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        Scattering2D(**settings).fit(np.zeros((2, 16, 16)))


def test_unusable_images_are_refused():
    images = np.zeros((2, 16, 16))
    transformer = Scattering2D(2, 2).fit(images)
    with pytest.raises(DataError, match="got 150 feature"):
        Scattering2D(2, 2).fit(np.zeros((2, 150)))
    with pytest.raises(DataError, match=r"got 256 feature.* Set image_shape"):
        Scattering2D(2, 2, image_shape=(16, 15)).fit(np.zeros((2, 256)))
    with pytest.raises(DataError, match=r"shape \(1, 16, 16\).* got \(8, 32\)"):
        transformer.transform(np.zeros((2, 8, 32)))
    with pytest.raises(ValueError, match="expecting 256 features"):
        transformer.transform(np.zeros((2, 100)))
    with pytest.raises(ValueError, match="NaN"):
        transformer.transform(np.full((2, 16, 16), np.nan))
    with pytest.raises(DataError, match=r"4 .* dimensions, got 5"):
        transformer.transform(np.zeros((2, 1, 1, 16, 16)))
    with pytest.raises(NotFittedError):
        Scattering2D().transform(images)


def test_unusable_tensors_are_refused():
    transformer = Scattering2D(2, 2).fit(torch.zeros(2, 16, 16))
    with pytest.raises(DataError, match=r"256 features .* got 100"):
        transformer.transform(torch.zeros(2, 100))
    with pytest.raises(DataError, match="real and finite"):
        transformer.transform(torch.full((2, 16, 16), torch.inf))
    with pytest.raises(DataError, match="dimensions, got 1"):
        transformer.transform(torch.zeros(256))
    with pytest.raises(DataError, match="at least one image"):
        transformer.transform(torch.zeros(0, 16, 16))
    with pytest.raises(ValueError, match=r"0 sample\(s\)"):
        transformer.transform(np.zeros((0, 16, 16)))


@pytest.mark.gpu
def test_features_on_a_gpu_equal_those_on_the_processor(seed):
    images = random_images(seed, 50, 32, 32)
    transformer = Scattering2D(normalize=None).fit(images)
    expected = transformer.transform(images)
    actual = transformer.transform(images.cuda())
    assert actual.is_cuda
    assert float((actual.cpu() - expected).abs().max()) < 1e-5
    on_device = Scattering2D(normalize=None, device="cuda").fit_transform(images)
    assert not on_device.is_cuda
    assert float((on_device - expected).abs().max()) < 1e-5


# scikit-learn's checks draw tables of any width; scattering needs whole images. Each
# table is widened to rows of 4 x 4 pixels by repeating its columns.
def _as_small_images(estimator, X, kernel=None):
    return np.asarray(X)[:, np.arange(16) % X.shape[1]]


@parametrize_with_checks([Scattering2D(J=2, L=2)])
def test_scattering_passes_the_checks_of_scikit_learn(estimator, check, monkeypatch):
    monkeypatch.setattr(estimator_checks, "_enforce_estimator_tags_X", _as_small_images)
    check(estimator)


@pytest.mark.parametrize("unit", [1e-300, 1e-25, 1e-10, 1e20, 1e300])
def test_images_in_any_unit_are_scattered_alike(unit, seed):
    images = np.random.default_rng(seed).random((3, 16, 16))
    expected = Scattering2D(J=2).fit_transform(images)
    np.testing.assert_allclose(
        Scattering2D(J=2).fit_transform(unit * images), expected, atol=1e-4
    )
    linear = Scattering2D(J=2, normalize=None, dtype="float64")
    np.testing.assert_allclose(
        linear.fit_transform(unit * images) / unit,
        linear.fit_transform(images),
        rtol=1e-6,
    )


@pytest.mark.parametrize("n_channels", [1, 3])
def test_channels_may_come_last(n_channels, seed):
    images = np.random.default_rng(seed).random((2, n_channels, 16, 16))
    last = np.moveaxis(images, 1, 3)
    expected = Scattering2D(J=2).fit_transform(images)
    fitted = Scattering2D(J=2).fit(last)
    assert fitted.image_shape_ == (n_channels, 16, 16)
    assert (fitted.transform(last) == expected).all()
    assert (fitted.transform(torch.from_numpy(last)).numpy() == expected).all()
    assert (fitted.transform(images) == expected).all()


@pytest.mark.parametrize("dtype", [bool, np.int8, np.uint16, np.int64, ">f8", "f2"])
def test_pixels_of_any_type_are_taken(dtype, seed):
    images = np.random.default_rng(seed).integers(0, 2, (2, 16, 16)).astype(dtype)
    expected = Scattering2D(J=2).fit_transform(images.astype(np.float64))
    np.testing.assert_allclose(Scattering2D(J=2).fit_transform(images), expected)


def test_a_device_that_is_none_is_refused():
    images = np.ones((1, 16, 16))
    with pytest.raises(ConfigError, match="device must name a torch device"):
        Scattering2D(J=2, device="gpu").fit_transform(images)
