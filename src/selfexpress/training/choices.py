"""Settings left to us, decided from data and hardware."""

from __future__ import annotations

import logging
import math
import warnings
from dataclasses import dataclass, replace
from numbers import Integral

import torch

from selfexpress import distributed
from selfexpress.config import AUTO, NetworkConfig, TrainConfig
from selfexpress.errors import IgnoredSettingWarning
from selfexpress.ops.memory import free_bytes
from selfexpress.rows.sources import RowSource
from selfexpress.training.gamma import SmallestGamma
from selfexpress.training.objective import naive_step_bytes
from selfexpress.training.start import FEW_ROWS, choose_start

logger = logging.getLogger(__name__)

# gamma="auto", relative, by the start of training. From a random one it takes much to
# leave the plateau; few rows, which start alike, offer few of each cluster, and what
# these leave a large gamma has others make up for.
RELATIVE_GAMMA = {"random": 100.0, "alike": 30.0}
# From like rows, if the penalty is more of squares than of sizes: it starts lower.
_RELATIVE_GAMMA_OF_SQUARES = 10.0
_MORE_SQUARES = 0.5

# Of coefficients that are solved for.
_RELATIVE_EXACT_GAMMA = 12.0

# Two or three clusters of few rows, such as motions in a film, are cut apart by the
# first eigenvectors alone, which catch any loose end of a sparse graph: rows express
# more others then, and those that are expressed alike are joined. More clusters are
# merged of pieces, which loose ends do not hurt.
_FEW_CLUSTERS = 3

# Units of a layer from which on training wants smaller steps.
_WIDE = 1024

# Share of the free memory that a step may plan to use.
_MEMORY_SHARE = 0.5


@dataclass(frozen=True)
class Sizes:
    """Network, sample and length of training that suit a device.

    A GPU takes the paper's network and more rows, batches and steps within seconds;
    two CPU cores give nearly the same labels with less within a minute or two.
    """

    hidden_sizes: tuple[int, ...]
    n_embedding: int
    n_train_samples: int
    max_iter: int
    batch_size: int


SIZES = {
    "cpu": Sizes((512, 512), 512, 2000, 1000, 200),
    "cuda": Sizes((1024, 1024, 1024), 1024, 5000, 3000, 500),
}


def default_sizes(device: torch.device) -> Sizes:
    """Return the sizes to use where the user says "auto"."""
    return SIZES["cuda" if device.type == "cuda" else "cpu"]


def choose_graph(n_clusters: object, n_rows: int) -> dict[str, float | str]:
    """Return the ``l1_ratio`` and ``affinity`` that suit the numbers to be clustered.

    They are 0.3 and "squared_cosines" for two or three clusters of fewer than 2000
    rows, else 0.9 and "symmetric".
    """
    is_few = isinstance(n_clusters, Integral) and int(n_clusters) <= _FEW_CLUSTERS
    if is_few and n_rows < FEW_ROWS:
        return {"l1_ratio": 0.3, "affinity": "squared_cosines"}
    return {"l1_ratio": 0.9, "affinity": "symmetric"}


def choose_learning_rate(rate: float | str, network: NetworkConfig) -> float:
    """Return ``rate``; for "auto" what suits the width of the network.

    Wide towers at the paper's 1e-3 often spend their first thousand steps on a plateau
    where all coefficients are small.
    """
    if not isinstance(rate, str):
        return rate
    widest = max((*network.hidden_sizes, network.n_embedding))
    return 3e-4 if widest >= _WIDE else 1e-3


def choose_gamma(
    gamma: float | str, scale: str, bound: SmallestGamma, config: TrainConfig
) -> float:
    """Return an absolute gamma for the start and the penalty of a training.

    A relative one is a multiple of what a typical row needs for a coefficient that is
    not zero. Where rows need none, or infinitely much, there is nothing to relate to.
    """
    has_scale = math.isfinite(bound.typical) and bound.typical > 0
    if isinstance(gamma, str):
        relative = RELATIVE_GAMMA[config.start]
        if config.start == "alike" and config.l1_ratio < _MORE_SQUARES:
            relative = _RELATIVE_GAMMA_OF_SQUARES
        return relative * bound.typical if has_scale else TrainConfig().gamma
    return gamma * bound.typical if scale == "relative" and has_scale else gamma


def choose_exact_gamma(
    gamma: float | str, scale: str, bound: SmallestGamma, l1_ratio: float
) -> float:
    """Return an absolute gamma for coefficients that are solved for.

    "auto" is 12 times what a typical row needs for a coefficient that is not zero:
    little enough for noise of features and text, enough for subspaces that cross. A
    penalty that is more of squares than of sizes takes half of that.
    """
    has_scale = math.isfinite(bound.typical) and bound.typical > 0
    if isinstance(gamma, str):
        relative = _RELATIVE_EXACT_GAMMA
        if l1_ratio < _MORE_SQUARES:
            relative /= 2
        return relative * bound.typical if has_scale else relative
    return gamma * bound.typical if scale == "relative" and has_scale else gamma


def is_auto(value: object) -> bool:
    """Say whether a setting is left to us."""
    return isinstance(value, str) and value == AUTO


def decide(
    config: TrainConfig,
    network: NetworkConfig,
    source: RowSource,
    device: torch.device,
) -> TrainConfig:
    """Return ``config`` with every "auto" replaced by a decision.

    Many processes take the algorithm whose sums over keys can be parted.
    """
    algorithm, engine = config.algorithm, config.engine
    if distributed.n_ranks() > 1:
        _warn_of_parted_sums(config)
        algorithm, engine = "two_pass", "plain"
    if algorithm == "auto":
        algorithm = _choose_algorithm(config, network, source, device)
    if engine == "auto":
        engine = "fused"
    precision = _choose_precision(config.precision, device)
    start = choose_start(config.start, source)
    return replace(
        config, algorithm=algorithm, precision=precision, engine=engine, start=start
    )


def _warn_of_parted_sums(config: TrainConfig) -> None:
    """Warn that many processes train in one way only, whatever is asked for."""
    wanted = {"algorithm": "two_pass", "engine": "plain"}
    for name, only in wanted.items():
        asked = getattr(config, name)
        if asked not in (AUTO, only):
            warnings.warn(
                f"{name}={asked!r} needs a single process, but there are "
                f"{distributed.n_ranks()}, which take {only!r}. Use {name}='auto'.",
                IgnoredSettingWarning,
                stacklevel=3,
            )


def _choose_algorithm(
    config: TrainConfig,
    network: NetworkConfig,
    source: RowSource,
    device: torch.device,
) -> str:
    """Return "naive" if its graph fits into the memory that is free."""
    needed = naive_step_bytes(
        len(source), source.n_features, network=network, train=config
    )
    free = free_bytes(device)
    choice = "naive" if needed <= _MEMORY_SHARE * free else "two_pass"
    logger.info(
        "algorithm %s: a naive step needs about %.2f GiB, %.2f GiB are free",
        choice,
        needed / 2**30,
        free / 2**30,
    )
    return choice


def _choose_precision(precision: str, device: torch.device) -> str:
    """Keep rounded factors to GPUs: few CPUs multiply them well, if at all."""
    if device.type == "cuda":
        return "bfloat16" if precision == "auto" else precision
    if precision in ("bfloat16", "tf32"):
        warnings.warn(
            f"precision={precision!r} needs a GPU, but training runs on the CPU in "
            "float32. Use precision='auto' to follow the device.",
            IgnoredSettingWarning,
            stacklevel=2,
        )
    return "float32"
