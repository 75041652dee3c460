from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.utils.estimator_checks import parametrize_with_checks

from selfexpress.errors import ConfigError
from selfexpress.features import Trajectories


def two_motions(seed, *, noise=0.0, n_points=40, n_frames=15):
    """Points of two rigid bodies seen by an affine camera, (2 n_points, 2 n_frames)."""
    rng = np.random.default_rng(seed)
    parts = []
    for _ in range(2):
        points = np.c_[rng.normal(size=(n_points, 3)), np.ones(n_points)]
        # What moves is small against where points are.
        still = np.tile(rng.normal(size=(4, 2)), n_frames)
        moving = rng.normal(size=(4, 2 * n_frames))
        parts.append(points @ (still + 0.05 * moving))
    rows = np.concatenate(parts)
    return rows + noise * rng.normal(size=rows.shape), np.repeat([0, 1], n_points)


@parametrize_with_checks([Trajectories()])
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def test_independent_motions_become_orthogonal(seed):
    rows, motion = two_motions(seed)
    features = Trajectories(noise=1e-6).fit_transform(rows)
    cosines = np.abs(features @ features.T)
    between = cosines[np.ix_(motion == 0, motion == 1)]
    assert between.max() < 1e-3
    assert features.shape == (80, 8)
    np.testing.assert_allclose(np.linalg.norm(features, axis=1), 1, rtol=1e-9)


def test_noise_stays_weak_beside_components_that_are_level(seed):
    rows, _ = two_motions(seed, noise=1e-3)
    model = Trajectories().fit(rows)
    weights = model.singular_values_ / (model.scale_ * np.sqrt(len(rows)))
    assert weights[:8].min() > 0.9
    assert weights[8:].max() < 0.3


def test_where_the_origin_is_and_the_unit_of_length_do_not_matter(seed):
    rows, _ = two_motions(seed, noise=1e-3)
    expected = Trajectories().fit_transform(rows)
    moved = Trajectories().fit_transform(640 * rows + 320)
    np.testing.assert_allclose(
        moved @ moved.T, expected @ expected.T, rtol=1e-6, atol=1e-8
    )


def test_new_trajectories_are_mapped_as_fitted_ones(seed):
    rows, _ = two_motions(seed, noise=1e-3)
    model = Trajectories().fit(rows)
    np.testing.assert_allclose(
        model.transform(rows[:5]), model.fit_transform(rows)[:5], rtol=1e-9
    )


def test_equal_trajectories_have_one_direction():
    features = Trajectories().fit_transform(np.ones((4, 6)))
    np.testing.assert_allclose(np.abs(features), 1)


def test_a_noise_that_is_none_is_refused():
    with pytest.raises(ConfigError, match="noise must be"):
        Trajectories(noise=0.0).fit(np.eye(3))


@pytest.mark.parametrize("unit", [1e-170, 1e-30, 1e30, 1e160])
def test_any_unit_of_length_will_do(unit, seed):
    rows, _ = two_motions(seed)
    np.testing.assert_allclose(
        Trajectories().fit_transform(unit * rows),
        Trajectories().fit_transform(rows),
        atol=1e-9,
    )


def test_signs_do_not_depend_on_how_rows_lie_in_memory(seed):
    rows, _ = two_motions(seed)
    expected = Trajectories().fit_transform(rows)
    for same in (np.asfortranarray(rows), torch.from_numpy(rows).requires_grad_()):
        np.testing.assert_allclose(
            Trajectories().fit_transform(same), expected, atol=1e-9
        )
