"""Self-supervised encoder of small colour images, as a scikit-learn transformer.

Trained without labels so that features of different images spread (a large coding rate)
while patches of one image agree: EMP-SSL (Tong, Chen, Ma, LeCun 2023, "EMP-SSL: Towards
Self-Supervised Learning in One Training Epoch"), a fast relative of MCR2 (Yu, Chan,
You, Song, Ma 2020), whose features lie near a union of subspaces.

Shapes: N images, V views of an image, H x W pixels, D dimensions of a layer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
)
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from reproduction.encoder.augment import Augmentation
from reproduction.encoder.axes import PrincipalAxes, fit_principal_axes
from reproduction.encoder.checkpoint import (
    load_model,
    reading_model,
    save_model,
    stored_architecture,
)
from reproduction.encoder.resnet import LAYERS, Architecture, build_network
from reproduction.encoder.training import (
    INITIALISATION,
    Row,
    TrainingSettings,
    stream_generator,
    train_network,
)
from reproduction.encoder.views import (
    ViewSettings,
    check_images,
    layer_blocks,
)
from selfexpress.config import require_choice, require_count
from selfexpress.errors import CheckpointError, ConfigError, one_line
from selfexpress.ops.devices import resolve_device
from selfexpress.ops.precision import own_arithmetic
from selfexpress.ops.seeds import draw_seed

_FORMAT = "selfexpress image encoder 1"
_SIZES = "The defaults suit CIFAR-10."


class CodingRateEncoder(
    ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator
):
    """Features of colour images, learned without labels by a residual network.

    Features are the chosen layer's output, averaged over a fixed grid of patches of the
    image and their mirror images, centred, reduced to the leading principal axes of the
    training images, and scaled to unit norm.

    Parameters
    ----------
    n_components : int
        Dimensions of the features.
    layer : {"hidden", "backbone", "projection"}
        Layer whose output is used. "hidden", the first layer of the projector, is the
        one evaluated by EMP-SSL.
    n_patches : int
        Patches of each image in a training step. More cost more time a step and need
        fewer epochs.
    batch_size : int
        Images in a training step; all images where there are fewer.
    n_epochs : int or None
        Walks through the images. None leaves the end to ``max_seconds``.
    max_seconds : float or None
        Time to train for. The learning rate then follows the clock, so that two runs
        are alike but not the same; with ``n_epochs`` alone they are the same on a CPU.
    learning_rate : float
        Largest rate of the LARS optimiser.
    invariance : float
        Weight of the agreement between patches against the coding rate. Lower it if
        the features collapse.
    distortion : float
        Squared precision up to which features are coded.
    crop_area : float
        Area of a patch as a part of the image's.
    patch_size : int
        Side in pixels to which patches are resized for the network.
    grid_size : int
        Patches per row and per column of the image that features are averaged over;
        with the mirror images 2 * grid_size**2 views. Smaller is faster.
    width, n_blocks, n_hidden, n_projection
        Sizes of the network; see `reproduction.encoder.resnet.Architecture`.
    precision : {"auto", "float32"}
        "auto" is bfloat16 with single-precision weights on a GPU, float32 elsewhere.
    device : str
        "auto" is a GPU where there is one.
    checkpoint : str, Path or None
        File from which an interrupted ``fit`` goes on, removed when it is done.
    checkpoint_seconds : float
        Time between two checkpoints.
    log_interval : int
        Steps between two rows of ``history_``; a checkpoint adds a row.
    on_log : callable or None
        Called with each row of ``history_``.
    random_state : int, RandomState or None
        Decides initial weights, order and patches.

    Attributes
    ----------
    network_ : EncoderNetwork
    layers_ : tuple of str
        What ``represent`` can return.
    axes_ : PrincipalAxes
        Mean and principal axes of the layer's averaged output.
    history_ : list of dict
        step, seconds, loss, rate, discrepancy, learning_rate.
    n_steps_ : int
    seconds_ : float
        Time spent in training.
    image_shape_ : tuple of int
        Height and width of the training images.

    Examples
    --------
    >>> import numpy as np
    >>> from reproduction.encoder.estimator import CodingRateEncoder
    >>> images = np.random.default_rng(0).integers(0, 256, (24, 16, 16, 3), np.uint8)
    >>> encoder = CodingRateEncoder(
    ...     4, n_patches=2, batch_size=8, n_epochs=1, patch_size=8, grid_size=1,
    ...     width=4, n_blocks=(1, 1), n_hidden=16, n_projection=8, random_state=0,
    ... )
    >>> encoder.fit_transform(images).shape
    (24, 4)
    """

    def __init__(
        self,
        n_components: int = 128,
        *,
        layer: str = "hidden",
        n_patches: int = 20,
        batch_size: int = 100,
        n_epochs: int | None = 30,
        max_seconds: float | None = None,
        learning_rate: float = 0.3,
        invariance: float = 200.0,
        distortion: float = 0.2,
        crop_area: float = 0.25,
        patch_size: int = 32,
        grid_size: int = 4,
        width: int = 64,
        n_blocks: Sequence[int] = (2, 2, 2, 2),
        n_hidden: int = 4096,
        n_projection: int = 1024,
        precision: str = "auto",
        device: str = "auto",
        checkpoint: str | Path | None = None,
        checkpoint_seconds: float = 120.0,
        log_interval: int = 50,
        on_log: Callable[[Row], None] | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.n_components = n_components
        self.layer = layer
        self.n_patches = n_patches
        self.batch_size = batch_size
        self.n_epochs = n_epochs
        self.max_seconds = max_seconds
        self.learning_rate = learning_rate
        self.invariance = invariance
        self.distortion = distortion
        self.crop_area = crop_area
        self.patch_size = patch_size
        self.grid_size = grid_size
        self.width = width
        self.n_blocks = n_blocks
        self.n_hidden = n_hidden
        self.n_projection = n_projection
        self.precision = precision
        self.device = device
        self.checkpoint = checkpoint
        self.checkpoint_seconds = checkpoint_seconds
        self.log_interval = log_interval
        self.on_log = on_log
        self.random_state = random_state

    @own_arithmetic()
    def fit(self, X: ArrayLike | Tensor, y: None = None) -> Self:
        """Train the network on images, then find the principal axes of its output.

        Parameters
        ----------
        X : array or Tensor of shape (N, H, W, 3) or (N, 3, H, W), uint8
        y : None
            Not used: there are no labels.
        """
        images = check_images(X, least=2)
        architecture, settings = self._check_settings(len(images))
        seed = draw_seed(self.random_state)
        device = resolve_device(self.device)

        generator = stream_generator(seed, INITIALISATION, 0)
        network = build_network(architecture, generator).to(device)
        state = train_network(
            network,
            images.to(device),
            settings=settings,
            seed=seed,
            on_log=self.on_log,
        )
        self.network_ = network.eval()
        self.layers_: tuple[str, ...] = LAYERS
        self.history_ = state.history
        self.n_steps_ = state.step
        self.seconds_ = state.seconds
        self.image_shape_ = (int(images.shape[2]), int(images.shape[3]))
        self.axes_ = fit_principal_axes(
            (block[self.layer] for block in self._layer_blocks(images, (self.layer,))),
            self.n_components,
        )
        if settings.checkpoint is not None:
            settings.checkpoint.unlink(missing_ok=True)
        return self

    @own_arithmetic()
    def transform(self, X: ArrayLike | Tensor) -> NDArray[np.float32]:
        """Return the images' features as unit rows.

        Parameters
        ----------
        X : array or Tensor of shape (N, H, W, 3) or (N, 3, H, W), uint8

        Returns
        -------
        ndarray of shape (N, n_components)
        """
        check_is_fitted(self)
        blocks = self._layer_blocks(check_images(X), (self.layer,))
        return np.concatenate([self.reduce(block[self.layer]) for block in blocks])

    @own_arithmetic()
    def represent(
        self, X: ArrayLike | Tensor, layers: Sequence[str] | None = None
    ) -> dict[str, NDArray[np.float32]]:
        """Return the network's layers averaged over views, before any reduction.

        Parameters
        ----------
        X : array or Tensor of shape (N, H, W, 3) or (N, 3, H, W), uint8
        layers : sequence of {"backbone", "hidden", "projection"}, optional
            All that there are unless given: an encoder that was loaded has its
            projector only if that is its ``layer``.

        Returns
        -------
        dict of ndarray of shape (N, D)
        """
        check_is_fitted(self)
        names = self.layers_ if layers is None else tuple(layers)
        for name in names:
            require_choice("layers", name, self.layers_)
        blocks = list(self._layer_blocks(check_images(X), names))
        return {
            name: torch.cat([block[name] for block in blocks]).cpu().numpy()
            for name in names
        }

    @own_arithmetic()
    def reduce(self, averages: Tensor | NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the unit-norm principal components of ``layer``'s averages.

        The second half of ``transform``, for averages that ``represent`` has returned.
        """
        check_is_fitted(self)
        rows = torch.as_tensor(averages)
        reduced: NDArray[np.float32] = self.axes_.reduce(rows).cpu().numpy()
        return reduced

    def save(
        self,
        path: str | Path,
        *,
        dtype: str = "float32",
        max_file_bytes: int | None = None,
    ) -> None:
        """Write the encoder, without its projector, as a folder.

        Parameters
        ----------
        path : str or Path
            Folder for ``settings.json`` and the safetensors files.
        dtype : {"float32", "float16"}
            Type in which matrices are stored. float16 rounds them, which shows most
            in images whose features lie close to the mean.
        max_file_bytes : int or None
            Weights are split over files no larger than this.
        """
        check_is_fitted(self)
        kept = self.network_.state_dict()
        if self.layer != "projection":
            kept = {k: v for k, v in kept.items() if not k.startswith("projector.")}
        tensors = {f"network.{name}": tensor for name, tensor in kept.items()}
        tensors |= {f"axes.{name}": t for name, t in self.axes_.tensors().items()}
        settings = {
            "format": _FORMAT,
            "parameters": self._stored_parameters(),
            "architecture": asdict(self.network_.architecture),
            "n_steps": self.n_steps_,
            "seconds": self.seconds_,
            "image_shape": list(self.image_shape_),
            "history": self.history_,
        }
        save_model(
            Path(path), tensors, settings, dtype=dtype, max_file_bytes=max_file_bytes
        )

    @classmethod
    def load(cls, path: str | Path, *, device: str = "auto") -> Self:
        """Return a saved encoder, ready to transform.

        Parameters
        ----------
        path : str or Path
            Folder written by ``save``.
        device : str
            Where the network is to run.
        """
        tensors, settings = load_model(Path(path))
        if settings.get("format") != _FORMAT:
            raise CheckpointError(
                f"A saved encoder must have the format {_FORMAT!r}, but {path} has "
                f"{one_line(repr(settings.get('format')))}. Load it with the version "
                "that wrote it."
            )
        with reading_model(Path(path)):
            architecture = stored_architecture(settings, tensors)
            encoder = cls(**settings["parameters"], device=device)
            encoder._check_settings(encoder.n_components)
            generator = stream_generator(0, INITIALISATION, 0)
            network = build_network(architecture, generator)
            network.load_state_dict(_strip(tensors, "network."), strict=False)
            encoder.network_ = network.to(resolve_device(device)).eval()
            has_projector = encoder.layer == "projection"
            encoder.layers_ = LAYERS if has_projector else LAYERS[:-1]
            encoder.axes_ = PrincipalAxes(**_strip(tensors, "axes."))
            height, width = settings["image_shape"]
            encoder.image_shape_ = (int(height), int(width))
        encoder.history_ = settings["history"]
        encoder.n_steps_ = settings["n_steps"]
        encoder.seconds_ = settings["seconds"]
        return encoder

    @property
    def _n_features_out(self) -> int:
        return len(self.axes_.axes)

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn that samples are images, not rows."""
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.three_d_array = False
        return tags

    def _layer_blocks(
        self, images: Tensor, names: tuple[str, ...]
    ) -> Iterator[dict[str, Tensor]]:
        """Yield the named layers, averaged over views, for block after block."""
        device = next(self.network_.parameters()).device
        views = ViewSettings(
            self.grid_size, self.crop_area, self.patch_size, self._is_mixed(device)
        )
        return layer_blocks(self.network_, images, layers=names, settings=views)

    def _check_settings(self, n_images: int) -> tuple[Architecture, TrainingSettings]:
        """Refuse settings out of range; return those of network and training."""
        for name in ("n_components", "grid_size", "width", "n_hidden", "n_projection"):
            require_count(name, getattr(self, name), advice=_SIZES)
        n_blocks = _block_counts(self.n_blocks)
        require_choice("layer", self.layer, LAYERS)
        require_choice("precision", self.precision, ("auto", "float32"))
        sizes = (self.width, n_blocks, self.n_hidden, self.n_projection)
        architecture = Architecture(*sizes)
        n_available = min(architecture.n_features(self.layer), n_images)
        if self.n_components > n_available:
            raise ConfigError(
                f"n_components must not exceed {n_available}, the smaller of the "
                f"layer's dimensions and the number of images, got {self.n_components}."
                " Lower it, or give more images."
            )
        settings = TrainingSettings(
            n_patches=self.n_patches,
            batch_size=self.batch_size,
            n_epochs=self.n_epochs,
            max_seconds=self.max_seconds,
            learning_rate=self.learning_rate,
            invariance=self.invariance,
            distortion=self.distortion,
            patch_size=self.patch_size,
            augmentation=Augmentation(crop_area=self.crop_area),
            mixed_precision=self._is_mixed(resolve_device(self.device)),
            log_interval=self.log_interval,
            checkpoint=None if self.checkpoint is None else Path(self.checkpoint),
            checkpoint_seconds=self.checkpoint_seconds,
        )
        return architecture, settings

    def _is_mixed(self, device: torch.device) -> bool:
        return self.precision == "auto" and device.type == "cuda"

    def _stored_parameters(self) -> dict[str, Any]:
        """Return the settings that a loaded encoder needs, as plain JSON values."""
        left_out = ("device", "checkpoint", "on_log", "random_state")
        parameters = self.get_params(deep=False)
        kept = {name: parameters[name] for name in parameters if name not in left_out}
        kept["n_blocks"] = [int(count) for count in self.n_blocks]
        return kept


def _strip(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Return the tensors whose names start with ``prefix``, named without it."""
    return {
        name.removeprefix(prefix): tensor
        for name, tensor in tensors.items()
        if name.startswith(prefix)
    }


def _block_counts(given: object) -> tuple[int, ...]:
    given = given.tolist() if isinstance(given, np.ndarray) else given
    if not isinstance(given, Sequence) or not given:
        advice = "Use for example (2, 2, 2, 2)."
        raise ConfigError(f"n_blocks must be a number a stage, got {given!r}. {advice}")
    for count in given:
        require_count("each of n_blocks", count, advice=_SIZES)
    return tuple(given)
