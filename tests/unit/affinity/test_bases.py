import numpy as np
import torch

from selfexpress import make_subspaces
from selfexpress.affinity.bases import ClusterBases


def problem(seed, **settings):
    data = make_subspaces(
        4, dimension=3, n_features=15, n_samples=30, random_state=seed, **settings
    )
    return torch.from_numpy(data.X), torch.from_numpy(data.labels), data


def test_bases_are_orthonormal_and_span_the_subspaces(seed):
    rows, labels, data = problem(seed)
    found = ClusterBases.of(rows, labels, 4)
    for cluster, basis in enumerate(data.bases):
        own = found.vectors[found.owner == cluster].numpy()
        np.testing.assert_allclose(own @ own.T, np.eye(3), atol=1e-9)
        # The same projection, whichever basis of the subspace it is.
        np.testing.assert_allclose(own.T @ own, basis.T @ basis, atol=1e-9)


def test_residuals_are_squared_distances_to_each_span(seed):
    rows, labels, data = problem(seed)
    distances = ClusterBases.of(rows, labels, 4).residuals(rows).numpy()
    for cluster, basis in enumerate(data.bases):
        rest = rows.numpy() - rows.numpy() @ basis.T @ basis
        expected = (rest**2).sum(axis=1)
        np.testing.assert_allclose(distances[:, cluster], expected, atol=1e-9)


def test_wide_and_tall_clusters_have_the_same_basis(seed):
    rows, labels, _ = problem(seed, noise=0.1)
    some = torch.cat([(labels == c).nonzero()[:12, 0] for c in range(4)])
    tall = ClusterBases.of(rows, labels, 4)
    padded = torch.nn.functional.pad(rows, (0, 60))  # more columns than rows
    wide = ClusterBases.of(padded, labels, 4)
    assert torch.equal(tall.owner, wide.owner)
    new = rows[some]
    torch.testing.assert_close(
        tall.residuals(new), wide.residuals(torch.nn.functional.pad(new, (0, 60)))
    )


def test_a_cluster_without_rows_has_no_basis_and_is_far():
    rows = torch.eye(3)
    found = ClusterBases.of(rows, torch.tensor([0, 0, 2]), 3)
    assert not (found.owner == 1).any()
    assert torch.equal(found.residuals(rows)[:, 1], torch.ones(3))
