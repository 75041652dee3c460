"""Gradients written out by hand against those of autograd."""

from __future__ import annotations

import copy
from types import SimpleNamespace

import pytest
import torch
from problems import small_network, unit_data

from selfexpress.config import NetworkConfig, TrainConfig
from selfexpress.network import SelfExpressiveNetwork
from selfexpress.ops.devices import SideStream
from selfexpress.rows.sources import ArraySource, MappedSource, RowBlock
from selfexpress.training.gradients import FusedGradient, is_worth_recording
from selfexpress.training.loop import train
from selfexpress.training.objective import naive_gradient
from selfexpress.training.optimizers import ALIGNMENT, FlatParameters
from selfexpress.training.schedule import plan
from selfexpress.training.step import RECORDED, GraphedStep, PlainStep


def fused(network, source, *, in_memory=True, n_kept=1, **settings):
    """Return the gradients of a copy of a network, written by hand, and its rows."""
    network = copy.deepcopy(network)
    parameters = FlatParameters(network, network.threshold.dtype, alignment=ALIGNMENT)
    config = TrainConfig(gamma=30.0, **settings)
    found = FusedGradient(network, parameters, config, source, in_memory=in_memory)
    found._n_kept = n_kept
    return found, network


def gradient_of(network, source, index, **settings):
    """Return the objective of some rows and the gradient of every parameter."""
    found, network = fused(network, source, **settings)
    objective = found.gradient(RowBlock(found.source.take(index), index))
    return objective, [parameter.grad for parameter in network.parameters()]


def problem(seed, *, n_samples=40, threshold=0.1):
    source = ArraySource(unit_data(n_samples, 5, seed=seed), dtype=torch.float64)
    index = torch.randperm(n_samples, generator=torch.Generator().manual_seed(seed))
    return small_network(5, seed=seed, threshold=threshold), source, index[:9]


