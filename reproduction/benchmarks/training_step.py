"""A training step against a literal one, and against its arithmetic.

Sides, timed in the same run on the same rows:

- literal: the paper's Algorithm 1 as one would first write it in PyTorch, float32,
  autograd, torch's Adam, clipping, a list of losses;
- released: the same with the habits of the authors' script: all rows on the host and
  sent for each use, and the self term found by embedding the batch once more as keys
  and taken off again;
- ours: what ``SENet`` runs by default on the device, naive and in two passes;
- floor: only the matrix products of a step, back to back, in the same precision.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from itertools import count, pairwise
from typing import Any

import torch
from torch import Tensor, nn

from reproduction.benchmark import benchmark
from reproduction.record import peak_bytes
from reproduction.runner import Context
from reproduction.timing import alternately, timed
from selfexpress.config import NetworkConfig, TrainConfig
from selfexpress.network import SelfExpressiveNetwork
from selfexpress.ops.self_expression import unit_rows
from selfexpress.rows.sources import ArraySource
from selfexpress.training.choices import decide
from selfexpress.training.step import RECORDED, GraphedStep, PlainStep

N_FEATURES = 500
# (rows, batch size)
SIZES = ((2000, 100), (10_000, 100), (20_000, 100), (20_000, 2000), (100_000, 1000))
LARGE = (1_000_000, 1000)
Step = Callable[[], object]


def tower(n_inputs: int, width: int) -> nn.Sequential:
    """Return the paper's tower."""
    layers: list[nn.Module] = []
    for n_ins, n_outs in pairwise([n_inputs, width, width, width]):
        layers += [nn.Linear(n_ins, n_outs), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(width, width), nn.Tanh())


def elastic_net(coefficients: Tensor, l1_ratio: float) -> Tensor:
    """Return the penalty of coefficients, added up."""
    ridge = (1 - l1_ratio) / 2 * coefficients.square().sum()
    return ridge + l1_ratio * coefficients.abs().sum()


def eager_step(
    rows: Tensor, batch_size: int, config: TrainConfig, width: int, *, as_released: bool
) -> Step:
    """Return a function that takes one step of Algorithm 1 in plain PyTorch."""
    device = rows.device
    query_tower, key_tower = (tower(rows.shape[1], width).to(device) for _ in "qk")
    threshold = nn.Parameter(torch.zeros((), device=device))
    parameters = [*query_tower.parameters(), *key_tower.parameters(), threshold]
    optimizer = torch.optim.Adam(parameters, lr=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100_000)
    losses: list[float] = []
    kept = rows.cpu() if as_released else rows

    def coefficients_of(products: Tensor) -> Tensor:
        return products.sign() * torch.relu(products.abs() - threshold) / width

    def loss_without_self(index: Tensor) -> Tensor:
        queries, keys = query_tower(kept[index]), key_tower(kept)
        coefficients = coefficients_of(queries @ keys.T)
        mask = torch.ones_like(coefficients)
        mask[torch.arange(batch_size, device=device), index] = 0
        coefficients = coefficients * mask
        residual = kept[index] - coefficients @ kept
        penalty = elastic_net(coefficients, config.l1_ratio)
        return config.gamma / 2 * residual.square().sum() + penalty

    def loss_as_released(index: Tensor) -> Tensor:
        batch, everything = kept[index].to(device), kept.to(device)
        queries = query_tower(batch)
        coefficients = coefficients_of(queries @ key_tower(everything).T)
        self_products = (queries * key_tower(batch)).sum(dim=1, keepdim=True)
        self_coefficients = coefficients_of(self_products)
        reconstruction = coefficients @ everything - self_coefficients * batch
        penalty = elastic_net(coefficients, config.l1_ratio)
        penalty = penalty - elastic_net(self_coefficients, config.l1_ratio)
        return config.gamma / 2 * (batch - reconstruction).square().sum() + penalty

    def step() -> None:
        index = torch.randperm(len(kept), device=kept.device)[:batch_size]
        find_loss = loss_as_released if as_released else loss_without_self
        loss = find_loss(index) / batch_size
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, config.clip_norm)
        optimizer.step()
        schedule.step()
        losses.append(loss.item())

    return step


def our_step(
    source: ArraySource, device: torch.device, algorithm: str, batch: int, width: int
) -> Step:
    """Return a function that takes the next step."""
    sizes = NetworkConfig((width,) * 3, width)
    config = TrainConfig(
        batch_size=batch, max_iter=100_000, algorithm=algorithm, precision="auto"
    )
    config = decide(config, sizes, source, device)
    generator = torch.Generator().manual_seed(0)
    network = SelfExpressiveNetwork(N_FEATURES, sizes, generator=generator).to(device)
    history = torch.zeros(config.max_iter, len(RECORDED), device=device)
    plain = PlainStep(network, source, config, seed=0, history=history)
    step = GraphedStep(plain) if plain.is_replayable else plain
    numbers = count()
    return lambda: step(next(numbers))


