from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from scipy import sparse

from selfexpress.affinity import graph
from selfexpress.affinity import nearest_rows as module
from selfexpress.affinity.graph import (
    build_affinity,
    expressed_alike,
    joined_graphs,
    share_within,
)
from selfexpress.affinity.nearest_rows import by_dense_blocks, nearest_rows
from selfexpress.affinity.sparse_rows import SparseRows, normalize_rows
from selfexpress.errors import DegenerateWarning


def random_rows(seed, shape=(60, 40), density=0.2):
    rng = np.random.default_rng(seed)
    matrix = sparse.random_array(shape, density=density, random_state=rng, format="csr")
    matrix.data -= 0.4
    return normalize_rows(matrix)


def search_both_ways(queries, references, **settings):
    dense = by_dense_blocks(queries, references, device="cpu", **settings)
    return [nearest_rows(queries, references, **settings), dense]


def test_nearest_rows_equal_a_full_search(seed):
    queries, references = random_rows(seed), random_rows(seed + 1000, (50, 40))
    products = (queries @ references.T).toarray()
    order = np.argsort(-products, axis=1)[:, :4]
    best = np.take_along_axis(products, order, axis=1)
    settings = {"n_neighbors": 4, "exclude_self": False}
    for found in search_both_ways(queries, references, **settings):
        np.testing.assert_allclose(found.similarity, np.maximum(best, 0), atol=1e-6)
        assert (found.index == np.where(best > 0, order, -1)).all()


def test_sketched_rows_find_the_same_neighbours(seed, monkeypatch):
    """Candidates come from sketches of a fifth of the columns; rows decide."""
    monkeypatch.setattr(module, "_SKETCH_COLUMNS", 200)
    rng = np.random.default_rng(seed)
    centers = random_rows(seed, (30, 1000), density=0.05)
    noise = sparse.random_array(
        (300, 1000), density=0.005, random_state=rng, format="csr"
    )
    rows = normalize_rows(centers[np.arange(300) % 30] + 0.1 * noise)
    exact, sketched = search_both_ways(rows, rows, n_neighbors=3, exclude_self=True)
    assert (exact.index == sketched.index).mean() > 0.99
    np.testing.assert_allclose(exact.similarity, sketched.similarity, atol=1e-3)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_sketches_find_neighbours_with_little_in_common(device, seed, monkeypatch):
    """Cosines of the nearest near 0.25, as those of an exact solution have."""
    monkeypatch.setattr(module, "_SKETCH_COLUMNS", 512)
    rng = np.random.default_rng(seed)
    shape = (3000, 20_000)
    own = sparse.random_array(shape, density=0.002, random_state=rng, format="csr")
    common = sparse.random_array(
        (300, shape[1]), density=0.002, random_state=rng, format="csr"
    )
    rows = normalize_rows(own + 0.55 * common[np.arange(shape[0]) % 300])
    cosines = (rows @ rows.T).toarray()
    np.fill_diagonal(cosines, 0)
    nearest = np.argsort(-cosines, axis=1)[:, :3]
    assert np.take_along_axis(cosines, nearest, axis=1).mean() < 0.3
    found = by_dense_blocks(rows, rows, n_neighbors=3, exclude_self=True, device=device)
    is_found = (found.index[:, :, None] == nearest[:, None]).any(axis=1)
    assert is_found.mean() > 0.99


def test_sparse_rows_keep_a_matrix(seed):
    matrix = random_rows(seed)
    rows = SparseRows.from_csr(matrix, "cpu")
    np.testing.assert_array_equal(rows.dense().numpy(), matrix.toarray())
    np.testing.assert_array_equal(rows.to_csr().toarray(), matrix.toarray())
    scaled = SparseRows.from_csr(matrix * 7, "cpu").normalized().to_csr()
    np.testing.assert_allclose(scaled.toarray(), matrix.toarray(), atol=1e-6)


def test_nearest_rows_are_nearest_in_euclidean_distance(seed):
    rows = random_rows(seed, density=0.9)
    dense = rows.toarray()
    distance = np.linalg.norm(dense[:, None] - dense[None], axis=2)
    np.fill_diagonal(distance, np.inf)
    nearest = distance.argmin(axis=1)
    settings = {"n_neighbors": 1, "exclude_self": True}
    for found in search_both_ways(rows, rows, **settings):
        assert (found.index[:, 0] == nearest).all()


def test_fewer_neighbours_than_asked_for_are_marked():
    rows = sparse.csr_array(np.array([[1.0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 0]]))
    settings = {"n_neighbors": 6, "exclude_self": True}
    for found in search_both_ways(rows, rows, **settings):
        assert found.index[:, 0].tolist() == [1, 0, -1, -1]
        assert (found.index[:, 1:] == -1).all()
        assert found.similarity[:, 0].tolist() == [1, 1, 0, 0]


_THREADS_AFTER_A_SEARCH = """
import numpy as np, torch
from scipy import sparse
from selfexpress.affinity.nearest_rows import nearest_rows
torch.set_num_threads(3)
rows = sparse.csr_array(np.eye(4))
nearest_rows(rows, rows, n_neighbors=1)
print(torch.get_num_threads())
"""


