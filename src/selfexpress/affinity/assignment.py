"""Clusters of new rows, by the fitted rows that express them.

A new row is expressed by the references; each cluster's share of the size of its
coefficients is its claim on the row. ``benchmarks/bench_predict_rules.py`` compares
this rule with others.

Shapes: M new rows, R references, P embedding dimensions, k clusters.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from selfexpress.affinity.sparse_rows import SparseRows


@dataclass(frozen=True)
class References:
    """Fitted rows that name new ones, without the rows themselves.

    Attributes
    ----------
    keys : Tensor of shape (R, P)
        Embedded by the key tower.
    labels : ndarray of shape (R,), int64
    n_clusters : int
        Some may have no reference.
    """

    keys: Tensor
    labels: NDArray[np.int64]
    n_clusters: int


def cluster_weights(
    coefficients: SparseRows, references: References
) -> NDArray[np.float64]:
    """Return each cluster's share of what expresses a new row, (M, k).

    Parameters
    ----------
    coefficients : SparseRows of shape (M, R)
        The new rows expressed by the references.
    references : References

    Returns
    -------
    ndarray of shape (M, k)
        Rows sum to 1. A row that no reference expresses gets each cluster's share
        among the references.
    """
    labels = torch.tensor(references.labels, device=coefficients.value.device)
    members = functional.one_hot(labels, references.n_clusters).float()  # (R, k)
    sums = coefficients.sizes() @ members
    weights: NDArray[np.float64] = sums.double().cpu().numpy()
    shares = np.bincount(references.labels, minlength=references.n_clusters)
    weights[weights.sum(axis=1) == 0] = shares
    weights /= weights.sum(axis=1, keepdims=True)
    return weights
