"""Residual network for small colour images, its projector, and what they minimise.

The coding rate R(Z) = 1/2 log det(I + d / (n e) Z^T Z) of n rows in d dimensions counts
the nats needed to code them up to a squared distortion e: large when they spread over
many directions (Ma et al. 2007; the first term of MCR2, Yu et al. 2020). The objective
spreads different images and gathers the patches of one image, as in EMP-SSL (Tong,
Chen, Ma, LeCun 2023, "Towards Self-Supervised Learning in One Training Epoch").

Shapes: N images, C channels, H x W pixels; P patches of an image, B images, n rows, d
dimensions.
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
    """Sizes of an `EncoderNetwork`; the defaults are those of EMP-SSL's ResNet-18."""

    # Channels of the first stage; each further stage doubles them.
    width: int = 64
    # Residual blocks of each stage; each stage but the first halves the image.
    n_blocks: tuple[int, ...] = (2, 2, 2, 2)
    # Width of the two hidden layers of the projector.
    n_hidden: int = 4096
    # Dimensions in which the coding rate is measured.
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
        """Return the projections as unit rows in single precision or better."""
        return self.layers(images, ("projection",))["projection"]

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


@dataclass(frozen=True)
class PatchLoss:
    """The patch objective and its two terms, each a scalar tensor."""

    # ``invariance * discrepancy - rate``, to be minimised.
    total: Tensor
    # Coding rate of the images, averaged over the patch positions.
    rate: Tensor
    # Mean of 1 - cosine between a patch and the mean of its image's patches.
    discrepancy: Tensor


def coding_rate(rows: Tensor, distortion: float) -> Tensor:
    """Return 1/2 log det(I + d / (n distortion) Z^T Z) of sets of rows (..., n, d).

    Not a number where ``rows`` are not finite: the factorisation is not checked, as a
    check would make the host wait for the device.
    """
    n_rows, n_features = rows.shape[-2:]
    # det(I + a Z^T Z) = det(I + a Z Z^T), so the smaller of the two is factored.
    gram = rows @ rows.mT if n_rows <= n_features else rows.mT @ rows
    identity = torch.eye(gram.shape[-1], dtype=rows.dtype, device=rows.device)
    scale = n_features / (n_rows * distortion)
    factor: Tensor = torch.linalg.cholesky_ex(identity + scale * gram).L
    # log det of L L^T is twice the sum of the logarithms of L's diagonal.
    return factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)


def patch_loss(
    projections: Tensor, *, invariance: float, distortion: float
) -> PatchLoss:
    """Score how well patches of one image agree while images spread.

    ``projections`` are unit rows (P, B, d): ``[p, b]`` is patch p of image b.
    """
    centre = projections.mean(dim=0)  # (B, d)
    cosine = torch.cosine_similarity(projections, centre.unsqueeze(0), dim=-1)  # (P, B)
    discrepancy = 1 - cosine.mean()
    rate = coding_rate(projections, distortion).mean()
    return PatchLoss(invariance * discrepancy - rate, rate, discrepancy)


def rate_bounds(n_rows: int, n_features: int, distortion: float) -> tuple[float, float]:
    """Return the rate of unit rows that all coincide, and the largest rate possible."""
    collapsed = math.log1p(n_features / distortion) / 2
    n_directions = min(n_rows, n_features)
    spread = n_directions / 2 * math.log1p(n_features / (n_directions * distortion))
    return collapsed, spread