def test_a_search_leaves_torch_its_number_of_threads(monkeypatch):
    monkeypatch.setenv("NUMBA_NUM_THREADS", "2")
    # Numba starts its threads once in a process: only a new one shows it.
    command = [sys.executable, "-c", _THREADS_AFTER_A_SEARCH]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(result.stdout) == 3


def test_rows_are_scaled_to_unit_norm_and_empty_ones_stay():
    matrix = sparse.csr_array(np.array([[3.0, 4.0], [0, 0], [0, -2]]))
    expected = np.array([[0.6, 0.8], [0, 0], [0, -1]])
    np.testing.assert_allclose(normalize_rows(matrix).toarray(), expected, rtol=1e-6)


def test_symmetric_affinity_by_hand():
    coefficients = sparse.csr_array(np.array([[0, 3.0, -4], [1, 0, 0], [0, 5, 0]]))
    # Rows become (0, .6, .8), (1, 0, 0), (0, 1, 0); then half of |C| + |C|^T.
    expected = np.array([[0, 0.8, 0.4], [0.8, 0, 0.5], [0.4, 0.5, 0]])
    actual = build_affinity(coefficients, kind="symmetric")
    np.testing.assert_allclose(actual.toarray(), expected, rtol=1e-6)


def test_neighbour_affinity_by_hand():
    coefficients = sparse.csr_array(
        np.array([[0, 1.0, 0.1], [0, 1, 0.2], [0, 0.5, 1.0]])
    )
    # Rows 0 and 1 are each other's nearest; row 2 is nearest to row 1.
    expected = np.array([[0, 1.0, 0], [1, 0, 0.5], [0, 0.5, 0]])
    actual = build_affinity(coefficients, n_neighbors=1)
    np.testing.assert_allclose(actual.toarray(), expected)


@pytest.mark.parametrize("kind", ["symmetric", "nearest_neighbors"])
def test_affinity_is_symmetric_without_loops(kind, seed):
    affinity = build_affinity(random_rows(seed, (40, 40), 0.4), kind=kind)
    assert abs(affinity - affinity.T).max() == 0
    assert not affinity.diagonal().any()
    assert affinity.min() >= 0


def test_rows_without_coefficients_are_counted_in_a_warning():
    coefficients = sparse.csr_array(np.array([[0, 1.0, 0], [1, 0, 0], [0, 0, 0]]))
    with pytest.warns(DegenerateWarning, match="1 of 3 have none.*raise gamma"):
        build_affinity(coefficients)


def test_weighted_neighbours_carry_their_cosine(seed):
    rows = random_rows(seed, shape=(30, 30), density=0.5)
    binary = build_affinity(rows, kind="nearest_neighbors", n_neighbors=4).toarray()
    weighted = build_affinity(rows, kind="weighted_neighbors", n_neighbors=4).toarray()
    cosines = (rows @ rows.T).toarray()
    np.testing.assert_allclose(weighted, binary * cosines, atol=1e-6)


def test_squared_cosines_compare_every_two_rows(seed):
    coefficients = random_rows(seed, (40, 40)) * 3
    dense = coefficients.toarray()
    cosines = np.corrcoef(np.hstack([dense, -dense]))  # of means that are 0
    expected = cosines**2
    np.fill_diagonal(expected, 0)
    found = build_affinity(coefficients, kind="squared_cosines")
    np.testing.assert_allclose(found.toarray(), expected, atol=1e-6)


def test_joined_graphs_weigh_nodes_of_any_degree_alike():
    pair = np.array([[0.0, 4.0], [4.0, 0.0]])
    large, small = sparse.csr_array(pair), sparse.csr_array(pair / 100)
    joined = joined_graphs((3.0, large), (1.0, small))
    np.testing.assert_allclose(joined.toarray(), pair)  # 3 + 1 of what becomes 1


def test_the_share_within_counts_the_weight_of_edges():
    weights = np.array([[0, 3, 1, 0], [3, 0, 0, 0], [1, 0, 0, 2], [0, 0, 2, 0]])
    labels = np.array([0, 0, 1, 1])
    found = share_within(sparse.csr_array(weights.astype(float)), labels)
    assert found == pytest.approx(10 / 12)


def test_rows_expressed_alike_are_joined_whatever_the_signs():
    values = np.array([[0, 0, 1, 2], [0, 0, -1, 2], [1, -1, 0, 0], [1, 1, 0, 0.0]])
    graph = expressed_alike(sparse.csr_array(values), device="cpu").toarray()
    np.testing.assert_allclose(graph[0], [0, 1, 0, 0], rtol=1e-6)
    np.testing.assert_allclose(graph[2], [0, 0, 0, 1], rtol=1e-6)


def test_the_combined_graph_adds_rows_expressed_alike_to_those_expressing(seed):
    rows = random_rows(seed, (40, 40))
    rows.setdiag(0)
    rows.eliminate_zeros()
    expected = joined_graphs(
        (graph._EXPRESSING, build_affinity(rows, kind="symmetric")),
        (1.0, expressed_alike(rows, device="cpu")),
    )
    found = build_affinity(rows, kind="combined")
    np.testing.assert_allclose(found.toarray(), expected.toarray())
    assert abs(found - found.T).max() < 1e-7
