"""Wavelet scattering of images, as a scikit-learn transformer.

Shapes: N images, C channels, (H, W) pixels.
"""

from __future__ import annotations

import math
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
)
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from selfexpress.errors import ConfigError, DataError
from selfexpress.features.batches import for_each
from selfexpress.features.cascade import Cascade, n_channels, padded_shape
from selfexpress.features.resize import resize_bilinear
from selfexpress.features.wavelets import filter_bank
from selfexpress.ops.devices import resolve_device
from selfexpress.ops.precision import own_arithmetic
from selfexpress.rows.validation import as_matrix, validated

Images = Tensor | NDArray[np.generic]

_DTYPES = {"float32": torch.float32, "float64": torch.float64}
# Images whose largest value lies between 2^-20 and 2^20 are scattered as they are.
_SAFE_EXPONENT = 20
# Bytes of the largest intermediate result of a batch. On a processor a batch that
# stays near the caches is fastest; a GPU wants to be filled.
_BATCH_BYTES = {"cpu": 5 * 2**20, "cuda": 512 * 2**20}


class Scattering2D(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Turn images into wavelet scattering coefficients of orders 0, 1 and 2.

    Coefficients are local averages, over squares of ``2**J`` pixels, of how strongly an
    image oscillates at each scale and angle, and of how these strengths oscillate in
    turn. They move little when an image is shifted or bent, which is what makes images
    of one class lie near a subspace.

    Parameters
    ----------
    J : int, default=3
        Number of scales. Must satisfy ``2**J <= min(H, W)``.
    L : int, default=8
        Number of angles.
    max_order : {1, 2}, default=2
    image_shape : tuple of int, optional
        ``(H, W)`` or ``(C, H, W)`` of images that come as rows. By default a row is a
        square image of one channel.
    resize : int or tuple of int, optional
        Side or ``(height, width)`` that images are first resized to, bilinearly. Images
        of dtype uint8 are rounded to 8 bits again, others are not.
    normalize : {"channel_max", None}, default="channel_max"
        Divide each coefficient map of each image by its largest absolute value.
    batch_size : int, optional
        Images (channels count as images) handled at once. Memory grows with it; the
        default stays near the caches of a processor, or fills a GPU.
    device : str or torch.device, optional
        Where to compute. By default tensors stay where they are and arrays on the CPU.
    dtype : {"float32", "float64"}, default="float32"
        Precision of the computation and of the result.

    Attributes
    ----------
    image_shape_ : tuple of int
        ``(C, H, W)`` of the images seen by ``fit``.
    output_shape_ : tuple of int
        ``(C, maps, height, width)``; the result's rows are this, flattened.
    filters_ : FilterBank
    n_features_in_ : int
        ``C * H * W``.

    Notes
    -----
    Input is ``(N, H, W)``, ``(N, C, H, W)`` or rows ``(N, C * H * W)``, in NumPy or
    torch; the result is ``(N, n_features)`` of the same kind. ``(N, H, W, C)`` is
    taken as well where C is 1 or 3 and H is not. Values are used as they
    are: 8-bit images give coefficients 255 times those of images in [0, 1], unless
    ``normalize`` takes the scale away. Filters, padding and the order of the maps are
    those of kymatio 0.3.

    Examples
    --------
    >>> import numpy as np
    >>> from selfexpress.features import Scattering2D
    >>> digits = np.random.default_rng(0).random((5, 28, 28))
    >>> transformer = Scattering2D(J=3, resize=32).fit(digits)
    >>> transformer.output_shape_
    (1, 217, 4, 4)
    >>> transformer.transform(digits).shape
    (5, 3472)
    """

    def __init__(
        self,
        J: int = 3,
        L: int = 8,
        *,
        max_order: int = 2,
        image_shape: tuple[int, ...] | None = None,
        resize: int | tuple[int, int] | None = None,
        normalize: str | None = "channel_max",
        batch_size: int | None = None,
        device: str | torch.device | None = None,
        dtype: str = "float32",
    ) -> None:
        self.J = J
        self.L = L
        self.max_order = max_order
        self.image_shape = image_shape
        self.resize = resize
        self.normalize = normalize
        self.batch_size = batch_size
        self.device = device
        self.dtype = dtype

    @own_arithmetic()
    def fit(self, X: ArrayLike | Tensor, y: object = None) -> Self:
        """Learn the shape of the images and build the filters.

        Parameters
        ----------
        X : array or Tensor of shape (N, H, W), (N, C, H, W), (N, H, W, C) or rows
        y : ignored
        """
        self._check_settings()
        images, shape = self._validated(X, reset=True)
        self.image_shape_ = _image_shape(shape, images.shape[1], self.image_shape)
        channels, size = self.image_shape_[0], self._scattered_shape()
        if min(size) < 2**self.J:
            raise ConfigError(
                f"2**J must not exceed the smaller side of the images, got J={self.J} "
                f"for images of {size[0]} x {size[1]}. Lower J or resize the images."
            )
        self.filters_ = filter_bank(padded_shape(size, self.J), self.J, self.L)
        maps = n_channels(self.J, self.L, self.max_order)
        self.output_shape_ = (channels, maps, size[0] >> self.J, size[1] >> self.J)
        self._n_features_out = int(np.prod(self.output_shape_))
        return self

    @own_arithmetic()
    @torch.no_grad()
    def transform(self, X: ArrayLike | Tensor) -> Images:
        """Return the coefficients of images of the shape seen by ``fit``.

        Parameters
        ----------
        X : array or Tensor of shape (N, H, W), (N, C, H, W), (N, H, W, C) or rows

        Returns
        -------
        array or Tensor of shape (N, n_features)
            A Tensor, on its device, if ``X`` is one.
        """
        check_is_fitted(self)
        rows, shape = self._validated(X, reset=False)
        if len(shape) > 2 and _image_shape(shape, rows.shape[1]) != self.image_shape_:
            raise DataError(
                f"images must have the shape {self.image_shape_} (channels, height, "
                f"width) seen by fit, got {tuple(shape[1:])}. Fit again, or resize."
            )
        outputs = self._scatter(rows)
        return outputs if isinstance(rows, Tensor) else outputs.numpy()

    def __sklearn_tags__(self) -> Tags:
        """Tell scikit-learn that images may come as rows or in three dimensions."""
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        tags.transformer_tags.preserves_dtype = []
        return tags

    def _check_settings(self) -> None:
        for name in ("J", "L"):
            _check_positive_integer(name, getattr(self, name))
        if self.batch_size is not None:
            _check_positive_integer("batch_size", self.batch_size)
        choices: dict[str, tuple[Any, ...]] = {
            "max_order": (1, 2),
            "normalize": ("channel_max", None),
            "dtype": tuple(_DTYPES),
        }
        for name, allowed in choices.items():
            value = getattr(self, name)
            if value not in allowed:
                raise ConfigError(
                    f"{name} must be one of {allowed}, got {value!r}. "
                    f"Leave it out for the default."
                )
        for name in ("image_shape", "resize"):
            _check_shape(name, getattr(self, name))

    def _validated(
        self, given: ArrayLike | Tensor, *, reset: bool
    ) -> tuple[Images, tuple[int, ...]]:
        """Check what is given and return it as rows, with its shape, channels first."""
        X = _channels_first(as_matrix(given))
        if isinstance(X, Tensor):
            rows = _rows_of_tensor(X)
            if reset:
                self.n_features_in_ = rows.shape[1]
                # Those of an earlier fit.
                self.__dict__.pop("feature_names_in_", None)
            elif rows.shape[1] != self.n_features_in_:
                raise DataError(
                    f"X must have the {self.n_features_in_} features (pixels) seen by "
                    f"fit, got {rows.shape[1]}. Fit again, or resize the images."
                )
            return rows, tuple(X.shape)
        shape = tuple(X.shape)
        if len(shape) > 4:
            raise DataError(_dimensions_message(len(shape)))
        if len(shape) > 2:
            X = np.asarray(X).reshape(shape[0], math.prod(shape[1:]))
        return validated(self, X, reset=reset), shape

    def _scattered_shape(self) -> tuple[int, int]:
        """Return the height and width after resizing."""
        if self.resize is None:
            return self.image_shape_[1:]
        sides = self.resize if isinstance(self.resize, tuple | list) else (self.resize,)
        return sides[0], sides[-1]

    def _scatter(self, rows: Images) -> Tensor:
        """Run the cascade over batches; memory beyond the result does not grow."""
        home = rows.device if isinstance(rows, Tensor) else torch.device("cpu")
        device = home if self.device is None else resolve_device(self.device)
        size, dtype = self._scattered_shape(), _DTYPES[self.dtype]
        cascade = Cascade(
            self.filters_, size, max_order=self.max_order, dtype=dtype, device=device
        )
        _, maps, height, width = self.output_shape_
        planes = rows.reshape(-1, *self.image_shape_[1:])  # (N C, H, W)
        outputs = torch.empty(
            (len(planes), maps, height * width), dtype=dtype, device=home
        )
        batch_size = self.batch_size or self._automatic_batch_size(device)

        def scatter_batch(start: int) -> None:
            batch = _as_tensor(planes[start : start + batch_size]).to(device)
            batch, factor = _near_one(batch, dtype)
            if tuple(batch.shape[1:]) != size:
                batch = resize_bilinear(batch, size)
            coefficients = cascade(batch)
            if self.normalize is not None:
                _divide_by_largest(coefficients)
            elif factor is not None:
                coefficients = (coefficients / factor).to(dtype)
            outputs[start : start + batch_size] = coefficients

        for_each(scatter_batch, range(0, len(planes), batch_size), device)
        return outputs.reshape(len(rows), self._n_features_out)

    def _automatic_batch_size(self, device: torch.device) -> int:
        # The first and largest result of order 2: L x L complex maps, a quarter of the
        # pixels each. Without order 2, L complex maps of all pixels.
        height, width = self.filters_.shape
        maps = self.L**2 / 4 if self.max_order == 2 else self.L
        item = 2 * _DTYPES[self.dtype].itemsize
        budget = _BATCH_BYTES.get(device.type, _BATCH_BYTES["cuda"])
        return max(1, int(budget / (maps * height * width * item)))


def _divide_by_largest(coefficients: Tensor) -> None:
    """Scale each map (B, maps, P) to largest absolute value 1; leave zeros alone."""
    largest = coefficients.abs().amax(dim=-1, keepdim=True)
    coefficients /= torch.where(largest > 0, largest, 1)


def _image_shape(
    shape: tuple[int, ...], n_pixels: int, declared: tuple[int, ...] | None = None
) -> tuple[int, int, int]:
    """Return (C, H, W) from the input's own shape, or else the declared one."""
    if len(shape) == 4:
        return shape[1], shape[2], shape[3]
    if len(shape) == 3:
        return 1, shape[1], shape[2]
    if declared is None:
        side = int(np.sqrt(n_pixels))
        declared = (side, side)
    channels, height, width = (1, *declared)[-3:]
    if channels * height * width != n_pixels:
        raise DataError(
            f"rows must hold the {channels} x {height} x {width} values of an image, "
            f"got {n_pixels} feature(s). Set image_shape to (height, width) or "
            f"(channels, height, width)."
        )
    return channels, height, width


def _rows_of_tensor(X: Tensor) -> Tensor:
    """Return a tensor of images as rows, refusing what has no meaning."""
    if X.ndim not in (2, 3, 4):
        raise DataError(_dimensions_message(X.ndim))
    if len(X) == 0:
        raise DataError("X must hold at least one image, got none. Check its source.")
    if X.is_complex() or (X.is_floating_point() and not bool(X.isfinite().all())):
        raise DataError(
            "X must be real and finite, got NaN, infinite or complex values. "
            "Replace them before scattering."
        )
    return X.detach().reshape(len(X), -1)


def _dimensions_message(n_dimensions: int) -> str:
    return (
        "X must have 2 (rows), 3 (N, H, W) or 4 (N, C, H, W) dimensions, "
        f"got {n_dimensions}. Reshape it."
    )


def _channels_first(X: ArrayLike | Tensor) -> Any:
    """Return images with their channels before height and width."""
    X = X if hasattr(X, "shape") else np.asarray(X)
    shape = tuple(X.shape)
    if len(shape) == 4 and shape[3] in (1, 3) and shape[1] not in (1, 3):
        if isinstance(X, Tensor):
            return X.permute(0, 3, 1, 2)
        return np.moveaxis(np.asarray(X), 3, 1)
    return X


def _as_tensor(batch: Images) -> Tensor:
    """Return a batch in its own type if that is of floats or 8 bits, else float64."""
    if isinstance(batch, Tensor):
        is_kept = batch.is_floating_point() or batch.dtype == torch.uint8
        return batch if is_kept else batch.double()
    kept = (np.uint8, np.float16, np.float32)
    # A copy: torch refuses to share read-only memory without a warning.
    dtype = batch.dtype if batch.dtype in kept else np.float64
    return torch.from_numpy(np.array(batch, dtype=dtype))


def _near_one(batch: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor | None]:
    """Return images in ``dtype``, where their squares neither overflow nor vanish.

    Those of 8 bits stay so (see ``resize``). Others come with the powers of two,
    (B, 1, 1), that they were multiplied by, or None if that was not needed.
    """
    if batch.dtype == torch.uint8:
        return batch, None
    largest = batch.abs().amax(dim=(1, 2), keepdim=True).double()
    exponent = torch.frexp(largest).exponent
    if bool((exponent.abs() <= _SAFE_EXPONENT).all()):
        return batch.to(dtype), None
    factor = torch.exp2(-exponent.clamp(-1000, 1000).double())
    return (batch.double() * factor).to(dtype), factor


def _check_positive_integer(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
        raise ConfigError(
            f"{name} must be a positive integer, got {value!r}. "
            f"Leave it out for the default."
        )


def _check_shape(name: str, value: object) -> None:
    if value is None:
        return
    sides = value if isinstance(value, tuple | list) else (value,)
    allowed = (1, 2) if name == "resize" else (2, 3)
    if len(sides) not in allowed:
        raise ConfigError(
            f"{name} must have {allowed[0]} or {allowed[1]} entries, got {value!r}. "
            f"Give the height and width of the images."
        )
    for side in sides:
        _check_positive_integer(f"each entry of {name}", side)
