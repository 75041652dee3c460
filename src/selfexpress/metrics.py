"""How good labels, coefficients and graphs are, given the true classes.

Labels may be any integers, booleans or text: only who shares one matters. Coefficients
and affinities are dense arrays or SciPy sparse matrices, row i belonging to point i.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import scipy.linalg
import torch
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.sparse.csgraph import min_weight_full_bipartite_matching
from scipy.sparse.linalg import ArpackNoConvergence, eigsh
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score
from torch import Tensor

from selfexpress.errors import ConfigError, DataError
from selfexpress.ops.sparse import component_of_nodes

# Up to this size a dense eigenvalue solver is the faster one.
_DENSE_SIZE = 400


def clustering_accuracy(labels: ArrayLike, truth: ArrayLike) -> float:
    """Share of points whose cluster is matched to their class, in the best matching.

    Each cluster is matched to at most one class and each class to at most one cluster;
    their numbers may differ, and what stays unmatched counts as wrong.

    Parameters
    ----------
    labels, truth : array-like of shape (n_samples,)
        Clusters and classes; the order of the two does not matter.

    Returns
    -------
    float
        Between 0 and 1.
    """
    # The side with fewer groups becomes the rows, each of which is matched.
    fewer, more = sorted(_paired(labels, truth), key=np.max)
    shape = (fewer.max() + 1, more.max() + 1)
    ones = np.ones(len(fewer))
    counts = sparse.coo_array((ones, (fewer, more)), shape=shape).tocsr()
    # Every row has a private column to be matched to when no other is left. Weights
    # must not be zero, so all are one larger than the count they stand for.
    counts.data += 1
    weights = sparse.hstack([counts, sparse.eye_array(shape[0])], format="csr")
    rows, columns = min_weight_full_bipartite_matching(weights, maximize=True)
    return float((weights[rows, columns] - 1).sum() / len(fewer))


def normalized_mutual_info(
    labels: ArrayLike,
    truth: ArrayLike,
    *,
    average: Literal["geometric", "arithmetic"] = "geometric",
) -> float:
    """Mutual information of clusters and classes over the mean of their entropies.

    Parameters
    ----------
    labels, truth : array-like of shape (n_samples,)
        Clusters and classes; the order of the two does not matter.
    average : {"geometric", "arithmetic"}
        Mean of the two entropies. Subspace clustering reports the geometric one,
        scikit-learn's default is the arithmetic one.

    Returns
    -------
    float
        Between 0 and 1; 1 if both are a single group, 0 if only one of them is.
    """
    if average not in ("geometric", "arithmetic"):
        raise ConfigError(
            f"average must be 'geometric' or 'arithmetic', got {average!r}. "
            "Papers on subspace clustering use 'geometric'."
        )
    clusters, classes = _paired(labels, truth)
    return float(
        normalized_mutual_info_score(classes, clusters, average_method=average)
    )


def adjusted_rand(labels: ArrayLike, truth: ArrayLike) -> float:
    """Share of pairs on which clusters and classes agree, corrected for chance.

    Parameters
    ----------
    labels, truth : array-like of shape (n_samples,)
        Clusters and classes; the order of the two does not matter.

    Returns
    -------
    float
        1 for equal partitions, about 0 for independent ones; may be negative.
    """
    clusters, classes = _paired(labels, truth)
    return float(adjusted_rand_score(classes, clusters))


def subspace_preserving_error(
    coefficients: ArrayLike | sparse.sparray,
    labels: ArrayLike,
    *,
    column_labels: ArrayLike | None = None,
) -> float:
    r"""Share of each row's :math:`\ell_1` norm on points of other classes, averaged.

    This is the subspace-preserving representation error of You, Robinson and Vidal
    (CVPR 2016), every point counting the same, whatever the size of its coefficients.
    A row without coefficients counts as entirely wrong: nothing of it comes from its
    own class.

    Parameters
    ----------
    coefficients : array or sparse matrix of shape (n_samples, n_columns)
        Row i expresses point i.
    labels : array-like of shape (n_samples,)
        True classes.
    column_labels : array-like of shape (n_columns,), optional
        True classes of the points that express, when they are not the same points.

    Returns
    -------
    float
        Between 0 and 1, 0 when every point is expressed by its own class alone.
    """
    matrix = _absolute(coefficients, "coefficients")
    columns = labels if column_labels is None else column_labels
    row_classes, column_classes = _common_codes(labels, columns)
    _check_shape(matrix, (len(row_classes), len(column_classes)), "coefficients")
    total = matrix.sum(axis=1)  # (N,)
    is_right = row_classes[matrix.row] == column_classes[matrix.col]
    right = np.bincount(
        matrix.row[is_right], matrix.data[is_right], minlength=matrix.shape[0]
    )
    share = np.divide(right, total, out=np.zeros(len(total)), where=total > 0)
    return float(1 - share.mean())


def graph_error(
    affinity: ArrayLike | sparse.sparray, labels: ArrayLike, *, weighted: bool = True
) -> float:
    """Share of a graph's edges that join points of different classes.

    Parameters
    ----------
    affinity : array or sparse matrix of shape (n_samples, n_samples)
        Weights of the edges, the sign ignored; the diagonal does not count.
    labels : array-like of shape (n_samples,)
        True classes.
    weighted : bool
        Whether an edge counts by its weight, or every edge counts as one.

    Returns
    -------
    float
        Between 0 and 1; 1 for a graph without edges, which joins no class at all.
    """
    graph, classes = _graph(affinity, labels)
    weights = graph.data if weighted else np.ones_like(graph.data)
    is_wrong = classes[graph.row] != classes[graph.col]
    total = weights.sum()
    return float(weights[is_wrong].sum() / total) if total > 0 else 1.0


def connectivity(affinity: ArrayLike | sparse.sparray, labels: ArrayLike) -> float:
    """Algebraic connectivity of the least connected class.

    For each class, the second smallest eigenvalue of the normalised Laplacian
    (identity minus degree-scaled weights) of the graph between its own points; then
    the smallest over the classes. A class in several pieces gives 0. A class of one
    point cannot fall apart and is left out.

    Parameters
    ----------
    affinity : array or sparse matrix of shape (n_samples, n_samples)
        Weights of the edges, the sign and the diagonal ignored. It is symmetrised by
        adding its transpose, so coefficients may be given as they are.
    labels : array-like of shape (n_samples,)
        True classes.

    Returns
    -------
    float
        From 0 to 2, in practice well below 1.

    Raises
    ------
    DataError
        No class has two points.
    """
    graph, classes = _graph(affinity, labels)
    rows = graph.tocsr()
    symmetric = (rows + rows.T).tocsr()
    values = []
    for name, size in enumerate(np.bincount(classes)):
        if size > 1:
            members = np.flatnonzero(classes == name)
            values.append(_second_eigenvalue(symmetric[members][:, members]))
    if not values:
        raise DataError(
            "connectivity needs a class of at least two points, got "
            f"{len(classes)} classes of one point each. Check the labels."
        )
    return min(values)


def _second_eigenvalue(weights: sparse.csr_array) -> float:
    """Return the second smallest eigenvalue of a graph's normalised Laplacian."""
    if component_of_nodes(weights).any():
        return 0.0
    scale = 1 / np.sqrt(weights.sum(axis=1))  # (n,)
    n_points = len(scale)
    spread = sparse.diags_array(scale)
    walk = (spread @ weights @ spread).tocsr()
    if n_points <= _DENSE_SIZE:
        laplacian = np.eye(n_points) - walk.toarray()
        values = scipy.linalg.eigh(laplacian, eigvals_only=True, subset_by_index=(1, 1))
        return float(values[0])
    return _second_eigenvalue_sparse(walk)


