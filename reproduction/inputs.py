"""Features of the image data sets as the paper makes them, computed once and kept."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from reproduction.presets import ImagePreset, Recipe
from reproduction.record import ROOT
from reproduction.runner import Context
from selfexpress.datasets.loading import Dataset, load_dataset
from selfexpress.features.scattering import Scattering2D
from selfexpress.features.whitening import Whitening
from selfexpress.files.atomic import replacing
from selfexpress.ops.self_expression import unit_rows

_SIDE = 32


@dataclass(frozen=True)
class ImageRows:
    """Unit rows (N, D) of a data set, training part first.

    ``n_first`` counts the training part, all rows where there are no parts; ``lengths``
    are those of the rows before they were scaled.
    """

    X: NDArray[np.float32]
    labels: NDArray[np.int64]
    n_first: int
    lengths: NDArray[np.float32]

    def unscaled(self) -> NDArray[np.float32]:
        """Return the rows as they were."""
        return self.X * self.lengths[:, None]

    def draw(self, n_rows: int, seed: int) -> NDArray[np.int64]:
        """Return the positions of rows of the training part, drawn at random."""
        order = np.random.default_rng(seed).permutation(self.n_first)
        return np.sort(order[:n_rows])


def image_rows(preset: ImagePreset, context: Context) -> ImageRows:
    """Return the features of a data set, or of the random part that a preset names.

    Scattering features are kept in the context's cache; those read last also stay in
    memory, as consecutive cells use the same.
    """
    wanted = _without_recipe(preset)
    if context.memory.get("preset") != wanted:
        make = _FEATURES[preset.features]
        context.memory.update(preset=wanted, rows=make(preset, context))
    rows = context.memory["rows"]
    assert isinstance(rows, ImageRows)
    return rows


def _scattering_rows(preset: ImagePreset, context: Context) -> ImageRows:
    centred = "-centred" if preset.center_after else ""
    extent = preset.n_images or "all"
    stem = f"{preset.dataset}-scattering-{extent}-{preset.n_components}{centred}"
    kept = context.cache / f"{stem}.npz"
    if kept.is_file():
        with np.load(kept) as found:
            n_first = int(found["n_first"])
            return ImageRows(found["X"], found["labels"], n_first, found["lengths"])
    context.cache.mkdir(parents=True, exist_ok=True)
    data = load_dataset(preset.dataset)
    assert isinstance(data, Dataset)
    index, n_first = _part(len(data), preset)
    features = scattering_features(data.samples[index], preset, device=context.device)
    rows = _unit_rows(features, data.labels[index], n_first)
    with replacing(kept) as partial, partial.open("wb") as file:
        np.savez(file, **vars(rows))
    return rows


def scattering_features(
    images: NDArray[np.generic], preset: ImagePreset, *, device: torch.device
) -> Tensor:
    """Return the paper's features of images, before they are scaled to unit length."""
    scattering = Scattering2D(J=3, L=8, resize=_SIDE)
    rows = scattering.fit_transform(torch.from_numpy(images).to(device))
    projection = Whitening(
        preset.n_components, center=False, whiten=False, normalize=False
    )
    features: Tensor = projection.fit_transform(rows)
    return features - features.mean(dim=0) if preset.center_after else features


def encoder_features(
    preset: ImagePreset,
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Read the features that ``python -m reproduction cifar10-encoder`` made."""
    folder = ROOT / "reproduction" / "features"
    features = np.load(folder / f"{preset.dataset}_features.npy")
    labels = np.load(folder / f"{preset.dataset}_labels.npy")
    return features.astype(np.float32), labels.astype(np.int64)


def _encoder_rows(preset: ImagePreset, _: Context) -> ImageRows:
    X, labels = encoder_features(preset)
    index, n_first = _part(len(X), preset)
    return _unit_rows(torch.from_numpy(X[index]), labels[index], n_first)


def _unit_rows(features: Tensor, labels: NDArray[np.int64], n_first: int) -> ImageRows:
    rows, lengths = unit_rows(features), features.norm(dim=1)
    return ImageRows(rows.cpu().numpy(), labels, n_first, lengths.cpu().numpy())


_FEATURES = {"scattering": _scattering_rows, "encoder": _encoder_rows}


def _without_recipe(preset: ImagePreset) -> ImagePreset:
    """Return what the features of a preset depend on."""
    return replace(preset, recipe=Recipe())


def _part(n_images: int, preset: ImagePreset) -> tuple[NDArray[np.int64], int]:
    """Return the positions to use, in order, and how many are of the training part."""
    index = np.arange(n_images)
    if preset.n_images is not None and preset.n_images < n_images:
        order = np.random.default_rng(0).permutation(n_images)
        index = np.sort(order[: preset.n_images])
    n_first = n_images if preset.n_first is None else preset.n_first
    return index, int((index < n_first).sum())
