"""The largest coefficients by an index of the keys instead of all pairs.

A coefficient grows with the size of the inner product of query and key, so that a
row's largest coefficients are a maximum-inner-product search with the query and with
its negative. An index of lists of keys (faiss, an optional dependency) looks into a
part of the lists only. What that part misses is measured, not assumed: lists are added
until the share of true largest coefficients that is found, the recall, is high enough.

Shapes: N rows and keys, B rows of a batch, P embedding dimensions, n coefficients kept.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from selfexpress.affinity.sparse_rows import SparseRows
from selfexpress.errors import ConfigError
from selfexpress.network import SelfExpressiveNetwork
from selfexpress.ops.self_expression import soft_threshold, without_self
from selfexpress.rows.sources import RowSource

logger = logging.getLogger(__name__)

# Keys that the centres of the lists are learned from, for each list.
_KEYS_PER_LIST = 64
_BATCH_SIZE = 4096
# Products in lists run at a fraction of a matrix product's speed, taken as 1 in 16.
_WORTHWHILE_SHARE = 16
# Dense coefficients at a time: 2^24 float32 numbers are 64 MiB.
_BATCH_ENTRIES = 2**24


@dataclass(frozen=True)
class SearchedCoefficients:
    """Coefficients found by an index, and how good the search was.

    Attributes
    ----------
    coefficients : csr_array of shape (N, N)
    recall : float
        Share of the true largest coefficients that was found, on a sample of rows.
    n_lists, n_probes : int
        Lists of the index, and how many of them were looked into for each row.
    """

    coefficients: sparse.csr_array
    recall: float
    n_lists: int
    n_probes: int


@torch.inference_mode()
def searched_coefficients(
    network: SelfExpressiveNetwork,
    source: RowSource,
    keys: Tensor,
    *,
    n_nonzero: int,
    least_recall: float = 0.95,
    n_measured: int = 256,
    seed: int = 0,
) -> SearchedCoefficients:
    """Express every row by the others; find each row's largest coefficients by search.

    Parameters
    ----------
    network : SelfExpressiveNetwork
    source : RowSource of N rows
    keys : Tensor of shape (N, P)
        Of the same rows, in the same order.
    n_nonzero : int
        Entries kept of a row.
    least_recall : float
        More lists are looked into until the recall on a sample of rows reaches this.
    n_measured : int
        Rows of that sample.
    seed : int
        Of the sample and of the lists' centres.

    Returns
    -------
    SearchedCoefficients

    Raises
    ------
    ConfigError
        If faiss is not installed.
    """
    index = _Index(keys, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    sample = torch.randperm(len(source), generator=generator)[:n_measured].sort().values
    rows = source.take(sample)
    exact = _exact(network, rows, sample, keys, n_nonzero)
    while True:
        found = _search(network, index, rows, sample, n_nonzero)
        recall = recall_of(found, exact)
        if recall >= least_recall or index.n_probes == index.n_lists:
            break
        index.n_probes = min(2 * index.n_probes, index.n_lists)
    logger.info(
        "index of %d lists, %d looked into: recall %.4f on %d rows",
        index.n_lists,
        index.n_probes,
        recall,
        len(sample),
    )
    if _WORTHWHILE_SHARE * index.n_probes > index.n_lists:
        logger.warning(
            "%d of %d lists are looked into for each row: all pairs, one matrix "
            "product, are likely faster",
            index.n_probes,
            index.n_lists,
        )
    parts = [
        _search(network, index, block.rows, block.index, n_nonzero)
        for block in source.blocks(_BATCH_SIZE)
    ]
    whole = sparse.vstack(parts, format="csr")
    return SearchedCoefficients(whole, recall, index.n_lists, index.n_probes)


def recall_of(found: sparse.csr_array, exact: sparse.csr_array) -> float:
    """Return the share of the entries of ``exact`` that ``found`` has too."""
    if not exact.nnz:
        return 1.0
    common = (found != 0).multiply(exact != 0)
    return float(common.sum() / exact.nnz)


class _Index:
    """Lists of keys around centres; inner products with those of the nearest lists."""

    def __init__(self, keys: Tensor, *, seed: int) -> None:
        faiss = _faiss()
        array = keys.float().cpu().numpy()
        self.n_keys, n_embedding = array.shape
        n_lists = min(4 * round(self.n_keys**0.5), self.n_keys // _KEYS_PER_LIST)
        self.n_lists = max(1, n_lists)
        self.n_probes = 1
        self._centres = faiss.IndexFlatIP(n_embedding)
        self._index = faiss.IndexIVFFlat(
            self._centres, n_embedding, self.n_lists, faiss.METRIC_INNER_PRODUCT
        )
        self._index.cp.seed = seed
        self._index.cp.max_points_per_centroid = _KEYS_PER_LIST
        self._index.cp.min_points_per_centroid = 1
        self._index.train(array)
        self._index.add(array)

    def search(
        self, queries: NDArray[np.float32], n_wanted: int
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Return the largest products of each query and their keys, -1 for none."""
        self._index.nprobe = self.n_probes
        products, found = self._index.search(queries, int(n_wanted))
        return products, found


