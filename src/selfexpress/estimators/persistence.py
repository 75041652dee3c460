"""Saving and loading of a fitted ``SENet``."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from selfexpress import distributed
from selfexpress.affinity.assignment import References
from selfexpress.estimators.model_file import SavedModel, read_model, write_model
from selfexpress.network import SelfExpressiveNetwork
from selfexpress.ops.devices import resolve_device
from selfexpress.ops.precision import own_arithmetic

# Settings that a saved model does not carry: they belong to the fit, not the model.
_NOT_SAVED = (
    "callbacks",
    "checkpoint",
    "device",
    "n_cluster_samples",
    "random_state",
    "search",
    "verbose",
)

# Settings that "auto" may stand for; a saved model carries what it became.
_DECIDED = (
    "n_clusters",
    "hidden_sizes",
    "n_embedding",
    "n_train_samples",
    "max_iter",
    "batch_size",
    "gamma",
    "l1_ratio",
    "learning_rate",
    "start",
    "affinity",
)


class SavedToFile(BaseEstimator):
    """Adds ``save`` and ``load`` to ``SENet``."""

    network_: SelfExpressiveNetwork
    references_: References
    labels_: NDArray[np.int64]
    n_clusters_: int
    history_: dict[str, NDArray[np.float64]]
    settings_: dict[str, Any]
    n_iter_: int

    def save(self, path: str | PathLike[str]) -> None:
        """Write what ``predict`` needs to one safetensors file.

        It holds weights, reference keys and labels, ``labels_``, the history and the
        settings; no row of the data and nothing that runs on loading.

        Parameters
        ----------
        path : str or path-like
            Replaced only once the new file is complete.
        """
        check_is_fitted(self, "references_")
        if distributed.is_main():
            write_model(_saved(self), Path(path))

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
            Need not be the one it was trained on.

        Returns
        -------
        SENet
            Predicts as the saved one did.

        Raises
        ------
        CheckpointError
            If the file is missing, damaged or no model.
        """
        known = set(cls._get_param_names()).difference(_NOT_SAVED)
        saved = read_model(Path(path), resolve_device(device), known=known)
        model = cls(**saved.settings, device=device)
        model.settings_ = {name: saved.settings[name] for name in _DECIDED}
        model.network_ = saved.network
        model.references_ = saved.references
        model.labels_ = saved.labels
        model.n_clusters_ = saved.references.n_clusters
        model.history_ = saved.history
        model.n_iter_ = len(saved.history["objective"])
        model.n_features_in_ = saved.network.n_features
        if saved.feature_names is not None:
            model.feature_names_in_ = saved.feature_names
        return model


def _saved(model: SavedToFile) -> SavedModel:
    settings = {
        name: value
        for name, value in model.get_params(deep=False).items()
        if name not in _NOT_SAVED
    }
    # As fitted: the parameters may have been set to something else since.
    settings |= {name: model.settings_[name] for name in _DECIDED}
    settings["gamma_scale"] = "absolute"
    settings["n_clusters"] = model.references_.n_clusters
    settings["hidden_sizes"] = [int(n) for n in model.network_.config.hidden_sizes]
    settings["n_embedding"] = int(model.network_.config.n_embedding)
    return SavedModel(
        settings=settings,
        feature_names=getattr(model, "feature_names_in_", None),
        network=model.network_,
        references=model.references_,
        labels=model.labels_,
        history=model.history_,
    )
