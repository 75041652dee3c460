from __future__ import annotations

import numpy as np
import pytest

from selfexpress.datasets.synthetic import make_subspaces
from selfexpress.errors import ConfigError


def distance_to(basis, points):
    """Length of the part of each point that is outside the span of the basis."""
    return np.linalg.norm(points - points @ basis.T @ basis, axis=1)


def test_defaults_are_the_papers_first_experiment(seed):
    data = make_subspaces(random_state=seed)
    assert data.X.shape == (1000, 15)
    assert data.X.dtype == np.float64
    assert [basis.shape for basis in data.bases] == [(6, 15)] * 5
    assert np.bincount(data.labels).tolist() == [200] * 5


def test_points_are_of_unit_norm_and_on_their_subspace(seed):
    data = make_subspaces(3, dimension=[1, 2, 4], n_features=7, random_state=seed)
    np.testing.assert_allclose(np.linalg.norm(data.X, axis=1), 1, rtol=1e-12)
    for label, basis in enumerate(data.bases):
        np.testing.assert_allclose(basis @ basis.T, np.eye(len(basis)), atol=1e-12)
        own = data.X[data.labels == label]
        # Zero up to rounding: an absolute tolerance is the only possible one.
        np.testing.assert_allclose(distance_to(basis, own), 0, atol=1e-12)
        assert np.linalg.matrix_rank(own) == len(basis)


def test_points_are_uniform_on_the_sphere_of_their_subspace(seed):
    data = make_subspaces(
        1, dimension=3, n_features=8, n_samples=20_000, random_state=seed
    )
    coordinates = data.X @ data.bases[0].T  # (N, 3)
    # Mean 0 and second moments 1/3; six standard deviations of the mean of 20,000.
    assert np.abs(coordinates.mean(axis=0)).max() < 6 * np.sqrt(1 / 3 / 20_000)
    moments = coordinates.T @ coordinates / 20_000
    assert np.abs(moments - np.eye(3) / 3).max() < 6 * np.sqrt(0.09 / 20_000)


def test_subspaces_are_uniform(seed):
    # The mean projector on a uniform d-dimensional subspace of R^D is d / D.
    data = make_subspaces(
        2000, dimension=2, n_features=4, n_samples=1, random_state=seed
    )
    mean = np.mean([basis.T @ basis for basis in data.bases], axis=0)
    assert np.abs(mean - np.eye(4) / 2).max() < 6 * np.sqrt(0.25 / 2000)


def test_noise_has_the_stated_length(seed):
    sizes = {"dimension": 1, "n_features": 50, "n_samples": 4000}
    data = make_subspaces(1, noise=0.5, random_state=seed, **sizes)
    np.testing.assert_allclose(np.linalg.norm(data.X, axis=1), 1, rtol=1e-12)
    # Outside the line noise keeps 49/50 of its square; scaled back, tan^2 of the angle
    # to the line is that over (1 + noise along it)^2.
    along = data.X @ data.bases[0][0]
    tangent = np.median(distance_to(data.bases[0], data.X) / np.abs(along))
    assert tangent == pytest.approx(0.5 * np.sqrt(49 / 50), rel=0.03)


def test_outliers_come_last_and_lie_on_no_subspace(seed):
    data = make_subspaces(2, dimension=2, n_samples=10, n_outliers=5, random_state=seed)
    assert data.labels.tolist() == [0] * 10 + [1] * 10 + [-1] * 5
    np.testing.assert_allclose(np.linalg.norm(data.X[20:], axis=1), 1, rtol=1e-12)
    for basis in data.bases:
        assert distance_to(basis, data.X[20:]).min() > 1e-3


def test_classes_may_be_unbalanced_and_empty(seed):
    data = make_subspaces(3, n_samples=[5, 0, 2], random_state=seed)
    assert data.labels.tolist() == [0] * 5 + [2] * 2


def test_more_points_come_from_the_same_subspaces(seed):
    first = make_subspaces(2, dimension=3, random_state=seed)
    second = make_subspaces(bases=first.bases, n_samples=7, random_state=seed + 1)
    assert second.X.shape == (14, 15)
    for label, basis in enumerate(first.bases):
        assert np.array_equal(second.bases[label], basis)
        own = second.X[second.labels == label]
        np.testing.assert_allclose(distance_to(basis, own), 0, atol=1e-12)
    assert not np.isin(second.X, first.X).any()


def test_a_seed_gives_the_same_points_twice(seed):
    first = make_subspaces(noise=0.1, n_outliers=3, random_state=seed)
    again = make_subspaces(noise=0.1, n_outliers=3, random_state=seed)
    other = make_subspaces(noise=0.1, n_outliers=3, random_state=seed + 1)
    assert np.array_equal(first.X, again.X)
    assert not np.array_equal(first.X, other.X)
    generator = np.random.default_rng(seed)
    one, two = (make_subspaces(random_state=generator) for _ in range(2))
    assert not np.array_equal(one.X, two.X)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"dimension": 16}, "at most n_features = 15, got 16"),
        ({"dimension": [1, 2]}, "5 subspaces, got 2"),
        ({"dimension": 0}, "at least 1, got 0"),
        ({"n_subspaces": 0}, "n_subspaces .* got 0"),
        ({"n_samples": -1}, "n_samples .* got -1"),
        ({"n_samples": [1.5] * 5}, "n_samples .* got 1.5"),
        ({"n_outliers": -2}, "n_outliers .* got -2"),
        ({"noise": -0.1}, "noise .* got -0.1"),
        ({"noise": float("nan")}, "noise .* got nan"),
        ({"bases": []}, "bases"),
        ({"bases": [np.eye(3), np.eye(4)]}, r"\(4, 4\)"),
        ({"bases": [np.ones((2, 3))]}, "orthonormal"),
    ],
)
def test_impossible_settings_are_refused(settings, words):
    with pytest.raises(ConfigError, match=words):
        make_subspaces(**settings)


@pytest.mark.parametrize(
    "bad",
    [
        {"n_samples": 2.0},
        {"dimension": 2.5},
        {"noise": None},
        {"noise": "1"},
        {"random_state": -1},
        {"random_state": "seed"},
    ],
)
def test_what_is_no_number_is_refused_by_name(bad):
    with pytest.raises(ConfigError, match=f"{next(iter(bad))} must be"):
        make_subspaces(**bad)
