"""Stages of ``SENet`` that walk all rows, or the rows of this process.

Shapes: N rows, n rows that are clustered, R references, k clusters.
"""

from __future__ import annotations

import logging

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from selfexpress import distributed
from selfexpress.affinity.assignment import References
from selfexpress.affinity.coefficients import embed_keys, sparse_coefficients
from selfexpress.affinity.ring import ring_coefficients
from selfexpress.config import require_count
from selfexpress.errors import DataError
from selfexpress.network import SelfExpressiveNetwork
from selfexpress.ops.memory import free_bytes
from selfexpress.rows.shards import OwnRows
from selfexpress.rows.sources import ArraySource, RowSource

logger = logging.getLogger(__name__)

# Up to here all pairs take minutes on two cores and a second on a GPU.
_EXACT_ROWS = 80_000
# Bytes that a stored coefficient takes in all the copies that the graph needs.
_BYTES_PER_COEFFICIENT = 100
# Rows whose keys are computed at a time.
_KEY_ROWS = 8192


def shared(source: RowSource) -> RowSource:
    """Return a source of which this process owns a part; the same one if alone."""
    if distributed.n_ranks() == 1:
        return source
    if len(source) < distributed.n_ranks():
        raise DataError(
            f"There must be a row for each of {distributed.n_ranks()} processes, got "
            f"{len(source)} rows. Start fewer processes."
        )
    start, stop = distributed.own_range(len(source))
    return OwnRows(source, start, stop, combine=distributed.add_up)


def training_sample(
    source: RowSource,
    n_rows: int | None,
    *,
    generator: torch.Generator,
    device: torch.device,
) -> RowSource:
    """Draw the rows to train on and keep them on the device; stream them if all."""
    if n_rows is None:
        return source
    advice = "Use None for all rows."
    require_count("n_train_samples", n_rows, least=2, advice=advice)
    order = torch.randperm(len(source), generator=generator)
    index = order[:n_rows].sort().values
    return shared(ArraySource(source.take(index), device=device))


def n_clustered(
    setting: int | str | None,
    n_samples: int,
    *,
    n_clusters: int,
    n_references: int,
    n_nonzero: int,
    most: int | None,
) -> int:
    """Return how many rows the graph is built of; all of them if that is quick.

    Parameters
    ----------
    setting : int, "auto" or None
        Number of rows, None for all, or left to us: all rows while all pairs of them
        are quick and their coefficients fit into half of the free memory, else
        ``n_references``.
    n_samples, n_clusters, n_references, n_nonzero : int
    most : int, optional
        Rows up to which all pairs are quick, if not for a network.
    """
    if setting is None:
        return n_samples
    if setting != "auto":
        advice = "Use 'auto', or None for all rows."
        least = max(2, n_clusters)
        require_count("n_cluster_samples", setting, least=least, advice=advice)
        return min(int(setting), n_samples)
    needed = _BYTES_PER_COEFFICIENT * n_samples * min(n_nonzero, n_samples)
    free = free_bytes(torch.device("cpu"))
    is_exact = n_samples <= (most or _EXACT_ROWS) and needed <= free / 2
    chosen = n_samples if is_exact else min(max(n_references, n_clusters), n_samples)
    logger.info(
        "graph of %d of %d rows: all would need about %.2f GiB, %.2f GiB are free",
        chosen,
        n_samples,
        needed / 2**30,
        free / 2**30,
    )
    return chosen


def draw(n_samples: int, n_drawn: int, *, seed: int) -> Tensor:
    """Return positions drawn at random without repeats, in order."""
    if n_drawn == n_samples:
        return torch.arange(n_samples)
    order = torch.randperm(n_samples, generator=torch.Generator().manual_seed(seed))
    return order[:n_drawn].sort().values


def express(
    network: SelfExpressiveNetwork,
    source: RowSource,
    *,
    n_nonzero: int,
    block_size: int,
) -> tuple[Tensor, sparse.csr_array]:
    """Return the keys of the own rows, and the coefficients of all rows on all.

    Parameters
    ----------
    network : SelfExpressiveNetwork
    source : RowSource
        See :func:`shared`.
    n_nonzero, block_size : int
    """
    keys = embed_keys(network, source, block_size=block_size)
    if distributed.n_ranks() > 1:
        found = ring_coefficients(network, source, keys, n_nonzero=n_nonzero)
        return keys, found
    exact = sparse_coefficients(
        network, source, keys, n_nonzero=n_nonzero, exclude_self=True
    )
    return keys, exact


def choose_references(
    network: SelfExpressiveNetwork,
    source: RowSource,
    own_keys: Tensor,
    *,
    labels: NDArray[np.int64],
    n_clusters: int,
    n_references: int,
    seed: int,
) -> References:
    """Keep all rows of a source to assign new ones, or a random part of them.

    Rows are drawn in the order of :func:`training_sample`: those that the network was
    trained on come first.

    Parameters
    ----------
    network : SelfExpressiveNetwork
    source : RowSource
        Of the rows that were clustered; see :func:`shared`.
    own_keys : Tensor
        Of the rows that this process owns.
    labels : ndarray, one for each row
    n_clusters : int
    n_references : int
        At most so many.
    seed : int
    """
    if len(source) <= n_references:
        return References(labels, n_clusters, keys=distributed.gather_rows(own_keys))
    index = draw(len(source), n_references, seed=seed)
    rows = ArraySource(source.take(index), device=own_keys.device)
    keys = embed_keys(network, rows, block_size=_KEY_ROWS)
    return References(labels[index.numpy()], n_clusters, keys=keys)
