"""Cells of the methods that SENet is compared with, on the same features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from reproduction.evaluation import (
    fitted_clustering,
    label_scores,
    merged_scores,
    plain_settings,
    scores,
)
from reproduction.inputs import image_rows
from reproduction.methods import make_method
from reproduction.presets import ImagePreset, preset_of
from reproduction.record import Record
from reproduction.runner import Cell, Context, Outcome, stage

_ON_UNSCALED_ROWS = ("ssc-omp",)
# Entries of SSC-OMP, where they are not ten.
_PURSUED_ROWS = {"mnist": 5}


@dataclass(frozen=True, kw_only=True)
class MethodCell(Cell):
    """One of the other methods.

    Attributes
    ----------
    preset : ImagePreset
        Its recipe gives graph and spectral step of the self-expressive methods.
    method : str
        A key of :data:`~reproduction.methods.METHODS`.
    part : {"full", "test"}
    gamma_scale : {"absolute", "relative"}
        Of EnSC: SENet's own gamma, or that of EnSC's authors, which counts from where
        the first coefficient appears.
    """

    task: ClassVar[str] = "methods"
    preset: ImagePreset
    method: str
    part: str = "full"
    gamma_scale: str = "absolute"

    @property
    def is_timed(self) -> bool:
        """EnSC's time, of the first seed, is compared with SENet's."""
        return self.method == "ensc" and self.seed == 0

    def label(self) -> str:
        """Say which cell this is."""
        scale = "" if self.gamma_scale == "absolute" else f" gamma={self.gamma_scale}"
        return (
            f"dataset={self.preset.dataset} method={self.method} part={self.part}"
            f"{scale}"
        )

    def arguments(self) -> dict[str, Any]:
        """Return the settings of the method itself."""
        settings = method_settings(self.method, self.preset)
        if self.method == "ensc":
            settings["gamma_scale"] = self.gamma_scale
        return settings

    def fits(self, record: Record) -> bool:
        """Say whether a record is of the method with today's settings."""
        used = record.get("metrics", {}).get("estimator", {})
        return used.items() >= self.arguments().items() or "error" in record

    def run(self, context: Context) -> Outcome:
        """Fit the method and score its labels, coefficients and graph."""
        rows = image_rows(self.preset, context)
        start = rows.n_first if self.part == "test" else 0
        X = rows.unscaled() if self.method in _ON_UNSCALED_ROWS else rows.X
        X, truth = X[start:], rows.labels[start:]
        settings = self.arguments()
        if self.method != "k-means":
            settings["device"] = context.device
        model = make_method(
            self.method, self.preset.n_clusters, seed=self.seed, **settings
        )
        seconds: dict[str, float] = {}
        with stage(seconds, "total"):
            model.fit(X)
        seconds |= getattr(model, "timings_", {})
        found: dict[str, Any] = {"estimator": plain_settings(model)}
        if not hasattr(model, "coefficients_"):
            return Outcome(found | label_scores(model.labels_, truth), seconds)
        found |= scores(fitted_clustering(model), truth)
        found["merged"] = merged_scores(
            model.affinity_matrix_,
            truth,
            self.preset,
            seed=self.seed,
            device=context.device,
        )
        return Outcome(found, seconds)


def ensc_cell(
    dataset: str,
    is_quick: bool,
    *,
    part: str = "full",
    gamma_scale: str = "absolute",
) -> MethodCell:
    """Return the cell of the exact method, which SENet is compared with."""
    return MethodCell(
        preset=preset_of(dataset, is_quick),
        method="ensc",
        part=part,
        gamma_scale=gamma_scale,
    )


def method_settings(method: str, preset: ImagePreset) -> dict[str, Any]:
    """Return the arguments of a method's constructor for a data set.

    EnSC has the gamma, l1_ratio, graph and spectral step of SENet, as in the paper;
    ESC the same graph and spectral step with 300 exemplars, the number the paper
    states for EMNIST. Of SSC-OMP and spectral clustering the paper states nothing:
    theirs are the settings that its rows were found with, see Table 3.
    """
    recipe = preset.recipe
    spectral = {"n_eigenvectors": recipe.n_eigenvectors, "n_init": recipe.n_init}
    graph = {"affinity": recipe.affinity, "n_neighbors": recipe.n_neighbors}
    penalty = {"gamma": recipe.gamma, "l1_ratio": recipe.l1_ratio}
    settings: dict[str, dict[str, Any]] = {
        "k-means": {},
        "spectral": {"n_neighbors": 5},
        "ssc-omp": {
            "n_nonzero": _PURSUED_ROWS.get(preset.dataset, 10),
            "normalize": False,
        },
        "ensc": {**penalty, **graph, **spectral, "n_nonzero": recipe.n_nonzero},
        "esc": {
            **penalty,
            "l1_ratio": 1.0,
            "n_exemplars": 300,
            **graph,
            **spectral,
        },
    }
    return dict(settings[method])
