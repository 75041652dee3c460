"""Clusters of most information against what follows from the definition."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from compare import assert_same_partition
from problems import blocks, uneven_groups
from scipy import sparse

from selfexpress.errors import DegenerateWarning
from selfexpress.spectral import clusters, information, spectral_clusters
from selfexpress.spectral.information import Walk, merge_pieces


def random_joint(seed, n_pieces=12):
    weights = np.random.default_rng(seed).random((n_pieces, n_pieces)) ** 4
    joint = weights + weights.T
    return joint / joint.sum()


def literal_information(joint):
    ends = joint.sum(axis=1)
    expected = np.outer(ends, ends)
    found = joint > 0
    return (joint[found] * np.log(joint[found] / expected[found])).sum()


def joined(joint, owner):
    n_clusters = owner.max() + 1
    result = np.zeros((n_clusters, n_clusters))
    np.add.at(result, (owner[:, None], owner[None]), joint)
    return result


def test_information_is_the_definition(seed):
    joint = random_joint(seed)
    expected = literal_information(joint)
    assert information.information(joint) == pytest.approx(expected, rel=1e-12)


def test_two_equal_groups_are_worth_one_bit():
    assert information.information(np.diag([0.5, 0.5])) == pytest.approx(np.log(2))
    assert information.information(np.full((2, 2), 0.25)) == pytest.approx(0, abs=1e-15)


@pytest.mark.parametrize("share_of_links", [1.0, 0.2])
def test_each_merge_is_the_one_that_loses_least(seed, share_of_links):
    """By a new calculation over all pairs; most links are missing in the second."""
    left = random_joint(seed)
    links = np.triu(np.random.default_rng(seed).random(left.shape) < share_of_links)
    left = np.where(links | links.T | np.eye(12, dtype=bool), left, 0)
    left /= left.sum()
    for kept, gone in information._pairs(left):
        best = max(
            literal_information(joined(left, merged_numbers(len(left), pair)))
            for pair in combinations(range(len(left)), 2)
        )
        left = joined(left, merged_numbers(len(left), (kept, gone)))
        assert literal_information(left) == pytest.approx(best, abs=1e-12)
    assert len(left) == 1


def merged_numbers(n_clusters, pair):
    """The last cluster takes the number of the second of a pair that is merged."""
    owner = np.arange(n_clusters)
    owner[-1] = pair[1]
    owner[pair[1]] = pair[0]
    return owner


def test_information_gained_by_moves_is_exact(seed):
    joint = random_joint(seed)
    owner = np.arange(12) % 4
    found = information._gains(joint, joined(joint, owner), owner, 5)
    for cluster in range(4):
        moved = owner.copy()
        moved[5] = cluster
        expected = literal_information(joined(joint, moved))
        expected -= literal_information(joined(joint, owner))
        assert found[cluster] == pytest.approx(expected, abs=1e-12)


def test_no_single_piece_can_be_moved_with_a_gain(seed):
    joint = random_joint(seed)
    owner = merge_pieces(joint, 4)
    assert set(owner) == {0, 1, 2, 3}
    between = joined(joint, owner)
    for piece in range(12):
        gains = information._gains(joint, between, owner, piece)
        is_alone = (owner == owner[piece]).sum() == 1
        assert is_alone or gains.max() < 1e-5


def test_pieces_of_one_group_come_together():
    affinity, truth = blocks([30, 30, 30], inside=[1.0] * 3, outside=0.02)
    pieces = 2 * truth + np.arange(90) % 2
    owner = merge_pieces(Walk(affinity, device="cpu").joint(pieces, 6), 3)
    assert_same_partition(owner[pieces], truth)


def test_steps_between_labels_are_counted_by_weight():
    """A path of three nodes: four ends of two edges."""
    path = sparse.csr_array(np.array([[0, 1.0, 0], [1, 0, 3], [0, 3, 0]]))
    joint = Walk(path, device="cpu").joint(np.array([0, 0, 1]), 2)
    np.testing.assert_allclose(joint, np.array([[2, 3], [3, 0]]) / 8)


def test_refining_gains_information_and_loses_no_cluster(seed):
    affinity, truth = blocks([40, 40, 40], inside=[1.0] * 3, outside=0.05, seed=seed)
    walk = Walk(affinity, device="cpu")
    rng = np.random.default_rng(seed)
    labels = np.where(rng.random(120) < 0.3, rng.integers(3, size=120), truth)
    refined, found = walk.refine(labels, 3)
    assert_same_partition(refined, truth)
    assert found == pytest.approx(literal_information(walk.joint(refined, 3)))
    assert found > literal_information(walk.joint(labels, 3))


def test_nodes_without_edges_stay_where_they_are():
    affinity, truth = blocks([20, 20], inside=[1.0] * 2, outside=0.02)
    dense = np.zeros((41, 41))
    dense[:40, :40] = affinity.toarray()
    labels = np.append(truth, 1)
    labels[:3] = 1
    refined, _ = Walk(sparse.csr_array(dense), device="cpu").refine(labels, 2)
    np.testing.assert_array_equal(refined, np.append(truth, 1))


def test_independent_steps_carry_no_information_and_end():
    """Rounding may make it negative; every partition is as good as any other."""
    for seed in range(50):
        share = np.random.default_rng(seed).random(8)
        joint = np.outer(share, share) / share.sum() ** 2
        assert set(merge_pieces(joint, 2)) == {0, 1}
        assert set(merge_pieces(joint, 1)) == {0}


def test_a_large_cluster_is_split_rather_than_a_small_one(seed):
    """Halves of a large group are joined more closely than those of a small one.

    Plain spectral clustering splits the small group.
    """
    affinity, truth = uneven_groups(seed)
    plain = spectral_clusters(affinity, 4, seed=seed)
    assert_same_partition(plain.labels, np.array([0, 0, 1, 2, 3])[truth])
    merged = spectral_clusters(affinity, 4, n_eigenvectors="auto", seed=seed)
    assert_same_partition(merged.labels, np.array([0, 1, 2, 3, 3])[truth])


@pytest.mark.gpu
def test_a_gpu_merges_as_a_cpu_does(seed):
    """Joined so closely that no gap in the eigenvalues spares the merging."""
    affinity, truth = blocks([60] * 6, inside=[1.0] * 6, outside=0.2, seed=seed)
    found = [
        spectral_clusters(affinity, 6, n_eigenvectors="auto", seed=seed, device=device)
        for device in ("cpu", "cuda")
    ]
    assert found[1].embedding.shape == (360, 12)
    for each in found:
        assert_same_partition(each.labels, truth)


def test_more_components_than_clusters_are_no_gap():
    assert not clusters._has_clear_gap(np.array([0, 1e-17, 1e-16, 0.3]), 2)
    assert clusters._has_clear_gap(np.array([0, 1e-17, 0.2, 0.3]), 2)


def test_a_gap_in_the_eigenvalues_is_believed(seed):
    """Groups that hang together by almost nothing are clusters, whatever their size."""
    affinity, truth = blocks([100, 8], inside=[1.0, 1.0], outside=1e-5, seed=seed)
    found = spectral_clusters(affinity, 2, n_eigenvectors="auto", seed=seed)
    assert_same_partition(found.labels, truth)
    assert found.embedding.shape == (108, 2)


def test_two_clusters_are_not_levelled(seed):
    """A chain of two large groups, and a small one joined more weakly to it."""
    sizes = [60, 60, 12]
    affinity, truth = blocks(sizes, inside=[1.0] * 3, outside=0.005, seed=seed)
    dense = np.triu(affinity.toarray(), 1)
    dense[np.ix_(truth == 0, truth == 1)] = 0.05
    dense[np.ix_(truth < 2, truth == 2)] = 0.005
    affinity = sparse.csr_array(dense + dense.T)
    found = spectral_clusters(affinity, 2, n_eigenvectors="auto", seed=seed)
    assert found.embedding.shape == (132, 2)
    assert_same_partition(found.labels, np.array([0, 0, 1])[truth])


def test_two_clusters_of_a_graph_without_groups_are_merged_of_pieces(seed):
    affinity, _ = blocks([60], inside=[1.0], outside=0.0, seed=seed)
    found = spectral_clusters(affinity, 2, n_eigenvectors="auto", seed=seed)
    assert found.eigenvalues[1] > 0.5
    assert found.embedding.shape == (60, 4)


def test_two_clusters_of_a_graph_in_more_pieces_are_merged_of_pieces(seed):
    """The first two eigenvectors are arbitrary ones of the five pieces'."""
    affinity, _ = blocks([60, 55, 3, 3, 3], inside=[1.0] * 5, outside=0, seed=seed)
    with pytest.warns(DegenerateWarning, match="connected components, but has 5"):
        found = spectral_clusters(affinity, 2, n_eigenvectors="auto", seed=seed)
    sizes = np.bincount(found.labels)
    assert sizes.min() >= 50
