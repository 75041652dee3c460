"""Coding rate of features and the patch objective built on it.

The rate R(Z) = 1/2 log det(I + d / (n e) Z^T Z) of n rows in d dimensions counts the
nats needed to code them up to a squared distortion e: large when they spread over many
directions (Ma et al. 2007; the first term of MCR2, Yu et al. 2020). The objective
spreads different images and gathers the patches of one image, as in EMP-SSL (Tong,
Chen, Ma, LeCun 2023, "Towards Self-Supervised Learning in One Training Epoch").

Shapes: P patches of an image, B images, n rows, d dimensions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class PatchLoss:
    """The patch objective and its two terms, each a scalar tensor.

    Attributes
    ----------
    total : Tensor
        ``invariance * discrepancy - rate``, to be minimised.
    rate : Tensor
        Coding rate of the images, averaged over the patch positions.
    discrepancy : Tensor
        Mean of 1 - cosine between a patch and the mean of its image's patches.
    """

    total: Tensor
    rate: Tensor
    discrepancy: Tensor


def coding_rate(rows: Tensor, distortion: float) -> Tensor:
    """Return 1/2 log det(I + d / (n distortion) Z^T Z) of one or more sets of rows.

    Parameters
    ----------
    rows : Tensor of shape (..., n, d)
    distortion : float
        Squared distance up to which rows are coded; 0.2 for unit rows is usual.

    Returns
    -------
    Tensor of shape (...)
        In nats. Not a number where ``rows`` are not finite: the factorisation is not
        checked, because a check would make the host wait for the device.
    """
    n_rows, n_features = rows.shape[-2:]
    # det(I + a Z^T Z) = det(I + a Z Z^T), so the smaller of the two is factored.
    gram = rows @ rows.mT if n_rows <= n_features else rows.mT @ rows
    identity = torch.eye(gram.shape[-1], dtype=rows.dtype, device=rows.device)
    scale = n_features / (n_rows * distortion)
    factor: Tensor = torch.linalg.cholesky_ex(identity + scale * gram).L
    # log det of L L^T is twice the sum of the logarithms of L's diagonal.
    return factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)


def patch_loss(
    projections: Tensor, *, invariance: float, distortion: float
) -> PatchLoss:
    """Score how well patches of one image agree while images spread.

    Parameters
    ----------
    projections : Tensor of shape (P, B, d)
        Unit rows; ``projections[p, b]`` is patch p of image b.
    invariance : float
        Weight of the agreement against the rate.
    distortion : float
        See `coding_rate`.
    """
    centre = projections.mean(dim=0)  # (B, d)
    cosine = torch.cosine_similarity(projections, centre.unsqueeze(0), dim=-1)  # (P, B)
    discrepancy = 1 - cosine.mean()
    rate = coding_rate(projections, distortion).mean()
    return PatchLoss(invariance * discrepancy - rate, rate, discrepancy)


def rate_bounds(n_rows: int, n_features: int, distortion: float) -> tuple[float, float]:
    """Return the rate of unit rows that all coincide, and the largest rate possible."""
    collapsed = math.log1p(n_features / distortion) / 2
    n_directions = min(n_rows, n_features)
    spread = n_directions / 2 * math.log1p(n_features / (n_directions * distortion))
    return collapsed, spread
