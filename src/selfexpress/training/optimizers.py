"""Optimisers by name, each one step over a network's parameters in flat buffers.

The learning rate is a tensor and every count lives on the device, so that a step can
be recorded into a CUDA graph and played again.
"""

from __future__ import annotations

import math
from collections import defaultdict

import torch
from torch import Tensor, nn

from selfexpress.ops.elementwise import adam_update

# Of matrix rows, in numbers: 8 of 2 bytes are the 16 bytes that the matrix units of a
# GPU want to read at once.
ALIGNMENT = 8
# Of whole buffers: kernels that walk through them need not ask where they end.
BLOCK = 1024


class FlatParameters:
    """All parameters of a network as one vector, so that a step is a few operations.

    While it is in use, the parameters and their gradients are views of the buffers:
    autograd adds to ``gradients``, and changing ``values`` changes the network.

    Products are computed in ``compute_dtype``. Parameters keep their own type, as do
    gradients unless ``gradient_dtype`` is another, which autograd cannot add to. Rows
    of matrices are padded with zeros to a multiple of ``alignment``; padding has no
    gradient and stays zero.

    Attributes
    ----------
    values, gradients : Tensor of shape (n,)
        All matrices, then all biases and scalars from ``vectors_start`` on.
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
        self._parameters = sorted(network.parameters(), key=lambda p: p.ndim != 2)
        like = self._parameters[0]
        self._starts: dict[nn.Parameter, int] = {}
        size = 0
        for parameter in self._parameters:
            self._starts[parameter] = size
            size += self._round_up(math.prod(self._padded_shape(parameter)))
        self.vectors_start = min(
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
        start, shape = self._starts[parameter], self._padded_shape(parameter)
        return buffer[start : start + math.prod(shape)].view(shape)

    def place_in_vectors(self, parameter: nn.Parameter) -> slice:
        """Return where a bias or scalar lies after ``vectors_start``."""
        start = self._starts[parameter] - self.vectors_start
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

    def _padded_shape(self, parameter: nn.Parameter) -> tuple[int, ...]:
        if parameter.ndim == 2:
            return parameter.shape[0], self._round_up(parameter.shape[1])
        return (parameter.numel(),)

    def _view(self, buffer: Tensor, parameter: nn.Parameter) -> Tensor:
        part = self.padded(buffer, parameter)
        if parameter.ndim == 2:
            return part[:, : parameter.shape[1]]
        return part.view(parameter.shape)


class Adam:
    """Adam with the usual momenta, as in the paper.

    torch's own gives the same numbers (it is the reference in the tests), but its
    first step imports the compiler stack, which takes longer than a small fit.
    ``start`` leaves out what lies before it in the buffers.
    """

    def __init__(self, parameters: FlatParameters, *, start: int = 0) -> None:
        self._values = parameters.values[start:]
        self._gradients = parameters.gradients[start:]
        # The same tensor where products are computed in the values' own type.
        is_own = parameters.working is parameters.values
        self._working = self._values if is_own else parameters.working[start:]
        self._first = torch.zeros_like(self._values)
        self._second = torch.zeros_like(self._values)
        self._n_steps = torch.zeros((), device=parameters.values.device)

    @torch.no_grad()
    def step(self, rate: Tensor, gradient_scale: Tensor) -> None:
        """Move every parameter against its smoothed and normalised gradient."""
        self._n_steps += 1
        adam_update(
            self._values,
            self._gradients,
            self._first,
            self._second,
            rate=rate,
            gradient_scale=gradient_scale,
            n_steps=self._n_steps,
            working=self._working,
        )

    def state(self) -> dict[str, Tensor]:
        """Return the tensors that a step changes: momenta and the number of steps."""
        return {"first": self._first, "second": self._second, "n_steps": self._n_steps}


class Muon:
    """Muon for weight matrices, Adam for the biases and the threshold.

    A matrix moves by its momentum with all singular values made equal, by a few
    Newton-Schulz iterations; matrices of one shape, as both towers have, together. The
    step is as long as Adam's would be (root mean square 0.2 times the rate an entry),
    so that both take the same learning rate.
    """

    momentum = 0.95
    relative_size = 0.2

    def __init__(self, parameters: FlatParameters) -> None:
        self._parameters = parameters
        end = parameters.vectors_start
        self._average = torch.zeros_like(parameters.values[:end])
        self._by_shape: dict[tuple[int, ...], list[int]] = defaultdict(list)
        for place, matrix in enumerate(parameters.matrices(parameters.values)):
            self._by_shape[tuple(matrix.shape)].append(place)
        # Adam's kernel wants whole blocks: its first may begin within a matrix, which
        # has its own entries back before it moves.
        start = end // BLOCK * BLOCK
        self._adam = Adam(parameters, start=start)
        self._not_for_adam = parameters.values[start:end]

    @torch.no_grad()
    def step(self, rate: Tensor, gradient_scale: Tensor) -> None:
        """Move matrices along their orthogonalised momentum, the rest as Adam does."""
        parameters = self._parameters
        kept = self._not_for_adam.clone()
        self._adam.step(rate, gradient_scale)
        self._not_for_adam.copy_(kept)
        gradients = parameters.gradients[: len(self._average)]
        gradients = gradients.to(self._average.dtype) * gradient_scale
        self._average.lerp_(gradients, 1 - self.momentum)
        ahead = parameters.matrices(gradients.lerp_(self._average, self.momentum))
        matrices = parameters.matrices(parameters.values)
        for shape, places in self._by_shape.items():
            direction = _newton_schulz(torch.stack([ahead[each] for each in places]))
            length = self.relative_size * math.sqrt(max(shape))
            moves = rate * length * direction
            torch._foreach_sub_([matrices[each] for each in places], list(moves))
        parameters.refresh_working()

    def state(self) -> dict[str, Tensor]:
        """Return the momentum and Adam's state."""
        return {"average": self._average, **self._adam.state()}


OPTIMIZERS: dict[str, type[Adam | Muon]] = {"adam": Adam, "muon": Muon}

# Coefficients of an odd polynomial whose iterates carry singular values in (0, 1] to
# about 1; steeper at 0 than the classical 1.5 t - 0.5 t^3.
_POLYNOMIAL = (3.4445, -4.7750, 2.0315)
_N_ITERATIONS = 5


def _newton_schulz(stacked: Tensor) -> Tensor:
    """Return matrices of equal singular vectors, with singular values near 1.

    They are stacked: (count, rows, columns).
    """
    is_tall = stacked.shape[1] > stacked.shape[2]
    work = stacked.mT if is_tall else stacked
    work = work / (work.norm(dim=(1, 2), keepdim=True) + 1e-20)
    if work.device.type == "cuda":
        work = work.bfloat16()
    linear, cubic, quintic = _POLYNOMIAL
    for _ in range(_N_ITERATIONS):
        gram = work @ work.mT
        odd = torch.baddbmm(gram, gram, gram, beta=cubic, alpha=quintic)
        work = torch.baddbmm(work, odd, work, beta=linear)
    return (work.mT if is_tall else work).to(stacked.dtype)
