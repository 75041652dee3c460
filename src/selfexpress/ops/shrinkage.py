"""Inner products to coefficients and back, without autograd.

These are the element-wise steps between the matrix products of a training step. On a
GPU each is one kernel; elsewhere the same in plain torch.

Shapes: B queries, K keys.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from selfexpress.ops.self_expression import elastic_net, soft_threshold, without_self


@dataclass(frozen=True)
class Shrinkage:
    """The constants between inner products and the objective.

    Attributes
    ----------
    scale : float
        Factor of the thresholded products, 1/p.
    l1_ratio : float
    """

    scale: float
    l1_ratio: float

    def forward(
        self,
        products: Tensor,
        threshold: Tensor,
        *,
        query_index: Tensor,
        key_index: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Return coefficients and their elastic net.

        Parameters
        ----------
        products : Tensor of shape (B, K)
            Overwritten by the coefficients where that saves memory.
        threshold : Tensor of shape ()
        query_index, key_index : Tensor of shape (B,) and (K,)
            Where the two are equal, the coefficient is 0.

        Returns
        -------
        tuple of Tensor
            Coefficients of shape (B, K), and parts of any shape whose sum is the
            elastic net of them all.
        """
        if products.is_cuda:
            from selfexpress.ops.triton_kernels import fused_shrink

            return fused_shrink(
                products,
                threshold,
                query_index,
                key_index,
                self.scale,
                self.l1_ratio,
            )
        coefficients = self.scale * soft_threshold(products, threshold)
        coefficients = without_self(coefficients, query_index, key_index)
        return coefficients, elastic_net(coefficients, self.l1_ratio)

    def backward(
        self,
        coefficients: Tensor,
        upstream: Tensor,
        *,
        weight: float,
        factor: float,
    ) -> tuple[Tensor, Tensor]:
        """Return the gradient of products and threshold.

        Parameters
        ----------
        coefficients, upstream : Tensor of shape (B, K)
            What ``forward`` gave, and the gradient of the rest of the objective with
            respect to it, but for ``factor``; ``upstream`` may be overwritten.
        weight : float
            Of the elastic net in the objective.
        factor : float
            Of ``upstream``.

        Returns
        -------
        tuple of Tensor
            Gradient of the products, (B, K), and parts of any shape whose sum is the
            gradient of the threshold.
        """
        if coefficients.is_cuda:
            from selfexpress.ops.triton_kernels import fused_shrink_backward

            return fused_shrink_backward(
                coefficients, upstream, self.scale, self.l1_ratio, weight, factor
            )
        sign = torch.sign(coefficients)
        slope = self.l1_ratio * sign + (1 - self.l1_ratio) * coefficients
        gradient = torch.where(
            coefficients != 0, self.scale * (factor * upstream + weight * slope), 0
        )
        return gradient, -(gradient * sign).sum()
