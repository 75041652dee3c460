"""How much memory a step takes, and how much is free."""

from __future__ import annotations

import re
from pathlib import Path

import torch

from selfexpress.config import NetworkConfig, TrainConfig

# Where the system does not say how much memory is available.
_ASSUMED_FREE = 4 * 2**30


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


def free_bytes(device: torch.device) -> int:
    """Return the memory that can still be taken on a device."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    try:
        text = Path("/proc/meminfo").read_text()
    except OSError:
        return _ASSUMED_FREE
    found = re.search(r"MemAvailable:\s*(\d+) kB", text)
    return 1024 * int(found.group(1)) if found else _ASSUMED_FREE
