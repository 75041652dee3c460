from __future__ import annotations

import errno
import functools
import json
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from selfexpress.errors import (
    CheckpointError,
    ConfigError,
    DataError,
    DegenerateWarning,
)
from selfexpress.features.scattering import Scattering2D
from selfexpress.features.whitening import Whitening
from selfexpress.files.arrays import read_array


@pytest.fixture
def run(call):
    return functools.partial(call, "features")


@pytest.fixture
def images(run, seed):
    array = np.random.default_rng(seed).integers(0, 256, (50, 10, 12), dtype=np.uint8)
    np.save("images.npy", array)
    return array


def test_scattering_and_whitening_stream_what_the_transformers_compute(run, images):
    sizes = ("--scales", 2, "--angles", 4, "--resize", 16, "--whiten", 6)
    words = ("images.npy", "-o", "out.npy", "--json", "--quiet", "--block-size", 7)
    summary = json.loads(run(*words, "--scattering", *sizes).stdout)
    white = Whitening(6)
    expected = white.fit_transform(Scattering2D(2, 4, resize=16).fit_transform(images))
    written = np.load("out.npy")
    assert written.dtype == np.float32
    np.testing.assert_allclose(written, expected, atol=1e-5)
    assert (summary["n_samples"], summary["n_features"]) == (50, 6)
    assert summary["explained"] == pytest.approx(white.explained_.sum(), rel=1e-5)
    assert set(summary["seconds"]) == {"finding components", "writing features"}


def test_the_number_of_components_can_be_left_open(run, images):
    run("images.npy", "-o", "out.npy", "--whiten", "auto")
    assert np.load("out.npy").shape == (50, 12)


def test_rows_of_any_file_can_be_projected(run, images):
    rows = images.reshape(50, -1)
    np.savetxt("rows.csv", rows, delimiter=",", fmt="%d")
    ran = run("rows.csv", "-o", "out.npz", "--project", 4, "--center")
    expected = Whitening(4, center=True, whiten=False).fit_transform(rows)
    np.testing.assert_allclose(read_array("out.npz"), expected, atol=1e-5)
    assert "50 rows of 4 features" in ran.stdout


def test_images_stored_as_rows_are_scattered_in_their_shape(run, images):
    np.save("rows.npy", images.reshape(50, -1))
    options = ("--scattering", "--scales", 2, "--angles", 2)
    run("images.npy", "-o", "a.npy", *options)
    run("rows.npy", "-o", "b.npy", *options, "--image-shape", "10x12")
    np.testing.assert_array_equal(np.load("a.npy"), np.load("b.npy"))
    assert np.load("a.npy").shape == (50, 9 * 2 * 3)
    ran = run("rows.npy", "-o", "b.npy", *options, "--image-shape", 10)
    assert ran.exit_code == 2
    assert "must look like 28x28" in ran.output


def test_channels_may_come_last_in_any_unit(run, seed):
    colours = 1e50 * np.random.default_rng(seed).random((6, 16, 16, 3))
    expected = Scattering2D(2).fit_transform(colours)
    for images in (colours, np.moveaxis(colours, 3, 1)):
        np.save("images.npy", images)
        run("images.npy", "-o", "out.npy", "--scattering", "--scales", 2)
        np.testing.assert_allclose(np.load("out.npy"), expected, atol=1e-5)


def test_the_paper_recipe_is_one_option(run, images):
    # Fewer angles and components than the paper's, for speed: what is given wins.
    run("images.npy", "-o", "a.npy", "--paper", "--angles", 2, "--project", 5)
    scattered = Scattering2D(J=3, L=2, resize=32).fit_transform(images)
    expected = Whitening(5, whiten=False).fit_transform(scattered)
    np.testing.assert_allclose(np.load("a.npy"), expected, atol=1e-5)


