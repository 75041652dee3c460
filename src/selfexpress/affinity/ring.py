"""Coefficients on keys that no single process holds all of.

Shapes: M own rows, N rows of all processes, B rows of a batch, K keys at hand,
P embedding dimensions, n coefficients kept.
"""

from __future__ import annotations

import torch
from scipy import sparse
from torch import Tensor

from selfexpress import distributed
from selfexpress.affinity.sparse_rows import SparseRows
from selfexpress.network import SelfExpressiveNetwork
from selfexpress.ops.self_expression import without_self
from selfexpress.rows.sources import RowSource

# Dense coefficients at a time: 2^24 float32 numbers are 64 MiB.
_BATCH_ENTRIES = 2**24


@torch.inference_mode()
def ring_coefficients(
    network: SelfExpressiveNetwork,
    source: RowSource,
    own_keys: Tensor,
    *,
    n_nonzero: int,
) -> sparse.csr_array:
    """Express the rows of all processes by one another; every process gets the whole.

    Each process expresses its own rows. Keys pass from one to the next, so that none
    holds more than three parts of them.

    Parameters
    ----------
    network : SelfExpressiveNetwork
    source : RowSource of N rows
        Whose blocks are the rows of this process, with their positions in the whole.
    own_keys : Tensor of shape (M, P)
        Of the same rows.
    n_nonzero : int
        Entries kept of a row, those of largest size; no row expresses itself.

    Returns
    -------
    csr_array of shape (N, N), float32
    """
    batch_size = max(1, _BATCH_ENTRIES // max(1, len(own_keys)))
    batches = [
        (batch.index, network.query_tower(batch.rows))
        for batch in source.blocks(batch_size)
    ]
    kept = [
        (queries.new_zeros(len(queries), 0), index.new_zeros(len(queries), 0))
        for index, queries in batches
    ]
    for start, keys in distributed.around_the_ring(own_keys, len(source)):
        key_index = torch.arange(start, start + len(keys), device=keys.device)
        for place, (index, queries) in enumerate(batches):
            found = network.coefficients(queries, keys)  # (B, K)
            found = without_self(found, index, key_index)
            kept[place] = _merged(kept[place], found, key_index, n_nonzero)
    values, columns = (
        distributed.gather_rows(torch.cat(parts)) for parts in zip(*kept, strict=True)
    )  # (N, n)
    return SparseRows(columns, values.float(), len(source)).to_csr()


def _merged(
    kept: tuple[Tensor, Tensor], found: Tensor, key_index: Tensor, n_nonzero: int
) -> tuple[Tensor, Tensor]:
    """Return values and columns of the largest entries, kept before or found now."""
    n_kept = min(n_nonzero, found.shape[1])
    best = found.abs().topk(n_kept, dim=1, sorted=False).indices
    values = torch.cat([kept[0], found.gather(1, best)], dim=1)
    columns = torch.cat([kept[1], key_index[best]], dim=1)
    order = values.abs().topk(min(n_nonzero, values.shape[1]), dim=1, sorted=False)
    return values.gather(1, order.indices), columns.gather(1, order.indices)