def _search(
    network: SelfExpressiveNetwork,
    index: _Index,
    rows: Tensor,
    positions: Tensor,
    n_nonzero: int,
) -> sparse.csr_array:
    """Return the largest coefficients of some rows that the index finds, (B, N)."""
    queries = network.query_tower(rows).float().cpu().numpy()
    n_wanted = min(n_nonzero + 1, index.n_keys)  # one more: the row itself
    signs = (1.0, -1.0)
    searches = [index.search(sign * queries, n_wanted) for sign in signs]
    products = np.hstack([sign * s[0] for sign, s in zip(signs, searches, strict=True)])
    found = np.hstack([s[1] for s in searches])
    # A key comes back for at most one of the signs with a product of that sign; what
    # came back for the other sign, for the row itself or for nothing is left out.
    of_sign = np.repeat(signs, n_wanted)
    is_usable = (products * of_sign > 0) & (found >= 0)
    is_usable &= found != positions.cpu().numpy()[:, None]
    usable = torch.from_numpy(np.where(is_usable, products, 0.0).astype(np.float32))
    threshold = network.threshold.detach().cpu()
    values = network.scale * soft_threshold(usable, threshold)
    return _largest(values, torch.from_numpy(found), n_nonzero, index.n_keys)


def _largest(
    values: Tensor, columns: Tensor, n_nonzero: int, n_columns: int
) -> sparse.csr_array:
    """Return the entries of largest size of every row, columns in order."""
    chosen = values.abs().topk(min(n_nonzero, values.shape[1]), dim=1).indices
    rows = SparseRows(
        columns.gather(1, chosen), values.gather(1, chosen).float(), n_columns
    )
    return rows.to_csr()


def _exact(
    network: SelfExpressiveNetwork,
    rows: Tensor,
    positions: Tensor,
    keys: Tensor,
    n_nonzero: int,
) -> sparse.csr_array:
    """Return the largest coefficients of some rows by all their products."""
    key_index = torch.arange(len(keys), device=keys.device)
    batch_size = max(1, _BATCH_ENTRIES // len(keys))
    parts = []
    for some, index in zip(
        rows.split(batch_size), positions.split(batch_size), strict=True
    ):
        found = network.coefficients(network.query_tower(some), keys)
        found = without_self(found, index.to(keys.device), key_index)
        columns = key_index.expand(len(some), -1)
        parts.append(_largest(found.cpu(), columns.cpu(), n_nonzero, len(keys)))
    return sparse.vstack(parts, format="csr")


def _faiss() -> Any:
    try:
        import faiss
    except ImportError as error:
        raise ConfigError(
            "An index of keys needs faiss, which is not installed. Install "
            "selfexpress[faiss], or use all pairs."
        ) from error
    return faiss