@pytest.mark.parametrize(
    ("words", "error", "message"),
    [
        ("", ConfigError, "At least one of --scattering"),
        ("--whiten 3 --project 4", ConfigError, "Only one"),
        ("--whiten 400", ConfigError, "120 features .* got 400"),
        ("--scattering --scales 0", ConfigError, "J must be a positive integer, got 0"),
        ("--whiten 3 -o out.txt", DataError, "suffix of .*out.txt"),
        ("--whiten 3 -o none/out.npy", DataError, "folder .*none must"),
        ("--whiten 2 --resize 9", ConfigError, "--resize must come with --scattering"),
        ("--whiten 2 --scales 3", ConfigError, "--scales must come with --scattering"),
        ("--scattering --center", ConfigError, "--center must come with --whiten"),
        ("--whiten 2 --split test", ConfigError, "--split must come with a data set's"),
        ("--whiten 2 --device gpu", ConfigError, "device must .* got 'gpu'"),
        ("--whiten 2 --device meta", ConfigError, "device must .* got 'meta'"),
    ],
)
def test_bad_requests_are_refused_before_any_work(run, images, words, error, message):
    with pytest.raises(error, match=message):
        run("images.npy", "-o", "out.npy", *words.split())
    assert [path.name for path in Path().iterdir()] == ["images.npy"]


def test_a_set_of_sequences_is_refused(run, data_folder):
    with pytest.raises(DataError, match="Name one of them, such as hopkins155/"):
        run("hopkins155", "-o", "out.npy", "--whiten", 3)


def test_data_sets_are_read_by_name_and_split(run, data_folder):
    ran = run("orl", "-o", "orl.npy", "--whiten", 20, "--json", "--quiet")
    assert json.loads(ran.stdout)["n_samples"] == 400
    np.testing.assert_allclose(np.linalg.norm(np.load("orl.npy"), axis=1), 1, rtol=1e-5)


def test_new_rows_are_projected_by_components_that_were_kept(run, images):
    rows = images.reshape(len(images), -1).astype(np.float32)
    np.save("old.npy", rows[:-3])
    np.save("new.npy", rows[-3:])
    made = run("old.npy", "-o", "out.npy", "--whiten", 4, "--projection", "kept")
    assert "of the total" in made.stdout
    used = run("new.npy", "-o", "out.npy", "--projection", "kept")
    assert "of the total" not in used.stdout
    expected = Whitening(4).fit(rows[:-3]).transform(rows[-3:])
    np.testing.assert_allclose(np.load("out.npy"), expected, atol=1e-6)
    with pytest.raises(CheckpointError, match="must be the components"):
        run("new.npy", "-o", "out.npy", "--projection", "old.npy")
    with pytest.raises(DataError, match="--output and --projection must be different"):
        run("new.npy", "-o", "k.npy", "--whiten", 2, "--projection", "k.npy")


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_columns_are_known_by_their_names(suffix, run, seed):
    rows = np.random.default_rng(seed).normal(size=(30, 4))
    frame = pd.DataFrame(rows, columns=list("abcd"))
    getattr(frame, f"to_{suffix}")(f"old.{suffix}", index=False)
    getattr(frame[list("dcba")], f"to_{suffix}")(f"new.{suffix}", index=False)
    run(f"old.{suffix}", "-o", "out.npy", "--whiten", 2, "--projection", "kept")
    with pytest.raises(DataError, match="columns that fit saw, in their order"):
        run(f"new.{suffix}", "-o", "out.npy", "--projection", "kept")
    run(f"old.{suffix}", "-o", "out.npy", "--projection", "kept")
    expected = Whitening(2).fit_transform(rows)
    np.testing.assert_allclose(np.load("out.npy"), expected, atol=1e-6)


def test_a_column_named_like_classes_is_warned_of(run):
    rows = np.random.default_rng(0).normal(size=(30, 3))
    pd.DataFrame(rows, columns=["a", "b", "label"]).to_csv("rows.csv", index=False)
    with pytest.warns(DegenerateWarning, match="'label' is called as the true classes"):
        run("rows.csv", "-o", "out.npy", "--whiten", 2)


def test_a_full_disk_is_noticed_before_anything_is_mapped(run, images, monkeypatch):
    def fail(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", fail)
    with pytest.raises(DataError, match="No space left on device"):
        run("images.npy", "-o", "out.npy", "--whiten", 2)
    assert [path.name for path in Path().iterdir()] == ["images.npy"]


def test_a_folder_of_shards_is_projected_whole(run, seed):
    rows = np.random.default_rng(seed).normal(size=(30, 4))
    Path("shards").mkdir()
    for place, part in enumerate(np.split(rows, 3)):
        np.save(f"shards/{place}.npy", part)
    run("shards", "-o", "out.npy", "--whiten", 2)
    expected = Whitening(2).fit_transform(rows)
    np.testing.assert_allclose(np.load("out.npy"), expected, atol=1e-6)
    with pytest.raises(DataError, match="must lie in one file, got the folder"):
        run("shards", "-o", "out.npy", "--scattering")
