"""How far a trained network is from the optimum it approximates."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from selfexpress.config import require_count
from selfexpress.errors import ConfigError
from selfexpress.estimators.senet import SENet
from selfexpress.estimators.solver import row_matrix
from selfexpress.ops.precision import own_arithmetic
from selfexpress.rows.sources import ArraySource, RowBlock
from selfexpress.solvers.ensc import elastic_net_expression
from selfexpress.solvers.problem import ElasticNetConfig

_BATCH_SIZE = 512


@own_arithmetic()
def objective_gap(
    model: SENet,
    X: Any,
    *,
    n_rows: int = 1000,
    random_state: int | np.random.RandomState | None = None,
) -> float:
    """Return (the network's objective - the optimum) / the optimum.

    Both are means over a random sample of rows, each expressed by all other rows of
    ``X`` with all of its coefficients; the optimum comes from the exact solver, with
    the ``gamma`` and ``l1_ratio`` of the training.

    Parameters
    ----------
    model : SENet
        Fitted, with a network.
    X : array-like, Tensor or RowSource of shape (n_samples, n_features)
        Rows the model was fitted on, or new ones.
    n_rows : int
        Size of the sample; all rows where there are fewer.
    random_state : int, RandomState or None
        Chooses the sample.

    Returns
    -------
    float
        0 is optimal; never below 0 but for rounding.
    """
    check_is_fitted(model, "references_")
    if model.network_ is None:
        raise ConfigError(
            "model must have a network, whose objective is compared with the optimum, "
            "but none was trained. Fit SENet with max_iter=1000, or with refine=None."
        )
    require_count("n_rows", n_rows, advice="Use for example 1000.")
    device = next(model.network_.parameters()).device
    rows = row_matrix(model._new_rows(X), device).float()  # (N, D)
    random = check_random_state(random_state)
    chosen = random.permutation(len(rows))[:n_rows]
    index = torch.from_numpy(np.sort(chosen)).to(device)
    config = ElasticNetConfig(*_weights(model), tol=1e-4)
    optimum = elastic_net_expression(rows, config, index=index).objective.mean()
    reached = np.mean(
        [
            float(value)
            for batch in index.split(_BATCH_SIZE)
            for value in network_objectives(model, rows, batch)
        ]
    )
    return float((reached - optimum) / optimum)


def _weights(model: SENet) -> tuple[float, float]:
    """Return the gamma and the l1_ratio that the network was trained with."""
    settings = model.settings_
    gamma = settings.get("training_gamma", settings["gamma"])
    return float(gamma), float(settings["l1_ratio"])


@torch.inference_mode()
def network_objectives(model: SENet, rows: Tensor, index: Tensor) -> Tensor:
    """Return the objective that the network reaches for the rows at ``index``, (B,)."""
    gamma, l1_ratio = _weights(model)
    batch = RowBlock(rows[index], index)
    queries = model.network_.query_tower(batch.rows)
    residuals = batch.rows.double()
    penalty = residuals.new_zeros(len(index))
    for block in ArraySource(rows, device=rows.device).blocks(8192):
        coefficients = model.network_.block_coefficients(queries, batch, block)
        residuals = residuals - (coefficients @ block.rows).double()
        l1_norm = coefficients.abs().sum(dim=1)
        l2_norm = coefficients.square().sum(dim=1)
        penalty += l1_ratio * l1_norm + (1 - l1_ratio) / 2 * l2_norm
    return gamma / 2 * residuals.square().sum(dim=1) + penalty
