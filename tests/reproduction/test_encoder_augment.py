from __future__ import annotations

import colorsys

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from compare import assert_close

from reproduction.encoder.augment import (
    Augmentation,
    Changes,
    Crop,
    adjust_brightness,
    adjust_contrast,
    adjust_saturation,
    augment,
    blur,
    cut_patches,
    sample_changes,
    shift_hue,
    solarise,
)

# Pixels lie in [0, 1]: one part in a million of that range.
PIXEL = 1e-6


def random_images(n=5, height=20, width=24, *, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(n, 3, height, width, generator=generator, dtype=torch.float64)


def whole(n, side):
    zeros = torch.zeros(n, dtype=torch.float64)
    return Crop(side, top=zeros, left=zeros, flip=torch.zeros(n, dtype=torch.bool))


def no_changes(n, side):
    ones, zeros = torch.ones(n, dtype=torch.float64), torch.zeros(n).double()
    never = torch.zeros(n, dtype=torch.bool)
    return Changes(
        whole(n, side),
        brightness=ones,
        contrast=ones,
        saturation=ones,
        hue=zeros,
        sigma=zeros,
        grey=never,
        solarise=never,
    )


def test_flip_exchanges_left_and_right_only(seed):
    images = random_images(height=16, width=16, seed=seed)
    flip = torch.tensor([True, False, True, False, True])
    crop = whole(5, 16)._replace(flip=flip)
    actual = cut_patches(images, crop, 16)
    expected = torch.where(flip.view(-1, 1, 1, 1), images.flip(3), images)
    assert_close(actual, expected, atol=1e-12)


# Enlarged, kept and reduced; the first is what CIFAR-10's training does.
@pytest.mark.parametrize("patch_size", [32, 12, 9])
def test_crops_equal_slices_resized_by_interpolate(patch_size, seed):
    images = random_images(seed=seed)
    rng = np.random.default_rng(seed)
    tops, lefts = rng.integers(0, 9, 5), rng.integers(0, 13, 5)
    crop = Crop(
        12,
        top=torch.from_numpy(tops).double(),
        left=torch.from_numpy(lefts).double(),
        flip=torch.zeros(5, dtype=torch.bool),
    )
    actual = cut_patches(images, crop, patch_size)
    for i, (top, left) in enumerate(zip(tops, lefts, strict=True)):
        square = images[i : i + 1, :, top : top + 12, left : left + 12]
        expected = F.interpolate(square, size=(patch_size,) * 2, mode="bilinear")
        assert_close(actual[i : i + 1], expected, atol=1e-12)


def test_brightness_contrast_and_saturation_are_as_worked_by_hand():
    # One row of two pixels: pure red and black; grey values 0.299 and 0.
    def row(*values):
        return torch.tensor(values, dtype=torch.float64)

    patches = torch.stack([row(1, 0), row(0, 0), row(0, 0)]).view(1, 3, 1, 2)
    half = row(0.5)

    bright = adjust_brightness(patches, half)
    assert_close(bright[0, 0, 0], row(0.5, 0.0))

    # Mean grey 0.1495; half way between it and each pixel.
    contrast = adjust_contrast(patches, half)
    assert_close(
        contrast[0, 0, 0], torch.tensor([0.57475, 0.07475], dtype=torch.float64)
    )
    assert_close(
        contrast[0, 1, 0], torch.tensor([0.07475, 0.07475], dtype=torch.float64)
    )

    saturation = adjust_saturation(patches, half)
    assert_close(saturation[0, 0, 0], row(0.6495, 0.0))
    assert_close(saturation[0, 2, 0], row(0.1495, 0.0))


@pytest.mark.parametrize("turns", [0.0, 0.2, -0.2, 0.5, 1.0])
def test_hue_shift_equals_colorsys(turns, seed):
    patches = random_images(2, 4, 4, seed=seed)
    # Greys, pure colours and ties between channels are where formulas go wrong.
    special = [[0, 0, 0], [1, 1, 1], [1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0]]
    special += [[0, 1, 1], [1, 0, 1], [0.5, 0.5, 0.2], [0.2, 0.5, 0.5]]
    for place, colour in enumerate(special):
        patches[0, :, place // 4, place % 4] = torch.tensor(colour).double()
    shifted = shift_hue(patches, torch.full((2,), turns, dtype=torch.float64))

    for image in range(2):
        for place in range(16):
            row, column = divmod(place, 4)
            hue, saturation, value = colorsys.rgb_to_hsv(
                *patches[image, :, row, column].tolist()
            )
            expected = colorsys.hsv_to_rgb((hue + turns) % 1.0, saturation, value)
            np.testing.assert_allclose(
                shifted[image, :, row, column].numpy(), expected, atol=1e-12
            )


def test_blur_equals_scipys_gaussian_filter(seed):
    from scipy.ndimage import gaussian_filter

    patches = random_images(3, 16, 16, seed=seed)
    sigma = torch.tensor([0.4, 1.0, 2.0], dtype=torch.float64)
    actual = blur(patches, sigma)
    for i in range(3):
        expected = gaussian_filter(
            patches[i].numpy(),
            sigma=sigma[i].item(),
            axes=(1, 2),
            radius=4,
            mode="nearest",
        )
        np.testing.assert_allclose(actual[i].numpy(), expected, rtol=1e-9)


def test_solarise_equals_pillow():
    image_ops = pytest.importorskip("PIL.ImageOps")
    from PIL import Image

    values = np.arange(256, dtype=np.uint8).reshape(16, 16)
    expected = np.asarray(image_ops.solarize(Image.fromarray(values)))
    actual = solarise(torch.from_numpy(values).double() / 255) * 255
    np.testing.assert_allclose(actual.numpy(), expected, atol=1e-9)


def test_each_patch_gets_its_own_changes_and_no_one_elses(seed):
    images = random_images(6, 20, 20, seed=seed).float()
    generator = torch.Generator().manual_seed(seed)
    changes = sample_changes(
        6, (20, 20), augmentation=Augmentation(), generator=generator
    )
    together = augment(images, changes, 16)
    for i in range(6):
        alone = Changes(
            Crop(
                changes.crop.side,
                top=changes.crop.top[i : i + 1],
                left=changes.crop.left[i : i + 1],
                flip=changes.crop.flip[i : i + 1],
            ),
            **{
                name: getattr(changes, name)[i : i + 1]
                for name in Changes.__dataclass_fields__
                if name != "crop"
            },
        )
        assert_close(
            together[i : i + 1], augment(images[i : i + 1], alone, 16), atol=PIXEL
        )


def test_augmented_pixels_stay_within_their_range(seed):
    images = random_images(64, 20, 20, seed=seed).float()
    generator = torch.Generator().manual_seed(seed)
    changes = sample_changes(
        64, (20, 20), augmentation=Augmentation(), generator=generator
    )
    patches = augment(images, changes, 16)
    assert patches.shape == (64, 3, 16, 16)
    assert patches.min() >= -PIXEL
    assert patches.max() <= 1 + PIXEL


def test_changes_happen_as_often_and_as_strongly_as_asked(seed):
    n = 20_000
    settings = Augmentation()
    changes = sample_changes(
        n,
        (32, 40),
        augmentation=settings,
        generator=torch.Generator().manual_seed(seed),
    )
    # Five standard errors of a frequency: below 0.018 for n = 20,000.
    assert changes.crop.flip.float().mean().item() == pytest.approx(0.5, abs=0.018)
    assert changes.grey.float().mean().item() == pytest.approx(0.2, abs=0.018)
    assert changes.solarise.float().mean().item() == pytest.approx(0.1, abs=0.018)
    assert (changes.sigma > 0).float().mean().item() == pytest.approx(0.1, abs=0.018)
    assert (changes.hue != 0).float().mean().item() == pytest.approx(0.8, abs=0.018)
    assert changes.crop.side == 18
    assert changes.crop.top.unique().tolist() == list(range(15))
    assert changes.crop.left.unique().tolist() == list(range(23))
    assert 0.19 < changes.hue.abs().max().item() <= 0.2
    for factor in (changes.brightness, changes.contrast, changes.saturation):
        assert 0.6 <= factor.min().item() < 0.61
        assert 1.39 < factor.max().item() <= 1.4
    assert changes.sigma[changes.sigma > 0].min().item() >= 0.1
    assert changes.sigma.max().item() <= 2.0
