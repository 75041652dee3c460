"""Settings as frozen dataclasses that refuse impossible values."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields
from numbers import Integral, Real
from typing import Any

import numpy as np

from selfexpress.errors import ConfigError

ALGORITHMS = ("auto", "naive", "two_pass")
OPTIMIZERS = ("adam", "muon")
SCHEDULES = ("adaptive", "cosine", "constant")
STARTS = ("auto", "alike", "random")
PRECISIONS = ("auto", "float32", "tf32", "bfloat16")
ENGINES = ("auto", "plain", "fused")
AUTO = "auto"
AFFINITIES = (
    "symmetric",
    "squared_cosines",
    "weighted_neighbors",
    "nearest_neighbors",
    "combined",
)

# Beyond this, numbers do not survive single precision.
_LARGEST = 1e30


@dataclass(frozen=True)
class NetworkConfig:
    """Sizes of the query and the key tower.

    Attributes
    ----------
    hidden_sizes : sequence of int
        Width of each hidden layer; the paper uses ``(1024, 1024, 1024)``.
    n_embedding : int
        Dimension p of queries and keys; coefficients are scaled by 1/p.
    """

    hidden_sizes: Sequence[int] = (1024, 1024, 1024)
    n_embedding: int = 1024

    def __post_init__(self) -> None:
        if not isinstance(self.hidden_sizes, Sequence | np.ndarray):
            raise ConfigError(
                f"hidden_sizes must be a sequence of integers, got "
                f"{self.hidden_sizes!r}. Use for example (512, 512)."
            )
        sizes = tuple(map(_plain, self.hidden_sizes))
        object.__setattr__(self, "hidden_sizes", sizes)
        _make_plain(self)
        for size in sizes:
            require_count("hidden_sizes", size, advice="Use for example (512, 512).")
        require_count("n_embedding", self.n_embedding, advice="Use for example 512.")


@dataclass(frozen=True)
class TrainConfig:
    """Objective, step and schedule of training.

    Attributes
    ----------
    gamma : float
        Weight of the reconstruction against the penalty.
    l1_ratio : float
        Share of the l1 norm in the elastic net; 1 is pure l1.
    max_iter : int
        Steps of the optimiser; the most of them if the schedule is adaptive.
    batch_size : int
        Rows expressed in a step.
    block_size : int
        Rows that express them at a time in the two-pass algorithm.
    learning_rate : float
        At the start; see ``schedule``.
    schedule : {"adaptive", "cosine", "constant"}
        Course of the learning rate; see ``training.schedule``.
    optimizer : {"adam", "muon"}
    clip_norm : float
        Bound of the gradient's norm. It is far below the norms met in training, so
        that it makes every gradient the same length: the huge gradients of the first
        steps would otherwise stay in Adam's second moment and stall it.
    algorithm : {"auto", "naive", "two_pass"}
    start : {"auto", "alike", "random"}
        Weights to start from; see ``training.start``.
    precision : {"auto", "float32", "tf32", "bfloat16"}
        Of the matrix products; weights stay float32 with ``"bfloat16"``.
    engine : {"auto", "plain", "fused"}
        Gradients by autograd, which reads like the paper, or written out by hand.
    """

    gamma: float = 200.0
    l1_ratio: float = 0.9
    max_iter: int = 1000
    batch_size: int = 200
    block_size: int = 16_384
    learning_rate: float = 1e-3
    schedule: str = "cosine"
    optimizer: str = "adam"
    clip_norm: float = 1e-3
    algorithm: str = "auto"
    start: str = "random"
    precision: str = "float32"
    engine: str = "auto"

    def __post_init__(self) -> None:
        _make_plain(self)
        require_positive("gamma", self.gamma, advice="The paper uses 200 for images.")
        require_share("l1_ratio", self.l1_ratio, advice="The paper uses 0.9.")
        require_count("max_iter", self.max_iter, advice="Use for example 1000.")
        require_count("batch_size", self.batch_size, advice="Use for example 200.")
        require_count("block_size", self.block_size, advice="Use for example 8192.")
        require_positive("learning_rate", self.learning_rate, advice="Use 1e-3.")
        require_positive("clip_norm", self.clip_norm, advice="Use 1e-3.")
        require_choice("schedule", self.schedule, SCHEDULES)
        require_choice("start", self.start, STARTS)
        require_choice("optimizer", self.optimizer, OPTIMIZERS)
        require_choice("algorithm", self.algorithm, ALGORITHMS)
        require_choice("precision", self.precision, PRECISIONS)
        require_choice("engine", self.engine, ENGINES)


@dataclass(frozen=True)
class ClusterConfig:
    """How coefficients become labels.

    Attributes
    ----------
    n_clusters : int or "auto"
        "auto" has them counted in the graph.
    affinity : {"symmetric", "squared_cosines", "weighted_neighbors", \
"nearest_neighbors", "combined"}
        See ``affinity.graph``.
    n_neighbors : int
        Rows joined to each row by an affinity of neighbours.
    n_eigenvectors : int or "auto", optional
        Dimension of the spectral embedding; ``n_clusters`` unless given.
    n_init : int
        Restarts of k-means.
    """

    n_clusters: int | str
    affinity: str = "nearest_neighbors"
    n_neighbors: int = 3
    n_eigenvectors: int | str | None = None
    n_init: int = 20

    def __post_init__(self) -> None:
        _make_plain(self)
        if self.n_clusters != AUTO:
            advice = "Use the clusters wanted, or 'auto' to have them counted."
            require_count("n_clusters", self.n_clusters, advice=advice)
        require_choice("affinity", self.affinity, AFFINITIES)
        require_count("n_neighbors", self.n_neighbors, advice="The paper uses 3.")
        require_count("n_init", self.n_init, advice="The paper uses 20.")
        if self.n_eigenvectors not in (None, AUTO):
            advice = "Use 'auto', or None for as many as there are clusters."
            require_count("n_eigenvectors", self.n_eigenvectors, advice=advice)


def _make_plain(config: Any) -> None:
    """Turn NumPy's numbers into Python's: torch and JSON refuse some of them."""
    for field in fields(config):
        object.__setattr__(config, field.name, _plain(getattr(config, field.name)))


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def require_count(name: str, value: object, *, least: int = 1, advice: str) -> None:
    """Refuse anything but an integer of at least ``least``."""
    is_integer = isinstance(value, Integral) and not isinstance(value, bool)
    if not is_integer or int(value) < least:  # type: ignore[call-overload]
        kind = "a positive integer" if least == 1 else f"an integer of at least {least}"
        raise ConfigError(f"{name} must be {kind}, got {value!r}. {advice}")


def require_positive(name: str, value: object, *, advice: str) -> None:
    """Refuse anything but a finite number above 0."""
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if not is_number or not 0 < value < _LARGEST:  # type: ignore[operator]
        raise ConfigError(
            f"{name} must be a finite number above 0, got {value!r}. {advice}"
        )


def require_share(name: str, value: object, *, advice: str) -> None:
    """Refuse anything but a number from 0 to 1."""
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if not is_number or not 0 <= value <= 1:  # type: ignore[operator]
        raise ConfigError(f"{name} must lie in [0, 1], got {value!r}. {advice}")


def require_flag(name: str, value: object, *, advice: str) -> None:
    """Refuse anything but True and False, NumPy's too."""
    if not isinstance(value, bool | np.bool_):
        raise ConfigError(f"{name} must be a bool, got {value!r}. {advice}")


def require_choice(name: str, value: object, choices: Collection[str]) -> None:
    """Refuse a name that is not one of the choices."""
    if not isinstance(value, str) or value not in choices:
        known = ", ".join(repr(choice) for choice in choices)
        raise ConfigError(
            f"{name} must be one of {known}, got {value!r}. Use one of these."
        )
