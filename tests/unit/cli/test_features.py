from __future__ import annotations

import errno
import json
import os
import sys

import numpy as np
import pandas as pd
import pytest
import typer
from typer.testing import CliRunner

from selfexpress.cli.features import features
from selfexpress.errors import (
    CheckpointError,
    ConfigError,
    DataError,
    DegenerateWarning,
)
from selfexpress.features.scattering import Scattering2D
from selfexpress.features.whitening import Whitening
from selfexpress.files.arrays import read_array

# The package's __init__ gives the name to the function, so ask for the module.
features_command = sys.modules["selfexpress.cli.features"]


@pytest.fixture
def run():
    app = typer.Typer()
    app.command()(features)

    def invoke(*words):
        result = CliRunner().invoke(app, [str(word) for word in words])
        if result.exception is not None and not isinstance(
            result.exception, SystemExit
        ):
            raise result.exception
        return result

    return invoke


@pytest.fixture
def images(tmp_path, seed):
    array = np.random.default_rng(seed).integers(0, 256, (50, 10, 12), dtype=np.uint8)
    np.save(tmp_path / "images.npy", array)
    return array


def test_scattering_and_whitening_stream_what_the_transformers_compute(
    run, images, tmp_path
):
    result = run(
        *(tmp_path / "images.npy", "-o", tmp_path / "out.npy", "--json", "--quiet"),
        *("--scattering", "--scales", 2, "--angles", 4, "--resize", 16),
        *("--whiten", 6, "--block-size", 7),
    )
    white = Whitening(6)
    expected = white.fit_transform(Scattering2D(2, 4, resize=16).fit_transform(images))
    written = np.load(tmp_path / "out.npy")
    assert written.dtype == np.float32
    np.testing.assert_allclose(written, expected, atol=1e-5)
    summary = json.loads(result.stdout)
    assert (summary["n_samples"], summary["n_features"]) == (50, 6)
    assert summary["explained"] == pytest.approx(white.explained_.sum(), rel=1e-5)
    assert set(summary["seconds"]) == {"finding components", "writing features"}


def test_the_number_of_components_can_be_left_open(run, images, tmp_path):
    run(tmp_path / "images.npy", "-o", tmp_path / "out.npy", "--whiten", "auto")
    assert np.load(tmp_path / "out.npy").shape == (50, 12)


def test_rows_of_any_file_can_be_projected(run, images, tmp_path):
    rows = images.reshape(50, -1)
    np.savetxt(tmp_path / "rows.csv", rows, delimiter=",", fmt="%d")
    result = run(
        tmp_path / "rows.csv", "-o", tmp_path / "out.npz", "--project", 4, "--center"
    )
    expected = Whitening(4, center=True, whiten=False).fit_transform(rows)
    np.testing.assert_allclose(read_array(tmp_path / "out.npz"), expected, atol=1e-5)
    assert "50 rows of 4 features" in result.stdout


def test_images_stored_as_rows_are_scattered_in_their_shape(run, images, tmp_path):
    np.save(tmp_path / "rows.npy", images.reshape(50, -1))
    options = ("--scattering", "--scales", 2, "--angles", 2)
    run(tmp_path / "images.npy", "-o", tmp_path / "a.npy", *options)
    shape = ("--image-shape", "10x12")
    run(tmp_path / "rows.npy", "-o", tmp_path / "b.npy", *options, *shape)
    first, second = np.load(tmp_path / "a.npy"), np.load(tmp_path / "b.npy")
    np.testing.assert_array_equal(first, second)
    assert first.shape == (50, 9 * 2 * 3)


def test_channels_may_come_last(run, tmp_path, seed):
    colours = np.random.default_rng(seed).random((6, 16, 16, 3))
    np.save(tmp_path / "last.npy", colours)
    np.save(tmp_path / "first.npy", np.moveaxis(colours, 3, 1))
    for name in ("first", "last"):
        out = tmp_path / f"{name}-out.npy"
        run(tmp_path / f"{name}.npy", "-o", out, "--scattering", "--scales", 2)
    written = np.load(tmp_path / "last-out.npy")
    np.testing.assert_array_equal(written, np.load(tmp_path / "first-out.npy"))
    expected = Scattering2D(2).fit_transform(colours)
    np.testing.assert_allclose(written, expected, atol=1e-6)
    # As lists, too.
    listed = Scattering2D(2).fit_transform(colours.tolist())
    np.testing.assert_array_equal(listed, expected)


