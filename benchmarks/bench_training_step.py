"""A training step against a literal one, and against its arithmetic.

Sides, timed in the same run on the same rows:

- literal: the paper's Algorithm 1 as one would first write it in PyTorch, float32,
  autograd, torch's Adam, clipping, a list of losses;
- ours: what ``SENet`` runs by default on the device, naive and in two passes;
- floor: only the matrix products of a step, back to back, in the same precision.
"""

from __future__ import annotations

import argparse
import gc
from itertools import pairwise

import torch
from record import alternately, peak_bytes, timed, write_record
from torch import Tensor, nn

from selfexpress.config import NetworkConfig, TrainConfig
from selfexpress.data.sources import ArraySource
from selfexpress.network import SelfExpressiveNetwork
from selfexpress.ops.self_expression import unit_rows
from selfexpress.training.choices import decide
from selfexpress.training.graphed import GraphedStep
from selfexpress.training.steps import RECORDED, PlainStep

N_FEATURES = 500
# (rows, batch size)
SIZES = ((2000, 100), (10_000, 100), (20_000, 100), (20_000, 2000))
QUICK_SIZES = ((500, 50),)
LARGE = (1_000_000, 1000)


def literal_step(rows: Tensor, batch_size: int, config: TrainConfig, width: int):
    """Return a function that takes one step of Algorithm 1 in plain PyTorch."""

    def tower() -> nn.Sequential:
        sizes = [rows.shape[1], width, width, width]
        layers: list[nn.Module] = []
        for n_inputs, n_outputs in pairwise(sizes):
            layers += [nn.Linear(n_inputs, n_outputs), nn.ReLU()]
        return nn.Sequential(*layers, nn.Linear(width, width), nn.Tanh())

    query_tower, key_tower = tower().to(rows.device), tower().to(rows.device)
    threshold = nn.Parameter(torch.zeros((), device=rows.device))
    parameters = [*query_tower.parameters(), *key_tower.parameters(), threshold]
    optimizer = torch.optim.Adam(parameters, lr=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100_000)
    losses: list[float] = []

    def step() -> None:
        index = torch.randperm(len(rows), device=rows.device)[:batch_size]
        queries, keys = query_tower(rows[index]), key_tower(rows)
        products = queries @ keys.T
        coefficients = products.sign() * torch.relu(products.abs() - threshold) / width
        mask = torch.ones_like(coefficients)
        mask[torch.arange(batch_size, device=rows.device), index] = 0
        coefficients = coefficients * mask
        residual = rows[index] - coefficients @ rows
        ridge = (1 - config.l1_ratio) / 2 * coefficients.square().sum()
        lasso = config.l1_ratio * coefficients.abs().sum()
        fit = config.gamma / 2 * residual.square().sum()
        loss = (fit + lasso + ridge) / batch_size
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, config.clip_norm)
        optimizer.step()
        schedule.step()
        losses.append(loss.item())

    return step


def our_step(
    source: ArraySource, device: torch.device, algorithm: str, batch: int, width: int
):
    """Return a function that takes the next step, and the step object."""
    sizes = NetworkConfig((width,) * 3, width)
    config = TrainConfig(
        batch_size=batch, max_iter=1_000_000, algorithm=algorithm, precision="auto"
    )
    config = decide(config, sizes, source, device)
    generator = torch.Generator().manual_seed(0)
    network = SelfExpressiveNetwork(N_FEATURES, sizes, generator=generator).to(device)
    # A few lines of history are enough: every step timed writes to the first.
    history = torch.zeros(16, len(RECORDED), device=device)
    plain = PlainStep(network, source, config, seed=0, history=history)
    if plain.is_replayable:
        take = GraphedStep(plain)
        take._send_tables(0)
        return lambda: (take._place.zero_(), take._line.zero_(), take._graph.replay())
    return lambda: plain(0)


def floor_step(n_rows: int, batch: int, width: int, device: torch.device):
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


def many(function, count: int):
    """Return a function that calls another ``count`` times."""

    def repeated() -> None:
        for _ in range(count):
            function()

    return repeated


def compare(n_rows: int, batch: int, width: int, device: torch.device, count: int):
    """Time all sides at one size; seconds a step."""
    generator = torch.Generator().manual_seed(n_rows)
    rows = unit_rows(torch.randn(n_rows, N_FEATURES, generator=generator)).to(device)
    source = ArraySource(rows, device=device)
    sides = {
        "literal": literal_step(rows, batch, TrainConfig(), width),
        "naive": our_step(source, device, "naive", batch, width),
        "two_pass": our_step(source, device, "two_pass", batch, width),
        "floor": floor_step(n_rows, batch, width, device),
    }
    repeated = {name: many(side, count) for name, side in sides.items()}
    found = alternately(repeated, 7, warmup=2, device=device)
    seconds = {name: timing.median / count for name, timing in found.items()}
    return {
        "n_rows": n_rows,
        "batch_size": batch,
        "milliseconds": {name: 1000 * value for name, value in seconds.items()},
        "literal_over_naive": seconds["literal"] / seconds["naive"],
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small, for a CPU")
    options = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    sizes, width, count = (SIZES, 1024, 50)
    if options.quick:
        sizes, width, count = (QUICK_SIZES, 128, 5)
    results = {"steps": [compare(*size, width, device, count) for size in sizes]}
    if device.type == "cuda" and not options.quick:
        results["large"] = large(device)
    for row in results["steps"]:
        print(row)
    print(results.get("large"))
    config = {"n_features": N_FEATURES, "width": width, "steps_a_repeat": count}
    if not options.quick:
        print(write_record("training-step", results, config, seed=0, device=device))


if __name__ == "__main__":
    main()
