"""Clusters of new rows, by the fitted rows that express them.

A new row is expressed by the references; each cluster's share of the size of its
coefficients is its claim on the row. Where the references have their rows, the claim
counts the more the nearer the row is to the span of the cluster's basis: few rows of a
small cluster express little of a new one, but span all of it.

Shapes: M new rows, R references, D features, P embedding dimensions, k clusters.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor
from torch.nn import functional

from selfexpress import distributed
from selfexpress.affinity.bases import ClusterBases
from selfexpress.affinity.coefficients import largest_coefficients
from selfexpress.affinity.exact import Candidates, express_new_rows
from selfexpress.affinity.sparse_rows import SparseRows
from selfexpress.errors import DegenerateWarning
from selfexpress.network import SelfExpressiveNetwork
from selfexpress.rows.prefetch import Prefetched
from selfexpress.rows.sources import ArraySource, RowSource, blocks_between
from selfexpress.solvers.problem import ElasticNetConfig

# Rows assigned at a time: few enough for a small memory, enough to fill a GPU.
_BLOCK_ROWS = {"cpu": 8192, "cuda": 65_536}
# References most like a new row that may express it. Twice as many change no label in
# a thousand, and take three times as long.
N_SIMILAR = 50
# A squared distance below which rows lie in a span but for noise, and the share that a
# cluster has which expresses nothing of a row.
_NEAREST, _NO_SHARE = 1e-3, 1e-3


@dataclass(frozen=True)
class References:
    """Fitted rows that express new ones.

    Attributes
    ----------
    labels : ndarray of shape (R,), int64
    n_clusters : int
        Some may have no reference.
    rows : Tensor of shape (R, D), optional
        Of unit length; without them a network alone expresses new rows.
    keys : Tensor of shape (R, P), optional
        Embedded by the network's key tower, where there is one.
    bases : ClusterBases, optional
        See :meth:`with_bases`.
    """

    labels: NDArray[np.int64]
    n_clusters: int
    rows: Tensor | None = None
    keys: Tensor | None = None
    bases: ClusterBases | None = None

    def with_bases(self) -> References:
        """Return the same with a basis of each cluster, if there are rows."""
        if self.rows is None:
            return self
        labels = torch.from_numpy(self.labels).to(self.rows.device)
        found = ClusterBases.of(self.rows, labels, self.n_clusters)
        return replace(self, bases=found)

    @property
    def device(self) -> torch.device:
        """Where the references are."""
        kept = self.keys if self.rows is None else self.rows
        assert kept is not None
        return kept.device

    def __len__(self) -> int:
        """Number of references."""
        return len(self.labels)


@dataclass(frozen=True)
class Assignment:
    """How new rows are expressed by references, and thereby assigned.

    Attributes
    ----------
    references : References
    network : SelfExpressiveNetwork, optional
    config : ElasticNetConfig, optional
        The problem that is solved where the references have their rows.
    n_nonzero : int, optional
        Coefficients kept of a row, the largest; all unless given.
    """

    references: References
    network: SelfExpressiveNetwork | None
    config: ElasticNetConfig | None
    n_nonzero: int | None = None

    def labels(self, source: RowSource) -> NDArray[np.int64]:
        """Return the cluster of every row, each process assigning those it owns."""
        span = distributed.own_range(len(source))
        own = [weights.argmax(axis=1) for weights in self.weights(source, span)]
        labels = np.concatenate([np.empty(0, dtype=np.int64), *own])
        return distributed.gather_rows(torch.from_numpy(labels)).numpy()

    def weights(
        self, source: RowSource, span: tuple[int, int] | None = None
    ) -> Iterator[NDArray[np.float64]]:
        """Yield each cluster's share of what expresses rows, block after block.

        Memory does not grow with the rows; the next block is read meanwhile.

        Parameters
        ----------
        source : RowSource
        span : (int, int), optional
            First and last + 1 of the rows; all unless given.

        Yields
        ------
        ndarray of shape (rows of the block, k)
        """
        start, stop = span or (0, len(source))
        n_empty = 0
        for rows, coefficients in self._blocks(source, start, stop):
            n_empty += int((coefficients.value == 0).all(dim=1).sum())
            weights = cluster_weights(coefficients, self.references)
            bases = self.references.bases
            yield weights if bases is None else _by_nearness(weights, rows, bases)
        if n_empty:
            warnings.warn(
                "Every row to be assigned should have a coefficient, but "
                f"{n_empty} of {stop - start} have none and get the commonest cluster; "
                "leave out rows that are zero or unlike those of the fit.",
                DegenerateWarning,
                stacklevel=2,
            )

    def coefficients(self, source: RowSource) -> sparse.csr_array:
        """Return the coefficients of every row on the references, (M, R)."""
        blocks = [part.to_csr() for _, part in self._blocks(source, 0, len(source))]
        return sparse.csr_array(sparse.vstack(blocks, format="csr"))

    def _blocks(
        self, source: RowSource, start: int, stop: int
    ) -> Iterator[tuple[Tensor, SparseRows]]:
        device = self.references.device
        size = _BLOCK_ROWS.get(device.type, 8192)
        ahead = Prefetched(source)
        for block in blocks_between(ahead, start, stop, block_size=size):
            rows = block.rows.to(device)
            yield rows, self._express(rows)

    def _express(self, rows: Tensor) -> SparseRows:
        kept = self.references
        if kept.rows is not None and self.config is not None:
            candidates = Candidates(N_SIMILAR, self.network, kept.keys)
            return express_new_rows(rows, kept.rows, self.config, candidates)
        assert self.network is not None
        assert kept.keys is not None
        assert self.n_nonzero is not None
        return largest_coefficients(
            self.network,
            ArraySource(rows, device=rows.device),
            kept.keys,
            n_nonzero=self.n_nonzero,
            exclude_self=False,
        )


def _by_nearness(
    weights: NDArray[np.float64], rows: Tensor, bases: ClusterBases
) -> NDArray[np.float64]:
    """Weigh each cluster's share by how near the rows are to its span, (M, k)."""
    distances = bases.residuals(rows).double().cpu().numpy()
    claims: NDArray[np.float64] = (weights + _NO_SHARE) / (distances + _NEAREST)
    claims[:, np.bincount(bases.owner.cpu(), minlength=bases.n_clusters) == 0] = 0
    claims /= claims.sum(axis=1, keepdims=True)
    return claims


def cluster_weights(
    coefficients: SparseRows, references: References
) -> NDArray[np.float64]:
    """Return each cluster's share of what expresses a new row, (M, k).

    Parameters
    ----------
    coefficients : SparseRows of shape (M, R)
        The new rows expressed by the references.
    references : References

    Returns
    -------
    ndarray of shape (M, k)
        Rows sum to 1. A row that no reference expresses gets each cluster's share
        among the references.
    """
    labels = torch.tensor(references.labels, device=coefficients.value.device)
    members = functional.one_hot(labels, references.n_clusters).float()  # (R, k)
    sums = coefficients.sizes() @ members
    weights: NDArray[np.float64] = sums.double().cpu().numpy()
    shares = np.bincount(references.labels, minlength=references.n_clusters)
    weights[weights.sum(axis=1) == 0] = shares
    weights /= weights.sum(axis=1, keepdims=True)
    return weights