def floor_step(n_rows: int, batch: int, width: int, device: torch.device) -> Step:
    """Return a function that runs only the matrix products of a naive step."""
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32

    def matrix(*shape: int) -> Tensor:
        return torch.randn(*shape, device=device, dtype=dtype) / shape[-1] ** 0.5

    n_inputs = -(-N_FEATURES // 8) * 8
    rows, layer = matrix(n_rows, n_inputs), matrix(n_rows, width)
    batch_rows, batch_layer = matrix(batch, n_inputs), matrix(batch, width)
    first, square = matrix(width, n_inputs), matrix(width, width)
    coefficients = matrix(batch, n_rows)

    def products() -> None:
        for inputs, outputs in ((rows, layer), (batch_rows, batch_layer)):
            inputs @ first.T  # forward
            for _ in range(3):
                outputs @ square.T
            for _ in range(3):  # weights and inputs, backward
                outputs.T @ outputs
                outputs @ square
            outputs.T @ inputs
        batch_layer @ layer.T
        coefficients @ rows
        batch_rows @ rows.T
        coefficients @ layer
        coefficients.T @ batch_layer

    if device.type != "cuda":
        return products
    products()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        products()
    return graph.replay


def many(function: Step, times: int) -> Step:
    """Return a function that calls another ``times`` times."""

    def repeated() -> None:
        for _ in range(times):
            function()

    return repeated


def compare(
    n_rows: int, batch: int, width: int, device: torch.device, n_steps: int, seed: int
) -> dict[str, Any]:
    """Time all sides at one size; seconds a step."""
    n_steps = max(2, min(n_steps, n_steps * 20_000 // n_rows // 2))
    generator = torch.Generator().manual_seed(n_rows + seed)
    rows = unit_rows(torch.randn(n_rows, N_FEATURES, generator=generator)).to(device)
    source = ArraySource(rows, device=device)
    sides = {
        "literal": eager_step(rows, batch, TrainConfig(), width, as_released=False),
        "released": eager_step(rows, batch, TrainConfig(), width, as_released=True),
        "naive": our_step(source, device, "naive", batch, width),
        "two_pass": our_step(source, device, "two_pass", batch, width),
        "floor": floor_step(n_rows, batch, width, device),
    }
    repeated = {name: many(side, n_steps) for name, side in sides.items()}
    found = alternately(repeated, 7, warmup=2, device=device)
    seconds = {name: timing.median / n_steps for name, timing in found.items()}
    return {
        "n_rows": n_rows,
        "batch_size": batch,
        "milliseconds": {name: 1000 * value for name, value in seconds.items()},
        "literal_over_naive": seconds["literal"] / seconds["naive"],
        "released_over_naive": seconds["released"] / seconds["naive"],
        "two_pass_over_naive": seconds["two_pass"] / seconds["naive"],
        "naive_over_floor": seconds["naive"] / seconds["floor"],
    }


def large(device: torch.device) -> dict[str, float]:
    """Train a few two-pass steps on a million rows; report memory."""
    n_rows, batch = LARGE
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    rows = torch.empty(n_rows, N_FEATURES, device=device)
    for part in rows.split(50_000):
        part.copy_(unit_rows(torch.randn(part.shape, device=device)))
    step = our_step(ArraySource(rows, device=device), device, "two_pass", batch, 1024)
    timing = timed(step, 3, warmup=1, device=device)
    return {
        "n_rows": n_rows,
        "batch_size": batch,
        "seconds_a_step": timing.median,
        "peak_gib": peak_bytes(device) / 2**30,
    }


@benchmark(
    "A training step is 20 times as fast as an eager one in float32",
    quick={"sizes": ((500, 50),), "width": 128, "most_steps": 5},
)
def training_step(
    context: Context,
    seed: int,
    *,
    sizes: Sequence[tuple[int, int]] = SIZES,
    width: int = 1024,
    most_steps: int = 50,
) -> dict[str, Any]:
    """Time all sides at every size; on a GPU, also a million rows."""
    device = context.device
    steps = [compare(*size, width, device, most_steps, seed) for size in sizes]
    is_large = device.type == "cuda" and width == 1024
    return {"steps": steps} | ({"large": large(device)} if is_large else {})
