"""The paper's formulas, dense and literal. Shares no code with what it checks.

Data are rows here; the paper's X has them as columns. c[j, i] is the paper's c_ij,
the coefficient with which row i helps to express row j.
"""

from __future__ import annotations

import numpy as np
import torch


def coefficient(network, x_i, x_j):
    """f(x_i, x_j) = alpha sgn(t) max(0, |t| - b), t = u(x_j) . v(x_i)."""
    t = (network.query_tower(x_j[None])[0] * network.key_tower(x_i[None])[0]).sum()
    alpha = 1 / network.config.n_embedding
    return alpha * torch.sign(t) * torch.clamp(t.abs() - network.threshold, min=0)


def objective(network, rows, batch_index, gamma, l1_ratio):
    """Mean over the batch of gamma/2 |x_j - sum_i c_ij x_i|^2 + sum_i r(c_ij)."""
    total = rows.new_zeros(())
    for j in batch_index:
        reconstruction = torch.zeros_like(rows[j])
        for i in range(len(rows)):
            if i != j:
                c = coefficient(network, rows[i], rows[j])
                reconstruction = reconstruction + c * rows[i]
                total = total + l1_ratio * c.abs() + (1 - l1_ratio) / 2 * c**2
        total = total + gamma / 2 * ((rows[j] - reconstruction) ** 2).sum()
    return total / len(batch_index)


def normalized_laplacian(affinity):
    """I - D^{-1/2} A D^{-1/2} of a dense affinity without isolated nodes."""
    degree = affinity.sum(axis=1)
    return np.eye(len(affinity)) - affinity / np.sqrt(np.outer(degree, degree))
