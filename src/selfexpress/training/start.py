"""Where training starts: with like expressing like, or at random as in the paper.

With independent towers the first coefficients are noise, and training has to leave a
plateau where all of them are small. With few rows it stays there for long. Towers that
start alike have their largest products where rows are alike, and the threshold lets
only the largest pass. But where all rows are alike, as pixels of faces are, or lie in
few dimensions, that says little, and training may leave every product below the
threshold for good; with many rows a random start ends nearer to the optimum.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from selfexpress.data.sources import RowSource
from selfexpress.network import SelfExpressiveNetwork

# Rows that express a typical row at the start. From 5 to 30 training ends the same.
_N_KEYS = 10
_MAX_ROWS = 2000
# "auto" takes the start from like rows for fewer than so many ...
_FEW_ROWS = 2000
# ... that fill so many dimensions: there like rows stand out.
_LEAST_DIMENSIONS = 25


def choose_start(start: str, source: RowSource) -> str:
    """Return ``start``; for "auto" what suits the rows.

    That is "alike" for fewer than 2000 unit rows that fill 25 dimensions or more, else
    "random", which leaves towers and threshold as they are drawn, as in the paper.
    """
    if start != "auto":
        return start
    is_few = len(source) < _FEW_ROWS
    is_alike = is_few and effective_dimension(_some(source)) >= _LEAST_DIMENSIONS
    return "alike" if is_alike else "random"


def effective_dimension(rows: Tensor) -> float:
    """Return in how many dimensions unit rows are spread: 1 / mean squared cosine.

    It is D for rows of all directions in R^D, 1 for rows of one direction, and 0 for
    rows of zeros.
    """
    moments = rows.T @ rows / len(rows)  # (D, D)
    mean_squared_cosine = float(moments.square().sum())
    return 1 / mean_squared_cosine if mean_squared_cosine > 0 else 0.0


@torch.no_grad()
def start_alike(network: SelfExpressiveNetwork, source: RowSource) -> None:
    """Let every row be expressed by the rows most like it.

    - Weights of the first layer are drawn for entries of size 1; those of a unit row
      are smaller by the square root of their number, which is made up for.
    - The key tower is a copy of the query tower, and the threshold is where a typical
      row has 10 coefficients.

    Parameters
    ----------
    network : SelfExpressiveNetwork
        With its towers drawn at random.
    source : RowSource
        Of unit rows; at most 2000, evenly spaced, are looked at.
    """
    rows = _some(source).to(network.threshold)
    tower = network.query_tower
    first = tower[0]
    assert isinstance(first, nn.Linear)
    first.weight.mul_(math.sqrt(network.n_features))
    network.key_tower.load_state_dict(tower.state_dict())

    outputs = tower(rows)
    products = (outputs @ outputs.T).abs().fill_diagonal_(0)
    # Of all keys only some are looked at.
    n_passing = max(1, round(_N_KEYS * len(rows) / len(source)))
    n_largest = min(n_passing + 1, len(rows))
    largest_stopped = products.topk(n_largest, dim=1).values[:, -1]
    network.threshold.copy_(largest_stopped.median())


def _some(source: RowSource) -> Tensor:
    n_rows = min(len(source), _MAX_ROWS)
    return source.take(torch.arange(n_rows) * len(source) // n_rows)
