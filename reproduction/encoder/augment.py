"""Random patches of images, cut and coloured on the device in whole batches.

The choice of augmentations is EMP-SSL's (Tong et al. 2023): small square crops of one
scale, flips, colour jitter, grey, blur and solarisation. What is random is drawn first
(`sample_changes`), then applied by pure functions (`augment`), without a host wait.

Shapes: N patches, H x W pixels of an image, S pixels of a patch's side.
Pixels lie in [0, 1].
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

# Weights of ITU-R BT.601, by which grey is seen as bright as the colour.
_LUMA = (0.299, 0.587, 0.114)
_BLUR_RADIUS = 4
_LARGEST_SIGMA = 2.0


@dataclass(frozen=True)
class Augmentation:
    """How strongly and how often patches are changed."""

    # Area of a patch as a part of the image's.
    crop_area: float = 0.25
    # Largest change by the colour jitter; hue in turns of the colour circle.
    brightness: float = 0.4
    contrast: float = 0.4
    saturation: float = 0.4
    hue: float = 0.2
    flip_probability: float = 0.5
    jitter_probability: float = 0.8
    grey_probability: float = 0.2
    blur_probability: float = 0.1
    solarise_probability: float = 0.1


class Crop(NamedTuple):
    """Squares to be cut out of images: pixels of a side, first rows and columns (N,).

    ``flip`` (N,), bool, says whether left and right are exchanged.
    """

    side: int
    top: Tensor
    left: Tensor
    flip: Tensor


@dataclass(frozen=True)
class Changes:
    """Everything drawn at random for N patches; tensors of shape (N,)."""

    crop: Crop
    # Factors, 1 for no change.
    brightness: Tensor
    contrast: Tensor
    saturation: Tensor
    # Turns of the colour circle, 0 for no change.
    hue: Tensor
    # Standard deviation of the blur in pixels, 0 for none.
    sigma: Tensor
    grey: Tensor
    solarise: Tensor


def crop_side(height: int, width: int, area: float) -> int:
    """Return the side of the square that has ``area`` times the image's area."""
    return max(1, min(round(math.sqrt(area * height * width)), height, width))


def sample_changes(
    n_patches: int,
    image_size: tuple[int, int],
    *,
    augmentation: Augmentation,
    generator: torch.Generator,
) -> Changes:
    """Draw the changes of ``n_patches`` patches on the generator's device."""
    height, width = image_size
    side = crop_side(height, width, augmentation.crop_area)

    def uniform() -> Tensor:
        return torch.rand(n_patches, generator=generator, device=generator.device)

    def happens(probability: float) -> Tensor:
        return uniform() < probability

    is_jittered = happens(augmentation.jitter_probability)

    def jitter(strength: float) -> Tensor:
        return is_jittered * strength * (2 * uniform() - 1)

    crop = Crop(
        side,
        top=(uniform() * (height - side + 1)).floor(),
        left=(uniform() * (width - side + 1)).floor(),
        flip=happens(augmentation.flip_probability),
    )
    return Changes(
        crop,
        brightness=1 + jitter(augmentation.brightness),
        contrast=1 + jitter(augmentation.contrast),
        saturation=1 + jitter(augmentation.saturation),
        hue=jitter(augmentation.hue),
        sigma=happens(augmentation.blur_probability)
        * (0.1 + (_LARGEST_SIGMA - 0.1) * uniform()),
        grey=happens(augmentation.grey_probability),
        solarise=happens(augmentation.solarise_probability),
    )


def augment(images: Tensor, changes: Changes, patch_size: int) -> Tensor:
    """Cut one patch out of each image, resize it to S x S and change its colours."""
    patches = cut_patches(images, changes.crop, patch_size)
    patches = adjust_brightness(patches, changes.brightness)
    patches = adjust_contrast(patches, changes.contrast)
    patches = adjust_saturation(patches, changes.saturation)
    patches = shift_hue(patches, changes.hue)
    patches = torch.where(_per_patch(changes.grey), to_grey(patches), patches)
    patches = blur(patches, changes.sigma)
    return torch.where(_per_patch(changes.solarise), solarise(patches), patches)


def standardise(patches: Tensor) -> Tensor:
    """Map pixels from [0, 1] to [-1, 1], in the layout that convolutions like best."""
    return (patches * 2 - 1).contiguous(memory_format=torch.channels_last)