def test_images_in_any_unit_are_scattered(run, tmp_path, seed):
    images = np.random.default_rng(seed).random((4, 16, 16))
    for unit in (1e-50, 1.0, 1e50):
        np.save(tmp_path / "images.npy", unit * images)
        out = tmp_path / f"{unit}.npy"
        run(tmp_path / "images.npy", "-o", out, "--scattering", "--scales", 2)
        np.testing.assert_allclose(
            np.load(out), Scattering2D(2).fit_transform(images), atol=1e-5
        )


def test_the_paper_recipe_is_one_option(run, tmp_path, seed):
    generator = np.random.default_rng(seed)
    images = generator.integers(0, 256, (12, 20, 20), dtype=np.uint8)
    np.save(tmp_path / "images.npy", images)
    # Fewer angles and components than the paper's, for speed: what is given wins.
    fewer = ("--angles", 2, "--project", 5)
    run(tmp_path / "images.npy", "-o", tmp_path / "a.npy", "--paper", *fewer)
    expected = Whitening(5, whiten=False).fit_transform(
        Scattering2D(J=3, L=2, resize=32).fit_transform(images)
    )
    np.testing.assert_allclose(np.load(tmp_path / "a.npy"), expected, atol=1e-5)


@pytest.mark.parametrize(
    ("words", "error", "message"),
    [
        (["-o", "out.npy"], ConfigError, "At least one of --scattering"),
        (["-o", "out.npy", "--whiten", "3", "--project", "4"], ConfigError, "Only one"),
        (["-o", "out.npy", "--whiten", "400"], ConfigError, "120 features .* got 400"),
        (
            ["-o", "out.npy", "--scattering", "--image-shape", "10"],
            ConfigError,
            "--image-shape must look like",
        ),
        (
            ["-o", "out.npy", "--scattering", "--scales", "0"],
            ConfigError,
            "J must be a positive integer, got 0",
        ),
        (["-o", "out.txt", "--whiten", "3"], DataError, "suffix of .*out.txt"),
        (["-o", "none/out.npy", "--whiten", "3"], DataError, "folder .*none must"),
    ],
)
def test_bad_requests_are_refused_before_any_work(
    run, images, tmp_path, monkeypatch, words, error, message
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match=message):
        run("images.npy", *words)
    assert [path.name for path in tmp_path.iterdir()] == ["images.npy"]


def test_a_set_of_sequences_is_refused(run, tmp_path, data_folder):
    with pytest.raises(DataError, match="Name one of them, such as hopkins155/"):
        run("hopkins155", "-o", tmp_path / "out.npy", "--whiten", 3)


def test_data_sets_are_read_by_name_and_split(run, tmp_path, data_folder):
    result = run("orl", "-o", tmp_path / "orl.npy", "--whiten", 20, "--json", "--quiet")
    assert json.loads(result.stdout)["n_samples"] == 400
    lengths = np.linalg.norm(np.load(tmp_path / "orl.npy"), axis=1)
    np.testing.assert_allclose(lengths, 1, rtol=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--whiten", 2, "--resize", 9), "--resize must come with --scattering, got 9"),
        (("--whiten", 2, "--scales", 3), "--scales must come with --scattering"),
        (("--scattering", "--center"), "--center must come with --whiten or --project"),
        (
            ("--whiten", 2, "--split", "test"),
            "--split must come with a data set's name",
        ),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    options, message, run, images, tmp_path
):
    with pytest.raises(ConfigError, match=message):
        run(tmp_path / "images.npy", "-o", tmp_path / "out.npy", *options)


