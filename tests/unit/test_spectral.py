from __future__ import annotations

import numpy as np
import pytest
import reference
import torch
from compare import assert_same_partition
from scipy import sparse
from sklearn.cluster import KMeans
from threadpoolctl import threadpool_info

from selfexpress.errors import ConvergenceWarning, DegenerateWarning
from selfexpress.spectral import block_lanczos as block_lanczos_module
from selfexpress.spectral import (
    clusters,
    eigenvectors,
    laplacian_eigenvectors,
    spectral_clusters,
)
from selfexpress.spectral import k_means as k_means_module
from selfexpress.spectral.block_lanczos import block_lanczos
from selfexpress.spectral.filtered import filtered_eigenvectors
from selfexpress.spectral.k_means import k_means, nested_k_means


def communities(seed, *, n_clusters=3, size=40, n_bridges=3):
    """Dense groups joined by a few edges; connected."""
    rng = np.random.default_rng(seed)
    truth = np.repeat(np.arange(n_clusters), size)
    same = truth[:, None] == truth[None]
    affinity = np.where(same, rng.uniform(0.5, 1, same.shape), 0)
    for group in range(n_clusters - 1):
        for _ in range(n_bridges):
            i = group * size + rng.integers(size)
            affinity[i, (group + 1) * size + rng.integers(size)] = 0.1
    affinity = affinity + affinity.T
    np.fill_diagonal(affinity, 0)
    return sparse.csr_array(affinity), truth


def test_groups_are_found(seed):
    affinity, truth = communities(seed)
    assert_same_partition(spectral_clusters(affinity, 3, seed=seed).labels, truth)


@pytest.mark.parametrize("dense_size", [0, 1000])
@pytest.mark.parametrize("n_threads", [None, 1, 2])
def test_eigenvectors_solve_the_normalised_laplacian(
    dense_size, n_threads, seed, monkeypatch
):
    monkeypatch.setattr(eigenvectors, "_DENSE_SIZE", dense_size)
    affinity, _ = communities(seed)
    values, vectors = laplacian_eigenvectors(
        affinity, 5, seed=seed, n_threads=n_threads
    )
    laplacian = reference.normalized_laplacian(affinity.toarray())
    # Residuals of 1e-3 are what k-means needs.
    atol = 1e-3 if n_threads and not dense_size else 1e-5
    np.testing.assert_allclose(laplacian @ vectors, vectors * values, atol=atol)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(5), atol=1e-8)
    expected = np.linalg.eigvalsh(laplacian)[:5]
    np.testing.assert_allclose(values, expected, atol=atol / 10)


def test_path_of_three_nodes_by_hand():
    affinity = sparse.csr_array(np.array([[0, 1.0, 0], [1, 0, 1], [0, 1, 0]]))
    values, vectors = laplacian_eigenvectors(affinity, 3, seed=0)
    np.testing.assert_allclose(values, [0, 1, 2], atol=1e-12)
    np.testing.assert_allclose(vectors[:, 0], [0.5, np.sqrt(0.5), 0.5])


def test_disconnected_groups_are_found_by_the_iterative_solver(seed, monkeypatch):
    """One eigenvalue as often as there are groups: hard for a Lanczos method."""
    monkeypatch.setattr(eigenvectors, "_DENSE_SIZE", 0)
    affinity, truth = communities(seed, n_clusters=6, n_bridges=0)
    clusters = spectral_clusters(affinity, 6, seed=seed)
    assert clusters.n_components == 6
    np.testing.assert_allclose(clusters.eigenvalues, 0, atol=1e-6)
    assert_same_partition(clusters.labels, truth)


def ring(size):
    """A cycle: its second eigenvalue is close to the first."""
    nodes = np.arange(size)
    edges = (np.ones(size), (nodes, (nodes + 1) % size))
    directed = sparse.csr_array(edges, shape=(size, size))
    return directed + directed.T


def test_poorly_connected_components_are_still_told_apart(monkeypatch):
    monkeypatch.setattr(eigenvectors, "_DENSE_SIZE", 0)
    affinity = sparse.csr_array(sparse.block_diag([ring(150)] * 5))
    truth = np.repeat(np.arange(5), 150)
    assert_same_partition(spectral_clusters(affinity, 5).labels, truth)


def test_eigenvalues_of_components_are_merged_in_order():
    affinity = sparse.csr_array(sparse.block_diag([ring(3), ring(5), [[0.0]]]))
    values, vectors = laplacian_eigenvectors(affinity, 6, seed=0)
    # A ring of n has the eigenvalues 1 - cos(2 pi k / n); an isolated node has 1.
    fifth = 1 - np.cos(2 * np.pi / 5)
    last = 1 - np.cos(2 * np.pi / 3)
    np.testing.assert_allclose(values, [0, 0, fifth, fifth, 1, last], atol=1e-12)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(6), atol=1e-12)


