"""Settings left to us, decided from data and hardware."""

from __future__ import annotations

import logging
import warnings
from dataclasses import replace

import torch

from selfexpress.config import NetworkConfig, TrainConfig
from selfexpress.data.sources import RowSource
from selfexpress.errors import IgnoredSettingWarning
from selfexpress.training import memory

logger = logging.getLogger(__name__)

# Share of the free memory that a step may plan to use.
_MEMORY_SHARE = 0.5


def decide(
    config: TrainConfig,
    network: NetworkConfig,
    source: RowSource,
    device: torch.device,
) -> TrainConfig:
    """Return ``config`` with every "auto" replaced by a decision."""
    algorithm = config.algorithm
    if algorithm == "auto":
        algorithm = _choose_algorithm(config, network, source, device)
    precision = _choose_precision(config.precision, device)
    engine = "fused" if config.engine == "auto" else config.engine
    return replace(config, algorithm=algorithm, precision=precision, engine=engine)


def _choose_algorithm(
    config: TrainConfig,
    network: NetworkConfig,
    source: RowSource,
    device: torch.device,
) -> str:
    """Return "naive" if its graph fits into the memory that is free."""
    needed = memory.naive_step_bytes(
        len(source), source.n_features, network=network, train=config
    )
    free = memory.free_bytes(device)
    choice = "naive" if needed <= _MEMORY_SHARE * free else "two_pass"
    logger.info(
        "algorithm %s: a naive step needs about %.2f GiB, %.2f GiB are free",
        choice,
        needed / 2**30,
        free / 2**30,
    )
    return choice


def _choose_precision(precision: str, device: torch.device) -> str:
    """Keep bfloat16 to GPUs: few CPUs multiply it well, if at all."""
    if device.type == "cuda":
        return "bfloat16" if precision == "auto" else precision
    if precision == "bfloat16":
        warnings.warn(
            "precision='bfloat16' needs a GPU, but training runs on the CPU in "
            "float32. Use precision='auto' to follow the device.",
            IgnoredSettingWarning,
            stacklevel=2,
        )
    return "float32"
