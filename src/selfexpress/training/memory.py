"""How much memory a step takes."""

from __future__ import annotations

from selfexpress.config import NetworkConfig, TrainConfig


def naive_step_bytes(
    n_samples: int, n_features: int, *, network: NetworkConfig, train: TrainConfig
) -> int:
    """Return about how many bytes the graph of a naive step holds at its peak.

    Every layer keeps its input and output (ReLU, tanh) for each key, and a gradient
    of one layer's width passes through; the coefficients exist in about six stages
    between the products and the penalty.
    """
    widths = (*network.hidden_sizes, network.n_embedding)
    keys = n_samples * (n_features + 2 * sum(widths) + 2 * max(widths))
    coefficients = 6 * min(train.batch_size, n_samples) * n_samples
    return 4 * (keys + coefficients)
