"""Connected components of a graph."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components

# A graph of data that is in one piece is walked through in fewer.
_MOST_STEPS = 64


def component_of_nodes(affinity: sparse.csr_array) -> NDArray[np.int32]:
    """Return the component of each node of a symmetric graph, counted from 0.

    Graphs of coefficients are large and mostly in one piece. That is quick to see, and
    spares the copies that a search for all components makes.
    """
    if _is_in_one_piece(affinity):
        return np.zeros(affinity.shape[0], dtype=np.int32)
    component: NDArray[np.int32] = connected_components(affinity, directed=False)[1]
    return component


def _is_in_one_piece(affinity: sparse.csr_array) -> bool:
    """Say whether a few steps from the first node reach all; False if not sure."""
    is_reached = np.zeros(affinity.shape[0], dtype=bool)
    is_reached[:1] = True
    for _ in range(_MOST_STEPS):
        n_before = is_reached.sum()
        is_reached |= affinity @ is_reached.astype(affinity.dtype) > 0
        if is_reached.sum() in (n_before, len(is_reached)):
            break
    return bool(is_reached.all())