@pytest.mark.filterwarnings("ignore::selfexpress.errors.DegenerateWarning")
@pytest.mark.parametrize("n_isolated", [1, 2, 10])
def test_isolated_nodes_do_not_crowd_out_the_clusters(n_isolated, seed):
    affinity, truth = communities(seed)
    isolated = sparse.csr_array((n_isolated, n_isolated))
    together = sparse.csr_array(sparse.block_diag([affinity, isolated]))
    values, _ = laplacian_eigenvectors(together, 3, seed=seed)
    expected = laplacian_eigenvectors(affinity, 3, seed=seed)[0]
    np.testing.assert_allclose(values, expected, atol=1e-9)
    labels = spectral_clusters(together, 4, n_eigenvectors=3, seed=seed).labels
    assert_same_partition(labels[: len(truth)], truth)


def test_more_components_than_clusters_are_counted_in_a_warning():
    affinity, _ = communities(0, n_clusters=4, n_bridges=0)
    with pytest.warns(DegenerateWarning, match="n_clusters=2 .* but has 4"):
        spectral_clusters(affinity, 2)


def test_embedding_has_unit_rows_and_the_dimension_asked_for():
    affinity, _ = communities(0)
    embedding = spectral_clusters(affinity, 3, n_eigenvectors=7).embedding
    assert embedding.shape == (120, 7)
    np.testing.assert_allclose(np.linalg.norm(embedding, axis=1), 1)


def test_one_seed_gives_one_answer(seed):
    affinity, _ = communities(seed)
    first = spectral_clusters(affinity, 5, seed=seed)
    second = spectral_clusters(affinity, 5, seed=seed)
    assert (first.labels == second.labels).all()


def test_block_lanczos_solves_a_connected_graph(seed):
    affinity, _ = communities(seed, n_clusters=8, size=40)
    adjacency = eigenvectors.normalized_adjacency(affinity)
    values, vectors = block_lanczos(
        adjacency, 8, seed=seed, tolerance=1e-12, device="cpu"
    )
    expected = np.linalg.eigvalsh(adjacency.toarray())[-8:]
    np.testing.assert_allclose(values, expected, atol=1e-10)
    np.testing.assert_allclose(adjacency @ vectors, vectors * values, atol=1e-5)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(8), atol=1e-10)


def test_block_lanczos_finds_every_copy_of_an_eigenvalue():
    """A ring has every eigenvalue but two twice; single vectors find one copy."""
    n_nodes = 1000
    ring = sparse.diags_array([0.5, 0.5], offsets=[1, -1], shape=(n_nodes, n_nodes))
    ring = ring.tolil()
    ring[0, -1] = ring[-1, 0] = 0.5
    values, _ = block_lanczos(
        sparse.csr_array(ring), 5, seed=0, tolerance=1e-12, device="cpu"
    )
    angles = 2 * np.pi * np.array([2, 2, 1, 1, 0]) / n_nodes
    np.testing.assert_allclose(values, np.cos(angles), atol=1e-10)


def test_block_lanczos_goes_on_where_a_block_leads_no_further():
    """Complete graphs have two eigenvalues, which a block and its image hold."""
    groups = np.kron(np.eye(2), np.ones((100, 100))) - np.eye(200)
    values, vectors = block_lanczos(
        sparse.csr_array(groups / 99), 15, seed=0, tolerance=1e-7, device="cpu"
    )
    np.testing.assert_allclose(values, [-1 / 99] * 13 + [1, 1], atol=1e-8)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(15), atol=1e-6)


def test_block_lanczos_says_that_it_has_not_converged(monkeypatch):
    monkeypatch.setattr(block_lanczos_module, "_MAX_RESTARTS", 1)
    monkeypatch.setattr(block_lanczos_module, "_DEPTH", 2)
    affinity, _ = communities(0, n_clusters=8, size=40)
    adjacency = eigenvectors.normalized_adjacency(affinity)
    with pytest.warns(ConvergenceWarning, match=r"largest is .* after 1 restarts"):
        block_lanczos(adjacency, 8, seed=0, tolerance=1e-12, device="cpu")


def test_batched_k_means_is_as_good_as_that_of_scikit_learn(seed):
    rng = np.random.default_rng(seed)
    centers = rng.normal(size=(6, 4))
    points = centers[rng.integers(6, size=600)] + 0.3 * rng.normal(size=(600, 4))
    labels = k_means(torch.from_numpy(points), 6, n_init=20, seed=seed).numpy()
    means = np.stack([points[labels == label].mean(axis=0) for label in range(6)])
    inertia = ((points - means[labels]) ** 2).sum()
    expected = KMeans(6, n_init=20, random_state=seed).fit(points).inertia_
    assert inertia < 1.005 * expected


