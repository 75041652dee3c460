"""What SENet and EnSC share: a graph of some rows, labels for all others, model files.

The rows of the graph are expressed by one another, and clustered. All other rows, of
the fit or new, are expressed by these references and go to the cluster that the
largest share of their coefficients comes from.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from selfexpress import distributed
from selfexpress.affinity.assignment import Assignment, References
from selfexpress.affinity.exact import Candidates, exact_coefficients
from selfexpress.config import ClusterConfig
from selfexpress.estimators.base import SelfExpressiveClusterer
from selfexpress.estimators.graph_choice import choose_graph
from selfexpress.estimators.html_summary import ShownInNotebooks
from selfexpress.estimators.model_file import SavedModel, read_model, write_model
from selfexpress.estimators.settings import chosen_center, graph_rows
from selfexpress.estimators.solver import progress_bar
from selfexpress.ops.devices import resolve_device
from selfexpress.ops.precision import in_own_arithmetic, own_arithmetic
from selfexpress.rows.sources import MappedSource, RowSource, UnitRows
from selfexpress.solvers.problem import ElasticNetConfig, Expression
from selfexpress.training.choices import is_auto
from selfexpress.training.gamma import SmallestGamma


@dataclass(frozen=True)
class Plan:
    """A fit whose settings and rows are accepted, and nothing is computed of it yet.

    Attributes
    ----------
    whole : RowSource
        All rows, of unit length.
    index : Tensor of shape (n,), int64
        The rows that the graph is built of, in order.
    center : Tensor of shape (D,) or None
        Subtracted from the rows before they are scaled.
    cluster : ClusterConfig
    settings : dict
        What "auto" became.
    seed : int
    device : torch.device
    """

    whole: RowSource
    index: Tensor
    center: Tensor | None
    cluster: ClusterConfig
    settings: dict[str, Any]
    seed: int
    device: torch.device

    @property
    def is_sample(self) -> bool:
        """Whether some rows are not in the graph."""
        return len(self.index) < len(self.whole)


@dataclass(frozen=True)
class Expressed:
    """The rows of the graph, and what they need of each other.

    Attributes
    ----------
    coefficients : csr_array of shape (n, n)
    rows : Tensor of shape (n, D), optional
        Kept where new rows are expressed by them exactly.
    keys : Tensor of shape (n, P), optional
        Where there is a network; of the rows that this process owns if it alone
        gave the coefficients.
    """

    coefficients: sparse.csr_array
    rows: Tensor | None = None
    keys: Tensor | None = None


class InductiveClusterer(ShownInNotebooks, SelfExpressiveClusterer, ABC):
    """Base of :class:`SENet` and :class:`EnSC`."""

    references_: References
    network_: Any = None  # a SelfExpressiveNetwork, if one was trained
    center_: NDArray[np.float64] | None
    affinity: str
    verbose: bool | int
    settings_: dict[str, Any]
    sample_indices_: NDArray[np.int64]
    smallest_gamma_: SmallestGamma
    # The problem that was solved, whatever settings have become since; None if a
    # network alone expresses rows.
    _solved_: ElasticNetConfig | None

    @own_arithmetic()
    def fit(self, X: Any, y: None = None) -> Self:
        """Express rows of ``X`` by each other, cluster them and assign all others.

        Parameters
        ----------
        X : array-like, Tensor or RowSource of shape (n_samples, n_features)
            NumPy (also memory-mapped), torch on any device, pandas, or a source.
        y : None
            Ignored.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If ``X`` or a setting cannot be used; an earlier fit is left as it was.
        DegenerateError
            If every coefficient is zero, which names the gamma that is needed.
        """
        device = resolve_device(self.device)
        with self._unless_refused():
            plan = self._plan(self._source(X, reset=True, device=device), device)
        self._drop_earlier_fit()
        self.timings_, self.settings_ = {}, plan.settings
        self._solved_ = None
        self.center_ = None if plan.center is None else plan.center.cpu().numpy()
        expressed = self._expressed(plan)
        choice = None
        if is_auto(self.affinity) and expressed.rows is not None:
            with self._timed("graph"):
                choice = choose_graph(
                    expressed.coefficients,
                    expressed.rows,
                    problem=self._elastic_net(),
                    config=plan.cluster,
                    seed=plan.seed,
                )
            self.settings_["similar_rows"] = choice.has_similar_rows
        self._cluster(
            expressed.coefficients,
            plan.cluster,
            seed=plan.seed,
            device=plan.device,
            choice=choice,
        )
        self._share_labels()
        self.settings_["n_clusters"] = self.n_clusters_
        self.settings_["n_eigenvectors"] = len(self.eigenvalues_)
        self.settings_["n_cluster_samples"] = len(plan.index)
        self.sample_indices_ = plan.index.numpy()
        with self._timed("references"):
            self.references_ = self._chosen_references(expressed, plan)
        if plan.is_sample:
            with self._timed("prediction"):
                labels = self._assignment().labels(plan.whole)
                labels[self.sample_indices_] = self.labels_
                self.labels_ = labels
        return self

    @own_arithmetic()
    def predict(self, X: Any) -> NDArray[np.int64]:
        """Return the cluster of each row, seen in ``fit`` or not.

        Parameters
        ----------
        X : array-like, Tensor or RowSource of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,)
            Numbered as in ``labels_``.
        """
        return self._assignment().labels(self._new_rows(X))

    def predict_blocks(self, X: Any) -> Iterator[NDArray[np.int64]]:
        """Yield the clusters of rows as they are found, some thousand at a time.

        Parameters
        ----------
        X : array-like, Tensor or RowSource of shape (n_samples, n_features)
            A source may be larger than memory.

        Yields
        ------
        ndarray of shape (rows of a block,)
            In the order of the rows.
        """
        source = self._new_rows(X)
        for weights in in_own_arithmetic(self._assignment().weights(source)):
            yield weights.argmax(axis=1)

    @own_arithmetic()
    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return each cluster's claim on each row.

        How much of the row the cluster expresses, weighed by how near the row is to
        the span of the cluster's rows; without reference rows the first alone.

        Parameters
        ----------
        X : array-like, Tensor or RowSource of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_clusters)
            Rows sum to 1. Not calibrated probabilities.
        """
        source = self._new_rows(X)
        return np.concatenate(list(self._assignment().weights(source)))

    @own_arithmetic()
    def self_expression(self, X: Any) -> sparse.csr_array:
        """Return the coefficients of each row on the model's reference rows.

        Parameters
        ----------
        X : array-like, Tensor or RowSource of shape (n_samples, n_features)

        Returns
        -------
        scipy.sparse.csr_array of shape (n_samples, n_references)
        """
        return self._assignment().coefficients(self._new_rows(X))

    def save(self, path: str | PathLike[str], *, rows: bool = True) -> None:
        """Write what ``predict`` needs to one safetensors file.

        It holds the references and their labels, ``labels_``, the network and its
        history if there is one, and the settings; nothing in it runs on loading.

        Parameters
        ----------
        path : str or path-like
            Replaced only once the new file is complete.
        rows : bool
            Whether the reference rows, which are rows of the data, are written. Without
            them the network alone assigns new rows, as after ``refine=None``; a model
            that has none cannot be saved so.
        """
        check_is_fitted(self, "references_")
        if distributed.is_main():
            write_model(SavedModel.of(self, rows=rows), Path(path))

    @classmethod
    @own_arithmetic()
    def load(
        cls, path: str | PathLike[str], *, device: str | torch.device = "auto"
    ) -> Self:
        """Read a model that :meth:`save` wrote.

        Parameters
        ----------
        path : str or path-like
        device : str or torch.device
            Need not be the one it was fitted on.

        Returns
        -------
        self
            Predicts as the saved one did.

        Raises
        ------
        CheckpointError
            If the file is missing, damaged or no model of this class.
        """
        return read_model((cls,), Path(path), resolve_device(device))

    @abstractmethod
    def _plan(self, source: RowSource, device: torch.device) -> Plan:
        """Check every setting, and decide what "auto" stands for."""

    @abstractmethod
    def _expressed(self, plan: Plan) -> Expressed:
        """Return the coefficients of the graph's rows."""

    @abstractmethod
    def _elastic_net(self) -> ElasticNetConfig:
        """Return the problem that coefficients solve, as this fit decided."""

    def _planned_rows(
        self, source: RowSource, device: torch.device, *, dtype: torch.dtype
    ) -> dict[str, Any]:
        """Return seed, rows, sample and centre of a plan."""
        # Many processes must draw the same rows.
        seed = int(distributed.from_main(torch.tensor(self._seed())))
        index = graph_rows(self, len(source), seed=seed)
        center = chosen_center(self, source, index)
        return {
            "whole": _unit(source, center, dtype),
            "index": index,
            "center": center,
            "seed": seed,
            "device": device,
        }

    def _share_labels(self) -> None:
        """Let every process have the labels of the first."""
        self.labels_ = distributed.from_main(torch.from_numpy(self.labels_)).numpy()
        self.n_clusters_ = int(distributed.from_main(torch.tensor(self.n_clusters_)))

    def _graph_rows(self, plan: Plan) -> Tensor:
        """Return the rows of the graph as one matrix on the device, (n, D)."""
        if plan.is_sample:
            return plan.whole.take(plan.index).to(plan.device)
        blocks = [block.rows.to(plan.device) for block in plan.whole.blocks(8192)]
        return torch.cat(blocks)

    def _exact(
        self,
        rows: Tensor,
        n_similar: int | None,
        *,
        keys: Tensor | None = None,
    ) -> Expression:
        """Solve for the coefficients of the graph's rows; keep the certificate."""
        candidates = Candidates(n_similar, self.network_, keys)
        with progress_bar(self.verbose and distributed.is_main()) as progress:
            self._solved_ = self._elastic_net()
            found = exact_coefficients(
                rows, self._solved_, candidates, progress=progress
            )
        self.settings_["certificate"] = found.certificate
        return found.expression

    def _chosen_references(self, expressed: Expressed, plan: Plan) -> References:
        """Return what new rows are expressed by: all rows of the graph."""
        references = References(
            self.labels_, self.n_clusters_, expressed.rows, expressed.keys
        )
        return references.with_bases()

    def _assignment(self) -> Assignment:
        check_is_fitted(self, "references_")
        return Assignment(
            self.references_, self.network_, self._solved_, n_nonzero=self._kept()
        )

    def _kept(self) -> int | None:
        """Return how many coefficients of a row count."""
        return self.n_nonzero  # type: ignore[no-any-return]

    def _new_rows(self, X: Any) -> RowSource:
        check_is_fitted(self, "references_")
        source = self._source(X, reset=False, device=self.references_.device)
        center = None
        if self.center_ is not None:
            center = torch.from_numpy(self.center_).to(self.references_.device)
        rows = self.references_.rows
        return _unit(source, center, torch.float32 if rows is None else rows.dtype)


def _unit(source: RowSource, center: Tensor | None, dtype: torch.dtype) -> RowSource:
    """Return rows less the centre, of unit length."""
    if center is not None:
        source = MappedSource(source, lambda rows: rows.double() - center)
    return UnitRows(source, dtype=dtype)
