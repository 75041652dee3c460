"""Gradients written out by hand against those of autograd."""

from __future__ import annotations

import copy

import pytest
import torch
from problems import small_network, unit_data

from selfexpress.config import TrainConfig
from selfexpress.data.sources import ArraySource, MappedSource, RowBlock
from selfexpress.training.fused import FusedGradient
from selfexpress.training.loop import train
from selfexpress.training.objective import naive_gradient
from selfexpress.training.parameters import ALIGNMENT, FlatParameters


def gradients(network):
    return {name: p.grad.clone() for name, p in network.named_parameters()}


def fused_gradients(network, batch, source, config, *, in_memory=True):
    network = copy.deepcopy(network)
    parameters = FlatParameters(network, network.threshold.dtype, alignment=ALIGNMENT)
    fused = FusedGradient(network, parameters, config)
    prepared = fused.prepare(source, in_memory=in_memory)
    batch = RowBlock(prepared.take(batch.index), batch.index)
    objective = getattr(fused, config.algorithm)(batch, prepared)
    return objective, gradients(network)


@pytest.mark.parametrize("l1_ratio", [0.0, 0.9, 1.0])
@pytest.mark.parametrize("threshold", [-0.1, 0.0, 0.2])
@pytest.mark.parametrize("algorithm", ["naive", "two_pass"])
@pytest.mark.parametrize("in_memory", [True, False])
def test_fused_gradient_is_that_of_autograd(
    seed, algorithm, threshold, l1_ratio, in_memory
):
    source = ArraySource(unit_data(40, 5, seed=seed), dtype=torch.float64)
    network = small_network(5, seed=seed, threshold=threshold)
    index = torch.randperm(40, generator=torch.Generator().manual_seed(seed))[:9]
    batch = RowBlock(source.take(index), index)
    config = TrainConfig(
        gamma=30.0, l1_ratio=l1_ratio, block_size=7, algorithm=algorithm
    )
    objective, fused = fused_gradients(
        network, batch, source, config, in_memory=in_memory
    )
    expected = naive_gradient(network, batch, source, config)

    torch.testing.assert_close(objective.reconstruction, expected.reconstruction)
    torch.testing.assert_close(objective.penalty, expected.penalty)
    for name, gradient in gradients(network).items():
        torch.testing.assert_close(fused[name], gradient, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("optimizer", ["adam", "muon"])
def test_fused_training_ends_where_plain_training_does(seed, optimizer):
    source = ArraySource(unit_data(30, 5, seed=seed), dtype=torch.float64)
    plain = small_network(5, seed=seed, threshold=0.0)
    fused = copy.deepcopy(plain)
    settings = {"gamma": 20.0, "max_iter": 15, "batch_size": 8, "optimizer": optimizer}
    for engine, network in (("plain", plain), ("fused", fused)):
        config = TrainConfig(algorithm="naive", engine=engine, **settings)
        train(network, source, config, seed=seed)
    for name, parameter in plain.named_parameters():
        other = fused.get_parameter(name)
        torch.testing.assert_close(parameter, other, rtol=1e-5, atol=1e-7)


def test_streamed_rows_are_read_in_blocks_only(seed):
    """A source that is not in memory must not be asked for single rows in pass 2."""
    rows = unit_data(30, 8, seed=seed)
    source = MappedSource(ArraySource(rows, dtype=torch.float64), lambda x: x)
    network = small_network(8, seed=seed, threshold=0.1)
    config = TrainConfig(gamma=20.0, block_size=7, algorithm="two_pass")
    parameters = FlatParameters(network, torch.float64, alignment=ALIGNMENT)
    fused = FusedGradient(network, parameters, config)
    prepared = fused.prepare(source, in_memory=False)
    batch = RowBlock(prepared.take(torch.arange(4)), torch.arange(4))
    prepared.take = lambda index: pytest.fail("rows were taken one by one")
    fused.two_pass(batch, prepared)


@pytest.mark.gpu
@pytest.mark.parametrize("algorithm", ["naive", "two_pass"])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_training_on_a_gpu_follows_the_plain_path(algorithm, precision):
    """Same rows, same rates; bfloat16 rounds differently in the two engines."""
    source = ArraySource(unit_data(500, 37, seed=0), device="cuda")
    plain = small_network(37, seed=0, threshold=0.0).float().cuda()
    fused = copy.deepcopy(plain)
    histories = []
    for engine, network in (("plain", plain), ("fused", fused)):
        config = TrainConfig(
            gamma=50.0,
            max_iter=300,
            batch_size=64,
            block_size=200,
            algorithm=algorithm,
            precision=precision,
            engine=engine,
        )
        histories.append(train(network, source, config, seed=0)["objective"])
    assert histories[1][0] == pytest.approx(histories[0][0], rel=5e-3)
    assert histories[1][-50:].mean() == pytest.approx(
        histories[0][-50:].mean(), rel=2e-2
    )