def assert_all_close(found, expected):
    for value, other in zip(found, expected, strict=True):
        torch.testing.assert_close(value, other, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("l1_ratio", [0.0, 0.9, 1.0])
@pytest.mark.parametrize("threshold", [-0.1, 0.0, 0.2])
@pytest.mark.parametrize("algorithm", ["naive", "two_pass"])
@pytest.mark.parametrize("in_memory", [True, False])
def test_fused_gradient_is_that_of_autograd(
    seed, algorithm, threshold, l1_ratio, in_memory
):
    network, source, index = problem(seed, threshold=threshold)
    shared = {"l1_ratio": l1_ratio, "block_size": 7, "algorithm": algorithm}
    objective, found = gradient_of(
        network, source, index, in_memory=in_memory, **shared
    )
    batch = RowBlock(source.take(index), index)
    expected = naive_gradient(network, batch, source, TrainConfig(gamma=30.0, **shared))
    torch.testing.assert_close(objective.reconstruction, expected.reconstruction)
    torch.testing.assert_close(objective.penalty, expected.penalty)
    assert_all_close(found, [parameter.grad for parameter in network.parameters()])


@pytest.mark.parametrize("n_kept", [1, 3, 6, 100])
@pytest.mark.parametrize("in_memory", [True, False])
def test_blocks_kept_for_the_second_pass_change_nothing(seed, n_kept, in_memory):
    shared = {"block_size": 7, "algorithm": "two_pass"}
    kept = {"in_memory": in_memory, "n_kept": n_kept}
    (objective, expected), (other, found) = (
        gradient_of(*problem(seed), **shared, **more) for more in ({}, kept)
    )
    torch.testing.assert_close(other.penalty, objective.penalty)
    assert_all_close(found, expected)


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
    network, source, index = problem(seed)
    streamed = MappedSource(source, lambda rows: rows)
    found, _ = fused(
        network, streamed, in_memory=False, block_size=7, algorithm="two_pass"
    )
    batch = RowBlock(found.source.take(index), index)
    found.source.take = lambda index: pytest.fail("rows were taken one by one")
    found.gradient(batch)


@pytest.mark.parametrize("block_size", [200, 300, 1000])
def test_blocks_are_no_larger_than_asked_for(block_size):
    network, source, _ = problem(0, n_samples=600)
    found, _ = fused(network, source, block_size=block_size, algorithm="two_pass")
    assert found._block_size <= block_size


@pytest.mark.parametrize(
    ("algorithm", "n_rows", "block_size", "expected"),
    [
        ("naive", 1_000_000, 16_384, True),
        ("two_pass", 20_000, 512, True),
        ("two_pass", 100_000, 16_384, True),
        ("two_pass", 100_000, 512, False),
        ("two_pass", 200_000, 16_384, False),
    ],
)
def test_short_steps_are_worth_recording(algorithm, n_rows, block_size, expected):
    config = TrainConfig(algorithm=algorithm, block_size=block_size)
    assert is_worth_recording(config, n_rows) is expected


@pytest.mark.parametrize("optimizer", ["adam", "muon"])
@pytest.mark.parametrize("algorithm", ["naive", "two_pass"])
def test_a_step_from_tables_is_the_plain_one(algorithm, optimizer, monkeypatch):
    """As on a GPU, but without a recording; another schedule comes on the way."""

    def played(step):
        return SimpleNamespace(replay=step._device_step)

    monkeypatch.setattr(GraphedStep, "_recorded", played)
    config = TrainConfig(
        gamma=50.0, max_iter=600, batch_size=8, engine="fused",
        algorithm=algorithm, optimizer=optimizer, schedule="adaptive",
    )  # fmt: skip
    found = []
    for kind in (lambda plain: plain, GraphedStep):
        network, source, _ = problem(0)
        history = torch.zeros(config.max_iter, len(RECORDED))
        plain = PlainStep(network, source, config, seed=0, history=history)
        step = kind(plain)
        # One table holds 256 steps; going back to an earlier step is a checkpoint's.
        for number in (*range(300), *range(280, 290)):
            step(number)
        schedule = plain.schedule = plan(config, settled_at=290)
        for number in range(290, schedule.n_steps):
            step(number)
        found.append((history, plain.parameters.values))
    for recorded, expected in zip(found[1], found[0], strict=True):
        torch.testing.assert_close(recorded, expected, rtol=1e-6, atol=1e-9)


def gpu_config(**changes):
    settings = {"gamma": 50.0, "max_iter": 300, "batch_size": 64, "engine": "fused"}
    return TrainConfig(**settings | changes)


def gpu_step(config, n_samples):
    """Return a network, a step that trains it and what the step writes."""
    source = ArraySource(unit_data(n_samples, 37, seed=0), device="cuda")
    network = small_network(37, seed=0, threshold=0.0).float().cuda()
    history = torch.zeros(config.max_iter, len(RECORDED), device="cuda")
    plain = PlainStep(network, source, config, seed=0, history=history)
    assert plain.is_replayable
    return network, plain, history


@pytest.mark.gpu
@pytest.mark.parametrize("algorithm", ["naive", "two_pass"])
@pytest.mark.parametrize("precision", ["float32", "tf32", "bfloat16"])
def test_training_on_a_gpu_follows_the_plain_path(algorithm, precision):
    """Same rows, same rates; bfloat16 rounds differently in the two engines."""
    source = ArraySource(unit_data(500, 37, seed=0), device="cuda")
    plain = small_network(37, seed=0, threshold=0.0).float().cuda()
    fused = copy.deepcopy(plain)
    histories = []
    for engine, network in (("plain", plain), ("fused", fused)):
        config = gpu_config(
            block_size=200, algorithm=algorithm, precision=precision, engine=engine
        )
        histories.append(train(network, source, config, seed=0)["objective"])
    assert histories[1][0] == pytest.approx(histories[0][0], rel=5e-3)
    assert histories[1][-50:].mean() == pytest.approx(
        histories[0][-50:].mean(), rel=2e-2
    )


@pytest.mark.gpu
@pytest.mark.parametrize("algorithm", ["naive", "two_pass"])
@pytest.mark.parametrize("optimizer", ["adam", "muon"])
@pytest.mark.parametrize("block_size", [64, 512])
def test_a_recorded_step_is_the_plain_one(algorithm, optimizer, block_size):
    """The same kernels in the same order: only sums of parts may be rounded apart."""
    config = gpu_config(
        block_size=block_size,
        algorithm=algorithm,
        optimizer=optimizer,
        precision="float32",
    )
    found = []
    for kind in (lambda plain: plain, GraphedStep):
        network, plain, history = gpu_step(config, 2000)
        step = kind(plain)
        for number in range(20):
            step(number)
        plain.parameters.release()
        parameters = [p.detach().clone() for p in network.parameters()]
        found.append((history[:20].clone(), parameters))
    (history, parameters), (other_history, others) = found
    torch.testing.assert_close(other_history, history, rtol=1e-4, atol=1e-6)
    for value, other in zip(parameters, others, strict=True):
        torch.testing.assert_close(other, value, rtol=1e-4, atol=2e-5)


@pytest.mark.gpu
def test_a_recorded_step_follows_another_schedule_at_once():
    """The fall begins within a table that was sent before, and at its first step."""
    config = gpu_config(
        max_iter=400, schedule="adaptive", algorithm="naive", precision="float32"
    )
    found = []
    for kind in (lambda plain: plain, GraphedStep):
        _, plain, history = gpu_step(config, 500)
        step = kind(plain)
        for number in range(15):
            step(number)
        schedule = plain.schedule = plan(config, settled_at=15)
        for number in range(15, schedule.n_steps):
            step(number)
        plain.parameters.release()
        found.append(history[: schedule.n_steps].cpu())
    rates = torch.tensor([schedule.rate(number) for number in range(20)])
    for history in found:
        assert torch.equal(history[:, RECORDED.index("learning_rate")], rates)
    # The same rows in the same order: their objectives are alike to rounding.
    torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=1e-6)


@pytest.mark.gpu
@pytest.mark.parametrize("algorithm", ["naive", "two_pass"])
def test_work_beside_the_main_stream_changes_nothing(algorithm, monkeypatch):
    """A missing wait would show as another gradient in some of the steps."""
    source = ArraySource(unit_data(3000, 500, seed=0), device="cuda")
    config = gpu_config(
        batch_size=100, block_size=1024, algorithm=algorithm, precision="bfloat16"
    )
    found = []
    for is_beside in (True, False):
        if not is_beside:
            monkeypatch.setattr(SideStream, "__enter__", lambda self: None)
            monkeypatch.setattr(SideStream, "__exit__", lambda self, *error: None)
        generator = torch.Generator().manual_seed(0)
        sizes = NetworkConfig((1024,) * 3, 1024)
        network = SelfExpressiveNetwork(500, sizes, generator=generator).cuda()
        history = torch.zeros(1, len(RECORDED), device="cuda")
        step = PlainStep(network, source, config, seed=0, history=history)
        each_gradient = []
        for index in torch.arange(3000, device="cuda").split(100):
            step.find_gradient(index)
            each_gradient.append(step.parameters.gradients.to(torch.float32, copy=True))
        found.append(torch.stack(each_gradient))
    largest = found[1].abs().amax(dim=1, keepdim=True)
    assert bool(((found[0] - found[1]).abs() <= 1e-3 * largest).all())
