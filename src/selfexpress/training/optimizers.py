"""Optimisers by name."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Protocol

import torch
from torch import Tensor, nn


class Optimizer(Protocol):
    """What the loop asks of an optimiser: one step with the gradients at hand."""

    def step(self, learning_rate: float) -> None:
        """Change the parameters."""
        ...


class Adam:
    """Adam with the usual momenta, as in the paper.

    torch's own gives the same numbers (it is the reference in the tests), but its
    first step imports the compiler stack, which takes longer than a small fit.
    """

    first_decay, second_decay, epsilon = 0.9, 0.999, 1e-8

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        self.parameters: list[Tensor] = list(parameters)
        self.first = [torch.zeros_like(p) for p in self.parameters]
        self.second = [torch.zeros_like(p) for p in self.parameters]
        self.n_steps = 0

    @torch.no_grad()
    def step(self, learning_rate: float) -> None:
        """Move every parameter against its smoothed and normalised gradient."""
        self.n_steps += 1
        gradients = [_gradient(parameter) for parameter in self.parameters]
        torch._foreach_lerp_(self.first, gradients, 1 - self.first_decay)
        torch._foreach_mul_(self.second, self.second_decay)
        torch._foreach_addcmul_(
            self.second, gradients, gradients, value=1 - self.second_decay
        )
        first_bias = 1 - self.first_decay**self.n_steps
        second_bias = 1 - self.second_decay**self.n_steps
        sizes = torch._foreach_sqrt(self.second)
        torch._foreach_div_(sizes, math.sqrt(second_bias))
        torch._foreach_add_(sizes, self.epsilon)
        rate = learning_rate / first_bias
        torch._foreach_addcdiv_(self.parameters, self.first, sizes, value=-rate)


OPTIMIZERS: dict[str, Callable[[Iterable[nn.Parameter]], Optimizer]] = {"adam": Adam}


def _gradient(parameter: Tensor) -> Tensor:
    """Return the gradient; zeros where none was computed, as when all keys are idle."""
    if parameter.grad is None:
        return torch.zeros_like(parameter)
    return parameter.grad
