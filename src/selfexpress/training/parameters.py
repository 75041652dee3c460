"""A network's parameters and gradients side by side in flat buffers."""

from __future__ import annotations

import torch
from torch import Tensor, nn

# Of matrix rows, in numbers: 8 of 2 bytes are the 16 bytes that the matrix units of a
# GPU want to read at once.
ALIGNMENT = 8
# Of whole buffers: kernels that walk through them need not ask where they end.
BLOCK = 1024


class FlatParameters:
    """All parameters of a network as one vector, so that a step is a few operations.

    While it is in use, the parameters and their gradients are views of the buffers:
    autograd adds to ``gradients``, and changing ``values`` changes the network.

    Parameters
    ----------
    network : nn.Module
    compute_dtype : torch.dtype
        Type of the matrix products; parameters themselves keep theirs.
    gradient_dtype : torch.dtype
        Of ``gradients``; autograd wants that of the parameters.
    alignment : int
        Rows of matrices are padded with zeros to a multiple of it. Padding has no
        gradient and stays zero.

    Attributes
    ----------
    values, gradients : Tensor of shape (n,)
    working : Tensor of shape (n,)
        ``values`` in ``compute_dtype``; the same tensor if that is their type.
    """

    def __init__(
        self,
        network: nn.Module,
        compute_dtype: torch.dtype,
        *,
        gradient_dtype: torch.dtype | None = None,
        alignment: int = 1,
    ) -> None:
        self._alignment = alignment
        # Matrices first, so that the biases and the threshold lie in one piece.
        self._parameters = sorted(network.parameters(), key=lambda p: p.ndim != 2)
        like = self._parameters[0]
        self._starts: dict[nn.Parameter, int] = {}
        size = 0
        for parameter in self._parameters:
            self._starts[parameter] = size
            size += self._round_up(_n_rows(parameter) * self._stride(parameter))
        self._vectors_start = min(
            start for parameter, start in self._starts.items() if parameter.ndim != 2
        )
        size = -(-size // BLOCK) * BLOCK
        self.values = torch.zeros(size, dtype=like.dtype, device=like.device)
        self.gradients = torch.zeros_like(self.values, dtype=gradient_dtype)
        self.working = self.values
        for parameter in self._parameters:
            self._view(self.values, parameter).copy_(parameter.detach())
            parameter.data = self._view(self.values, parameter)
            if gradient_dtype in (None, parameter.dtype):
                parameter.grad = self._view(self.gradients, parameter)
        if compute_dtype != like.dtype:
            self.working = self.values.to(compute_dtype)

    def padded(self, buffer: Tensor, parameter: nn.Parameter) -> Tensor:
        """Return a parameter's part of a buffer, a matrix's padding included."""
        start = self._starts[parameter]
        shape = (_n_rows(parameter), self._stride(parameter))
        part = buffer[start : start + shape[0] * shape[1]]
        return part.view(shape) if parameter.ndim == 2 else part

    def vectors(self, buffer: Tensor) -> Tensor:
        """Return the part of a buffer that holds all biases and scalars."""
        return buffer[self._vectors_start :]

    def place_in_vectors(self, parameter: nn.Parameter) -> slice:
        """Return where a bias or scalar lies in :meth:`vectors`."""
        start = self._starts[parameter] - self._vectors_start
        return slice(start, start + parameter.numel())

    def matrices(self, buffer: Tensor) -> list[Tensor]:
        """Return the parts of a buffer that belong to matrices, without padding."""
        return [self._view(buffer, p) for p in self._parameters if p.ndim == 2]

    def refresh_working(self) -> None:
        """Copy ``values`` to ``working`` after they changed."""
        if self.working is not self.values:
            self.working.copy_(self.values)

    def release(self) -> None:
        """Give the parameters back memory of their own, without gradients."""
        for parameter in self._parameters:
            parameter.data = parameter.detach().clone(
                memory_format=torch.contiguous_format
            )
            parameter.grad = None

    def _round_up(self, size: int) -> int:
        return -(-size // self._alignment) * self._alignment

    def _stride(self, parameter: nn.Parameter) -> int:
        if parameter.ndim == 2:
            return self._round_up(parameter.shape[1])
        return parameter.numel()

    def _view(self, buffer: Tensor, parameter: nn.Parameter) -> Tensor:
        part = self.padded(buffer, parameter)
        if parameter.ndim == 2:
            return part[:, : parameter.shape[1]]
        return part.view(parameter.shape)


def _n_rows(parameter: nn.Parameter) -> int:
    return parameter.shape[0] if parameter.ndim == 2 else 1