def _second_eigenvalue_sparse(walk: sparse.csr_array) -> float:
    """Iterate on a large graph; the start is fixed, so the answer is too."""
    n_points = walk.shape[0]
    start = np.random.default_rng(0).standard_normal(n_points)
    try:
        largest = eigsh(
            walk, k=2, which="LA", v0=start, ncv=40, maxiter=50,
            return_eigenvectors=False,
        )  # fmt: skip
        return float(1 - largest.min())
    except ArpackNoConvergence:
        # A long thin class: eigenvalues crowd at 0, where inversion spreads them. The
        # shift keeps the matrix definite.
        laplacian = (sparse.eye_array(n_points) - walk).tocsc()
        smallest = eigsh(
            laplacian, k=2, sigma=-1e-4, v0=start, return_eigenvectors=False
        )
        return float(max(smallest.max(), 0.0))


def label_array(labels: ArrayLike | Tensor, name: str) -> NDArray[Any]:
    """Return labels as an array of one kind, none of them missing.

    Parameters
    ----------
    labels : array-like of shape (n_samples,)
    name : str
        What a message calls them.

    Raises
    ------
    DataError
        If a label is missing, or some are numbers and some are text.
    """
    values = _plain(labels)
    if isinstance(labels, Sequence) and values.dtype.kind in "US":
        # NumPy has made text of everything, also of what is missing.
        values = np.array(labels, dtype=object)
    is_missing = np.ma.is_masked(labels) or _has_gaps(values)
    if values.ndim != 1 or not len(values) or is_missing:
        given = "missing values" if is_missing else f"shape {values.shape}"
        raise DataError(
            f"{name} must be one label for each of at least one sample, got {given}. "
            "Flatten or complete them."
        )
    if values.dtype.kind == "O":
        is_text = {isinstance(value, str | bytes) for value in values}
        if len(is_text) > 1:
            raise _mixture(name)
        values = _of_own_kind(values)
    return values


