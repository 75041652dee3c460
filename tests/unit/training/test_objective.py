"""Both gradient algorithms against a literal reference, and their memory."""

from __future__ import annotations

import copy
import subprocess
import sys

import pytest
import reference
import torch
from compare import assert_close, relative_error
from problems import small_problem

from selfexpress.config import NetworkConfig, TrainConfig
from selfexpress.network import SelfExpressiveNetwork
from selfexpress.rows.sources import ArraySource, RowBlock
from selfexpress.training.objective import (
    naive_gradient,
    naive_step_bytes,
    two_pass_gradient,
)


def assert_same_gradients(network, expected):
    for name, parameter in network.named_parameters():
        # Bias gradients may cancel to nothing; 1e-12 is far below their usual size.
        assert_close(parameter.grad, expected.get_parameter(name).grad, atol=1e-12)


# One row at a time, ragged last block, one exact block, block larger than the data.
@pytest.mark.parametrize("block_size", [1, 7, 40, 100])
@pytest.mark.parametrize("l1_ratio", [0.0, 0.9, 1.0])
@pytest.mark.parametrize("seed", range(5))
def test_both_gradients_equal_the_dense_reference(block_size, l1_ratio, seed):
    network, batch, source = small_problem(seed=seed)
    config = TrainConfig(gamma=30.0, l1_ratio=l1_ratio, block_size=block_size)
    literal, naive = copy.deepcopy(network), copy.deepcopy(network)

    rows = source.take(torch.arange(len(source)))
    expected = reference.objective(
        literal, rows, batch.index.tolist(), config.gamma, config.l1_ratio
    )
    expected.backward()
    first = naive_gradient(naive, batch, source, config)
    second = two_pass_gradient(network, batch, source, config)

    assert_close(first.total(config.gamma), expected.detach())
    assert_close(second.total(config.gamma), expected.detach())
    assert_close(second.reconstruction, first.reconstruction)
    assert_close(second.penalty, first.penalty)
    assert_same_gradients(naive, literal)
    assert_same_gradients(network, literal)


@pytest.mark.gpu
def test_both_gradients_agree_in_bfloat16():
    """Weights cast without a graph in pass 1 must not be what pass 2 differentiates."""
    from selfexpress.training.step import autocast

    network, batch, source = small_problem(seed=0, n_samples=400, batch_size=50)
    network = network.float().cuda()
    source = ArraySource(source.take(torch.arange(400)), device="cuda")
    batch = RowBlock(batch.rows.float().cuda(), batch.index.cuda())
    config = TrainConfig(gamma=30.0, block_size=64, precision="bfloat16")
    naive = copy.deepcopy(network)
    with autocast(config, torch.device("cuda")):
        naive_gradient(naive, batch, source, config)
        two_pass_gradient(network, batch, source, config)
    for name, parameter in network.named_parameters():
        expected = naive.get_parameter(name).grad
        # Two roundings of bfloat16 meet here, relative to the tensor's size.
        assert relative_error(parameter.grad, expected) < 0.1, name


def test_two_pass_visits_only_active_keys_in_the_second_pass():
    network, batch, source = small_problem(seed=0)
    config = TrainConfig(block_size=7)
    seen = []
    network.key_tower.register_forward_hook(
        lambda module, inputs, output: seen.append(
            (len(inputs[0]), output.requires_grad)
        )
    )
    two_pass_gradient(network, batch, source, config)

    first = sum(n_rows for n_rows, has_graph in seen if not has_graph)
    second = sum(n_rows for n_rows, has_graph in seen if has_graph)
    queries = network.query_tower(batch.rows)
    (block,) = source.blocks(len(source))
    coefficients = network.block_coefficients(queries, batch, block)
    assert first == len(source)
    assert second == int((coefficients != 0).any(dim=0).sum()) < len(source)


def test_gradient_of_an_all_zero_batch_is_zero():
    network, batch, source = small_problem(seed=0)
    with torch.no_grad():
        network.threshold.fill_(1e3)
    result = two_pass_gradient(network, batch, source, TrainConfig(gamma=2.0))
    # Unit rows, no coefficients: the residual is the row itself.
    assert_close(result.reconstruction, torch.tensor(1.0, dtype=torch.float64))
    assert float(result.penalty) == 0
    assert all(p.grad is None or not p.grad.any() for p in network.parameters())


_PEAK = """
import resource, sys, torch
torch.set_num_threads(1)
from selfexpress.config import NetworkConfig, TrainConfig
from selfexpress.rows.sources import ArraySource, RowBlock
from selfexpress.network import SelfExpressiveNetwork
from selfexpress.training.objective import two_pass_gradient
import numpy as np, tempfile, os
n = int(sys.argv[1])
path = sys.argv[2]
rows = np.memmap(path, dtype=np.float32, mode="r", shape=(n, 16))
source = ArraySource(rows)
network = SelfExpressiveNetwork(16, NetworkConfig((256, 256), 256))
index = torch.arange(64)
batch = RowBlock(source.take(index), index)
for _ in range(2):
    two_pass_gradient(network, batch, source, TrainConfig(block_size=2048))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def test_peak_memory_of_a_two_pass_step_does_not_grow_with_the_data(tmp_path):
    import numpy as np

    peaks = []
    for n_samples in (4_000, 32_000):
        path = tmp_path / f"{n_samples}.bin"
        rng = np.random.default_rng(0)
        rng.standard_normal((n_samples, 16), dtype=np.float32).tofile(path)
        command = [sys.executable, "-c", _PEAK, str(n_samples), str(path)]
        result = subprocess.run(command, capture_output=True, text=True, check=True)
        peaks.append(int(result.stdout))
    assert peaks[1] < 1.05 * peaks[0], peaks


def test_estimate_covers_what_the_graph_of_a_naive_step_really_holds():
    """Saved tensors, counted by autograd itself."""
    sizes = NetworkConfig((64,), 32)
    network, rows = SelfExpressiveNetwork(10, sizes), torch.randn(500, 10)
    saved = {}

    def pack(tensor):
        saved[tensor.data_ptr()] = tensor.numel() * tensor.element_size()
        return tensor

    config = TrainConfig(batch_size=100)
    batch = RowBlock(rows[:100], torch.arange(100))
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        naive_gradient(network, batch, ArraySource(rows), config)
    estimate = naive_step_bytes(500, 10, network=sizes, train=config)
    assert 0.5 * sum(saved.values()) < estimate < 3 * sum(saved.values())
