from __future__ import annotations

import base64
import io

import numpy as np
import pytest
import torch
from matplotlib import colormaps
from PIL import Image

from selfexpress.errors import ConfigError, DataError
from selfexpress.report.pictures import (
    base64_text,
    blend,
    group_colours,
    heat_address,
    oklch,
    png_address,
    sprite_sheet,
)
from selfexpress.report.samples import shown_samples
from selfexpress.rows.sources import ArraySource


def opened(address: str):
    start, _, text = address.partition(",")
    assert start == "data:image/png;base64"
    return np.array(Image.open(io.BytesIO(base64.b64decode(text))).convert("RGB"))


@pytest.mark.parametrize("shape", [(1, 1), (5, 3), (3, 5, 3)])
def test_an_address_holds_the_picture(shape, seed):
    pixels = np.random.default_rng(seed).integers(256, size=shape, dtype=np.uint8)
    expected = pixels if len(shape) == 3 else np.repeat(pixels[..., None], 3, axis=2)
    np.testing.assert_array_equal(opened(png_address(pixels)), expected)


def test_the_picture_of_c_shows_small_values_and_keeps_zero_black():
    shown = opened(heat_address(np.array([[0.0, 1.0], [0.25, 1.0]])))
    # Square roots of the share of the largest: 0, 1, 1/2; lighter all the way.
    light = shown.astype(int).sum(axis=2)
    assert light[0, 0] < 10 < light[1, 0] < light[0, 1] == light[1, 1]
    magma = [round(255 * value) for value in colormaps["magma"](128)[:3]]
    assert np.abs(shown[1, 0] - magma).max() <= 1
    assert (opened(heat_address(np.zeros((2, 2)))) < 5).all()


def test_a_sheet_lays_pictures_out_in_rows():
    pictures = np.arange(3, dtype=np.uint8).reshape(3, 1, 1).repeat(2, axis=2)
    expected = [[0, 0, 1, 1], [2, 2, 0, 0]]
    assert sprite_sheet(pictures, 2).tolist() == expected


def test_numbers_are_stored_lowest_byte_first():
    assert base64_text(np.array([258], dtype=">u2")) == "AgE="


def test_colours_of_groups_all_differ_and_show_on_white_and_black():
    colours = group_colours(60)
    assert len(set(colours)) == 60
    for colour in colours:
        light = _luminance(colour)
        assert 1.05 / (light + 0.05) > 2
        assert (light + 0.05) / 0.05 > 2


def _luminance(colour: str) -> float:
    """Relative luminance by the definition of the accessibility guidelines."""
    values = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    linear = [
        v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in values
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_known_colours_come_out_of_their_mixture():
    # OKLCH of pure red and of white, as published with the colour space.
    assert oklch(0.6279554, 0.2576833, 29.2338) == "#ff0000"
    assert oklch(1, 0, 0) == "#ffffff"


def test_a_blend_runs_from_one_hue_to_the_other():
    orange, *_, blue = blend(45, 260, 8)
    assert orange == oklch(0.68, 0.16, 45)
    assert blue == oklch(0.68, 0.16, 260)
    middle = [int(blend(45, 225, 3)[1][k : k + 2], 16) for k in (1, 3, 5)]
    assert max(middle) - min(middle) <= 1


def test_bytes_are_shown_as_they_are(seed):
    images = np.random.default_rng(seed).integers(256, size=(5, 4, 6), dtype=np.uint8)
    found = shown_samples(images, np.array([3, 1]))
    np.testing.assert_array_equal(found, images[[3, 1]])


def test_other_numbers_are_scaled_to_bytes():
    images = np.array([[[0.0, 0.5], [1.0, 0.25]]])
    assert shown_samples(images, np.array([0])).tolist() == [[[0, 128], [255, 64]]]


def test_colour_images_may_have_their_channels_first_or_last(seed):
    last = np.random.default_rng(seed).integers(256, size=(3, 8, 9, 3), dtype=np.uint8)
    first = np.moveaxis(last, 3, 1)
    index = np.arange(3)
    np.testing.assert_array_equal(shown_samples(first, index), last)
    np.testing.assert_array_equal(shown_samples(last, index), last)
    rows = first.reshape(3, -1)
    shaped = shown_samples(rows, index, image_shape=(3, 8, 9))
    np.testing.assert_array_equal(shaped, last)


def test_large_images_are_averaged_down():
    image = np.zeros((1, 130, 65), dtype=np.uint8)
    image[0, :3, :3] = 90
    small = shown_samples(image, np.array([0]))
    # Squares of 3 x 3 pixels, so that no side is longer than 64.
    assert small.shape == (1, 44, 22)
    assert small[0, 0, 0] == 90
    assert small.sum() == 90


def test_rows_are_taken_from_every_kind_of_data(seed):
    rows = np.random.default_rng(seed).normal(size=(6, 4)).astype(np.float32)
    index = np.array([5, 0])
    for data in (rows, rows.tolist(), torch.from_numpy(rows), ArraySource(rows)):
        np.testing.assert_allclose(shown_samples(data, index), rows[index], rtol=1e-6)


def test_long_rows_are_averaged():
    row = np.arange(256, dtype=np.float64)[None]
    found = shown_samples(row, np.array([0]))
    np.testing.assert_allclose(found[0], np.arange(128) * 2 + 0.5)


def test_a_shape_that_does_not_fit_is_refused():
    with pytest.raises(ConfigError, match="product is the 12 numbers"):
        shown_samples(np.zeros((2, 12)), np.array([0]), image_shape=(5, 5))
    with pytest.raises(DataError, match="grey or have 3 channels"):
        shown_samples(np.zeros((2, 4, 5, 2)), np.array([0]))