def distinct(labels: NDArray[Any], name: str) -> tuple[NDArray[Any], NDArray[np.intp]]:
    """Return the different labels in order, and the place of each among them.

    Raises
    ------
    DataError
        If they have no order, as numbers and dates have none.
    """
    try:
        return np.unique(labels, return_inverse=True)
    except TypeError as error:
        raise _mixture(name) from error


def _of_own_kind(values: NDArray[np.object_]) -> NDArray[Any]:
    """Return objects as numbers or text if they are; others, as tuples, as they are."""
    try:
        found = np.array(values.tolist())
    except ValueError:  # tuples of different lengths
        return values
    return found if found.shape == values.shape else values


def _has_gaps(values: NDArray[Any]) -> bool:
    if values.dtype.kind == "f":
        return not bool(np.isfinite(values).all())
    if values.dtype.kind in "mM":
        return bool(np.isnat(values).any())
    return values.dtype.kind == "O" and any(map(_is_gap, values.ravel()))


def _is_gap(value: object) -> bool:
    """Tell None, NaN and what pandas has for them, none of which equals itself."""
    same = value
    try:
        return value is None or not bool(value == same)
    except TypeError:  # pandas.NA does not even say so
        return True


def _mixture(name: str) -> DataError:
    return DataError(
        f"{name} must be all numbers or all text, got a mixture, or what has no order. "
        "Convert them to one type."
    )


def _plain(values: Any) -> NDArray[Any]:
    """Return an array in host memory."""
    if isinstance(values, Tensor):
        values = values.detach().resolve_neg().cpu()
        if values.layout != torch.strided:
            values = values.to_dense()
        # NumPy has no bfloat16.
        values = values.float() if values.dtype == torch.bfloat16 else values
    return np.asarray(values)


def _codes(labels: ArrayLike | Tensor, name: str) -> NDArray[np.intp]:
    """Return labels as integers from 0."""
    return distinct(label_array(labels, name), name)[1]


def _paired(
    labels: ArrayLike, truth: ArrayLike
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    clusters, classes = _codes(labels, "labels"), _codes(truth, "truth")
    if len(clusters) != len(classes):
        raise DataError(
            "labels and truth must name the same samples, got "
            f"{len(clusters)} and {len(classes)} of them. Check that they belong "
            "together."
        )
    return clusters, classes


def _common_codes(
    rows: ArrayLike, columns: ArrayLike
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return two label arrays as integers under one naming."""
    of_rows = label_array(rows, "labels")
    of_columns = label_array(columns, "column_labels")
    if (of_rows.dtype.kind in "US") != (of_columns.dtype.kind in "US"):
        raise _mixture("labels and column_labels")
    codes = _codes(np.concatenate([of_rows, of_columns]), "labels")
    return codes[: len(of_rows)], codes[len(of_rows) :]


def _absolute(matrix: Any, name: str) -> sparse.coo_array:
    """Return the absolute values of the non-zero entries, each place once."""
    matrix = matrix if sparse.issparse(matrix) else _plain(matrix)
    if matrix.ndim != 2 or matrix.dtype.kind not in "biuf":
        raise DataError(
            f"{name} must be a matrix of real numbers, got shape {matrix.shape} of "
            f"{matrix.dtype}. Pass one row a sample."
        )
    # Wide before repeated entries are added: small integers would overflow.
    once = sparse.csr_array(matrix.astype(np.float64))
    once.sum_duplicates()
    entries = once.tocoo()
    values = np.abs(entries.data)
    if not np.isfinite(values).all():
        raise DataError(
            f"{name} must be finite, got {np.sum(~np.isfinite(values))} entries that "
            "are not. Check how they were computed."
        )
    return sparse.coo_array((values, (entries.row, entries.col)), shape=entries.shape)


def _check_shape(matrix: sparse.coo_array, shape: tuple[int, int], name: str) -> None:
    if matrix.shape != shape:
        raise DataError(
            f"{name} must have shape {shape}, one row and one column for each label, "
            f"got {matrix.shape}. Check that they belong to the same samples."
        )


def _graph(affinity: Any, labels: ArrayLike) -> tuple[sparse.coo_array, Any]:
    """Return the edges without loops, as absolute weights, and the classes."""
    classes = _codes(labels, "labels")
    entries = _absolute(affinity, "affinity")
    _check_shape(entries, (len(classes), len(classes)), "affinity")
    keep = (entries.row != entries.col) & (entries.data > 0)
    places = (entries.row[keep], entries.col[keep])
    graph = sparse.coo_array((entries.data[keep], places), shape=entries.shape)
    return graph, classes