def cut_patches(images: Tensor, crop: Crop, patch_size: int) -> Tensor:
    """Cut one square out of each image and resize it bilinearly.

    Equals cutting with slices followed by ``torch.nn.functional.interpolate``: pixels
    beside the square do not leak in.
    """
    height, width = images.shape[-2:]
    steps = torch.arange(patch_size, dtype=images.dtype, device=images.device)
    offsets = (steps + 0.5) * (crop.side / patch_size) - 0.5
    offsets = offsets.clamp(0, crop.side - 1)  # (S,)
    across = torch.where(crop.flip.unsqueeze(1), offsets.flip(0), offsets)  # (N, S)
    rows = crop.top.unsqueeze(1) + offsets  # (N, S)
    columns = crop.left.unsqueeze(1) + across  # (N, S)
    # grid_sample counts pixel centres from -1 to 1.
    rows = (2 * rows / (height - 1) - 1).unsqueeze(2).expand(-1, -1, patch_size)
    columns = (2 * columns / (width - 1) - 1).unsqueeze(1).expand(-1, patch_size, -1)
    grid = torch.stack([columns, rows], dim=-1)  # (N, S, S, 2)
    return F.grid_sample(images, grid, padding_mode="border", align_corners=True)


def adjust_brightness(patches: Tensor, factor: Tensor) -> Tensor:
    """Multiply pixels by a factor per patch."""
    return (patches * _per_patch(factor)).clamp(0, 1)


def adjust_contrast(patches: Tensor, factor: Tensor) -> Tensor:
    """Move pixels away from (or towards) the patch's mean grey."""
    mean = _luma(patches).mean(dim=(2, 3), keepdim=True)
    return torch.lerp(mean, patches, _per_patch(factor)).clamp(0, 1)


def adjust_saturation(patches: Tensor, factor: Tensor) -> Tensor:
    """Move pixels away from (or towards) their own grey."""
    return torch.lerp(_luma(patches), patches, _per_patch(factor)).clamp(0, 1)


def shift_hue(patches: Tensor, turns: Tensor) -> Tensor:
    """Turn every pixel's hue around the colour circle, in the HSV model."""
    red, green, blue = patches.unbind(dim=1)
    value, spread = patches.amax(dim=1), patches.amax(dim=1) - patches.amin(dim=1)
    divisor = torch.where(spread > 0, spread, 1)
    sixths = torch.where(
        value == red,
        (green - blue) / divisor,
        torch.where(
            value == green, (blue - red) / divisor + 2, (red - green) / divisor + 4
        ),
    )
    sixths = sixths + 6 * turns.view(-1, 1, 1)
    # Each primary falls from the value by the spread as the hue leaves its third.
    # (A range, since a list would be copied from the host, which then waits.)
    offsets = torch.arange(5, 0, -2, dtype=patches.dtype, device=patches.device)
    place = torch.remainder(sixths.unsqueeze(1) + offsets.view(1, 3, 1, 1), 6)
    fall = torch.minimum(place, 4 - place).clamp(0, 1)
    return value.unsqueeze(1) - spread.unsqueeze(1) * fall


def to_grey(patches: Tensor) -> Tensor:
    """Replace the colours by their luminance, kept in three channels."""
    return _luma(patches).expand_as(patches)


def blur(patches: Tensor, sigma: Tensor) -> Tensor:
    """Blur each patch by a Gaussian of its own width; 0 leaves it as it is."""
    size = patches.shape[-1]
    taps = torch.arange(
        -_BLUR_RADIUS, _BLUR_RADIUS + 1, dtype=patches.dtype, device=patches.device
    )
    # Below 0.05 pixels every tap but the middle one underflows to exactly 0.
    width = sigma.clamp(min=0.05).unsqueeze(1)
    weights = torch.softmax(-(taps**2) / (2 * width**2), dim=1)  # (N, 2 radius + 1)
    for axis in (2, 3):
        border = [_BLUR_RADIUS] * 2
        padding = [0, 0, *border] if axis == 2 else [*border, 0, 0]
        padded = F.pad(patches, padding, mode="replicate")
        blurred = torch.zeros_like(patches)
        for tap in range(len(taps)):
            shifted = padded.narrow(axis, tap, size)
            blurred = blurred.addcmul(shifted, weights[:, tap].view(-1, 1, 1, 1))
        patches = blurred
    return patches


def solarise(patches: Tensor) -> Tensor:
    """Invert the bright half of the pixel values."""
    return torch.where(patches < 128 / 255, patches, 1 - patches)


def _luma(patches: Tensor) -> Tensor:
    """Return the luminance, of shape (N, 1, S, S)."""
    red, green, blue = patches.unbind(dim=1)
    luma = _LUMA[0] * red + _LUMA[1] * green + _LUMA[2] * blue
    return luma.unsqueeze(1)


def _per_patch(values: Tensor) -> Tensor:
    return values.view(-1, 1, 1, 1)
