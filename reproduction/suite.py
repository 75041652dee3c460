"""The suite: our defaults beside simple methods, on many data sets, rows as they are.

Every method is given the number of clusters and nothing else of a data set. Labels
count only in the scores.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from sklearn.cluster import HDBSCAN, KMeans

from reproduction.evaluation import label_scores
from reproduction.methods import NeighborSpectral
from reproduction.presets import DEFAULTS
from reproduction.runner import Cell, Context, Experiment, Outcome, Results
from reproduction.suite_sets import CHOSEN_ON, SETS
from reproduction.summary import Figure, Row, Summary, Table
from selfexpress import SSCOMP, EnSC, SENet
from selfexpress.affinity.similar import neighbor_graph
from selfexpress.errors import DataError
from selfexpress.ops.self_expression import unit_rows
from selfexpress.spectral import spectral_clusters

Labels = NDArray[np.int64]
# From rows, the number of clusters, a seed and a device to labels.
Method = Callable[[NDArray[Any], int, int, torch.device], Labels]

# Data sets of --quick.
_QUICK = ("digits", "union-15", "wine", "iris")
_N_NEIGHBORS = 10
_SEARCHES = 25
# HDBSCAN compares all pairs where features are many.
_MOST_FOR_DENSITY = 12_000


def _k_means(X: NDArray[Any], k: int, seed: int, _: torch.device) -> Labels:
    return np.asarray(KMeans(k, n_init=10, random_state=seed).fit(X).labels_, np.int64)


def _spherical(X: NDArray[Any], k: int, seed: int, device: torch.device) -> Labels:
    return _k_means(_unit(X).numpy(), k, seed, device)


def _unit(X: NDArray[Any]) -> torch.Tensor:
    return unit_rows(torch.from_numpy(np.asarray(X, np.float64))).float()


def _cosine_graph(X: NDArray[Any]) -> sparse.csr_array:
    return neighbor_graph(_unit(X), n_neighbors=_N_NEIGHBORS)


def _of_cosines(X: NDArray[Any], k: int, seed: int, device: torch.device) -> Labels:
    graph = _cosine_graph(X)
    found = spectral_clusters(graph, k, n_eigenvectors="auto", seed=seed, device=device)
    return found.labels


def _spectral(X: NDArray[Any], k: int, seed: int, _: torch.device) -> Labels:
    return NeighborSpectral(k, random_state=seed).fit(X).labels_


def _density(X: NDArray[Any], k: int, _: int, __: torch.device) -> Labels:
    """Return HDBSCAN's clusters, however many; noise is one more."""
    found = HDBSCAN(min_cluster_size=max(5, len(X) // (20 * k)), copy=True).fit(X)
    return np.asarray(found.labels_, np.int64) + 1


def _communities(X: NDArray[Any], k: int, seed: int, _: torch.device) -> Labels:
    """Return Leiden's communities of the cosine graph, at a resolution that gives k."""
    import igraph
    import leidenalg

    graph = sparse.triu(_cosine_graph(X)).tocoo()
    edges = zip(graph.row.tolist(), graph.col.tolist(), strict=True)
    network = igraph.Graph(n=len(X), edges=list(edges))
    low, high, best = 1e-3, 50.0, None
    for _round in range(_SEARCHES):
        middle = float(np.sqrt(low * high))
        parts = leidenalg.find_partition(
            network,
            leidenalg.RBConfigurationVertexPartition,
            weights=graph.data.tolist(),
            resolution_parameter=middle,
            seed=seed + 1,
        )
        if best is None or abs(len(parts) - k) < abs(len(best) - k):
            best = parts
        if len(parts) == k:
            break
        low, high = (middle, high) if len(parts) < k else (low, middle)
    assert best is not None
    return np.asarray(best.membership, np.int64)


def _pursuit(X: NDArray[Any], k: int, seed: int, device: torch.device) -> Labels:
    model = SSCOMP(k, n_nonzero=5, join=False, random_state=seed, device=device)
    return np.asarray(model.fit(X).labels_)


def _elastic_net(X: NDArray[Any], k: int, seed: int, device: torch.device) -> Labels:
    return np.asarray(EnSC(k, random_state=seed, device=device).fit(X).labels_)


def _ours(**settings: Any) -> Method:
    def found(X: NDArray[Any], k: int, seed: int, device: torch.device) -> Labels:
        model = SENet(k, random_state=seed, device=device, **settings)
        return np.asarray(model.fit(X).labels_)

    return found


METHODS: dict[str, Method] = {
    "k-means": _k_means,
    "spherical k-means": _spherical,
    "cosine graph": _of_cosines,
    "spectral": _spectral,
    "HDBSCAN": _density,
    "Leiden": _communities,
    "SSC-OMP": _pursuit,
    "network alone": _ours(**DEFAULTS),
    "SENet()": _ours(),
    "EnSC()": _elastic_net,
    "SENet() and network": _ours(max_iter=1000),
}
OURS, SAME = "SENet()", ("EnSC()", "SENet() and network")
RIVALS = tuple(name for name in METHODS if name not in (OURS, *SAME))


@dataclass(frozen=True, kw_only=True)
class SuiteCell(Cell):
    """One method on one data set.

    Attributes
    ----------
    dataset, method : str
    """

    task: ClassVar[str] = "suite"
    dataset: str
    method: str

    def label(self) -> str:
        """Say which cell this is."""
        return f"dataset={self.dataset} method={self.method}"

    def run(self, context: Context) -> Outcome:
        """Cluster every piece of the set; scores are means over them."""
        found, seconds = [], 0.0
        for X, truth in SETS[self.dataset].pieces():
            start = time.perf_counter()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                labels = self._labels(X, len(np.unique(truth)), context.device)
            seconds += time.perf_counter() - start
            found.append(label_scores(labels, truth))
        means = {name: float(np.mean([f[name] for f in found])) for name in found[0]}
        return Outcome(means, {"total": seconds})

    def _labels(self, X: NDArray[Any], k: int, device: torch.device) -> Labels:
        if self.method == "HDBSCAN" and len(X) > _MOST_FOR_DENSITY:
            raise DataError(
                f"HDBSCAN must compare all pairs of at most {_MOST_FOR_DENSITY} rows, "
                f"got {len(X)}. Leave it out."
            )
        return METHODS[self.method](X, k, self.seed, device)


def cells(is_quick: bool) -> list[Cell]:
    """Return the cells of seed 0."""
    return [
        SuiteCell(dataset=dataset, method=method)
        for dataset in (_QUICK if is_quick else SETS)
        for method in METHODS
        if not (is_quick and method in ("Leiden", "network alone"))
    ]


def accuracies(results: Results, dataset: str, method: str) -> list[float]:
    """Return the accuracy of every seed."""
    cell = SuiteCell(dataset=dataset, method=method)
    return [r["metrics"]["accuracy"] for r in results.of(cell) if "metrics" in r]


def summarize(results: Results, is_quick: bool) -> Summary:
    """Tabulate accuracies, and by how much the best rival is better."""
    wanted = _QUICK if is_quick else tuple(SETS)
    rivals = [m for m in RIVALS if any(accuracies(results, n, m) for n in wanted)]
    rows: list[Row] = []
    for name in wanted:
        ours = accuracies(results, name, OURS)
        if not ours:
            continue
        found = {m: accuracies(results, name, m) for m in rivals}
        means = {m: float(np.mean(values)) for m, values in found.items() if values}
        regret = max(means.values(), default=0.0) - float(np.mean(ours))
        shown = (f"{means[m]:.3f}" if m in means else "-" for m in rivals)
        title = SETS[name].title + ("" if name in CHOSEN_ON else " *")
        rows.append((title, Figure(tuple(ours), digits=3), f"{regret:+.3f}", *shown))
    headings = ("rows", OURS, "regret", *rivals)
    totals = _means(
        results, [name for name in wanted if accuracies(results, name, OURS)]
    )
    return Summary(
        (
            Table("Accuracy, means over seeds", headings, tuple(rows)),
            Table("Mean over the sets", ("method", "accuracy", "sets"), totals),
        )
    )


def _means(results: Results, names: list[str]) -> tuple[Row, ...]:
    """Return each method's mean over the sets that it was run on, and their number."""
    rows = []
    for method in METHODS:
        found = [v for name in names if (v := accuracies(results, name, method))]
        if found:
            mean = float(np.mean([np.mean(values) for values in found]))
            rows.append((method, f"{mean:.3f}", str(len(found))))
    return tuple(rows)


def picture(results: Results, path: Path) -> None:
    """Draw every set's accuracies in a line: ours, and those of the rivals."""
    from matplotlib.figure import Figure as Canvas

    known = [name for name in SETS if accuracies(results, name, OURS)]
    canvas = Canvas(figsize=(8, 0.27 * len(known) + 1.2), layout="constrained")
    axes = canvas.subplots()
    marks = dict(zip(RIVALS, "sDv^<>pP", strict=False))
    for row, name in enumerate(known):
        for method, mark in marks.items():
            values = accuracies(results, name, method)
            if values:
                axes.plot(np.mean(values), row, mark, color="0.6", markersize=5)
        axes.plot(np.mean(accuracies(results, name, OURS)), row, "o", color="#c02020")
    for method, mark in marks.items():
        axes.plot([], [], mark, color="0.6", label=method)
    axes.plot([], [], "o", color="#c02020", label=OURS)
    titles = [SETS[name].title + ("" if name in CHOSEN_ON else " *") for name in known]
    axes.set_yticks(range(len(known)), titles, fontsize=8)
    axes.set_xlabel("accuracy (* named before the rules were tried on it)")
    axes.set_xlim(0, 1.02)
    axes.grid(axis="both", alpha=0.3)
    axes.set_ylim(len(known) - 0.5, -0.5)
    axes.legend(fontsize=7, loc="lower center", bbox_to_anchor=(0.4, 1), ncols=5)
    canvas.savefig(path, dpi=110)


SUITE = Experiment(
    "suite",
    "Defaults on rows as they are, beside methods that also use no labels",
    cells,
    summarize,
)