@pytest.mark.parametrize("device", ["gpu", "meta"])
def test_a_device_that_cannot_compute_is_refused(run, images, tmp_path, device):
    words = (tmp_path / "images.npy", "-o", tmp_path / "out.npy", "--whiten", 6)
    with pytest.raises(ConfigError, match=f"device must .* got '{device}'"):
        run(*words, "--device", device)
    assert not (tmp_path / "out.npy").exists()


def test_new_rows_are_projected_by_components_that_were_kept(run, images, tmp_path):
    rows = images.reshape(len(images), -1).astype(np.float64)
    np.save(tmp_path / "old.npy", rows[:-3])
    np.save(tmp_path / "new.npy", rows[-3:])
    kept, out = tmp_path / "kept", tmp_path / "out.npy"
    made = run(tmp_path / "old.npy", "-o", out, "--whiten", 4, "--projection", kept)
    assert made.exit_code == 0
    assert "of the total" in made.stdout
    used = run(tmp_path / "new.npy", "-o", out, "--projection", kept)
    assert used.exit_code == 0
    assert "of the total" not in used.stdout
    expected = Whitening(4).fit(np.float32(rows[:-3])).transform(np.float32(rows[-3:]))
    np.testing.assert_allclose(read_array(out), expected, atol=1e-6)
    with pytest.raises(CheckpointError, match="must be the components"):
        run(tmp_path / "new.npy", "-o", out, "--projection", tmp_path / "old.npy")
    with pytest.raises(DataError, match="--output and --projection must be different"):
        run(tmp_path / "new.npy", "-o", tmp_path / "k.npy", "--whiten", 2,
            "--projection", tmp_path / "k.npy")  # fmt: skip


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_columns_are_known_by_their_names(suffix, run, tmp_path, seed):
    rows = np.random.default_rng(seed).normal(size=(30, 4))
    frame = pd.DataFrame(rows, columns=list("abcd"))
    write = f"to_{suffix}"
    getattr(frame, write)(tmp_path / f"old.{suffix}", index=False)
    getattr(frame[list("dcba")], write)(tmp_path / f"new.{suffix}", index=False)
    kept, out = tmp_path / "kept", tmp_path / "out.npy"
    run(tmp_path / f"old.{suffix}", "-o", out, "--whiten", 2, "--projection", kept)
    with pytest.raises(DataError, match="columns that fit saw, in their order"):
        run(tmp_path / f"new.{suffix}", "-o", out, "--projection", kept)
    run(tmp_path / f"old.{suffix}", "-o", out, "--projection", kept)
    np.testing.assert_allclose(
        np.load(out), Whitening(2).fit_transform(rows), atol=1e-6
    )


def test_a_column_named_like_classes_is_told(run, tmp_path):
    rows = np.random.default_rng(0).normal(size=(30, 3))
    frame = pd.DataFrame(rows, columns=["a", "b", "label"])
    frame.to_csv(tmp_path / "rows.csv", index=False)
    with pytest.warns(DegenerateWarning, match="'label' is called as the true classes"):
        run(tmp_path / "rows.csv", "-o", tmp_path / "out.npy", "--whiten", 2)


def test_a_full_disk_is_told_before_anything_is_mapped(
    run, images, tmp_path, monkeypatch
):
    def fail(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", fail)
    with pytest.raises(DataError, match="No space left on device"):
        run(tmp_path / "images.npy", "-o", tmp_path / "out.npy", "--whiten", 2)
    assert [path.name for path in tmp_path.iterdir()] == ["images.npy"]


def test_images_in_a_folder_are_refused(run, tmp_path):
    with pytest.raises(DataError, match="must lie in one file, got the folder"):
        run(tmp_path, "-o", tmp_path.parent / "out.npy", "--scattering")


def test_a_folder_of_shards_is_projected_whole(run, tmp_path, seed):
    rows = np.random.default_rng(seed).normal(size=(30, 4))
    (tmp_path / "shards").mkdir()
    for place, part in enumerate(np.split(rows, 3)):
        np.save(tmp_path / "shards" / f"{place}.npy", part)
    run(tmp_path / "shards", "-o", tmp_path / "out.npy", "--whiten", 2)
    expected = Whitening(2).fit_transform(rows)
    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), expected, atol=1e-6)