def test_nested_k_means_is_as_good_as_that_of_scikit_learn(seed):
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(1000, 10))
    numbers = [20, 40, 60]
    found = nested_k_means(
        points, numbers, n_init=10, seed=seed, device="cpu", n_threads=2
    )
    for number, labels in zip(numbers, found, strict=True):
        means = np.stack([points[labels == label].mean(0) for label in range(number)])
        inertia = ((points - means[labels]) ** 2).sum()
        expected = KMeans(number, n_init=10, random_state=seed).fit(points).inertia_
        assert inertia < 1.01 * expected


def test_nested_k_means_of_a_sample_labels_all_rows(seed, monkeypatch):
    """Whatever the number of threads."""
    monkeypatch.setattr(k_means_module, "_FEWEST_ROWS", 100)
    monkeypatch.setattr(k_means_module, "_FEWEST_TO_START", 50)
    rng = np.random.default_rng(seed)
    truth = np.repeat(np.arange(3), 200)
    points = 10 * np.eye(3)[truth] + rng.normal(size=(600, 3))
    for n_threads in (1, 2):
        labels = nested_k_means(
            points, [3], n_init=3, seed=seed, device="cpu", n_threads=n_threads
        )[0]
        assert_same_partition(labels, truth)


def test_a_ring_is_left_to_the_other_solver(monkeypatch):
    """Its first eigenvalues are nearly equal: filters tell them apart too slowly."""
    monkeypatch.setattr(eigenvectors, "_DENSE_SIZE", 0)
    assert filtered_eigenvectors(0.5 * ring(3000), 5, seed=0, n_threads=1) is None
    values, _ = laplacian_eigenvectors(ring(3000), 5, seed=0, n_threads=1)
    angles = 2 * np.pi * np.array([0, 1, 1, 2, 2]) / 3000
    np.testing.assert_allclose(values, 1 - np.cos(angles), atol=1e-10)


def test_numbers_of_threads_are_what_they_were(monkeypatch):
    def threads():
        pools = [pool["num_threads"] for pool in threadpool_info()]
        return [torch.get_num_threads(), *pools]

    affinity, truth = communities(0, n_clusters=5)
    monkeypatch.setattr(clusters, "_CLEAR_GAP", np.inf)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        expected = threads()
        for n_eigenvectors in (5, "auto"):
            found = spectral_clusters(affinity, 5, n_eigenvectors=n_eigenvectors)
            assert_same_partition(found.labels, truth)
        assert threads() == expected
    finally:
        torch.set_num_threads(before)


def test_batched_k_means_gives_the_same_labels_in_small_batches(seed, monkeypatch):
    monkeypatch.setattr(k_means_module, "_BATCH_ENTRIES", 1)
    rng = np.random.default_rng(seed)
    truth = np.repeat(np.arange(3), 50)
    points = torch.from_numpy(10 * np.eye(3)[truth] + rng.normal(size=(150, 3)))
    assert_same_partition(k_means(points, 3, n_init=3, seed=seed).numpy(), truth)


def test_a_point_for_every_cluster_and_fewer_distinct_points_than_clusters():
    points = torch.tensor([[0.0], [0.0], [1.0]], dtype=torch.float64)
    labels = k_means(points, 3, n_init=2, seed=0)
    assert labels[0] == labels[1] != labels[2]


@pytest.mark.parametrize("n_eigenvectors", [None, "auto"])
def test_separate_groups_are_found_in_any_dimension(n_eigenvectors, seed):
    affinity, truth = communities(seed, n_bridges=0)
    found = spectral_clusters(affinity, 3, n_eigenvectors=n_eigenvectors, seed=seed)
    assert_same_partition(found.labels, truth)


def test_clusters_that_stay_empty_are_named():
    pair = sparse.csr_array(np.array([[0.0, 1.0], [1.0, 0.0]]))
    with pytest.warns(DegenerateWarning, match=r"only 1 places.*lower n_clusters"):
        spectral_clusters(pair, 2, n_eigenvectors=1)


@pytest.mark.parametrize("weight", [1e-4, 1e-6, 1e-8])
@pytest.mark.parametrize("n_threads", [None, 1])
def test_groups_that_hardly_hang_together_are_told_apart(
    weight, n_threads, seed, monkeypatch
):
    """Ten eigenvalues near 0: an iteration that stops early takes some for one."""
    monkeypatch.setattr(eigenvectors, "_DENSE_SIZE", 0)
    rng = np.random.default_rng(seed)
    groups = [np.triu(rng.uniform(size=(120, 120)), 1) for _ in range(10)]
    affinity = np.asarray(sparse.block_diag(groups).todense())
    ends = np.arange(0, 1200, 120)
    affinity[ends, np.roll(ends, 1) + 1] = weight
    affinity = sparse.csr_array(affinity + affinity.T)
    for start in range(4):
        values, _ = laplacian_eigenvectors(
            affinity, 10, seed=start, n_threads=n_threads
        )
        assert values.max() < 1e-3
