"""What the spectral step and the lengths of rows do to labels of the same problem.

``spectral-swing``: one network gives one graph, and only the spectral step is
repeated: k-means on several numbers of eigenvectors, and pieces merged by information.

``k-means-minima``: a network of Table 3 gives one graph; k-means in its eigenvectors
starts many times. Whether the lowest minimum is the most accurate one, and by how much
it is the lowest, tells what a single figure of such a table is worth.

``ssc-omp-lengths``: test images are pursued as long as they come and at unit length.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans

from reproduction.benchmark import benchmark
from reproduction.evaluation import fitted_clustering, scores, train
from reproduction.images import curve_size, find_clusters, senet_cell
from reproduction.inputs import image_rows
from reproduction.methods import make_method
from reproduction.presets import DEFAULTS, preset_of
from reproduction.runner import Context
from reproduction.study import StudyCell, study_rows
from selfexpress import SENet
from selfexpress.metrics import clustering_accuracy
from selfexpress.spectral import spectral_clusters

# Eigenvectors for each cluster.
NUMBERS = (1.2, 1.5, 2.0, 3.0, 4.0)
# Sums of squares that agree to so many digits are one minimum.
DIGITS = 4
# Eigenvectors fewer or more than the paper's that are tried.
WIDEST = 5


@benchmark(
    "Labels of one graph hardly depend on starts of k-means and on eigenvectors",
    quick={"dataset": "orl", "starts": 2, "max_iter": 50},
)
def spectral_swing(
    context: Context,
    seed: int,
    *,
    dataset: str = "fashion-mnist",
    starts: int = 5,
    max_iter: int | str = "auto",
) -> dict[str, Any]:
    """Return accuracies by eigenvectors a cluster and seed of the spectral step."""
    rows, truth = study_rows(StudyCell(dataset=dataset), context)
    n_clusters = len(np.unique(truth))
    settings = DEFAULTS | {"max_iter": max_iter, "device": context.device}
    model = SENet(n_clusters, **settings, random_state=seed).fit(rows)
    ways: dict[str, int | str] = {f"{n:g}": round(n * n_clusters) for n in NUMBERS}
    found = {
        name: [
            clustering_accuracy(
                truth[model.sample_indices_],
                spectral_clusters(
                    model.affinity_matrix_,
                    n_clusters,
                    n_eigenvectors=number,
                    n_init=20,
                    seed=start,
                    device=context.device,
                ).labels,
            )
            for start in range(starts)
        ]
        for name, number in {**ways, "merged": "auto"}.items()
    }
    return {"accuracy": found}


@benchmark(
    "What a single ACC of the paper's spectral step is worth",
    quick={"is_quick": True, "starts": 5},
    over={"dataset": ("mnist", "fashion-mnist")},
)
def k_means_minima(
    context: Context,
    seed: int,
    *,
    dataset: str = "mnist",
    trained_on: int = 20_000,
    starts: int = 60,
    is_quick: bool = False,
) -> dict[str, Any]:
    """Return the minima of k-means, and accuracy by the number of eigenvectors."""
    n_train = curve_size(True) if is_quick else trained_on
    cell = replace(senet_cell(dataset, n_train, is_quick), seed=seed)
    preset = cell.preset
    rows = image_rows(preset, context)
    model = train(
        preset.recipe,
        rows.X[rows.draw(n_train, seed)],
        n_clusters=preset.n_clusters,
        seed=seed,
        context=context,
    )
    clustering = find_clusters(cell, model.network_, rows.X, context)
    middle = preset.recipe.n_eigenvectors or preset.n_clusters
    by_dimension = {
        str(dimension): clustering_accuracy(
            rows.labels,
            spectral_clusters(
                clustering.affinity,
                preset.n_clusters,
                n_eigenvectors=dimension,
                n_init=preset.recipe.n_init,
                seed=seed,
                device=context.device,
            ).labels,
        )
        for dimension in range(middle - WIDEST, middle + WIDEST + 1)
    }
    minima = minima_of(clustering.embedding, rows.labels, preset.n_clusters, starts)
    return {"minima": minima, "accuracy_by_dimension": by_dimension}


def minima_of(
    embedding: NDArray[Any], truth: NDArray[Any], n_clusters: int, n_starts: int
) -> list[dict[str, float]]:
    """Return the minima by rising sum of squares, and how many starts ended there."""
    accuracies: dict[float, list[float]] = defaultdict(list)
    for seed in range(n_starts):
        found = KMeans(n_clusters, n_init=1, random_state=seed).fit(embedding)
        inertia = float(f"{found.inertia_:.{DIGITS}g}")
        accuracies[inertia].append(clustering_accuracy(truth, found.labels_))
    return [
        {"inertia": inertia, "accuracy": min(same), "starts": len(same)}
        for inertia, same in sorted(accuracies.items())
    ]


@benchmark(
    "SSC-OMP depends on the lengths of rows (test images, the paper's features)",
    quick={"is_quick": True},
)
def ssc_omp_lengths(
    context: Context, seed: int, *, dataset: str = "mnist", is_quick: bool = False
) -> dict[str, Any]:
    """Score SSC-OMP by lengths of rows and by entries a row."""
    preset = preset_of(dataset, is_quick)
    rows = image_rows(preset, context)
    start = 0 if is_quick else rows.n_first
    found: dict[str, Any] = {}
    for way, normalize in (("as they come", False), ("unit length", True)):
        for n_nonzero in (3, 5, 10):
            model = make_method(
                "ssc-omp",
                preset.n_clusters,
                seed=seed,
                n_nonzero=n_nonzero,
                normalize=normalize,
                device=context.device,
            ).fit(rows.unscaled()[start:])
            result = scores(fitted_clustering(model), rows.labels[start:])
            found.setdefault(way, {})[str(n_nonzero)] = result
    return found
