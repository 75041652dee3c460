"""A trained network's coefficients as sparse rows, a few rows at a time.

Shapes: M rows to express, N keys, B rows of a batch, P embedding dimensions.
"""

from __future__ import annotations

import torch
from scipy import sparse
from torch import Tensor

from selfexpress.affinity.sparse_rows import SparseRows
from selfexpress.network import SelfExpressiveNetwork
from selfexpress.ops.memory import with_smaller_blocks
from selfexpress.ops.self_expression import soft_threshold
from selfexpress.rows.sources import RowSource

# Dense coefficients at a time: 2^24 float32 numbers are 64 MiB, 2^28 bfloat16 ones
# 512 MiB; a GPU is not busy with less.
_BATCH_ENTRIES = {"cpu": 2**24, "cuda": 2**28}


@torch.inference_mode()
def embed_keys(
    network: SelfExpressiveNetwork, source: RowSource, *, block_size: int
) -> Tensor:
    """Return the keys of all rows of a source, (N, P)."""

    def keys_in_blocks(size: int) -> Tensor:
        return torch.cat([network.key_tower(b.rows) for b in source.blocks(size)])

    largest = min(block_size, len(source))
    return with_smaller_blocks(keys_in_blocks, largest, what="A block of keys")


def sparse_coefficients(
    network: SelfExpressiveNetwork,
    source: RowSource,
    keys: Tensor,
    *,
    n_nonzero: int,
    exclude_self: bool,
    dtype: torch.dtype | None = None,
) -> sparse.csr_array:
    """Express every row of a source by keys; keep each row's largest coefficients.

    See :func:`largest_coefficients`. Memory beyond the result does not grow with the
    number of rows.

    Returns
    -------
    csr_array of shape (M, N), float32
    """
    rows = largest_coefficients(
        network,
        source,
        keys,
        n_nonzero=n_nonzero,
        exclude_self=exclude_self,
        dtype=dtype,
    )
    return rows.to_csr()


@torch.inference_mode()
def largest_coefficients(
    network: SelfExpressiveNetwork,
    source: RowSource,
    keys: Tensor,
    *,
    n_nonzero: int,
    exclude_self: bool,
    dtype: torch.dtype | None = None,
) -> SparseRows:
    """Return the coefficients of largest size of every row, where the keys are.

    Parameters
    ----------
    network : SelfExpressiveNetwork
    source : RowSource of M rows
    keys : Tensor of shape (N, P)
        See :func:`embed_keys`.
    n_nonzero : int
        Entries kept of a row, those of largest size.
    exclude_self : bool
        Whether key i belongs to row i, which must not express itself.
    dtype : torch.dtype, optional
        Of the products; bfloat16 on a GPU, as in training, else that of the keys.
    """
    working = keys.to(dtype or (torch.bfloat16 if keys.is_cuda else keys.dtype))
    batch_size = max(1, _BATCH_ENTRIES[keys.device.type] // len(keys))
    n_kept = min(n_nonzero, len(keys))

    def expressed_in_batches(size: int) -> SparseRows:
        columns, values = [], []
        for batch in source.blocks(size):
            queries = network.query_tower(batch.rows)
            products = queries.to(working.dtype) @ working.T  # (B, N)
            if exclude_self:
                products.scatter_(1, batch.index[:, None], 0)
            # The threshold keeps the order of sizes, so that it can wait.
            chosen = products.abs().topk(n_kept, dim=1, sorted=False).indices
            kept = products.gather(1, chosen).to(keys.dtype)
            coefficients = network.scale * soft_threshold(kept, network.threshold)
            values.append(coefficients.float())
            columns.append(chosen)
        return SparseRows(torch.cat(columns), torch.cat(values), len(keys))

    return with_smaller_blocks(expressed_in_batches, batch_size, what="A batch of rows")
