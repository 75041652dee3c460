"""Layer-wise adaptive rate scaling (You, Gitman, Ginsburg 2017), clipped."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor


class Lars(torch.optim.Optimizer):
    """Momentum descent whose step in each weight tensor is relative to its norm.

    A weight tensor w with gradient g moves along g + weight_decay * w at the rate
    ``min(trust * |w| / (|g| + weight_decay * |w|), learning_rate)``. Vectors (biases,
    gains of normalisation layers) move at ``learning_rate`` and do not decay. The
    learning rate is thus a ceiling, which a falling schedule lowers onto the layers
    one by one. The momentum is Nesterov's; it holds steps, not gradients, so that a
    change of the learning rate does not rescale the past.
    """

    def __init__(
        self,
        parameters: Iterable[Tensor],
        learning_rate: float,
        *,
        momentum: float = 0.9,
        weight_decay: float = 1e-4,
        trust: float = 0.005,
    ) -> None:
        parameters = list(parameters)
        shared = {"lr": learning_rate, "momentum": momentum}
        matrices = [p for p in parameters if p.ndim > 1]
        vectors = [p for p in parameters if p.ndim <= 1]
        groups = [
            {"params": matrices, "weight_decay": weight_decay, "trust": trust},
            {"params": vectors, "weight_decay": 0.0, "trust": None},
        ]
        super().__init__([group for group in groups if group["params"]], shared)
        for parameter in parameters:
            self.state[parameter]["velocity"] = torch.zeros_like(parameter)

    @property
    def learning_rate(self) -> float:
        """Ceiling of every rate in the next step."""
        return float(self.param_groups[0]["lr"])

    @learning_rate.setter
    def learning_rate(self, value: float) -> None:
        for group in self.param_groups:
            group["lr"] = value

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Move every parameter by one step; the gradients are used up."""
        for group in self.param_groups:
            weights = [p for p in group["params"] if p.grad is not None]
            if weights:
                self._step_group(weights, group)

    def _step_group(self, weights: list[Tensor], group: dict[str, Any]) -> None:
        # Any: torch's stubs of the foreach functions know lists of numbers only.
        gradients: Any = [weight.grad for weight in weights]
        velocities: Any = [self.state[weight]["velocity"] for weight in weights]
        if group["trust"] is None:
            torch._foreach_mul_(gradients, group["lr"])
        else:
            rates: Any = _rates(weights, gradients, group)
            torch._foreach_add_(gradients, weights, alpha=group["weight_decay"])
            torch._foreach_mul_(gradients, rates)
        torch._foreach_mul_(velocities, group["momentum"])
        torch._foreach_add_(velocities, gradients)
        torch._foreach_sub_(weights, gradients)
        torch._foreach_sub_(weights, velocities, alpha=group["momentum"])


def _rates(
    weights: list[Tensor], gradients: list[Tensor], group: dict[str, Any]
) -> list[Tensor]:
    """Return the clipped rate of each weight tensor, without leaving the device."""
    size = torch.stack(torch._foreach_norm(weights))
    slope = torch.stack(torch._foreach_norm(gradients))
    trusted = group["trust"] * size / (slope + group["weight_decay"] * size)
    # An all-zero tensor has no scale of its own: it moves at the learning rate.
    usable = (size > 0) & (slope > 0)
    rates = torch.where(usable, trusted, group["lr"]).clamp(max=group["lr"])
    return list(rates.unbind())
