"""A trained network's coefficients as sparse rows, a few rows at a time.

Shapes: M rows to express, N keys, B rows of a batch, P embedding dimensions.
"""

from __future__ import annotations

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from selfexpress.data.sources import RowBlock, RowSource
from selfexpress.network import SelfExpressiveNetwork
from selfexpress.ops.self_expression import without_self

# Dense coefficients at a time: 2^24 float32 numbers are 64 MiB.
_BATCH_ENTRIES = 2**24


@torch.inference_mode()
def embed_keys(
    network: SelfExpressiveNetwork, source: RowSource, *, block_size: int
) -> Tensor:
    """Return the keys of all rows of a source, (N, P)."""
    keys = [network.key_tower(block.rows) for block in source.blocks(block_size)]
    return torch.cat(keys)


@torch.inference_mode()
def sparse_coefficients(
    network: SelfExpressiveNetwork,
    source: RowSource,
    keys: Tensor,
    *,
    n_nonzero: int,
    exclude_self: bool,
) -> sparse.csr_array:
    """Express every row of a source by keys; keep each row's largest coefficients.

    Memory beyond the result does not grow with the number of rows.

    Parameters
    ----------
    network : SelfExpressiveNetwork
    source : RowSource of M rows
    keys : Tensor of shape (N, P)
        See :func:`embed_keys`.
    n_nonzero : int
        Entries kept of a row, those of largest size; zeros are never stored.
    exclude_self : bool
        Whether key i belongs to row i, which must not express itself.

    Returns
    -------
    csr_array of shape (M, N), float32
    """
    batch_size = max(1, _BATCH_ENTRIES // len(keys))
    parts = [
        _largest_entries(_express(network, batch, keys, exclude_self), n_nonzero)
        for batch in source.blocks(batch_size)
    ]
    return sparse.vstack(parts, format="csr")


def _express(
    network: SelfExpressiveNetwork, batch: RowBlock, keys: Tensor, exclude_self: bool
) -> Tensor:
    coefficients = network.coefficients(network.query_tower(batch.rows), keys)
    if exclude_self:
        key_index = torch.arange(len(keys), device=keys.device)
        coefficients = without_self(coefficients, batch.index, key_index)
    return coefficients  # (B, N)


def _largest_entries(coefficients: Tensor, n_nonzero: int) -> sparse.csr_array:
    """Return the entries of largest size of every row, columns in order."""
    n_kept = min(n_nonzero, coefficients.shape[1])
    chosen = coefficients.abs().topk(n_kept, dim=1, sorted=False).indices
    columns = chosen.sort(dim=1).values  # (B, n_kept)
    values = coefficients.gather(1, columns)
    is_stored = values != 0
    lengths = is_stored.sum(dim=1).cpu().numpy()
    return sparse.csr_array(
        (
            values[is_stored].float().cpu().numpy(),
            columns[is_stored].int().cpu().numpy(),
            np.concatenate([[0], lengths.cumsum()]),
        ),
        shape=tuple(coefficients.shape),
    )
