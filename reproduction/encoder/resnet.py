"""Residual network for small colour images, and the projector it is trained through.

Shapes: N images, C channels, H x W pixels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

LAYERS = ("backbone", "hidden", "projection")


@dataclass(frozen=True)
class Architecture:
    """Sizes of an `EncoderNetwork`; the defaults are those of EMP-SSL's ResNet-18.

    Attributes
    ----------
    width : int
        Channels of the first stage; each further stage doubles them.
    n_blocks : tuple of int
        Residual blocks of each stage; each stage but the first halves the image.
    n_hidden : int
        Width of the two hidden layers of the projector.
    n_projection : int
        Dimensions in which the coding rate is measured.
    """

    width: int = 64
    n_blocks: tuple[int, ...] = (2, 2, 2, 2)
    n_hidden: int = 4096
    n_projection: int = 1024

    @property
    def n_backbone(self) -> int:
        """Dimensions of the backbone's output."""
        return self.width << (len(self.n_blocks) - 1)

    def n_features(self, layer: str) -> int:
        """Return the number of dimensions of one of `LAYERS`."""
        sizes = (self.n_backbone, self.n_hidden, self.n_projection)
        return dict(zip(LAYERS, sizes, strict=True))[layer]


class ResidualBlock(nn.Module):
    """Two 3 x 3 convolutions beside an identity, or a 1 x 1 one where sizes change."""

    def __init__(self, n_in: int, n_out: int, *, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(n_in, n_out, 3, stride=stride, padding=1, bias=False),
            nn.BatchNorm2d(n_out),
            nn.ReLU(inplace=True),
            nn.Conv2d(n_out, n_out, 3, padding=1, bias=False),
            nn.BatchNorm2d(n_out),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride > 1 or n_in != n_out:
            self.shortcut = nn.Sequential(
                nn.Conv2d(n_in, n_out, 1, stride=stride, bias=False),
                nn.BatchNorm2d(n_out),
            )

    def forward(self, images: Tensor) -> Tensor:
        """Return the block's output."""
        return F.relu(self.body(images) + self.shortcut(images), inplace=True)


class EncoderNetwork(nn.Module):
    """Backbone, hidden layer and projector, trained from random weights.

    The backbone is He et al.'s (2016) residual network with a 3 x 3 stem and no
    pooling before the first stage, as is usual for images of 32 x 32 pixels.

    Parameters
    ----------
    architecture : Architecture
    """

    def __init__(self, architecture: Architecture) -> None:
        super().__init__()
        self.architecture = architecture
        n_hidden = architecture.n_hidden
        self.backbone = _backbone(architecture)
        # Biases before a normalisation would be subtracted again: there are none.
        self.hidden = nn.Sequential(
            nn.Linear(architecture.n_backbone, n_hidden, bias=False),
            nn.BatchNorm1d(n_hidden),
            nn.ReLU(inplace=True),
        )
        self.projector = nn.Sequential(
            nn.Linear(n_hidden, n_hidden, bias=False),
            nn.BatchNorm1d(n_hidden),
            nn.ReLU(inplace=True),
            nn.Linear(n_hidden, architecture.n_projection),
        )

    def forward(self, images: Tensor) -> Tensor:
        """Return the projections as unit rows in single precision or better.

        Parameters
        ----------
        images : Tensor of shape (N, 3, H, W)
            Standardised.
        """
        return self.represent(images, "projection")

    def represent(self, images: Tensor, layer: str) -> Tensor:
        """Return one layer's output, one row per image."""
        return self.layers(images, (layer,))[layer]

    def layers(self, images: Tensor, names: tuple[str, ...]) -> dict[str, Tensor]:
        """Return the outputs of the named layers, computing none beyond the last."""
        found = {"backbone": self.backbone(images)}
        if names != ("backbone",):
            found["hidden"] = self.hidden(found["backbone"])
        if "projection" in names:
            projected = _at_least_single(self.projector(found["hidden"]))
            found["projection"] = F.normalize(projected, dim=1)
        return {name: _at_least_single(found[name]) for name in names}


def build_network(
    architecture: Architecture, generator: torch.Generator
) -> EncoderNetwork:
    """Return a network on the CPU with weights drawn from ``generator`` alone."""
    # The layers' own initialisers would draw from torch's global generator.
    with torch.device("meta"):
        network = EncoderNetwork(architecture)
    network.to_empty(device="cpu")
    for module in network.modules():
        if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
            module.reset_parameters()
        elif isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(
                module.weight, mode="fan_out", nonlinearity="relu", generator=generator
            )
        elif isinstance(module, nn.Linear):
            bound = 1 / math.sqrt(module.in_features)
            for parameter in module.parameters():
                nn.init.uniform_(parameter, -bound, bound, generator=generator)
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return network


def _backbone(architecture: Architecture) -> nn.Sequential:
    """Return stem, stages and the mean over the remaining pixels."""
    width = architecture.width
    layers: list[nn.Module] = [
        nn.Conv2d(3, width, 3, padding=1, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(inplace=True),
    ]
    n_in = width
    for stage, n_blocks in enumerate(architecture.n_blocks):
        n_out = width << stage
        for block in range(n_blocks):
            stride = 2 if stage > 0 and block == 0 else 1
            layers.append(ResidualBlock(n_in, n_out, stride=stride))
            n_in = n_out
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())


def _at_least_single(rows: Tensor) -> Tensor:
    return rows if rows.dtype == torch.float64 else rows.float()
