"""Batches by permutation, as a function of the step alone."""

from __future__ import annotations

import torch
from torch import Tensor


class PermutationSampler:
    """Deal out row positions, every row once before any comes again.

    Permutations follow one another without a gap, so that every batch is full; one
    that spans two of them may hold a row twice. Batch ``step`` depends on nothing but
    ``seed`` and ``step``: training can go on from any step without stored state.

    Parameters
    ----------
    n_samples, batch_size : int
        A batch holds at most ``n_samples`` rows.
    seed : int
    """

    def __init__(self, n_samples: int, batch_size: int, *, seed: int) -> None:
        self.n_samples = n_samples
        self.batch_size = min(batch_size, n_samples)
        self._seed = seed
        self._epoch = -1
        self._order = torch.empty(0, dtype=torch.int64)

    def batch(self, step: int) -> Tensor:
        """Return the positions of batch ``step``, int64 of shape (batch_size,)."""
        start = step * self.batch_size
        epoch, offset = divmod(start, self.n_samples)
        first = self._permutation(epoch)[offset : offset + self.batch_size]
        n_missing = self.batch_size - len(first)
        if n_missing == 0:
            return first
        return torch.cat([first, self._permutation(epoch + 1)[:n_missing]])

    def _permutation(self, epoch: int) -> Tensor:
        if epoch != self._epoch:
            generator = torch.Generator().manual_seed(self._seed + epoch)
            self._order = torch.randperm(self.n_samples, generator=generator)
            self._epoch = epoch
        return self._order
