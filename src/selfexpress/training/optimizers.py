"""Optimisers by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import nn


def adam(
    parameters: Iterable[nn.Parameter], learning_rate: float
) -> torch.optim.Optimizer:
    """Return Adam with the usual momenta, as in the paper."""
    return torch.optim.Adam(parameters, lr=learning_rate)


OPTIMIZERS: dict[
    str, Callable[[Iterable[nn.Parameter], float], torch.optim.Optimizer]
] = {"adam": adam}
