"""Where training starts: with like expressing like, or at random as in the paper.

With independent towers the first coefficients are noise, and training has to leave a
plateau where all of them are small. With few rows it stays there for long. Towers that
start alike have their largest products where rows are alike, and the threshold lets
only the largest pass. But where all rows are alike, as pixels of faces are, that says
little, and training may leave every product below the threshold for good; with many
rows a random start ends nearer to the optimum.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from selfexpress import distributed
from selfexpress.network import SelfExpressiveNetwork
from selfexpress.rows.sources import RowSource

# Rows that express a typical row at the start. From 5 to 30 training ends the same.
_N_KEYS = 10
_MAX_ROWS = 2000
# "auto" takes the start from like rows for fewer than so many ...
FEW_ROWS = 2000
# ... that fill so many dimensions: there like rows stand out. Pixels of faces and of
# objects fill one or two; levelled trajectories of tracked points three or more.
_LEAST_DIMENSIONS = 2.5


def choose_start(start: str, source: RowSource) -> str:
    """Return ``start``; for "auto" what suits the rows.

    That is "alike" for fewer than 2000 unit rows that fill 2.5 dimensions or more, else
    "random", which leaves towers and threshold as they are drawn, as in the paper.
    """
    if start != "auto":
        return start
    if len(source) >= FEW_ROWS:
        return "random"
    # Many processes must choose the same.
    dimension = torch.tensor(effective_dimension(some_rows(source)))
    is_wide = float(distributed.from_main(dimension)) >= _LEAST_DIMENSIONS
    return "alike" if is_wide else "random"


def effective_dimension(rows: Tensor) -> float:
    """Return in how many dimensions unit rows are spread: 1 / mean squared cosine.

    It is D for rows of all directions in R^D, 1 for rows of one direction, and 0 for
    rows of zeros. A row counts as often as its squared length says.
    """
    products = rows @ rows.T  # (B, B), however wide the rows
    total = float(products.diagonal().sum())
    return total**2 / float(products.square().sum()) if total > 0 else 0.0


@torch.no_grad()
def start_alike(network: SelfExpressiveNetwork, source: RowSource) -> None:
    """Let every row be expressed by the rows most like it.

    - Weights of the first layer are drawn for entries of size 1; those of a unit row
      are smaller by the square root of their number, which is made up for.
    - The key tower is a copy of the query tower, and the threshold is where a typical
      row has 10 coefficients.

    At most 2000 of the unit rows, evenly spaced, are looked at.
    """
    rows = some_rows(source).to(network.threshold)
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
    network.threshold.copy_(distributed.from_main(largest_stopped.median()))


def some_rows(source: RowSource) -> Tensor:
    """Return at most 2000 rows, evenly spaced."""
    n_rows = min(len(source), _MAX_ROWS)
    return source.take(torch.arange(n_rows) * len(source) // n_rows)
