from __future__ import annotations

import json
import math
import pickle

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from compare import assert_close, relative_error
from sklearn.base import clone
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from reproduction.encoder.augment import Augmentation, Crop, cut_patches
from reproduction.encoder.axes import fit_principal_axes
from reproduction.encoder.estimator import CodingRateEncoder
from reproduction.encoder.resnet import LAYERS, Architecture, build_network
from reproduction.encoder.training import TrainingSettings, _Run
from reproduction.encoder.views import check_images, view_grid
from selfexpress.errors import (
    CheckpointError,
    ConfigError,
    DataError,
    DegenerateError,
    DegenerateWarning,
)

TINY = {
    "n_patches": 3,
    "batch_size": 8,
    "n_epochs": 2,
    "invariance": 20.0,
    "patch_size": 16,
    "grid_size": 2,
    "width": 4,
    "n_blocks": (1, 1),
    "n_hidden": 24,
    "n_projection": 12,
    "log_interval": 1,
    "device": "cpu",
}


def gratings(n_images, seed, *, size=24):
    """Noisy waves in one of four directions, and the direction."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 4, n_images)
    angle = np.pi / 4 * labels[:, None, None, None]
    rows, columns = np.mgrid[:size, :size]
    phase = rng.uniform(0, 2 * np.pi, (n_images, 1, 1, 3))
    waves = np.sin(
        np.cos(angle) * rows[..., None] + np.sin(angle) * columns[..., None] + phase
    )
    noisy = 128 + 60 * waves + 30 * rng.standard_normal(waves.shape)
    return noisy.clip(0, 255).astype(np.uint8), labels


def tiny(seed, n_components=5, **overrides):
    return CodingRateEncoder(
        n_components, **{**TINY, "random_state": seed, **overrides}
    )


def neighbour_accuracy(train, train_labels, test, test_labels):
    nearest = np.argsort(-test @ train.T, axis=1)[:, :20]
    votes = np.apply_along_axis(np.bincount, 1, train_labels[nearest], minlength=10)
    return float((votes.argmax(axis=1) == test_labels).mean())


# ---- features


def test_features_are_unit_rows_and_the_same_for_the_same_seed(seed):
    images, _ = gratings(20, seed)
    features = tiny(seed).fit_transform(images)
    assert features.shape == (20, 5)
    assert features.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(features, axis=1), 1, rtol=1e-5)
    np.testing.assert_array_equal(tiny(seed).fit(images).transform(images), features)
    assert not np.allclose(tiny(seed + 1).fit_transform(images), features)


def test_layout_and_container_of_images_do_not_matter(seed):
    images, _ = gratings(20, seed)
    encoder = tiny(seed).fit(images)
    expected = encoder.transform(images)
    channels_first = np.ascontiguousarray(images.transpose(0, 3, 1, 2))
    for same in (channels_first, torch.from_numpy(images), images.tolist()):
        if isinstance(same, list):
            same = np.array(same, dtype=np.uint8)
        np.testing.assert_array_equal(encoder.transform(same), expected)
    images.flags.writeable = False
    np.testing.assert_array_equal(encoder.transform(images), expected)


def test_features_of_an_image_do_not_depend_on_its_company(seed):
    images, _ = gratings(20, seed)
    encoder = tiny(seed).fit(images)
    alone = np.concatenate([encoder.transform(images[i : i + 1]) for i in range(4)])
    np.testing.assert_allclose(alone, encoder.transform(images)[:4], atol=1e-5)


def test_averages_equal_a_loop_over_slices_and_mirror_images(seed):
    images, _ = gratings(20, seed)
    encoder = tiny(seed).fit(images)
    network = encoder.network_
    pixels = torch.from_numpy(images[:2].transpose(0, 3, 1, 2) / 255).float()
    sums = dict.fromkeys(LAYERS, 0)
    # A quarter of 24 x 24 is 12 x 12; two per axis start at 0 and 12.
    for top in (0, 12):
        for left in (0, 12):
            square = pixels[:, :, top : top + 12, left : left + 12]
            view = F.interpolate(square, size=(16, 16), mode="bilinear") * 2 - 1
            for shown in (view, view.flip(3)):
                with torch.no_grad():
                    for name in LAYERS:
                        sums[name] = sums[name] + network.represent(shown, name)
    found = encoder.represent(images[:2])
    for name in LAYERS:
        assert_close(torch.from_numpy(found[name]), sums[name] / 8, atol=1e-6)


def test_transform_is_represent_followed_by_reduce(seed):
    images, _ = gratings(20, seed)
    encoder = tiny(seed, layer="backbone").fit(images)
    averages = encoder.represent(images, ["backbone"])["backbone"]
    np.testing.assert_allclose(
        encoder.reduce(averages), encoder.transform(images), atol=1e-6
    )


def test_grid_of_one_is_the_centre_and_larger_grids_reach_the_edges():
    centre = view_grid(16, (32, 40), 1)
    assert (centre.top.tolist(), centre.left.tolist()) == ([8, 8], [12, 12])
    assert centre.flip.tolist() == [False, True]
    grid = view_grid(16, (32, 32), 4)
    assert grid.top.unique().tolist() == [0, 5, 11, 16]
    assert len(grid.top) == 32
    assert grid.flip.sum().item() == 16


def test_views_of_the_grid_are_slices_of_the_image(seed):
    images = torch.rand(1, 3, 32, 32, generator=torch.Generator().manual_seed(seed))
    grid = view_grid(16, (32, 32), 3)
    one = Crop(16, top=grid.top[5:6], left=grid.left[5:6], flip=grid.flip[5:6])
    assert_close(cut_patches(images, one, 16), images[:, :, 8:24, 16:32], atol=1e-5)


# ---- principal axes


@pytest.mark.parametrize("block_size", [1, 7, 60])
def test_principal_axes_equal_scikit_learns_pca(block_size, seed):
    rows = np.random.default_rng(seed).standard_normal((60, 9)) * np.arange(1, 10) + 3
    axes = fit_principal_axes(torch.from_numpy(rows).split(block_size), 4)
    expected = PCA(4, svd_solver="full").fit(rows)
    np.testing.assert_allclose(axes.mean.numpy(), expected.mean_, rtol=1e-5)
    overlap = np.abs((axes.axes.numpy() * expected.components_).sum(axis=1))
    np.testing.assert_allclose(overlap, 1, rtol=1e-5)


def test_axes_without_centring_equal_the_singular_vectors(seed):
    rows = np.random.default_rng(seed).standard_normal((60, 9)) * np.arange(1, 10) + 3
    axes = fit_principal_axes([torch.from_numpy(rows)], 4, is_centred=False)
    expected = TruncatedSVD(4, algorithm="arpack", random_state=0).fit(rows)
    overlap = np.abs((axes.axes.numpy() * expected.components_).sum(axis=1))
    assert not axes.mean.any()
    np.testing.assert_allclose(overlap, 1, rtol=1e-5)


def test_reduction_by_hand():
    # Points on the line (1, 2) + t (3, 4): the only axis is (0.6, 0.8).
    rows = torch.tensor([[4.0, 6.0], [-2.0, -2.0], [7.0, 10.0], [-5.0, -6.0]])
    axes = fit_principal_axes([rows], 1)
    assert_close(axes.axes, torch.tensor([[0.6, 0.8]]))
    assert_close(axes.mean, torch.tensor([1.0, 2.0]))
    assert axes.reduce(rows).flatten().tolist() == [1, -1, 1, -1]


# ---- training


def test_loss_falls_in_training(seed):
    images, _ = gratings(64, seed)
    history = tiny(seed, n_epochs=24).fit(images).history_
    losses = [row["loss"] for row in history]
    assert len(losses) == 192  # 8 steps in each of 24 epochs
    assert np.mean(losses[-8:]) < np.mean(losses[:8]) - 0.5


def test_learning_rate_rises_then_follows_half_a_cosine():
    settings = TrainingSettings(learning_rate=0.4, warmup=0.2)
    expected = {0: 0.0, 0.1: 0.2, 0.2: 0.4, 0.6: 0.2, 1: 0.0}
    for progress, rate in expected.items():
        assert settings.rate_at(progress) == pytest.approx(rate, abs=1e-12)
    quarter = 0.2 * (1 + math.cos(math.pi / 4))
    assert settings.rate_at(0.4) == pytest.approx(quarter, rel=1e-12)


def test_progress_is_by_steps_by_the_clock_or_by_whichever_is_ahead():
    by_steps = TrainingSettings(n_epochs=4, batch_size=10)
    assert by_steps.progress(6, 999.0, n_images=35) == 0.5  # 12 steps in all
    by_time = TrainingSettings(n_epochs=None, max_seconds=40.0)
    assert by_time.progress(6, 10.0, n_images=35) == 0.25
    both = TrainingSettings(n_epochs=4, batch_size=10, max_seconds=40.0)
    assert both.progress(6, 10.0, n_images=35) == 0.5
    assert both.progress(6, 30.0, n_images=35) == 0.75


def test_a_time_budget_ends_the_run(seed):
    images, _ = gratings(20, seed)
    encoder = tiny(seed, n_epochs=None, max_seconds=0.2).fit(images)
    assert encoder.seconds_ >= 0.2
    assert encoder.n_steps_ == encoder.history_[-1]["step"] >= 1


def start_run(images, settings, seed):
    generator = torch.Generator().manual_seed(seed)
    network = build_network(Architecture(4, (1,), 8, 4), generator)
    return _Run(network, torch.from_numpy(images), settings, seed)


def test_patches_of_an_image_stand_at_its_place_in_every_group(seed):
    images = np.random.default_rng(seed).integers(0, 256, (6, 3, 16, 16), np.uint8)
    unchanged = Augmentation(
        crop_area=1.0,
        flip_probability=0,
        jitter_probability=0,
        grey_probability=0,
        blur_probability=0,
        solarise_probability=0,
    )
    settings = TrainingSettings(
        n_patches=3, batch_size=4, patch_size=16, augmentation=unchanged
    )
    run = start_run(images, settings, seed)
    groups = run._patches().unflatten(0, (3, 4))
    expected = torch.from_numpy(images)[run._batch_index()] / 255 * 2 - 1
    for group in groups:
        assert_close(group, expected, atol=1e-5)


def test_every_step_cuts_other_patches(seed):
    one = np.random.default_rng(seed).integers(0, 256, (1, 3, 16, 16), np.uint8)
    run = start_run(one.repeat(4, axis=0), TrainingSettings(batch_size=4), seed)
    first, again = run._patches(), run._patches()
    run.state.step += 1
    assert torch.equal(first, again)
    assert not torch.equal(first, run._patches())


def test_every_image_is_seen_once_an_epoch(seed):
    images = np.zeros((24, 3, 16, 16), np.uint8)
    run = start_run(images, TrainingSettings(batch_size=8), seed)
    epochs = []
    for _ in range(2):
        seen = []
        for _ in range(3):
            seen += run._batch_index().tolist()
            run.state.step += 1
        assert sorted(seen) == list(range(24))
        epochs.append(seen)
    assert epochs[0] != epochs[1]


class StopError(Exception):
    pass


def stop_at(step):
    def on_log(row):
        if row["step"] == step:
            raise StopError

    return on_log


def test_an_interrupted_and_resumed_run_equals_an_undisturbed_one(seed, tmp_path):
    images, _ = gratings(20, seed)  # 2 steps an epoch
    undisturbed = tiny(seed, n_epochs=4).fit(images)

    path = tmp_path / "run" / "training.checkpoint"
    files = {"checkpoint": path, "checkpoint_seconds": 0.0, "n_epochs": 4}
    for step in (4, 6):
        with pytest.raises(StopError):
            tiny(seed, on_log=stop_at(step), **files).fit(images)
        assert path.exists()
    resumed = tiny(seed, **files).fit(images)

    assert not path.exists()
    assert not list(path.parent.iterdir())
    for name, tensor in undisturbed.network_.state_dict().items():
        assert torch.equal(resumed.network_.state_dict()[name], tensor), name
    columns = ("step", "loss", "rate", "discrepancy", "learning_rate")
    for name in columns:
        assert [row[name] for row in resumed.history_] == [
            row[name] for row in undisturbed.history_
        ]
    np.testing.assert_array_equal(
        resumed.transform(images), undisturbed.transform(images)
    )


def test_time_already_spent_counts_after_a_resumption(seed, tmp_path):
    images, _ = gratings(20, seed)
    files = {"checkpoint": tmp_path / "c", "checkpoint_seconds": 0.0}
    with pytest.raises(StopError):
        tiny(seed, on_log=stop_at(3), **files).fit(images)
    resumed = tiny(seed, max_seconds=1e-9, **files).fit(images)
    assert resumed.n_steps_ == 2  # no step beyond the last one saved


def test_a_checkpoint_of_other_settings_is_refused_by_name(seed, tmp_path):
    images, _ = gratings(20, seed)
    files = {"checkpoint": tmp_path / "c", "checkpoint_seconds": 0.0}
    with pytest.raises(StopError):
        tiny(seed, on_log=stop_at(3), **files).fit(images)
    with pytest.raises(CheckpointError, match=r"differs in invariance, seed\."):
        tiny(seed + 1, **files, invariance=21.0).fit(images)
    with pytest.raises(CheckpointError, match=r"differs in images\."):
        tiny(seed, **files).fit(images[:19])
    with pytest.raises(CheckpointError, match=r"differs in images\."):
        tiny(seed, **files).fit(images[::-1].copy())


@pytest.mark.parametrize("damage", [b"", b"not a checkpoint", None])
def test_a_damaged_checkpoint_is_refused(damage, seed, tmp_path):
    images, _ = gratings(20, seed)
    path = tmp_path / "c"
    files = {"checkpoint": path, "checkpoint_seconds": 0.0}
    with pytest.raises(StopError):
        tiny(seed, on_log=stop_at(3), **files).fit(images)
    path.write_bytes(path.read_bytes()[:-100] if damage is None else damage)
    with pytest.raises(CheckpointError, match="cannot be read"):
        tiny(seed, **files).fit(images)


def test_a_loss_that_is_no_number_stops_the_run(seed):
    images, _ = gratings(20, seed)
    with pytest.raises(DegenerateError, match=r"became (nan|inf|-inf) at step"):
        tiny(seed, learning_rate=1e30, n_epochs=5).fit(images)


def test_features_that_coincide_are_warned_of(seed):
    black = np.zeros((20, 16, 16, 3), np.uint8)
    with pytest.warns(DegenerateWarning, match="features that all coincide"):
        tiny(seed, n_epochs=4).fit(black)


# ---- files


def test_a_loaded_encoder_gives_the_same_features(seed, tmp_path):
    images, _ = gratings(20, seed)
    encoder = tiny(seed).fit(images)
    encoder.save(str(tmp_path / "model"))
    loaded = CodingRateEncoder.load(tmp_path / "model", device="cpu")
    np.testing.assert_array_equal(loaded.transform(images), encoder.transform(images))
    assert loaded.history_ == encoder.history_
    assert loaded.n_steps_ == encoder.n_steps_
    assert loaded.image_shape_ == (24, 24)
    loaded.save(tmp_path / "again")
    first, second = (tmp_path / name for name in ("model", "again"))
    for file in first.iterdir():
        assert (second / file.name).read_bytes() == file.read_bytes()


def test_a_loaded_encoder_has_no_projector_that_was_not_saved(seed, tmp_path):
    images, _ = gratings(20, seed)
    encoder = tiny(seed).fit(images)
    encoder.save(tmp_path)
    loaded = CodingRateEncoder.load(tmp_path, device="cpu")
    found, expected = loaded.represent(images), encoder.represent(images)
    assert (*found, "projection") == tuple(expected) == LAYERS
    for name in found:
        np.testing.assert_array_equal(found[name], expected[name])
    with pytest.raises(ConfigError, match="layers must be one of"):
        loaded.represent(images, ["projection"])


def test_a_save_that_is_refused_leaves_the_older_model(seed, tmp_path):
    images, _ = gratings(20, seed)
    encoder = tiny(seed, n_components=np.int64(5)).fit(images)
    encoder.save(tmp_path)
    with pytest.raises(ConfigError, match="max_file_bytes"):
        encoder.save(tmp_path, max_file_bytes=10)
    loaded = CodingRateEncoder.load(tmp_path, device="cpu")
    np.testing.assert_array_equal(loaded.transform(images), encoder.transform(images))
    encoder.save(tmp_path, max_file_bytes=3000)
    encoder.save(tmp_path)
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("layer", LAYERS)
def test_each_layer_survives_half_precision_and_small_files(layer, seed, tmp_path):
    images, _ = gratings(20, seed)
    encoder = tiny(seed, layer=layer).fit(images)
    encoder.save(tmp_path, dtype="float16", max_file_bytes=3000)
    shards = list(tmp_path.glob("weights-*-of-*.safetensors"))
    assert len(shards) > 1
    assert max(shard.stat().st_size for shard in shards) <= 3000
    loaded = CodingRateEncoder.load(tmp_path, device="cpu")

    # Exact: matrices are rounded once, vectors not at all. Features have no such
    # bound, since scaling to unit norm magnifies any rounding of an image that lies
    # close to the mean.
    before, after = (
        {**each.network_.state_dict(), **each.axes_.tensors()}
        for each in (encoder, loaded)
    )
    dropped = () if layer == "projection" else ("projector.",)
    for name, tensor in before.items():
        if not name.startswith(dropped):
            stored = tensor.half().float() if tensor.ndim > 1 else tensor
            assert torch.equal(after[name], stored), name
    assert loaded.transform(images).shape == (20, 5)


def test_a_model_saved_over_a_larger_one_leaves_no_old_files(seed, tmp_path):
    images, _ = gratings(20, seed)
    encoder = tiny(seed).fit(images)
    encoder.save(tmp_path, max_file_bytes=5000)
    encoder.save(tmp_path)
    names = sorted(file.name for file in tmp_path.iterdir())
    assert names == ["settings.json", "weights-1-of-1.safetensors"]


def test_incomplete_or_foreign_models_are_refused(seed, tmp_path):
    images, _ = gratings(20, seed)
    encoder = tiny(seed).fit(images)
    with pytest.raises(CheckpointError, match=r"settings\.json"):
        CodingRateEncoder.load(tmp_path / "nowhere")
    encoder.save(tmp_path)
    settings = json.loads((tmp_path / "settings.json").read_text())
    (tmp_path / "settings.json").write_text(json.dumps({**settings, "format": "x"}))
    with pytest.raises(CheckpointError, match="must have the format"):
        CodingRateEncoder.load(tmp_path)
    encoder.save(tmp_path)
    (tmp_path / "weights-1-of-1.safetensors").unlink()
    with pytest.raises(CheckpointError, match="all its weight files"):
        CodingRateEncoder.load(tmp_path)
    with pytest.raises(ConfigError, match="max_file_bytes must hold"):
        encoder.save(tmp_path, max_file_bytes=100)
    with pytest.raises(ConfigError, match="dtype must be one of"):
        encoder.save(tmp_path, dtype="int8")


# ---- scikit-learn's ways and bad input


def test_it_behaves_as_a_scikit_learn_transformer(seed):
    images, _ = gratings(20, seed)
    encoder = tiny(seed)
    assert clone(encoder).get_params() == encoder.get_params()
    with pytest.raises(NotFittedError):
        encoder.transform(images)
    rows = make_pipeline(encoder, StandardScaler()).fit_transform(images)
    assert rows.shape == (20, 5)
    names = encoder.get_feature_names_out().tolist()
    assert names == [f"codingrateencoder{i}" for i in range(5)]
    copied = pickle.loads(pickle.dumps(encoder))
    np.testing.assert_array_equal(copied.transform(images), encoder.transform(images))


def test_fitting_leaves_torchs_global_generator_alone(seed):
    images, _ = gratings(20, seed)
    before = torch.get_rng_state()
    tiny(seed).fit(images)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (np.zeros((4, 32, 32), np.uint8), r"shape .* got \(4, 32, 32\)"),
        (np.zeros((4, 32, 32, 1), np.uint8), r"shape .* got \(4, 32, 32, 1\)"),
        (np.zeros((4, 32, 32, 3)), "uint8 .* got float64"),
        (torch.zeros(4, 3, 32, 32), r"uint8 .* got torch\.float32"),
        (np.zeros((4, 3, 32, 12), np.uint8), "got 4 of 32 x 12"),
        (np.zeros((1, 3, 32, 32), np.uint8), "At least 2 images"),
        (np.zeros((0, 3, 32, 32), np.uint8), "got 0 of 32 x 32"),
        ([["a"]], "uint8 .* got <U1"),
    ],
)
def test_anything_but_colour_images_is_refused(images, message):
    with pytest.raises(DataError, match=message):
        check_images(images, least=2)


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("n_components", 0, "n_components must be .* got 0"),
        ("n_components", 25, "must not exceed 20"),
        ("layer", "stem", "layer must be one of"),
        ("precision", "bfloat16", "precision must be one of"),
        ("n_patches", 0, "n_patches must be an integer of at least 1, got 0"),
        ("batch_size", 2.5, r"batch_size must be an integer .* got 2\.5"),
        ("patch_size", 4, "patch_size must be an integer of at least 8"),
        ("log_interval", True, "log_interval must be an integer"),
        ("n_blocks", (2, 0), "each of n_blocks must be a positive integer, got 0"),
        ("width", -1, "width must be"),
        ("learning_rate", 0.0, "learning_rate must be positive"),
        ("invariance", -1.0, "invariance must be positive"),
        ("distortion", math.nan, "distortion must be positive"),
        ("crop_area", 1.5, r"crop_area must lie in \(0, 1\]"),
        ("n_epochs", None, "n_epochs or max_seconds must be given"),
        ("n_epochs", 0, "n_epochs must be an integer of at least 1"),
        ("max_seconds", 0.0, "max_seconds must be positive"),
    ],
)
def test_settings_out_of_range_are_refused(setting, value, message):
    images, _ = gratings(20, 0)
    with pytest.raises(ConfigError, match=message):
        tiny(0, **{setting: value}).fit(images)


def test_unknown_layers_are_refused(seed):
    images, _ = gratings(20, seed)
    encoder = tiny(seed).fit(images)
    with pytest.raises(ConfigError, match="layers must be one of"):
        encoder.represent(images, ["stem"])


# ---- slow: real images, and the device


@pytest.mark.slow
def test_training_on_cifar10_beats_the_untrained_network(seed, data_folder):
    from selfexpress.datasets.loading import load_dataset

    batch = load_dataset("cifar10", split="test", root=data_folder, download=False)
    images, labels = batch.samples[:3000], batch.labels[:3000]
    settings = {
        "n_components": 64,
        "n_patches": 6,
        "batch_size": 50,
        "invariance": 80.0,
        "patch_size": 16,
        "grid_size": 3,
        "width": 12,
        "n_blocks": (1, 1, 1),
        "n_hidden": 256,
        "n_projection": 256,
        "random_state": seed,
        "device": "cpu",
    }
    untrained = CodingRateEncoder(**settings, n_epochs=None, max_seconds=1e-9)
    trained = CodingRateEncoder(**settings, n_epochs=10)
    accuracy = {}
    for name, encoder in (("untrained", untrained), ("trained", trained)):
        train = encoder.fit_transform(images[:2000])
        accuracy[name] = neighbour_accuracy(
            train, labels[:2000], encoder.transform(images[2000:]), labels[2000:]
        )
    assert accuracy["trained"] > accuracy["untrained"] + 0.05
    assert trained.history_[-1]["loss"] < trained.history_[0]["loss"] - 1


@pytest.mark.gpu
def test_device_and_host_give_the_same_features(seed, tmp_path):
    images, _ = gratings(64, seed)
    encoder = tiny(seed, device="cuda", precision="float32").fit(images)
    encoder.save(tmp_path)
    on_host = CodingRateEncoder.load(tmp_path, device="cpu")
    found, expected = (
        torch.from_numpy(each.represent(images, ["hidden"])["hidden"])
        for each in (encoder, on_host)
    )
    # The device's convolutions round to TF32, as precise as half precision.
    assert relative_error(found, expected) < 1e-2


@pytest.mark.gpu
def test_bfloat16_trains_and_transforms_close_to_single_precision(seed):
    images, _ = gratings(20, seed)
    exact = tiny(seed, n_epochs=1, device="cuda", precision="float32").fit(images)
    rounded = tiny(seed, n_epochs=1, device="cuda").fit(images)
    first, second = exact.history_[0]["loss"], rounded.history_[0]["loss"]
    assert second == pytest.approx(first, rel=0.02)
    assert first != second


@pytest.mark.parametrize("n_blocks", [(), 2, None])
def test_blocks_of_no_stage_are_refused(n_blocks, seed):
    images = np.zeros((8, 16, 16, 3), dtype=np.uint8)
    with pytest.raises(ConfigError, match="n_blocks must be a number a stage"):
        CodingRateEncoder(2, n_blocks=n_blocks).fit(images)
