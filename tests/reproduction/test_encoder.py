from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from compare import assert_close
from sklearn.decomposition import PCA, TruncatedSVD

from reproduction.encoder.augment import Augmentation
from reproduction.encoder.network import LAYERS, Architecture
from reproduction.encoder.training import (
    Training,
    TrainingSettings,
    layer_averages,
    principal_features,
    view_grid,
)
from selfexpress.errors import DegenerateError, DegenerateWarning

SMALL = Architecture(4, (1, 1), 24, 12)
SETTINGS = TrainingSettings(
    n_patches=3,
    batch_size=8,
    n_epochs=2,
    invariance=20.0,
    patch_size=16,
    log_interval=1,
)


def gratings(n_images, seed, *, size=24):
    """Noisy waves in one of four directions."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 4, n_images)
    angle = np.pi / 4 * labels[:, None, None, None]
    rows, columns = np.mgrid[:size, :size]
    phase = rng.uniform(0, 2 * np.pi, (n_images, 1, 1, 3))
    waves = np.sin(
        np.cos(angle) * rows[..., None] + np.sin(angle) * columns[..., None] + phase
    )
    noisy = 128 + 60 * waves + 30 * rng.standard_normal(waves.shape)
    pixels = noisy.clip(0, 255).astype(np.uint8).transpose(0, 3, 1, 2)
    return torch.from_numpy(np.ascontiguousarray(pixels))


def training(seed, images=None, **changes):
    images = gratings(20, seed) if images is None else images
    settings = replace(SETTINGS, **changes)
    return Training(images, settings, SMALL, seed=seed)


def test_weights_are_the_same_for_the_same_seed_and_leave_torchs_generator(seed):
    before = torch.get_rng_state()
    first, again = training(seed).run(), training(seed).run()
    other = training(seed + 1).run()
    assert torch.equal(torch.get_rng_state(), before)
    for name, tensor in first.state_dict().items():
        assert torch.equal(tensor, again.state_dict()[name])
    assert not torch.equal(first.projector[0].weight, other.projector[0].weight)


def test_averages_equal_a_loop_over_slices_and_mirror_images(seed):
    images = gratings(20, seed)
    network = training(seed, images).run()
    pixels, sums = images[:2].float() / 255, dict.fromkeys(LAYERS, 0)
    # A quarter of 24 x 24 is 12 x 12; two per axis start at 0 and 12.
    for top in (0, 12):
        for left in (0, 12):
            square = pixels[:, :, top : top + 12, left : left + 12]
            view = F.interpolate(square, size=(16, 16), mode="bilinear") * 2 - 1
            for shown in (view, view.flip(3)):
                with torch.no_grad():
                    found = network.layers(shown, LAYERS)
                sums = {name: sums[name] + found[name] for name in LAYERS}
    found = layer_averages(network, images, LAYERS, patch_size=16, grid_size=2)
    for name in LAYERS:
        assert_close(found[name][:2], sums[name] / 8, atol=1e-5)


def test_grid_of_one_is_the_centre_and_larger_grids_reach_the_edges():
    centre = view_grid(16, (32, 40), 1)
    assert (centre.top.tolist(), centre.left.tolist()) == ([8, 8], [12, 12])
    assert centre.flip.tolist() == [False, True]
    grid = view_grid(16, (32, 32), 4)
    assert grid.top.unique().tolist() == [0, 5, 11, 16]
    assert len(grid.top) == 32
    assert grid.flip.sum().item() == 16


@pytest.mark.parametrize("is_centred", [True, False])
def test_features_are_unit_rows_on_the_principal_axes(is_centred, seed):
    rows = np.random.default_rng(seed).standard_normal((60, 9)) * np.arange(1, 10) + 3
    found = principal_features(
        torch.from_numpy(rows).float(), 50, 4, is_centred=is_centred
    )
    svd = TruncatedSVD(4, algorithm="arpack", random_state=0)
    model = PCA(4, svd_solver="full") if is_centred else svd
    expected = model.fit(rows[:50]).transform(rows)
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    signs = np.sign((found.numpy() * expected).sum(axis=0))
    np.testing.assert_allclose(found.numpy(), signs * expected, atol=1e-4)


def test_loss_falls_in_training(seed):
    run = training(seed, gratings(64, seed), n_epochs=24)
    run.run()
    losses = [row["loss"] for row in run.history]
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
    both = TrainingSettings(n_epochs=4, batch_size=10, max_seconds=40.0)
    assert replace(both, max_seconds=None).progress(6, 999.0, n_images=35) == 0.5
    assert replace(both, n_epochs=None).progress(6, 10.0, n_images=35) == 0.25
    assert both.progress(6, 10.0, n_images=35) == 0.5
    assert both.progress(6, 30.0, n_images=35) == 0.75


def test_patches_of_an_image_stand_at_its_place_in_every_group(seed):
    images = torch.from_numpy(
        np.random.default_rng(seed).integers(0, 256, (6, 3, 16, 16), np.uint8)
    )
    unchanged = Augmentation(1.0, *[0.0] * 9)
    run = training(seed, images, batch_size=4, augmentation=unchanged)
    expected = images[run.batch_index()] / 255 * 2 - 1
    for group in run.patches().unflatten(0, (3, 4)):
        assert_close(group, expected, atol=1e-5)


def test_every_step_cuts_other_patches_and_every_image_is_seen_once_an_epoch(seed):
    run = training(seed, gratings(24, seed))
    first, again = run.patches(), run.patches()
    assert torch.equal(first, again)
    epochs = []
    for _ in range(2):
        seen = []
        for _ in range(3):
            seen += run.batch_index().tolist()
            run.step += 1
        assert sorted(seen) == list(range(24))
        epochs.append(seen)
    assert epochs[0] != epochs[1]
    assert not torch.equal(first, run.patches())


def test_a_loss_that_is_no_number_stops_the_run(seed):
    with pytest.raises(DegenerateError, match=r"became (nan|inf|-inf) at step"):
        training(seed, learning_rate=1e30, n_epochs=5).run()


def test_features_that_coincide_are_warned_of(seed):
    black = torch.zeros(20, 3, 16, 16, dtype=torch.uint8)
    with pytest.warns(DegenerateWarning, match="features that all coincide"):
        training(seed, black, n_epochs=4).run()


@pytest.mark.gpu
def test_bfloat16_trains_close_to_single_precision(seed):
    images = gratings(20, seed)
    exact, rounded = training(seed, images), training(seed, images.cuda())
    exact.run()
    rounded.run()
    assert all(math.isfinite(row["loss"]) for row in rounded.history)
